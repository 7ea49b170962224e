"""Training: from nothing, what ships with the rehearsal (`python -m conductor_cli.train`); and a real conductor.

torch and transformers are the extra `train`; only this package imports them, inside functions or in modules that only
training loads.

course      how long, how fast and on what mixture each model is trained
lessons     the world's training questions -> what a worker reads and what it should write; loose: in loose words
tokenizer   the one vocabulary of all models of the rehearsal
network     the model, and batches of tokens for it
stage       the loop: a stage of minutes, a state on disk, the next stage
teaching    a stage of it, and the file at the end; whether llama.cpp writes what torch writes
export      weights and tokenizer -> GGUF, and back
table       what the finished files reach on held-out questions

The conductor, beside what it shares with the workers:

cold        the form of a plan and how questions come apart -> lessons, with workers and access lists at random;
            garbled: said in ways that nobody would
practice    the settings of training by reward: questions, and which workers are on offer for each
rollouts    sampled plans, run by the `Conductor` over the real workers; rewards: what a trace is worth
grpo        TRL's trainer with that reward; practising: a stage of it; curve: its figures, a line a step
keeper      what happens beside the steps; checkpoints: where a training has come to; together: several processes
examine     what a finished conductor reaches

A real conductor (`conductor train`), by the same `grpo` and `rollouts`:

presets     the settings of its course; base: the model it begins with; memory: what that takes; sampling: vLLM or not
tasks       cases, and which workers are on offer for each
purse       what their answers cost, held to a limit; quoting: what they may cost, before it begins
real        a stage of it, and the file at the end
gguf_export a directory as transformers or PEFT saves it -> that file; qwen2: the settings and the weights in both forms
vocabulary  its tokenizer in both forms
extra       the libraries that only training needs
LOG.md      what was tried, what failed, with figures
"""
