"""Other ways to answer with the same pool, without a conductor. Pure.

The methods that do not divide ask each member the whole question: each is a plan that is always the same. The loop of
acting and observing, as in ReAct, writes one step, sees what came of it, and writes the next. The workers cannot act:
they write answers. So its policy is a conductor's model, which is asked for one step at a time. What it observes
reaches it in two ways. An answer takes the place of its clause in the question, where the clause stands there word for
word ("spell the capital of FRANCE backwards" becomes "spell PARIS backwards"); otherwise it is seen by the later steps
that ask for it. A refusal makes the loop ask the next worker of the same skill.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from conductor_cli.core.chat import Message, Request
from conductor_cli.core.plan import Plan, Step
from conductor_cli.core.profile import SeenStep, labels_for
from conductor_cli.core.question import Question
from conductor_cli.rehearsal.players import ANYTHING, MAX_PLAN_TOKENS, PROFILE, REFUSAL, YES
from conductor_cli.rehearsal.players import render_for_worker as render
from training.rehearsal.asking import Reply, StoredModel
from training.rehearsal.exercises import Member, RehearsalExercise, pool_of
from training.rehearsal.rollouts import DrawnPools, count_tokens

LOOKS: Final = 2  # how often a worker looks at its own answer again
DOUBTED: Final = 0.001  # the weight of an answer to which the checker does not say YES


def best_alone(exercise: RehearsalExercise) -> Plan:
    """The worker with the best card answers."""
    return _plan(_asked(exercise, _best(exercise)))


def reflection(exercise: RehearsalExercise, worker: str = "") -> Plan:
    """A worker answers, by default the one with the best card, and then improves its own answer."""
    name = worker or _best(exercise)
    return _plan(*(_asked(exercise, name, range(1, number)) for number in range(1, LOOKS + 2)))


def mixture(exercise: RehearsalExercise) -> Plan:
    """Mixture-of-Agents with one layer: all answer, and the one with the best card makes one answer of all."""
    steps = [_asked(exercise, name) for name in exercise.workers]
    return _plan(*steps, _asked(exercise, _best(exercise), range(1, len(steps) + 1)))


def vote(answers: Sequence[str]) -> str:
    """The most frequent answer of those that are none to refuse; of several, the one that came first."""
    given = [answer for answer in answers if answer != REFUSAL]
    return Counter(given).most_common(1)[0][0] if given else REFUSAL


def weighted_vote(answers: Sequence[str], weights: Sequence[float]) -> str:
    """The answer with the greatest weight of all that gave it, of those that are none to refuse."""
    totals = dict[str, float]()
    for answer, weight in zip(answers, weights, strict=True):
        if answer != REFUSAL:
            totals[answer] = totals.get(answer, 0.0) + weight
    return max(totals, key=totals.__getitem__) if totals else REFUSAL


def verifying_prompt(question: str, answer: str) -> str:
    """What the checker reads to say whether an answer to the whole question is right."""
    claim = SeenStep(number=1, worker="", subtask=question, answer=answer)
    return render(Question(text=question), Step(worker="", subtask="check it", access=(1,)), [claim])


def weight_of(verdict: Reply) -> float:
    """How much an answer weighs: after YES the confidence, after anything else so little that only doubted ones count.

    The confidence in a NO says nothing of YES, since the checker writes its own answer before the verdict.
    """
    return verdict.confidence if verdict.text == YES else DOUBTED


METHODS: Final[dict[str, Callable[[RehearsalExercise], Plan]]] = {
    "best worker by card": best_alone, "reflection": reflection, "Mixture-of-Agents": mixture,
}  # fmt: skip


def _best(exercise: RehearsalExercise) -> str:
    return pool_of(exercise.members).best().name


def _asked(exercise: RehearsalExercise, name: str, access: Sequence[int] = ()) -> Step:
    return Step(worker=name, subtask=exercise.question, access=tuple(access))


def _plan(*steps: Step) -> Plan:
    return Plan(steps=steps)


MAX_TURNS: Final = 6


class Line(NamedTuple):
    """A step as the policy writes it."""

    subtask: str
    access: tuple[int, ...]
    label: str


class Looped(NamedTuple):
    """What came of one question. `turns` are calls of the policy, `calls` those of workers."""

    answer: str
    turns: int
    calls: int
    tokens: int


async def solve_in_turns(
    rollouts: DrawnPools, policy: StoredModel, exercises: Sequence[RehearsalExercise]
) -> list[Looped]:
    """The answer of each loop; a refusal if the policy writes no step."""
    loops = [_Loop(policy, rollouts, item) for item in exercises]
    for loop in loops:
        while loop.turns < MAX_TURNS and await loop.turn():
            pass
    return [Looped(loop.answer, loop.turns, loop.calls, loop.tokens) for loop in loops]


@dataclass
class _Loop:
    """The loop between two turns. `seen` are the steps since the question was last rewritten."""

    policy: StoredModel
    rollouts: DrawnPools
    exercise: RehearsalExercise
    lines: list[Line] = field(default_factory=list)
    seen: list[SeenStep] = field(default_factory=list)
    answer: str = REFUSAL
    turns: int = 0
    calls: int = 0
    tokens: int = 0

    def __post_init__(self) -> None:
        self.table, self.asked = self.rollouts.prompt(self.exercise)[0]["content"].splitlines()[:2]
        pool = pool_of(self.exercise.members)
        members = dict(zip(pool.names, self.exercise.members, strict=True))
        labels = labels_for(pool.workers, PROFILE.labels)
        self.members: dict[str, Member] = {label: members[name] for label, name in labels.items()}

    def prompt(self) -> str:
        """What the policy reads: the table, the question as it stands now, and the steps since."""
        lines = ((line.subtask, " ".join(map(str, line.access)) or "-", line.label) for line in self.lines)
        return "\n".join([self.table, self.asked, *map(PROFILE.bar.join, lines), ""])

    async def turn(self) -> bool:
        """One step and its answer. False if it was the last one."""
        prompt = self.prompt()
        request = Request(messages=(Message(role="user", content=prompt),), max_tokens=MAX_PLAN_TOKENS, temperature=0.0)
        first, _, rest = (await self.policy.write(request)).text.partition("\n")
        self.turns += 1
        self.tokens += count_tokens(prompt) + count_tokens(first) + 1
        line = _read(first)
        if line is None or line.label not in self.members or any(number > len(self.seen) for number in line.access):
            return False
        self.answer = await self._observed(line)
        if not rest:
            return False
        if self.lines or not self._rewritten(line):
            self.lines.append(line)
            self.seen.append(SeenStep(number=len(self.lines), worker="", subtask=line.subtask, answer=self.answer))
        return True

    async def _observed(self, line: Line) -> str:
        """The answer of the worker that is named, or of the next one if it refuses."""
        step = Step(worker="", subtask=line.subtask, access=line.access)
        seen = [self.seen[number - 1] for number in line.access]
        prompt = render(Question(text=self.exercise.question), step, seen)
        answer = REFUSAL
        for label in self._in_turn(line.label):
            files = self.members[label].files
            answer = await self.rollouts.answers.member(files, prompt, self.exercise.seed) or REFUSAL
            self.calls += 1
            self.tokens += len(files) * (count_tokens(prompt) + count_tokens(answer) + 1)
            if answer != REFUSAL:
                break
        return answer

    def _in_turn(self, label: str) -> list[str]:
        """The label, then the others of its row in the table, then the generalist."""
        skill = label[:-1]
        row = next((row for row in self.table.split("| ") if re.fullmatch(rf"{skill}([A-Z]\d)+", row)), "")
        others = [f"{skill}{letter}" for letter in re.findall("[A-Z]", row)]
        general = [label for label in self.members if label[:-1] == ANYTHING]
        return list(dict.fromkeys([label, *others, *general]))

    def _rewritten(self, line: Line) -> bool:
        """Put the answer in the place of its clause, if the question contains it."""
        clause = re.compile(rf"\b(the |what is the )?{re.escape(line.subtask)}(?!\S)")
        if line.access or self.answer == REFUSAL or not clause.search(self.asked):
            return False
        self.asked = clause.sub(self.answer, self.asked, count=1)
        return True


def _read(text: str) -> Line | None:
    """The step in a line; None if it is none."""
    parts = [part.strip() for part in text.split(PROFILE.bar.strip())]
    if len(parts) != 3 or not parts[0]:
        return None
    numbers = parts[1].replace("-", "").split()
    if not all(number.isdecimal() and int(number) for number in numbers):
        return None
    return Line(parts[0], tuple(map(int, numbers)), parts[2])
