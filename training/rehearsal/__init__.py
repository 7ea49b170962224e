"""How the tiny models that ship with the package are trained, from nothing: `make rehearsal`.

__main__        the stages: what each makes, what it needs, the command that makes it; the report at
the end train           the commands that the stages call: `python -m training.rehearsal.train
--help`

words           what there is to ask about; facts.txt has the tables
operations      what can be done with it; a question as a tree of it: one step, a chain, a join of
two branches phrasings       how people ask for it, a grammar; ways.txt has the phrasings
sentences       from a tree to the sentence, as people type it, and its subtasks world
questions with their answers and their hops, drawn from a seed
shipped         writes the questions and the operations that ship with the package

lessons         what a worker reads and should write, and how each worker is trained; noise.txt has
words for it plan_lessons    the same for the conductor before GRPO: questions and plans
supervised      the training loop, the network, and the file at the end
asking          the one vocabulary of all models (tokenizer.json); asks the files, and remembers the
answers worker_table    what the workers reach on held-out questions, and their cards

exercises       GRPO of the conductor: pools, the questions for each, the settings of each leg
rollouts        runs over the rehearsal's workers, and what comes of plans
grpo            one stage of training, by the same code as `conductor train`, and the file at the
end

examination     what the conductor reaches on held-out questions

LOG.md          what was tried, what failed, with figures
"""
