"""A double of the members' answers.

It knows the steps of given problems, and each is done by whoever has its skill.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from conductor_cli.core.plan import Step
from conductor_cli.core.profile import labels_for
from conductor_cli.core.question import Question
from conductor_cli.rehearsal.players import CHECKER, CHECKING, NO, PROFILE, REFUSAL, YES
from conductor_cli.rehearsal.players import render_for_worker as render
from training.rehearsal.exercises import GENERALIST, Member, RehearsalExercise, pool_of
from training.rehearsal.rollouts import gold_plan
from training.rehearsal.world import Hop, Problem

PROBLEM = Problem(
    id="one",
    question="Spell the capital of France backwards.",
    answer="SIRAP",
    shape="chain2",
    hops=(
        Hop(skill="geography", op="capital", subtask="capital of FRANCE", answer="PARIS"),
        Hop(
            skill="spelling",
            op="reverse",
            subtask="spell it backwards",
            answer="SIRAP",
            access=(1,),
        ),
    ),
)

CHECK = Hop(skill=CHECKING, op="check", subtask="check it", answer=YES, access=(1, 2))
CHECKED = Problem(
    id="two",
    question="Spell the capital of France backwards and check it.",
    answer="SIRAP",
    shape="chain2",
    hops=(*PROBLEM.hops, CHECK),
    check=True,
)

MEMBERS = (
    Member(strengths={"adding": 1.0}),
    Member(strengths={"spelling": 0.9}),
    Member(strengths={"geography": 0.8}),
)
CHECKER_MEMBER = Member(strengths={CHECKING: 0.9})


class Solvers:
    """Answers a step rightly if the member has its skill; the generalist answers X; others refuse.

    `wrong` are files that answer wrongly, and `asked` the prompts so far.
    """

    def __init__(self, problems: Iterable[Problem], wrong: Iterable[Member] = ()) -> None:
        self._known: dict[str, Hop] = {}
        self.learn(problems)
        self._wrong = [member.files for member in wrong]
        self.asked: list[str] = []

    def learn(self, problems: Iterable[Problem]) -> None:
        """Know the steps of further problems."""
        for problem in problems:
            self._known |= _prompts(problem)

    async def member(self, strengths: Mapping[str, float], prompt: str, seed: int) -> str:
        del seed
        self.asked.append(prompt)
        if strengths in self._wrong:
            return "WRONG"
        hop = self._known.get(prompt)
        if CHECKER in strengths and prompt.endswith("s: check it\na:"):
            return YES if hop is not None else NO
        if hop is None or not {hop.skill, GENERALIST} & set(strengths):
            return REFUSAL
        return "X" if GENERALIST in strengths else hop.answer


def _prompts(problem: Problem) -> dict[str, Hop]:
    """What a worker reads for each step, when the steps before it are right."""
    question = Question(text=problem.question)
    return {
        render(question, Step(worker="", subtask=hop.subtask), problem.seen_by(hop)): hop
        for hop in problem.hops
    }


def exercise(
    problem: Problem = PROBLEM, members: tuple[Member, ...] = MEMBERS
) -> RehearsalExercise:
    return RehearsalExercise(problem=problem, members=members)


def plan_text(exercise: RehearsalExercise) -> str:
    """The true plan as the conductor would write it. Each step names the skill that it needs."""
    labels = labels_for(pool_of(exercise.members).workers, PROFILE.labels)
    lines = []
    for step, hop in zip(gold_plan(exercise).steps, exercise.problem.hops, strict=False):
        mine = [label for label, name in labels.items() if name == step.worker]
        label = next((label for label in mine if label.startswith(hop.skill)), mine[0])
        lines.append(
            PROFILE.bar.join((step.subtask, " ".join(map(str, step.access)) or "-", label))
        )
    return "\n".join(lines)
