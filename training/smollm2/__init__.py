"""The recipe of `conductor train` on a small pretrained model, from its file to an adapter: `make smollm2`.

__main__      the stages: what each makes, what it needs, the command that makes it
commands      the commands that the stages call: `python -m training.smollm2.commands --help`

questions     what there is to ask about, in six subjects; questions with their best decomposition, drawn from a seed
workers       scripted workers with known strengths, their cards and their answers; a server of them on loopback

supervised    questions and plans as lessons, and the supervised start: a LoRA of the pretrained model
base          the pretrained model: its file, its directory for transformers, and two LoRAs in one file
"""
