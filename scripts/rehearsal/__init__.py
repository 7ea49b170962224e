"""How the tiny models that ship with the package are trained, from nothing: `make rehearsal`.

Running the stages:

__main__        run what is missing, two jobs side by side
stages          the stages: what each makes, what it needs, the command that makes it
workspace       the directory of a training: its files, what each stage was started with, the calls of stages
report          the minutes of each stage, what was reached, how the files get into the package
train           the commands that the stages call: `python -m scripts.rehearsal.train --help`

The questions:

words, operations    what there is to ask about, and what can be done with it
phrasings            how people ask for it
world                questions with their answers and their hops, drawn from a seed
questions            writes the files of questions that ship with the package

Supervised training, of the workers and of the conductor before GRPO:

courses         how long, how fast and on what mixture each model is trained
lessons         the world's training questions as pairs of prompt and answer; word_noise changes their wording
sft_data        the same for the conductor: questions and plans; syntax_noise changes the questions
tokenizer       the one vocabulary of all models
model           the network, and batches of tokens for it
supervised      the training loop: minutes at a time, with its state on disk
teaching        one stage of it, and the file at the end; compares what llama.cpp and torch write
export          weights and tokenizer to GGUF and back
worker_table    what the workers reach on held-out questions

GRPO training of the conductor, by the same code as `conductor train`:

exercises       the settings, the questions and the workers on offer for each
rollouts        runs over the rehearsal's workers
grpo            one stage of training, and the file at the end
evaluate        what the conductor reaches on held-out questions

LOG.md          what was tried, what failed, with figures
"""
