"""What the commands that run a question share: settings, the question, models, views and traces."""

from __future__ import annotations

import asyncio
import os
import select
import shlex
import sys
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import ExitStack, asynccontextmanager, closing, nullcontext, suppress
from dataclasses import replace
from pathlib import Path
from signal import SIGINT
from typing import TYPE_CHECKING, Any, BinaryIO, Final

from conductor_cli.app.attach import (
    SILENCE_SECONDS,
    TEXT_LIMIT,
    Attacher,
    decode_text,
    file_seen_as,
    path_of_address,
)
from conductor_cli.app.driver import (
    Job,
    RunResult,
    begin_run,
    check_job,
    needs_planner,
    open_store,
    run_to_end,
)
from conductor_cli.app.learning import SETTING, check_command, check_learning, check_run
from conductor_cli.app.opening import OpeningRequest, find_lost_calls, open_orchestra
from conductor_cli.app.rehearsal import is_rehearsal_run
from conductor_cli.app.worker_selection import (
    check_allowed,
    keep_policy_of,
    plain_model_of,
    with_plain_model,
)
from conductor_cli.app.worker_tools import keep_tools_of
from conductor_cli.cli.background import BACKGROUND_SETTINGS, AbsentPerson, take_background
from conductor_cli.cli.keypress import has_terminal
from conductor_cli.cli.options import (
    FILE_LIKE,
    FLAGS,
    GlobalOptions,
    RunOptions,
    check_plain_model,
)
from conductor_cli.cli.output import leave_stdout, print_error, print_notice, stdout_problem
from conductor_cli.cli.progress import show_running
from conductor_cli.cli.signals import on_signal, stop_on_signals
from conductor_cli.config.settings import (
    format_value,
    load_settings,
    with_files_only,
    with_lower_limits,
)
from conductor_cli.core.continuation import continue_conversation
from conductor_cli.core.errors import ConductorError, ConfigError, UsageError
from conductor_cli.core.formatting import format_names
from conductor_cli.core.json_answer import read_strictly
from conductor_cli.core.media import (
    SUFFIXES,
    UNKNOWN_ENCODING,
    describe_encoding,
    guess_encoding,
)
from conductor_cli.core.plan import Plan
from conductor_cli.core.pool import DayLimits
from conductor_cli.core.question import File, Question
from conductor_cli.core.terminal_text import one_line
from conductor_cli.core.trace import Trace
from conductor_cli.run import Orchestra, RunSpec
from conductor_cli.state.interfaces import AttachmentStore
from conductor_cli.state.opening import open_state
from conductor_cli.state.run_messages import RunInbox
from conductor_cli.system.disk import open_finite
from conductor_cli.system.event_loop import run_async
from conductor_cli.views.output_formats import OutputContext, OutputName, RunView, open_views

if TYPE_CHECKING:
    from conductor_cli.cli.approval import Approver


