"""One reply of the planner.

Its text becomes steps while it is being written, and each is announced at once.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Final

from conductor_cli.core import events as ev
from conductor_cli.core.chat import Chunk, Message, Request
from conductor_cli.core.data_policy import describe_attached
from conductor_cli.core.errors import ConductorError, ModelError, PlanError
from conductor_cli.core.estimate import billed_usage, prompt_tokens
from conductor_cli.core.fast_copies import fast_replace
from conductor_cli.core.formatting import format_list
from conductor_cli.core.ledger import Reservation
from conductor_cli.core.plan import MAX_STEPS, SELF, KeepAnswer, Step, lost_operand, unread_steps
from conductor_cli.core.plan_formats import ParsedStep, PlanFormatContext
from conductor_cli.core.plan_formats.base import ANSWER_DIRECTLY
from conductor_cli.core.prompts import (
    copies_example,
    plan_format_for,
    planner_notice,
    planner_request,
)
from conductor_cli.core.question import NESTED, Question, question_text
from conductor_cli.core.terminal_text import one_line
from conductor_cli.core.tools import MAX_ABOUT
from conductor_cli.core.trace import has_notice
from conductor_cli.core.usage import NO_USAGE, Usage
from conductor_cli.models.base import Model
from conductor_cli.run.attempt import read_chunks
from conductor_cli.run.state import RunState

THINKING_TOKENS: Final = 16_000
"""Tokens beside those of its plan for a planner that may think. It writes no more than it needs:
reading ends with the plan.
"""
LOOP_REPETITIONS: Final = 3
"""So many repetitions one after another are a planner that would go on like this up to its limit of
tokens.
"""


class RepeatFilter:
    """Leaves out the steps of a plan that repeat an earlier one, and renumbers the others.

    A weak planner may write the same step again and again. A repetition asks the same worker for
    the same thing with the same access list, so it costs a call and adds nothing.
    `standing` are the steps that stand already. `left_out` has the numbers of repetitions, as the
    planner wrote them. With `keep_last` the last step is never left out.
    """

    def __init__(self, standing: Sequence[Step] = (), *, keep_last: bool = False) -> None:
        self.left_out: list[int] = []
        self._kept = list(standing)
        self._keep_last = keep_last
        self._numbers = {number: number for number in range(len(standing) + 1)}
        """The new number of each step, by the number that the planner wrote. 0 is the given
        answer.
        """
        self._in_a_row = 0

    @property
    def is_loop(self) -> bool:
        return self._in_a_row >= LOOP_REPETITIONS and not self._keep_last

    def renumber_step(self, item: ParsedStep) -> ParsedStep | None:
        """Return the step under its new number, with an access list of new numbers.

        None where it is left out. The last step is left out only where it repeats the newest one:
        then that one gives the answer.
        """
        access = tuple(dict.fromkeys(self._numbers[number] for number in item.step.access))
        step = item.step
        if access != step.access:
            step = replace(step, access=access)
        number = self._find_same(step)
        is_newest = number == len(self._kept)
        # The last step is kept where it can still read what no other one does.
        must_keep = self._keep_last or bool(unread_steps(self._kept))
        may_leave_out = not item.last or (is_newest and not must_keep)
        if number and may_leave_out:
            self._numbers[item.number] = number
            self.left_out.append(item.number)
            self._in_a_row = self._in_a_row + 1 if is_newest else 0
            return None
        self._in_a_row = 0
        self._kept.append(step)
        self._numbers[item.number] = len(self._kept)
        if item.number == len(self._kept) and item.step is step:
            return item
        return replace(item, number=len(self._kept), step=step)

    def _find_same(self, step: Step) -> int:
        """Return the number of the same step among those that are kept; 0 where there is none."""
        for number, kept in enumerate(self._kept, start=1):
            if _is_same(kept, step):
                return number
        return 0


def _is_same(first: Step, second: Step) -> bool:
    """Return whether two steps ask for the same.

    White space and the order of access do not count.
    """
    return (
        first.worker == second.worker
        and first.subtask.split() == second.subtask.split()
        and set(first.access) == set(second.access)
    )


REVIEW: Final = (
    "Check the answer at hand against the question. Accept it if it stands; otherwise "
    "have it corrected."
)
"""The subtask of the review that `limits.review` appends to a plan."""


_POINTS_BACK: Final = re.compile(r"\b(it|its|them|these)\b", re.IGNORECASE)
"""Words by which a subtask means the result of another step."""
_POINTS_AT_ALL: Final = re.compile(r"\b(each|both|all of|them|these)\b", re.IGNORECASE)
"""Words by which a subtask that reads some results means all of them."""


class PlanStream:
    """Reads one reply of the planner and announces its steps."""

    def __init__(
        self, state: RunState, model: Model, context: PlanFormatContext, attempt: int
    ) -> None:
        self._state = state
        self._attempt = attempt
        self._model = model
        self._context = context
        self._find_fault = None if context.single else state.team.profile.find_fault
        self._parser = plan_format_for(state.team.profile, context).parser(context)
        self._keep_answer: KeepAnswer | None = None
        self._complete = False
        self._held: list[ParsedStep] = []  # steps of a plan that is checked as a whole
        self._text = ""
        self._written: list[str] = []
        """All that was paid for: thinking, the text of the plan, and what came after it."""
        self._truncated = False
        self._choice_shares: Mapping[str, float] = {}
        self._notice = ""
        self._reported: Usage | None = None
        self._cached = False
        self._usage = NO_USAGE
        self._prompt: tuple[Message, ...] = ()
        # A step that must follow a schema, or that a review follows, is announced as what it is.
        keep_last = state.question.schema is not None or state.nesting.reviews > 0
        # A step that was given up may be planned again, word for word.
        standing = enumerate(state.current_plan().steps, start=1)
        steps = []
        for number, step in standing:
            steps.append(Step(worker="", subtask="") if number in state.planning.given_up else step)
        self._repeats = RepeatFilter(steps, keep_last=keep_last)

    async def read(self, standing: tuple[Step, ...], fault: str) -> None:
        """Ask for the plan, or for what follows the `standing` steps, and stream the reply.

        Raises `PlanError`, `ModelError` or `LimitReached`; the steps announced before that stand.
        """
        state = self._state
        resources = state.resources
        request = self._request(standing, fault)
        self._prompt = request.messages
        price = state.team.price
        async with resources.turn(self._model):
            usual = request.max_tokens or 0
            wanted = usual
            if self._may_think:
                wanted += THINKING_TOKENS
            tokens_in = prompt_tokens(request.messages)
            if state.planning.was_lost:
                resources.count_lost_call(tokens_in, wanted, price, usual)
                state.planning.was_lost = False
            reservation = await resources.reserve(tokens_in, wanted, price, None, usual)
            if request.max_tokens != reservation.answer:
                request = replace(request, max_tokens=reservation.answer)
            began = state.stream.now()
            failed = False
            try:
                await self._read_reply(request, reservation)
            except PlanError:
                failed = True
                raise
            except ModelError as error:
                failed = True
                # As for workers, a call that failed before its first word counts as free.
                free = None if any(self._written) else Usage(calls=1)
                self._reported = error.usage or self._reported or free
                raise
            finally:
                written = "".join(self._written)
                used = billed_usage(self._reported, request.messages, written, price)
                seconds = used.seconds or round(state.stream.now() - began, 4)
                self._usage = fast_replace(used, seconds=seconds)
                resources.settle(reservation, self._usage, cached=self._cached, failed=failed)

    async def _read_reply(self, request: Request, reservation: Reservation) -> None:
        """Stream one reply. Raises `PlanError` where it ends before its plan does."""
        timeouts = self._state.orchestra.timeouts
        has_enough = False
        try:
            has_enough = await read_chunks(self._model.stream(request), self._take_chunk, timeouts)
        except ModelError as error:
            if not self._complete:
                raise
            # The plan is whole, so it stands, whatever became of the rest of the reply
            self._reported = error.usage or self._reported
        if has_enough or self._complete:
            return
        if self._truncated and not self._context.single:
            self._state.resources.check_cut(reservation)
            raise PlanError(
                "the plan was cut off at the token limit", line=self._text[-200:].strip()
            )
        self._announce(self._parser.end())

    @property
    def _may_think(self) -> bool:
        """Whether the planner may think before it plans, which counts as part of its reply.

        That is a model that is paid for: those of this machine do not, or are held to a grammar.
        """
        price = self._state.team.price
        is_paid_for = price is not None and not price.is_free
        return is_paid_for and not self._state.team.constrained

    def _request(self, standing: tuple[Step, ...], fault: str) -> Request:
        state = self._state
        question = state.policy.question_for_planner()
        self._notice = planner_notice(question)
        request = planner_request(
            question,
            state.team.pool,
            state.team.profile,
            self._context,
            standing=standing,
            fault=fault,
            rejected=state.planning.rejected,
            revision=state.planning.revision,
            rules=(
                *state.policy.rules_for_planner(self._context),
                *self._describe_attachments(question),
                *self._describe_tools(),
            ),
        )
        # The seed and the rank rise with each attempt, or the model would repeat its plan.
        retries = self._attempt - 1
        if not retries and state.seed is None:
            return request
        return replace(
            request,
            seed=None if state.seed is None else state.seed + retries,
            rank=retries if state.team.profile.sampling.search else 0,
        )

    def _describe_attachments(self, question: Question) -> list[str]:
        """Return who can see what is attached.

        A planner that was trained on prompts of its own is told nothing of it.
        """
        state = self._state
        if not state.team.profile.names or not question.attachments:
            return []
        pool = state.team.pool
        shown = {worker.name: state.policy.question_for(worker.name) for worker in pool}
        return describe_attached(question, shown, self._context.labels, pool)

    def _describe_tools(self) -> list[str]:
        """Return for each worker that may be planned with what its tools are for."""
        state = self._state
        about: Mapping[str, str] = {}
        if state.orchestra.tools is not None:
            about = state.orchestra.tools.about
        lines: list[str] = []
        for worker in state.team.pool:
            if worker.tools and worker.name in self._context.rules.workers:
                described = []
                for server in worker.tools:
                    described.append(one_line(about.get(server, "") or server)[:MAX_ABOUT])
                label = self._context.label(worker.name)
                lines.append(f"{label} can use tools: {'; '.join(described)}.")
        return lines

    def _take_chunk(self, chunk: Chunk) -> bool:
        """Announce what a chunk completes.

        Returns whether nobody waits for the rest of the reply.
        """
        # The planner may be asked twice; the user needs to hear only once that it reads less than
        # the question.
        if self._notice and not has_notice(self._state.trace.notices, self._notice):
            self._state.stream.notice(self._notice)
        self._notice = ""
        self._written += (chunk.thinking, chunk.text)
        self._reported = chunk.usage or self._reported
        self._cached = self._cached or chunk.from_cache
        self._choice_shares = chunk.choice_shares or self._choice_shares
        self._truncated = chunk.finish == "length"
        if chunk.note:
            self._state.stream.notice(f"the planner: {chunk.note}")
        if chunk.progress is not None:
            at = self._state.stream.now()
            self._state.stream.emit(ev.PromptRead(at=at, **chunk.progress._asdict()))
        # The end of a fence, or of the JSON around the plan, may follow.
        if self._complete and chunk.text.strip(" \t\r\n`}])."):
            return True  # the plan is complete, and this is what the planner says about it
        if chunk.text:
            self._text += chunk.text
            self._state.stream.emit(ev.PlanDelta(at=self._state.stream.now(), text=chunk.text))
            if not self._complete:
                self._announce(self._parser.feed(chunk.text))
        return False

    def _announce(self, parsed: Iterable[ParsedStep | KeepAnswer]) -> None:
        """Announce complete steps.

        Raises `PlanError` where one is forbidden or the whole plan has a fault.
        """
        for item in parsed:
            if isinstance(item, KeepAnswer):
                self._keep_answer = item
                self._complete = True
                return
            self._hold_step(item)
            is_last = item.last or self._repeats.is_loop
            if is_last:
                self._check_plan(line=item.step.subtask)
            # Set before announcing: the step may end, and the run with it, while it is being
            # announced.
            self._complete = is_last
            if is_last or self._find_fault is None:
                self._announce_held()
            if is_last:
                return

    def _hold_step(self, item: ParsedStep) -> None:
        """Hold a step until it may be announced, unless it repeats another.

        Raises `PlanError` where the policy forbids it, or where it copies an example.
        """
        kept = self._repeats.renumber_step(item)
        if kept is None:
            return
        self._check_subtask(item)
        before = (*self._state.steps_before(), *(held.step for held in self._held))
        forbidden = self._state.policy.violation(before, kept.step)
        if forbidden:
            raise PlanError(forbidden, line=item.step.subtask)
        self._held.append(kept)

    def _check_subtask(self, item: ParsedStep) -> None:
        """Raise `PlanError` for a subtask out of the examples, which is about another question."""
        subtask = item.step.subtask
        question = question_text(self._state.policy.question_for_planner())
        if copies_example(subtask, question, self._state.team.profile):
            raise PlanError(
                f"step {item.number} repeats an example; its subtask must be about the question",
                line=subtask,
            )

    def _check_plan(self, line: str) -> None:
        """Raise `PlanError` for the first fault of the whole plan, whose last line is `line`."""
        given_up = self._state.planning.given_up
        numbered = enumerate(self._state.steps_before(), start=1)
        steps = [step for number, step in numbered if number not in given_up]
        steps += [held.step for held in self._held]
        for find_fault in (self._find_media_fault, self._find_lost_operand, self._find_own_fault):
            fault = find_fault(steps)
            if fault:
                raise PlanError(fault, line=line)

    def _find_media_fault(self, steps: Sequence[Step]) -> str:
        """Return which attachment no step can see; empty where each is seen."""
        return self._state.media_access.fault(steps)

    def _find_lost_operand(self, steps: Sequence[Step]) -> str:
        """Return which operand of the question no step names; empty where none is lost."""
        operands = self._state.team.worker_profile.operands
        if operands is None or self._context.single:
            return ""
        lost = lost_operand(self._state.question.text.partition(NESTED)[0], steps, operands)
        return f"no step names {lost}" if lost else ""

    def _find_own_fault(self, steps: Sequence[Step]) -> str:
        """Return what the planner's profile finds wrong; empty where that is nothing."""
        if self._find_fault is None:
            return ""
        return self._find_fault(self._state.question, steps, self._state.team.pool)

    def _announce_held(self) -> None:
        complete = self._held
        self._held = []
        for item in complete:
            if item.last and self._parser.joined:
                self._tell_joined(item.number)
            direct = self._as_direct_question(item)
            worded = self._with_worded_subtask(direct)
            announce_parsed(self._state, self._with_meant_steps(worded))

    def _tell_joined(self, number: int) -> None:
        """Say that the last step, which has this number, was planned as two."""
        text = (
            f"step {number} also gives the answer: the planner wanted that from the same worker, "
            "and from the same results"
        )
        if number == 1:
            text = (
                "the planner wanted one step and then the answer, both from the same worker, so "
                "that worker is asked the question itself"
            )
        self._state.stream.notice(text, recovered=True)

    def _with_worded_subtask(self, item: ParsedStep) -> ParsedStep:
        """Return a step that says what to do in place of one that names only a kind of work.

        The user is told.
        """
        kind = self._context.kind_alone(item.step.subtask)
        if not self._context.closing or not kind:
            return item
        subtask = f"Do the part of the question that is about {kind}."
        self._state.stream.notice(
            f"step {item.number} was planned as {one_line(item.step.subtask)!r}, which says only "
            f"the kind of work; it does the part of the question that is about {kind}",
            recovered=True,
        )
        return replace(item, step=replace(item.step, subtask=subtask))

    def _with_meant_steps(self, item: ParsedStep) -> ParsedStep:
        """Return a step that says "it" and reads nothing as one that reads all before it.

        So does one that says "each" and reads only some. Only for planners whose plans have a
        closing line: they are small, and forget it. Where files are attached, "it" may be one of
        them. The user is told.
        """
        state = self._state
        before = state.steps_before()
        pointing = _POINTS_AT_ALL if item.step.access else _POINTS_BACK
        word = pointing.search(item.step.subtask)
        is_repaired = self._context.closing and state.team.joins_unread_steps
        if not is_repaired or word is None or not before or state.question.files:
            return item
        given_up = state.planning.given_up
        numbers = [number for number in range(1, len(before) + 1) if number not in given_up]
        reading = replace(item.step, access=tuple(sorted({*item.step.access, *numbers})))
        reading = state.policy.without_hidden(before, reading)
        added = [number for number in reading.access if number not in item.step.access]
        if not added:
            return item
        listed = _listed_steps(added)
        text = f'step {item.number} says "{word[0]}", so it reads {listed} as well'
        remedy = "put other numbers on its access list to choose what it reads"
        state.stream.notice(f"{text}; {remedy}", recovered=True)
        return replace(item, step=reading)

    def _as_direct_question(self, item: ParsedStep) -> ParsedStep:
        """Return the only step of a plan as one that is sent the bare question.

        What a planner writes there adds nothing, and a small one often writes an answer, which the
        worker would take for its task. A planner or workers with prompts of their own keep theirs.
        """
        is_only_step = item.last and item.number == 1 and not item.step.access
        team = self._state.team
        has_own_prompts = team.profile.render or team.worker_profile.render
        if not is_only_step or has_own_prompts or item.step.worker == SELF:
            return item
        return replace(item, step=replace(item.step, subtask=ANSWER_DIRECTLY))

    def finish(self) -> None:
        usage = self._end()
        # The share of each worker in a choice of one, the likeliest first.
        likeliest = sorted(self._choice_shares.items(), key=lambda item: -item[1])
        shares = []
        for label, share in likeliest:
            shares.append(f"{self._context.labels.get(label, label)} {share:.2f}")
        self._tell_cap()
        reasoning = self._parser.reasoning or ", ".join(shares)
        plan = self._keep_answer or self._state.current_plan(reasoning)
        self._state.finish_plan(plan, usage, self._prompt)

    def _tell_cap(self) -> None:
        """Say that the plan may have ended where it did because nobody has measured its planner."""
        state = self._state
        cap = state.team.max_steps
        is_capped = cap < MAX_STEPS and state.limits.steps is None
        if not is_capped or self._context.single or len(state.trace.steps) < cap:
            return
        most = f"{cap} steps" if cap > 1 else "1 step"
        state.stream.notice(
            f"the plan has at most {most}, because nobody has measured how well this planner "
            f"plans; conductor config set limits.steps {MAX_STEPS} allows more, and conductor tune "
            "measures it"
        )

    def reject(self, text: str, error: ConductorError) -> None:
        usage = self._end()
        rejected = ev.PlanRejected(
            at=self._state.stream.now(),
            attempt=self._attempt,
            text=text,
            problem=error.message,
            hint=error.hint,
            usage=usage,
            prompt=self._prompt,
            reason=error.reason,
        )
        self._state.stream.emit(rejected)

    def _take_usage(self) -> Usage:
        usage = self._usage
        self._usage = NO_USAGE
        return usage

    def _end(self) -> Usage:
        """Say which steps of the reply repeat others. Returns what the reply cost."""
        numbers = self._repeats.left_out
        if numbers:
            listed = _listed_steps(numbers)
            text = f"the planner repeated an earlier step word for word; left out: {listed}"
            self._state.stream.notice(text, recovered=True)
        return self._take_usage()

    def settle(self) -> None:
        """Count usage that no event has reported."""
        self._state.work.add_unreported_usage(self._take_usage())


