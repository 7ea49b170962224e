"""A loop of acting and observing, as in ReAct: the policy writes one step, sees what came of it, and writes the next.

The workers cannot act: they write answers. So the policy is a conductor's model, which is asked for one step at a time.
What it observes reaches it in two ways. An answer takes the place of its clause in the question, where the clause
stands there word for word ("spell the capital of FRANCE backwards" becomes "spell PARIS backwards"); otherwise it is
seen by the later steps that ask for it. A refusal makes the loop ask the next worker of the same skill.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from conductor_cli.core.chat import Message, Request
from conductor_cli.core.plan import Step
from conductor_cli.core.profile import SeenStep, labels_for
from conductor_cli.core.question import Question
from conductor_cli.rehearsal.players import ANYTHING, MOST_TOKENS, PROFILE, REFUSAL
from conductor_cli.rehearsal.players import render_for_worker as render
from scripts.rehearsal.exercises import RehearsalExercise
from scripts.rehearsal.planning import StoredModel
from scripts.rehearsal.pools import Member, pool_of
from scripts.rehearsal.rollouts import DrawnPools, count_tokens

MOST_TURNS: Final = 6


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
    """The answer of each loop; a refusal if the policy writes no step. All take a turn together."""
    loops = [_Loop(policy, rollouts, item) for item in exercises]
    going = loops
    for _ in range(MOST_TURNS):
        policy.prepare([loop.prompt() for loop in going])
        going = [loop for loop in going if await loop.turn()]
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
        return "\n".join([self.table, self.asked, *map(_text, self.lines), ""])

    async def turn(self) -> bool:
        """One step and its answer. False if it was the last one."""
        prompt = self.prompt()
        request = Request(messages=(Message(role="user", content=prompt),), max_tokens=MOST_TOKENS, temperature=0.0)
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


def _text(line: Line) -> str:
    return PROFILE.bar.join((line.subtask, " ".join(map(str, line.access)) or "-", line.label))


def _read(text: str) -> Line | None:
    """The step in a line; None if it is none."""
    parts = [part.strip() for part in text.split(PROFILE.bar.strip())]
    if len(parts) != 3 or not parts[0]:
        return None
    numbers = parts[1].replace("-", "").split()
    if not all(number.isdecimal() and int(number) for number in numbers):
        return None
    return Line(parts[0], tuple(map(int, numbers)), parts[2])
