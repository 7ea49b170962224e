"""The canned runs, written from the event classes so that they always load.

`tests.views.test_snapshots` does it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import Any

from conductor_cli.core import events as ev
from conductor_cli.core.chat import Attachment, Finish, Message, ToolCall
from conductor_cli.core.errors import Failure
from conductor_cli.core.plan import KeepAnswer, Plan, Step
from conductor_cli.core.pool import Limits, Pool, Worker
from conductor_cli.core.question import File, Question
from conductor_cli.core.usage import NO_USAGE, Usage

FOLDER = Path(__file__).parent
Run = Callable[[], list[ev.Event]]

POOL = Pool(
    workers=(
        Worker(name="claude", kind="anthropic", model="claude-x"),
        Worker(name="gpt", kind="openai", model="gpt-x"),
        Worker(name="math-worker", kind="openai", model="local/math"),
        Worker(name="gemini-flash", kind="gemini", model="gemini-x"),
    )
)
WITH_SELF = Pool(workers=(*POOL.workers, Worker(name="self", kind="self")))
PRIMES = "How many primes below 1000 end in 7, and what is their sum?"


def started(
    text: str = PRIMES, *, run: str = "01JDQ7W3ZK", pool: Pool = POOL, mode: ev.Mode = "auto"
) -> ev.RunStarted:
    """The first event."""
    return ev.RunStarted(
        at=0.0,
        run=run,
        time="2026-11-20T17:00:00Z",
        question=Question(text=text),
        pool=pool,
        limits=Limits(attempts=3),
        mode=mode,
        conductor="qwen2.5-7b-q4_k_m (sha256 1c9d0e5a)",
        profile="prompted",
    )


def spent(tokens_in: int, tokens_out: int, cost: str | None = "0") -> Usage:
    """The usage of one call."""
    return Usage(
        tokens_in=tokens_in,
        tokens_out=tokens_out,
        calls=1,
        cost=None if cost is None else Decimal(cost),
        unpriced=int(cost is None),
    )


def pieces(text: str, size: int = 9) -> list[str]:
    """`text` in pieces, as a stream delivers it."""
    return [text[start : start + size] for start in range(0, len(text), size)]


class Writer:
    """Collects the events of one run; every piece of text takes `pace` seconds."""

    def __init__(self, first: ev.RunStarted, letters: str = "ABCD") -> None:
        self.at = 0.0
        self.events: list[ev.Event] = [first]
        self.pool = first.pool
        self.letters = letters
        self.steps: list[Step] = []

    def add(self, event: ev.Event) -> None:
        self.events.append(event)

    def plan(self, *steps: Step, pace: float = 0.2, whole: bool = True) -> None:
        """The conductor plans these steps; those that see no other step start at once.

        `whole`: the plan ends here.
        """
        for number, step in enumerate(steps, start=len(self.steps) + 1):
            letter = self.letters[self.pool.names.index(step.worker)]
            access = " ".join(map(str, step.access)) or "-"
            for piece in pieces(f"{letter} | {access} | {step.subtask}\n"):
                self.at += pace
                self.add(ev.PlanDelta(at=self.at, text=piece))
            self.steps.append(step)
            last = whole and step is steps[-1]
            about: Any = {"worker": step.worker, "subtask": step.subtask, "access": step.access}
            self.add(ev.StepPlanned(at=self.at, step=number, last=last, **about))
            if not step.access:
                self.start(number)
        if whole:
            self.add(
                ev.PlanReady(at=self.at, plan=Plan(steps=tuple(self.steps)), usage=spent(410, 61))
            )

    def start(self, number: int, *, worker: str = "", attempt: int = 1) -> None:
        step = self.steps[number - 1]
        prompt = (Message(role="user", content=f"{PRIMES}\n\n{step.subtask}"),)
        self.add(
            ev.StepStarted(
                at=self.at,
                step=number,
                worker=worker or step.worker,
                attempt=attempt,
                prompt=prompt,
            )
        )

    def say(self, pace: float, attempt: int = 1, **texts: str) -> None:
        """Steps `s1`, `s2` … write these texts at the same time."""
        queues = {int(name[1:]): pieces(text) for name, text in texts.items()}
        while any(queues.values()):
            for number, queue in queues.items():
                if queue:
                    self.at += pace
                    self.add(
                        ev.StepDelta(at=self.at, step=number, attempt=attempt, text=queue.pop(0))
                    )

    def call(
        self,
        number: int,
        tool: str,
        arguments: str,
        *,
        call_id: str,
        attempt: int = 1,
        turn: int = 1,
    ) -> None:
        """A call of `server.tool` begins."""
        server, name = tool.split(".")
        call = ToolCall(id=call_id, name=name, arguments=arguments)
        self.add(
            ev.ToolCalled(
                at=self.at, step=number, attempt=attempt, turn=turn, call=call, server=server
            )
        )

    def give(
        self,
        number: int,
        call_id: str,
        text: str,
        *,
        seconds: float,
        error: bool = False,
        attempt: int = 1,
        turn: int = 1,
    ) -> None:
        """A call returns after so many seconds."""
        self.at += seconds
        self.add(
            ev.ToolReturned(
                at=self.at,
                step=number,
                attempt=attempt,
                turn=turn,
                call_id=call_id,
                text=text,
                error=error,
                seconds=seconds,
            )
        )

    def finish(
        self, number: int, text: str, usage: Usage, *, attempt: int = 1, finish: Finish = "stop"
    ) -> None:
        self.add(
            ev.StepFinished(
                at=self.at, step=number, attempt=attempt, text=text, usage=usage, finish=finish
            )
        )

    def answer(
        self, number: int, text: str, usage: Usage, *, pace: float = 0.1, finish: Finish = "stop"
    ) -> None:
        """A step starts, writes its text, and finishes."""
        self.start(number)
        self.say(pace, 1, **{f"s{number}": text})
        self.finish(number, text, usage, finish=finish)

    def fail(
        self, number: int, error: Failure, usage: Usage = NO_USAGE, *, attempt: int = 1, **then: Any
    ) -> None:
        self.add(
            ev.StepFailed(
                at=self.at, step=number, attempt=attempt, error=error, usage=usage, **then
            )
        )

    def nest(self, number: int, events: list[ev.Event]) -> None:
        """A step starts that is a run of its own."""
        self.start(number)
        outset = self.at
        for event in events:
            self.at = outset + event.at
            self.add(ev.NestedEvent(at=self.at, step=number, event=event))

    def end(
        self, answer: str, *, usage: Usage, error: Failure | None = None, partial: bool = False
    ) -> list[ev.Event]:
        self.add(
            ev.RunFinished(at=self.at, answer=answer, usage=usage, partial=partial, error=error)
        )
        return self.events


LIST = Step(
    worker="math-worker", subtask="List the primes below 1000 whose last digit is 7 and count them."
)
CHECK = Step(
    worker="gpt",
    subtask="Find, without a list, how many primes below 1000 there are for each last digit.",
)
JOIN = Step(
    worker="claude",
    subtask="Compare both counts, add the primes up, and answer in two sentences.",
    access=(1, 2),
)

COUNTED = "The primes are 7, 17, 37, 47, 67, 97, 107 and so on up to 997.\n\nThere are 46 of them."
SPREAD = (
    "Of the 168 primes below 1000, 40 end in 1, 42 in 3, 46 in 7 and 38 in 9; 2 and 5 stand alone."
)
ANSWER = "46 primes below 1000 end in 7; both counts agree.\nTheir sum is 22,782."
TOTAL = Usage(tokens_in=1540, tokens_out=281, cost=Decimal("0.0042"), calls=4, unpriced=1)


def parallel() -> list[ev.Event]:
    """Two steps at once, then one that sees both; everything succeeds."""
    run = Writer(started())
    run.plan(LIST, CHECK, JOIN)
    run.say(0.15, s1=COUNTED, s2=SPREAD)
    run.finish(2, SPREAD, spent(210, 48, "0.0011"))
    run.at += 1.2
    run.finish(1, COUNTED, spent(190, 131, None))
    run.answer(3, ANSWER, spent(730, 41, "0.0031"))
    return run.end(ANSWER, usage=TOTAL)


def rejected() -> list[ev.Event]:
    """The conductor names an unknown worker, gets the error, and plans the rest again."""
    run = Writer(started())
    run.plan(LIST, whole=False)
    run.add(ev.PlanDelta(at=run.at, text="Q | 1 | Check the list.\n"))
    run.add(
        ev.PlanRejected(
            at=run.at,
            attempt=1,
            text="Q | 1 | Check the list.",
            hint="known: A, B, C, D",
            usage=spent(410, 40),
            problem="step 2 names a worker that is not in the pool: 'Q'",
        )
    )
    check = Step(worker="gpt", subtask="Check the list and add it up.", access=(1,))
    run.plan(check)
    run.say(0.2, s1=COUNTED)
    run.finish(1, COUNTED, spent(190, 131, None))
    run.answer(2, ANSWER, spent(400, 41, "0.0009"), pace=0.2)
    return run.end(ANSWER, usage=TOTAL)


def retry() -> list[ev.Event]:
    """The answering step fails after some text, waits as the provider asks, and is tried again."""
    run = Writer(started(mode="mini"))
    run.plan(Step(worker="gpt", subtask="Answer the question."))
    run.say(0.3, s1=ANSWER[:27])
    error = Failure(
        kind="worker",
        message="gpt: 429 Too Many Requests",
        hint="the provider asks to wait for 12 s",
    )
    run.fail(1, error, spent(40, 7, "0.0001"), retry_in=12.0)
    run.at += 12.0
    run.start(1, attempt=2)
    run.say(0.3, attempt=2, s1=ANSWER)
    run.finish(1, ANSWER, spent(40, 41, "0.0005"), attempt=2)
    return run.end(ANSWER, usage=TOTAL)


def substitute() -> list[ev.Event]:
    """A provider refuses the key; another worker takes over the step with a shortened prompt."""
    run = Writer(started())
    run.plan(LIST, Step(worker="gpt", subtask="Add up the list.", access=(1,)))
    error = Failure(
        kind="key",
        message="math-worker: the key was refused (401)",
        hint="conductor keys set openai",
    )
    run.at += 0.4
    run.fail(1, error, substitute="gemini-flash")
    run.start(1, worker="gemini-flash")
    run.add(ev.Notice(at=run.at, step=1, text="the prompt was trimmed from 9,120 to 8,000 tokens"))
    run.say(0.1, s1=COUNTED)
    run.finish(1, COUNTED, spent(190, 131, "0.0002"))
    run.answer(2, ANSWER, spent(400, 41, "0.0009"), finish="length")
    return run.end(ANSWER, usage=TOTAL)


def nested() -> list[ev.Event]:
    """The conductor has the answer checked in a nested run, and a run inside that one keeps it."""
    run = Writer(started(pool=WITH_SELF, mode="ultra"), letters="ABCDE")
    again = Step(
        worker="self", subtask="Read the answer and improve it where it is wrong.", access=(1,)
    )
    run.plan(Step(worker="gpt", subtask="Answer the question."), again)
    run.say(0.1, s1="46 primes end in 7, and their sum is 22,728.")
    run.finish(1, "46 primes end in 7, and their sum is 22,728.", spent(40, 20, "0.0003"))
    run.nest(2, _inner_run())
    run.add(ev.StepDelta(at=run.at, step=2, attempt=1, text=ANSWER))
    run.finish(2, ANSWER, spent(900, 120, "0.0030"))
    return run.end(ANSWER, usage=TOTAL)


def _inner_run() -> list[ev.Event]:
    run = Writer(
        started("Is the answer right?", run="01JDQ7W3ZK.2", pool=WITH_SELF), letters="ABCDE"
    )
    add_up = Step(worker="math-worker", subtask="Add the primes up again, one by one.", access=(0,))
    final = Step(worker="self", subtask="Accept the sum or have it done again.", access=(1,))
    run.plan(add_up, final)
    run.answer(1, "7 + 17 = 24, + 37 = 61, ... = 22,782", spent(80, 30, None))
    run.nest(2, _inmost_run())
    run.finish(2, ANSWER, spent(120, 1))
    return run.end(ANSWER, usage=TOTAL)


def _inmost_run() -> list[ev.Event]:
    run = Writer(started("Is the sum right?", run="01JDQ7W3ZK.2.2"))
    run.at += 0.5
    run.add(ev.PlanDelta(at=run.at, text="accept"))
    run.add(ev.PlanReady(at=run.at, plan=KeepAnswer(), usage=spent(120, 1)))
    return run.end(ANSWER, usage=spent(120, 1))


def cancelled() -> list[ev.Event]:
    """Ctrl-C while two steps run and one waits; the finished text is the partial answer."""
    run = Writer(started())
    run.plan(LIST, CHECK, JOIN)
    run.say(0.1, s2=SPREAD)
    run.finish(2, SPREAD, spent(210, 48, "0.0011"))
    run.say(0.1, s1=COUNTED[:40])
    run.add(ev.StepStopped(at=run.at, step=1, reason="cancelled", usage=spent(190, 10, None)))
    run.add(ev.StepStopped(at=run.at, step=3, reason="cancelled", usage=Usage()))
    error = Failure(kind="cancelled", message="interrupted while 1 of 3 steps was done")
    return run.end(SPREAD, usage=TOTAL, error=error, partial=True)


def limit() -> list[ev.Event]:
    """The cost limit is reached during the answering step."""
    run = Writer(started())
    run.plan(LIST, Step(worker="gpt", subtask="Add up the list.", access=(1,)))
    run.say(0.1, s1=COUNTED)
    run.finish(1, COUNTED, spent(190, 131, "0.0200"))
    run.start(2)
    run.say(0.1, s2=ANSWER[:36])
    run.add(ev.StepStopped(at=run.at, step=2, reason="limit", usage=spent(400, 9, "0.0009")))
    message = "the cost limit of $0.02 is used up"
    error = Failure(kind="limit", message=message, reason="limit_cost", suggested_limit="0.04")
    return run.end(ANSWER[:36], usage=TOTAL, error=error, partial=True)


def failed() -> list[ev.Event]:
    """No worker can be reached, so a step fails for good and the run has no answer."""
    run = Writer(started())
    run.plan(LIST, Step(worker="gpt", subtask="Add up the list.", access=(1,)))
    message = "math-worker: no connection to localhost:8080"
    error = Failure(kind="unreachable", message=message, hint="is the server running?")
    for attempt in (1, 2):
        run.at += 2.0
        run.fail(1, error, attempt=attempt, retry_in=2.0)
        run.at += 2.0
        run.start(1, attempt=attempt + 1)
    run.at += 2.0
    run.fail(1, error, attempt=3)
    run.add(ev.StepStopped(at=run.at, step=2, reason="run_failed", usage=Usage()))
    hint = "see what is wrong with: conductor doctor"
    gone = Failure(kind="unreachable", message="no worker can be reached", hint=hint)
    run.add(ev.RunFailed(at=run.at, error=gone, usage=spent(410, 61)))
    return run.events


def hostile() -> list[ev.Event]:
    """All texts of workers contain control sequences."""
    evil = "\x1b[2J\x1b]0;owned\x07\x00[bold red]\x9b31m\u202eevil\r"
    pool = Pool(workers=(Worker(name=f"bad{evil}", kind="openai"),))
    run = Writer(started(f"{evil}\n{PRIMES}{evil}", pool=pool, run=f"01{evil}"))
    run.plan(Step(worker=f"bad{evil}", subtask=f"Do {evil} it."))
    run.say(0.1, s1=f"x{evil}\n{evil}y")
    run.call(1, f"files{evil}.read{evil}", f'{{"path": "{evil}"}}', call_id=evil)
    run.give(1, evil, evil, seconds=0.1, error=True)
    run.add(ev.Notice(at=run.at, text=evil))
    error = Failure(kind="worker", message=f"oh {evil}", hint=f"try {evil}")
    run.fail(1, error, substitute=f"bad{evil}")
    run.start(1, attempt=2)
    run.say(0.1, attempt=2, s1=f"x{evil}\n{evil}y")
    run.finish(1, f"x{evil}\n{evil}y", spent(1, 1), attempt=2)
    return run.end(f"x{evil}\n{evil}y", usage=TOTAL, error=error, partial=True)


def crowd() -> list[ev.Event]:
    """Five steps at once with long lines, wide characters and reasoning.

    More than a small terminal can show.
    """
    run = Writer(
        started("Summarise the five chapters.\nOne sentence each, in the language of the chapter.")
    )
    names = ("claude", "gpt", "math-worker", "gemini-flash", "claude")
    run.plan(
        *(
            Step(worker=name, subtask=f"Read chapter {i} and say in one sentence what happens.")
            for i, name in enumerate(names, start=1)
        ),
        pace=0.05,
    )
    texts = {
        "s1": 3
        * (
            "In the first chapter a traveller comes to a house at the edge of the moor, and nobody "
            "asks her name. "
        ),
        "s2": "第二章では、旅人は家の主人と長い夜を過ごし、朝になると主人はもういない。" * 4,
        "s3": "Im dritten Kapitel fällt der Schnee, und die Brücke über den Fluß ist fort.\n" * 4,
        "s4": "👩‍👩‍👧 Chapter four: the family returns 🏔️ and finds the house empty. ",
        "s5": "",
    }
    run.say(0.02, 1, **texts)
    for piece in pieces(
        "The user wants one sentence. The chapter is long, so I look for its turn first."
    ):
        run.at += 0.02
        run.add(ev.StepDelta(at=run.at, step=5, attempt=1, thinking=piece))
    run.at += 3.0
    run.finish(3, texts["s3"], spent(2000, 60, "0.0010"))
    run.say(0.5, s5="A letter comes.")
    for number in (1, 5, 2, 4):
        run.at += 1.0
        run.finish(number, texts[f"s{number}"] or "A letter comes.", spent(2000, 60, "0.0010"))
    return run.end("A letter comes.", usage=TOTAL)


CHART = Attachment(name="chart.png", media_type="image/png", sha256="c0" * 32, size=264_310)
PAPER = Attachment(name="paper.pdf", media_type="application/pdf", sha256="9a" * 32, size=1_204_877)
NOTES = "# Notes\n\nA schema survives a rename if nothing else refers to its name.\n"


def tools() -> list[ev.Event]:
    """Two steps call tools.

    At once, in vain, in an attempt that breaks off, and after a part of an answer.
    """
    files = (
        File(name="chart.png", text="", attachment=CHART),
        File(name="paper.pdf", text="Names and schemas.", attachment=PAPER),
        File(name="notes.md", text=NOTES),
    )
    first = started("Which schema survives a rename?")
    run = Writer(replace(first, question=replace(first.question, files=files)))
    run.plan(
        Step(worker="gpt", subtask="Read the notes and look the rule up."),
        Step(worker="claude", subtask="Write the answer.", access=(1,)),
    )
    run.call(1, "files.list", '{"path": "."}', call_id="a")
    run.at += 0.8
    error = Failure(kind="worker", message="gpt: 503 Service Unavailable")
    run.fail(1, error, retry_in=2.0)
    run.at += 2.0
    run.start(1, attempt=2)
    run.say(0.1, attempt=2, s1="I look into the notes.")
    run.call(1, "files.read_file", '{"path": "notes.md"}', call_id="b", attempt=2)
    run.call(
        1,
        "web.fetch",
        '{"url": "https://example.org/rename", "format": "text"}',
        call_id="c",
        attempt=2,
    )
    run.give(1, "b", NOTES, seconds=0.2, attempt=2)
    run.give(1, "c", "the address does not answer", seconds=4.1, error=True, attempt=2)
    run.say(0.1, attempt=2, s1="Only the schema that nobody names.")
    run.finish(1, "Only the schema that nobody names.", spent(900, 64, "0.0012"), attempt=2)
    run.start(2)
    run.say(0.1, s2="I count them first.")
    run.call(2, "files.list", '{"path": "schemas"}', call_id="a")
    run.give(2, "a", "a.sql\nb.sql", seconds=0.3)
    run.say(0.1, s2="Schema B.")
    run.finish(2, "Schema B.", spent(400, 9, "0.0009"))
    return run.end("Schema B.", usage=TOTAL)


RUNS = (
    parallel,
    rejected,
    retry,
    substitute,
    nested,
    cancelled,
    limit,
    failed,
    hostile,
    crowd,
    tools,
)


def write() -> None:
    """Write every canned run beside this file."""
    for run in RUNS:
        lines = [ev.to_line(event) + "\n" for event in run()]
        (FOLDER / f"{run.__name__}.jsonl").write_text("".join(lines), encoding="utf-8")


if __name__ == "__main__":
    write()