class Session:
    """One command's settings, where its output goes, and whether its runs are stored."""

    def __init__(
        self,
        common: GlobalOptions,
        options: RunOptions,
        flags: Mapping[str, Any] | None = None,
        *,
        model: str | None = None,
    ) -> None:
        """`flags` are settings by name; None takes them from `options`.

        With a `model` it answers each question in one call.
        """
        check_plain_model(model, options)
        problem = stdout_problem()
        if problem:  # a result that nobody gets must not be paid for
            raise problem
        if flags is None:
            flags = options.settings()
        self.background = take_background()
        if self.background is not None:
            flags = {**flags, **BACKGROUND_SETTINGS}
        self.common = common
        self.options = options
        settings = load_settings(os.environ, flags, common.config)
        if model:
            settings = with_plain_model(settings, model)
        self.settings = replace(settings, rehearsal=options.rehearsal)
        if flags.get(SETTING):
            check_learning(self.settings)
            check_command(self.settings)  # before anything is opened
        state = open_state(self.settings.paths)
        self.store = state.traces
        self.conversations = state.conversations
        self.attachments: AttachmentStore = state.attachments()
        self.output: OutputName = options.format
        self.terminated = False
        """Whether a signal asked the process to end during the last run, or at its very end."""
        self.quiet = common.quiet
        self.stores_traces = open_store(self.settings, wanted=not options.no_trace) is not None

    @property
    def output_context(self) -> OutputContext:
        return OutputContext(
            color=self.settings["output.color"],
            quiet=self.quiet,
            stored=self.stores_traces,
            notify=self.settings["output.notify"],
            markdown=self.settings["output.markdown"],
            trace_path=self.store.location if self.stores_traces else None,
        )

    @property
    def attacher(self) -> Attacher:
        return Attacher(
            self.attachments,
            self.settings,
            tell=self.tell,
            warn=print_notice,  # also with -q: whoever reads the answer takes the files for read
            reads_sources=True,
        )

    def tell(self, text: str) -> None:
        if not self.quiet:
            print_notice(text)

    @property
    def approves(self) -> bool:
        """Whether a person approves each plan before any worker is called."""
        # `--no-approve` is not a setting: no plan is shown, also where a policy asks for it.
        return bool(self.settings["policy.approve"]) and self.options.approve is not False

    def read_ended(self, name: str) -> Trace:
        """Return the trace of an earlier run. Prints which of its lines are damaged.

        Raises `UsageError` as the store does.
        """
        trace = self.store.ended(name)
        for notice in trace.notices:
            if notice.reason == "trace_damaged":
                self.tell(f"run {trace.run}: {notice.text}")
        return trace

    def keep_policy(self, earlier: Trace) -> None:
        """Keep the policy that an earlier run had, and print which rules this adds."""
        self.settings, added = keep_policy_of(self.settings, earlier)
        if added:
            self.tell(f"as in run {earlier.run}, these rules apply: {', '.join(added)}")

    def lower_limits(self, limits: Mapping[str, Any], source: str) -> None:
        """Keep the limits of a plan, by setting name, where they are lower.

        Those that are not are printed.
        """
        self.settings, refused = with_lower_limits(self.settings, limits, source)
        for name, value in refused:
            wanted = format_value(value)
            kept = format_value(self.settings[name])
            change = f"conductor config set {name} {wanted}"
            if name in FLAGS:
                change = f"{FLAGS[name]} {wanted}"
            self.tell(
                f"{one_line(source)} asks for {name} = {wanted}; yours is {kept} and stays. To "
                f"allow it: {change}"
            )

    def narrow_readers(self, selectors: Sequence[str], source: str) -> None:
        """Let attached files be read by no others than these workers. Raises `UsageError`."""
        try:
            self.settings = with_files_only(self.settings, selectors, source)
        except ConfigError as error:
            raise UsageError(f"{source}: {error.message}", hint=error.hint) from None

    def run(
        self,
        question: Question,
        *,
        only: Sequence[str] = (),
        plan: Plan | None = None,
        resume: Trace | None = None,
        needs: Sequence[str] = (),
        plan_only: bool = False,
    ) -> RunResult:
        """Return the run of a question once it has ended, or is only planned.

        `only` limits the workers of the pool. Raises before anything is called where a worker in
        `needs` is not available.
        """
        if resume is not None:
            self._keep_settings_of(resume, keeps_model=not only)
        if self.approves and not plan_only and self.background is None:
            # Draws with Rich, which takes long to load
            from conductor_cli.cli.approval import check_terminal

            check_terminal()
        streams = self.output == "answer" and sys.stdout.isatty() and not plan_only
        spec = RunSpec(
            question=question,
            plan=plan,
            resume=resume,
            plan_only=plan_only,
            streams_answer=streams,
        )
        job = self.job(spec)
        check_job(job)
        self._tell_lost_calls()
        stored: tuple[str, ...] = ()
        if resume is not None:
            stored = (*resume.pool.names, *needs)

        async def run() -> RunResult:
            planning = await needs_planner(job, only)
            async with self.opened(only=only, stored=stored, planning=planning) as orchestra:
                check_allowed(orchestra.team.pool_policy, needs)
                orchestra.team.pool.subset(needs)
                return await self.run_job(orchestra, job)

        return run_async(run())

    def _keep_settings_of(self, resumed: Trace, *, keeps_model: bool) -> None:
        """Use what a run that is resumed had: its policy, its tools, and its one model if any."""
        self.keep_policy(resumed)
        self.settings = keep_tools_of(self.settings, resumed)
        model = plain_model_of(resumed, self.settings)
        if model and keeps_model:
            self.settings = with_plain_model(self.settings, model)
        if is_rehearsal_run(resumed):
            self.settings = replace(self.settings, rehearsal=True)

    def _tell_lost_calls(self) -> None:
        """Tell which calls of processes that are gone count in the limits of the day."""
        if self.settings.day_limits == DayLimits() or self.settings.rehearsal:
            return
        # Who may not read the record is told so by the run
        with suppress(ConductorError, OSError):
            lost = find_lost_calls(self.settings, newest_only=True)
            if lost:
                self.tell(lost)

    @asynccontextmanager
    async def opened(
        self, *, only: Sequence[str] = (), stored: Sequence[str] = (), planning: bool = True
    ) -> AsyncIterator[Orchestra]:
        """Open an orchestra, whose models are closed at the end.

        Problems with recording the spending are printed.
        """
        request = OpeningRequest(
            settings=self.settings,
            only=only,
            stored=stored,
            planning=planning,
            seed=self.options.seed,
            attachments=self.attachments,
            learning=True,
        )
        opened = await open_orchestra(request)
        try:
            yield opened.orchestra
        finally:
            await opened.close()
            if opened.problem:
                print_notice(opened.problem)

    def job(self, spec: RunSpec) -> Job:
        """Return the job of a run under this session's settings, which may have plans approved."""
        approves = self.approves and not spec.plan_only
        if approves != spec.approves:
            spec = replace(spec, approves=approves)
        return Job(
            spec=spec,
            settings=self.settings,
            store=self.store if self.stores_traces else None,
            waits_for_room=self.background is not None,
        )

    async def run_job(self, orchestra: Orchestra, job: Job, *, chat: bool = False) -> RunResult:
        """Run a job on an open conductor, store it and show it. Errors in writing are printed."""
        command = check_command(self.settings)
        plan_only = job.spec.plan_only
        approves = job.spec.approves
        can_ask = self.background is not None or has_terminal()
        asks_about_tools = orchestra.tools is not None and can_ask and not plan_only
        job = replace(job, spec=replace(job.spec, asks_about_tools=asks_about_tools))
        run = begin_run(job, orchestra)
        around = replace(self.output_context, question_is_shown=chat)
        view: RunView
        if self.background is not None:
            self.background.ring_by(around)
            view = self.background
        else:
            view = open_views(self.output, self.settings["output.progress"], around)
        with ExitStack() as stack:
            signals = stack.enter_context(stop_on_signals(run, chat=chat))
            inbox = None
            if job.store is not None and not plan_only:
                with suppress(OSError):  # then no other process can say anything to the run
                    inbox = RunInbox(self.settings.paths.messages, run.id)
                    stack.enter_context(closing(inbox))
            person: Approver | AbsentPerson | None = None
            if self.background is not None:
                person = AbsentPerson()
            elif approves or asks_about_tools:
                from conductor_cli.cli.approval import Approver

                person = stack.enter_context(closing(Approver(self.output_context)))
            result = await run_to_end(
                run,
                job,
                view,
                person.decide_plan if person and approves else None,
                person.decide_tool if person and asks_about_tools else None,
                person.give_input if person and asks_about_tools else None,
                on_end=person.wake if person else lambda: None,
                on_output_lost=leave_stdout,
                inbox=inbox,
                dismiss=person.dismiss if person else lambda _: None,
            )
        for error in result.errors:
            print_error(error)
        self.terminated = signals.terminated
        if command and not plan_only:
            await self._rate_by_check(result.run.trace, command, chat=chat)
        return result

    async def _rate_by_check(self, trace: Trace, command: tuple[str, ...], *, chat: bool) -> None:
        """Have the check rate an answer, and print what it says.

        In a chat Ctrl-C stops it and nothing else.
        """
        check = asyncio.ensure_future(check_run(self.settings, trace, command))
        with (
            show_running(quiet=self.quiet) as running,
            on_signal(SIGINT, check.cancel) if chat else nullcontext(),
        ):
            running.start("the check")
            await asyncio.wait([check])
        text = "the check was stopped"
        if not check.cancelled():
            text = await check
        if text:
            self.tell(text)


