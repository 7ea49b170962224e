"""How the tiny models that ship with the package are trained, from nothing: `make rehearsal`.

Running the stages:

__main__        run what is missing, two jobs side by side
stages          the stages: what each makes, what it needs, the command that makes it
workspace       the directory of a training: its files, what each stage was started with, the calls of stages
report          the minutes of each stage, what was reached, how the files get into the package
train           the commands that the stages call: `python -m scripts.rehearsal.train --help`

The questions:

words, operations    what there is to ask about, and what can be done with it
trees                what a question asks for: one operation, a chain, a join of two branches
phrasings            how people ask for it, a grammar; ways.txt has the phrasings of each operation
sentences            from a tree to the sentence and its subtasks; typing_habits types it as people do
world                questions with their answers and their hops, drawn from a seed
questions            writes the files of questions that ship with the package
shipped_operations   writes what the shipped program knows about the operations

Supervised training, of the workers and of the conductor before GRPO:

courses         how long, how fast and on what mixture each model is trained
lessons         what a worker reads and should write; word_noise changes the wording, mistakes makes wrong answers
checks          the same for the checker
sft_data        the same for the conductor: questions and plans; syntax_noise changes the questions
tokenizer       the one vocabulary of all models; tokenizer.json is it
model           the network, and batches of tokens for it
supervised      the training loop: minutes at a time, with its state on disk
teaching        one stage of it, and the file at the end; compares what llama.cpp and torch write
export          weights and tokenizer to GGUF and back
asking          asks the workers' files, as members of a pool with strengths too, and remembers the answers
worker_table    what the workers reach on held-out questions
confidence      how sure a worker has to be of an answer

GRPO training of the conductor, by the same code as `conductor train`:

exercises       the settings, the questions and the workers on offer for each
rollouts        runs over the rehearsal's workers
grpo            one stage of training, and the file at the end
evaluate        what the conductor reaches on held-out questions

LOG.md          what was tried, what failed, with figures
"""