def announce_parsed(state: RunState, item: ParsedStep) -> None:
    """Schedule a planned step, and after the last the review that `limits.review` asks for."""
    given_up = state.planning.given_up
    if given_up:
        access = tuple(number for number in item.step.access if number not in given_up)
        item = replace(item, step=replace(item.step, access=access))
    if item.last and state.team.joins_unread_steps:
        reading = _with_unread_steps(state, item.step)
        if reading is not item.step:
            item = replace(item, step=reading)
    review = None
    if item.last and state.nesting.reviews > 0:
        review = _make_review(state, item)
    state.add_step(item.number, item.step, last=item.last and review is None)
    if review is not None:
        state.add_step(item.number + 1, review, last=True)


def _with_unread_steps(state: RunState, last: Step) -> Step:
    """Return the last step, reading also those steps that no other one reads; the user is told.

    They are paid for. Workers with prompts of their own are shown nothing that is not planned.
    """
    before = state.steps_before()
    given_up = state.planning.given_up
    unread = [number for number in unread_steps([*before, last]) if number not in given_up]
    if not unread or state.team.worker_profile.render is not None:
        return last
    reading = replace(last, access=tuple(sorted({*last.access, *unread})))
    reading = state.policy.without_hidden(before, reading)
    added = []
    hidden = []
    for number in unread:
        if number in reading.access:
            added.append(number)
        else:
            hidden.append(number)
    if added:
        them = _pronoun(added)
        text = f"no step reads {_listed_steps(added)}, so the last step reads {them} as well"
        remedy = f"put {them} on an access list to choose another reader"
        state.stream.notice(f"{text}; {remedy}", recovered=True)
    if hidden:
        them = _pronoun(hidden)
        text = f"no step reads {_listed_steps(hidden)}, and the policy hides {them} from the last"
        state.stream.notice(f"{text}; the answer is made without {them}", recovered=True)
    return reading if added else last


def _pronoun(numbers: Sequence[int]) -> str:
    return "it" if len(numbers) == 1 else "them"


def _listed_steps(numbers: Sequence[int]) -> str:
    word = "step" if len(numbers) == 1 else "steps"
    return f"{word} {format_list(list(map(str, numbers)))}"


def _make_review(state: RunState, last: ParsedStep) -> Step | None:
    """Return the review of a plan; None, told to the user, where the policy forbids it."""
    numbers = range(1, last.number + 1)
    access = tuple(number for number in numbers if number not in state.planning.given_up)
    review = Step(worker=SELF, subtask=REVIEW, access=access)
    forbidden = state.policy.violation((*state.steps_before(), last.step), review)
    if forbidden:
        state.stream.notice(f"no review was added: {forbidden}")
        return None
    return review