STDIN: Final = "-"  # the file and the word that mean stdin
STDIN_NAME: Final = "stdin"  # what it is called among the attached files


def build_question(
    session: Session,
    words: Sequence[str],
    files: Sequence[str],
    *,
    system: str | None = None,
    schema: Path | None = None,
    earlier: Trace | None = None,
) -> Question:
    """Return the question of a command line.

    Raises `UsageError` where there is none or a part cannot be read.

    Without words the question is what comes on stdin; with words, stdin is attached like a file. A
    notice says which words of the question are names of files.
    """
    text = join_words(words)
    piped: File | None = None
    # A terminal is read only when `-` asks for it.
    is_wanted = STDIN in words or STDIN in files
    if sys.stdin is not None and (is_wanted or not sys.stdin.isatty()):
        _tell_of_silence()
        piped = session.attacher.attach_stream(sys.stdin.buffer, STDIN_NAME)
    attached = attach_files(session, files)
    if not text and piped is not None and piped.attachment is None:
        text = piped.text.strip()
        piped = None
    if piped is not None and (piped.text.strip() or piped.attachment is not None):
        attached.insert(0, piped)
    elif piped is not None and is_wanted and text:
        print_notice("standard input is empty, so only the words of the question are asked")
    if not text:
        raise UsageError(
            "there is no question",
            hint='conductor ask "…", or pipe one: echo "…" | conductor ask -',
        )
    if session.settings["output.progress"] != "none":
        _tell_of_files(session, words, files)
    question = Question(
        text=text,
        system=decode_argument(system or "", "--system"),
        files=tuple(attached),
        schema=None if schema is None else _read_schema(schema),
    )
    if earlier is None:
        return question
    return continue_conversation(question, earlier, keep_system=system is None)


