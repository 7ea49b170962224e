"""Training: from nothing, what ships with the rehearsal (`python -m conductor_cli.train`); and a real conductor.

torch and transformers are the extra `train`; only this package imports them, inside functions or in modules that only
training loads.

course      how long, how fast and on what mixture each model is trained
lessons     the world's training questions -> what a worker reads and what it should write; loose: in loose words
tokenizer   the one vocabulary of all models of the rehearsal
network     the model, and batches of tokens for it
stage       the loop: a stage of minutes, a state on disk, the next stage
teaching    a stage from the command line, and the file at the end
export      weights and tokenizer -> GGUF; whether llama.cpp writes what torch writes
table       what the finished files reach on held-out questions; asking: through the adapter

The conductor, beside what it shares with the workers:

cold        the form of a plan and how questions come apart -> lessons, with workers and access lists at random
starting    a stage of the cold start; loading: its file -> a model to go on from
practice    the settings of training by reward; exercises: questions, and which workers are on offer for each
rollouts    sampled plans, run by the `Conductor` over the real workers; rewards: what a trace is worth
grpo        TRL's trainer with that reward; practising: a stage of it; curve: its figures, a line a step
keeper      what happens beside the steps; checkpoints: where a training has come to; together: several processes
examine     what a finished conductor reaches; commands: the command lines of all this

A real conductor (`conductor train`), by the same `grpo`:

presets     the settings of its course; base: the model it begins with; memory: what that takes; sampling: vLLM or not
tasks       cases, and which workers are on offer for each; trials: plans for them, run over one's own workers
purse       what that costs, held to a limit; quoting: what it may cost, before it begins
real        one stage of it; finishing: its last checkpoint as a GGUF file
gguf_export a directory as transformers or PEFT saves it -> that file; qwen2: the settings and the weights in both forms
vocabulary  its tokenizer in both forms
LOG.md      what was tried, what failed, with figures
"""