def attach_files(session: Session, paths: Sequence[str]) -> list[File]:
    """Return the files of a command line; `-` is none of them."""
    attached: list[File] = []
    for path in paths:
        if path != STDIN:
            attached += session.attacher.attach_all(path)
    return attached


def _tell_of_silence() -> None:
    """Print what is waited for if stdin has nothing to say for some seconds.

    A script may have left it open.
    """
    try:
        ready = select.select([sys.stdin.buffer], [], [], SILENCE_SECONDS)[0]
    except (OSError, ValueError):  # Windows can do this with sockets only
        return
    if not ready:
        print_notice(
            "waiting for the end of standard input; to give none: conductor ask … < /dev/null"
        )


def _tell_of_files(session: Session, words: Sequence[str], files: Sequence[str]) -> None:
    """Say which words of the question are names of files, and which files are attached."""
    # A name without a slash or a suffix, such as make, is more likely just a word.
    names = [word for word in words if FILE_LIKE.fullmatch(word) and os.path.isfile(word)]  # noqa: PTH113
    if names:
        verb = "is" if len(names) == 1 else "are"
        session.tell(
            f"{format_names(names)} {verb} read as a part of the question; to attach a file: "
            f"-f {names[0]}"
        )
    if len(files) > 1:
        session.tell(f"{len(files)} files are attached: {format_names(files)}")


def _read_schema(path: Path) -> dict[str, Any]:
    hint = "--schema takes a JSON Schema"
    try:
        schema = read_strictly(read_text_file(path))
    except (ValueError, RecursionError) as error:
        raise UsageError(f"{path} is not JSON: {error}", hint=hint) from None
    if not isinstance(schema, dict):
        raise UsageError(f"{path} is not a JSON object", hint=hint)
    return schema


def require_schema(schema: Mapping[str, Any]) -> None:
    """Raise `UsageError` for a JSON Schema that no answer could be held to."""
    # Most questions have none
    from conductor_cli.programs.schema_check import CheckStopped, find_schema_fault

    try:
        problem = run_async(find_schema_fault(schema))
    except CheckStopped as stopped:
        problem = str(stopped)
    if problem:
        raise UsageError(
            f"the schema of the answer is not a valid JSON Schema: {problem}",
            hint="correct the file of --schema, or the schema of the template",
        )


def join_words(words: Sequence[str]) -> str:
    """Return the words of a question; `-` only says that stdin is to be read.

    Raises `UsageError`.
    """
    decoded = [decode_argument(word, "the question") for word in words if word != STDIN]
    return " ".join(decoded).strip()


def pasted_file(line: str) -> str | None:
    """Return the path that a line consists of, as terminals paste a file that is dropped on them.

    None for any other line.

    A path has a slash or the ending of an image or a PDF, and names a file; so a word is never
    taken for one.
    """
    text = line.strip()
    with suppress(ValueError):  # an apostrophe, as in a question
        words: list[str] = shlex.split(text)
        for path in map(path_of_address, [text, *words[: len(words) == 1]]):
            with suppress(OSError):  # longer than a name may be
                named = "/" in path or path.rpartition(".")[2].lower() in SUFFIXES
                if named and file_seen_as(Path(path).expanduser()).is_file():
                    return path
    return None


def decode_argument(text: str, source: str) -> str:
    """Return a word of the command line, as UTF-8 where Python could not decode it by the locale.

    Raises `UsageError`.
    """
    # Python keeps bytes of an argument that it cannot decode as lone surrogates.
    if text.isascii() or not any("\ud800" <= letter <= "\udfff" for letter in text):
        return text
    content = os.fsencode(text)
    try:
        return content.decode("utf-8")
    except UnicodeError:
        encoding = guess_encoding(content) or UNKNOWN_ENCODING
        message = f"{source} is not UTF-8 text; {describe_encoding(encoding)}"
        hint = f'set the terminal to UTF-8, or: "$(echo TEXT | iconv -f {encoding} -t UTF-8)"'
        raise UsageError(message, hint=hint) from None


def read_text_file(path: Path, hint: str = "check its name") -> str:
    """Return the text of a file.

    Raises `UsageError`, with `hint` where the file cannot be opened.
    """
    try:
        with open_finite(path) as file:
            return read_limited_text(file, str(path))
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error.strerror}", hint=hint) from None


def read_limited_text(stream: BinaryIO, source: str) -> str:
    """Return what a stream holds, as text.

    Raises `UsageError` where it is not UTF-8, has NUL bytes or is too large.
    """
    content = stream.read(TEXT_LIMIT + 1)
    if len(content) > TEXT_LIMIT:
        raise UsageError(
            f"{source} is larger than {TEXT_LIMIT >> 20} MiB",
            hint="attach only the part that matters",
        )
    return decode_text(content, source)
