"""Many questions from one file, with the answers in another: resumable after a kill at any moment.

A batch reads a text file with a question a line, JSON Lines, or the batch format of OpenAI:

    What is the capital of France?
    {"id": "7", "question": "What is the capital of France?", "system": "Answer in one word."}
    {"custom_id": "7", "method": "POST", "url": "/v1/chat/completions", "body": {"messages": […]}}

It appends a line to `answers.jsonl` for each question that was answered, and one to
`answers.failed.jsonl` for each that was not: the line of the input with the reason. So the file of
failures is itself an input that tries them again. They are all that a machine remembers of a batch,
but for a record of what its calls have cost. A line is written at once, and one that a kill cut off
is removed.

The input is read twice: once to check every line before anything is paid for, and once while it is
asked. So memory holds a few bytes for each line, and the lines of the runs in progress.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
from array import array
from bisect import bisect_left
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, aclosing, closing, contextmanager, suppress
from dataclasses import dataclass, replace
from decimal import Decimal
from itertools import compress, pairwise
from pathlib import Path
from typing import Any, Final, Literal, NamedTuple, NoReturn, Protocol

from pydantic_core import from_json

from conductor_cli.core.errors import (
    LIMITS_OF_SEVERAL,
    ConductorError,
    Failure,
    UsageError,
    describe_system_error,
)
from conductor_cli.core.formatting import format_size
from conductor_cli.core.question import PastTurn, Question
from conductor_cli.core.serialization import encode_line
from conductor_cli.core.trace import Trace
from conductor_cli.core.usage import stated_dollars
from conductor_cli.run.budget import Budget, read_spent
from conductor_cli.system.disk import exclusive_lock, temporary_path

MAX_LINE: Final = 16 << 20  # Bytes of a line of the input
MAX_ID: Final = 512  # Characters of an id
EXAMPLE: Final = 'a line looks like this: {"id": "1", "question": "…"}'
ONE_A_LINE: Final = (
    f"JSON Lines have an object on each line, with no comma or bracket around it; {EXAMPLE}"
)
JSON_SUFFIXES: Final = frozenset({".json", ".jsonl", ".ndjson"})
BEGINNINGS: Final = ('{"', "[{")
"""How a line of JSON begins that has a mistake: no question does."""
# The batch stops after so many times `parallel` runs in a row that reached no worker
MAX_UNREACHABLE: Final = 3
SYNC_SECONDS: Final = 1.0  # Seconds between two times that what was written is forced to the disk

MAX_REFUSED: Final = 10
"""The batch stops after so many refused questions in a row, or `parallel` where that is more."""

STOPPING: Final = frozenset({"config", "policy", "cancelled", "terminated"})
"""Kinds of failures that say nothing about a question: the batch stops, and the question is asked
when it goes on.
"""
STOPPING_REASONS: Final = LIMITS_OF_SEVERAL | {"state"}
"""Reasons of which the same is true: a limit of the day or of the batch, and a state that does not
answer.
"""


REMOVE_IT: Final = "remove that line, or name another file with -o"


REFUSED: Final = frozenset({"key", "conductor"})
"""Kinds of failures of which nobody knows whether they are of the question, as by a filter of
content, or of all.

They are of the question where another one is answered after it.
"""


class BatchItem(NamedTuple):
    """A line of the input: its id, and the line itself as an object."""

    id: str
    data: Mapping[str, Any]

    def question(self) -> Question:
        """Return what is asked. Raises `UsageError` where the line does not say it."""
        if _is_openai(self.data):
            return _openai_question(self.data)
        return Question(
            text=self.data["question"],
            system=self.data.get("system", ""),
            schema=self.data.get("schema"),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchProgress:
    """What is done so far, of `total` questions.

    How many were answered, how many failed, and what all of it cost.
    """

    total: int
    answered: int = 0
    failed: int = 0
    cost: Decimal = Decimal(0)

    @property
    def done(self) -> int:
        return self.answered + self.failed


# Reading


def read_items(path: Path, skip: int = 0) -> Iterator[BatchItem]:
    """Yield the questions of a file after the first `skip`.

    Raises `UsageError` with the line that cannot be read.
    """
    is_json: bool | None = None
    try:
        with path.open("rb") as file:
            line = 0
            while raw := file.readline(MAX_LINE + 1):
                line += 1
                try:
                    if len(raw) > MAX_LINE:
                        raise UsageError(f"it is longer than {format_size(MAX_LINE)}")
                    text = raw.decode("utf-8-sig" if line == 1 else "utf-8").strip()
                    if not text:
                        continue
                    if is_json is None:
                        is_json = _is_object(text)
                        if not is_json and (
                            path.suffix in JSON_SUFFIXES or text.startswith(BEGINNINGS)
                        ):
                            raise UsageError("it is not a JSON object", hint=ONE_A_LINE)
                    # The first line had a mistake, or was a bracket
                    if not is_json and _is_object(text.rstrip(",")):
                        raise UsageError(
                            "it is JSON, and the first line is not a JSON object", hint=ONE_A_LINE
                        )
                    if skip:
                        skip -= 1
                        continue
                    item = (
                        _parse(text, line)
                        if is_json
                        else BatchItem(str(line), {"id": str(line), "question": text})
                    )
                except UnicodeDecodeError:
                    raise UsageError(
                        f"{path}, line {line}: it is not UTF-8 text", hint=EXAMPLE
                    ) from None
                except UsageError as error:
                    raise UsageError(
                        f"{path}, line {line}: {error.message}", hint=error.hint or EXAMPLE
                    ) from None
                yield item
    except OSError as error:
        raise UsageError(
            f"{path} cannot be read: {describe_system_error(error)}", hint="check its name"
        ) from None
    if is_json is None:
        raise UsageError(f"{path} has no questions", hint=EXAMPLE)


def _is_object(text: str) -> bool:
    """Return whether a line is a JSON object; a text may begin with a brace, too."""
    if not text.startswith("{"):
        return False
    with suppress(ValueError, RecursionError):
        return isinstance(read_json(text), dict)
    return False


def _parse(text: str, line: int) -> BatchItem:
    """Read a line of JSON. Raises `UsageError` where it does not say what is asked."""
    try:
        data = read_json(text)
    except (ValueError, RecursionError) as error:
        raise UsageError(f"it is not JSON: {describe_system_error(error)}") from None
    if not isinstance(data, dict):
        raise UsageError("it is not a JSON object")
    is_openai = _is_openai(data)
    name = data.get("custom_id") if is_openai else data.get("id", str(line))
    if isinstance(name, int) and not isinstance(name, bool):
        name = str(name)
    if not isinstance(name, str) or not 0 < len(name) <= MAX_ID:
        raise UsageError(f"its id is not a text of 1 to {MAX_ID} characters")
    if is_openai:
        item = BatchItem(name, {**data, "custom_id": name})
        item.question()
        return item
    question = data.get("question")
    schema = data.get("schema")
    if not isinstance(question, str) or not question.strip():
        raise UsageError("it has no question")
    if not isinstance(data.get("system", ""), str):
        raise UsageError("its system is not a text")
    if schema is not None and not isinstance(schema, dict):
        raise UsageError("its schema is not a JSON object")
    return BatchItem(name, {**data, "id": name})


def read_json(text: str | bytes) -> Any:  # noqa: ANN401 - any JSON value
    """Read JSON in a fifth of the time of Python's reader, which then decides what the other one
    refuses.
    """
    try:
        return from_json(text)
    except ValueError:
        return json.loads(text)


def _is_openai(data: Mapping[str, Any]) -> bool:
    return "custom_id" in data or "body" in data


def _openai_question(data: Mapping[str, Any]) -> Question:
    """Return the question of a request for `/v1/chat/completions`.

    Texts only, the last one by the user.

    Raises `UsageError`.
    """
    url = data.get("url", "/v1/chat/completions")
    body = data.get("body")
    if url != "/v1/chat/completions" or not isinstance(body, dict):
        raise UsageError("it is not a request for /v1/chat/completions")
    for name in ("tools", "functions"):
        if body.get(name):
            raise UsageError(f"{name} cannot be called in a batch")
    messages = body.get("messages")
    if not isinstance(messages, list) or not messages:
        raise UsageError("it has no messages")
    system = list[str]()
    turns = list[PastTurn]()
    asked: str | None = None
    for message in messages:
        role = message.get("role") if isinstance(message, dict) else None
        text = _message_text(message.get("content")) if isinstance(message, dict) else ""
        if role in ("system", "developer"):
            system.append(text)
        elif role == "user":
            asked = text if asked is None else f"{asked}\n\n{text}"
        elif role == "assistant" and asked is not None:
            turns.append(PastTurn(question=asked, answer=text))
            asked = None
        else:
            raise UsageError(f"a batch cannot take a message of the role {role!r:.40} there")
    if not asked or not asked.strip():
        raise UsageError("its last message is not a question of the user")
    wanted = body.get("response_format")
    schema = wanted.get("json_schema", {}).get("schema") if isinstance(wanted, dict) else None
    return Question(
        text=asked,
        system="\n\n".join(system),
        history=tuple(turns),
        schema=schema if isinstance(schema, dict) else None,
    )


def _message_text(content: object) -> str:
    if isinstance(content, str):
        return content
    texts = (
        [part.get("text") for part in content if isinstance(part, dict)]
        if isinstance(content, list)
        else [None]
    )
    if not all(isinstance(text, str) for text in texts):
        raise UsageError("only texts can be asked in a batch")
    return "\n".join(map(str, texts))


def _find(hashes: array[int], name: str) -> int | None:
    """Return where the hash of a text is among sorted ones."""
    value = hash(name)
    place = bisect_left(hashes, value)
    return place if place < len(hashes) and hashes[place] == value else None


class _Hashes:
    """A set of texts that takes 8 bytes for each.

    Two of a million are taken for one with a probability of 3 in 10^8.

    Only valid in this process, since Python hashes texts differently in the next one.
    """

    def __init__(self, hashes: array[int]) -> None:
        self._hashes = array("q", sorted(hashes))

    def __contains__(self, name: str) -> bool:
        return _find(self._hashes, name) is not None

    def __bool__(self) -> bool:
        return bool(self._hashes)

    @property
    def repeat(self) -> bool:
        """Whether an id is there twice."""
        return any(one == other for one, other in pairwise(self._hashes))


# Writing


class Lines:
    """A file of JSON Lines that grows by whole lines. `wrote` is told each of them."""

    def __init__(self, path: Path, wrote: Callable[[bytes], None] = lambda _: None) -> None:
        """Open the file, or create it. Raises `OSError`."""
        self.path = path
        self._wrote = wrote
        self._file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o666)
        self._size = os.fstat(self._file).st_size

    def append(self, data: Mapping[str, Any]) -> None:
        """Write a line. Raises `OSError`; then nothing of the line stays."""
        line = json_line(data)
        written = 0
        try:
            while written < len(line):
                written += os.write(self._file, line[written:])
        except OSError:
            if written:
                os.ftruncate(self._file, os.lseek(self._file, 0, os.SEEK_END) - written)
            raise
        self._size += len(line)
        self._wrote(line)

    @property
    def loss(self) -> Literal["", "cut", "replaced", "removed"]:
        """What somebody else has done to the file since it was opened; empty where all is well.

        Raises `OSError`.
        """
        own = os.fstat(self._file)
        if own.st_size < self._size:
            return "cut"
        try:
            return "" if os.path.samestat(self.path.stat(), own) else "replaced"
        except FileNotFoundError:
            return "removed"

    def keep(self) -> str:
        """Return what somebody else has done to the file, and where its lines are.

        Empty where all is well.

        The lines of a file that was removed are written under its name again, and those of one that
        was replaced beside it. Raises `OSError`.
        """
        loss = self.loss
        if loss == "cut":
            missing = self._size - os.fstat(self._file).st_size
            return f"{self.path} was cut by somebody else: {missing:,} bytes are missing"
        if loss == "replaced":
            beside = self.path.with_name(f"{self.path.stem}.kept{self.path.suffix}")
            self._copy(beside)
            return (
                f"{self.path} was replaced by somebody else; the lines of the batch are in {beside}"
            )
        if loss == "removed":
            self._copy(self.path)
            return f"{self.path} was removed by somebody else, and is written again"
        return ""

    def _copy(self, target: Path) -> None:
        with temporary_path(target) as new:
            with new.open("xb") as file:
                os.lseek(self._file, 0, os.SEEK_SET)
                while piece := os.read(self._file, 1 << 20):
                    file.write(piece)
                file.flush()
                os.fsync(file.fileno())
            new.replace(target)

    def sync(self) -> None:
        """Return when what was written has reached the disk. Raises `OSError`."""
        os.fsync(self._file)

    def close(self) -> None:
        os.close(self._file)


def written_lines(path: Path) -> Iterator[dict[str, Any]]:
    """Yield the whole lines of a file that a batch has written; none without a file.

    Raises `UsageError` for a file that no batch has written, else `OSError`.
    """
    with suppress(FileNotFoundError), path.open("rb") as file:
        for number, raw in enumerate(file, start=1):
            if not raw.endswith(b"\n") and _is_cut_off(raw, first=number == 1):
                return
            try:
                data = read_json(raw)
                id_of(data)
                known = "answer" in data or "response" in data or "message" in data["error"]
            except (ValueError, RecursionError, TypeError, KeyError):
                known = False
            if not known:
                hint = "a batch continues only its own file: name another one with -o"
                raise UsageError(f"{path}, line {number}: no batch has written this", hint=hint)
            try:
                cost_of(data)
            except UsageError as error:
                raise UsageError(
                    f"{path}, line {number}: {error.message}", hint=error.hint
                ) from None
            yield data


def _is_cut_off(raw: bytes, *, first: bool) -> bool:
    """Return whether a kill has cut this line off.

    The first line must look like ours: nothing before it shows that.
    """
    if not raw.startswith(b'{"id":"' if first else b'{"'):
        return False
    with suppress(ValueError, RecursionError):
        json.loads(raw)
        return False
    return True


def mend_last_line(path: Path) -> None:
    """Remove the last line of a batch's file where a kill has cut it off, or give it its end.

    Raises `OSError`.
    """
    with suppress(FileNotFoundError), path.open("r+b") as file:
        size = file.seek(0, os.SEEK_END)
        end = size
        rest = b""
        while end and b"\n" not in rest:
            end = max(end - (1 << 16), 0)
            file.seek(end)
            rest = file.read(size - end)
        last = rest.rpartition(b"\n")[2]
        if _is_cut_off(last, first=len(last) == size):
            file.truncate(size - len(last))
        elif last:
            file.write(b"\n")


def json_line(data: Mapping[str, Any]) -> bytes:
    """Return an object as a line of a batch's file."""
    return encode_line(data).encode("utf-8", "backslashreplace") + b"\n"


def id_of(data: Mapping[str, Any]) -> str:
    """Return the id in a line."""
    return str(data["custom_id"] if "custom_id" in data else data["id"])


def cost_of(data: Mapping[str, Any]) -> Decimal:
    """Return the US dollars in a line of answers or failures; 0 where it has none.

    Raises `UsageError`.
    """
    # A failure repeats the line of the input, which may have any field.
    source = data["error"] if isinstance(data.get("error"), dict) else data
    stated = source.get("cost") or 0
    cost = stated_dollars(stated)
    if cost is None:
        raise UsageError(f"its cost is no amount of US dollars: {stated!r:.40}", hint=REMOVE_IT)
    return cost


def _hash_of(data: Mapping[str, Any]) -> str:
    """Return a hash of all that an answer depends on in a line of the input, as the answer's line
    has it.
    """
    whole = (
        data.get("body")
        if _is_openai(data)
        else [data.get(name) for name in ("question", "system", "schema")]
    )
    text = json.dumps(whole, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode("utf-8", "backslashreplace")).hexdigest()[:16]


def _key_of(data: Mapping[str, Any]) -> str:
    """Return what tells the question of a line of the input, or of a failure, from any other."""
    return f"{id_of(data)}\0{_hash_of(data)}"


def _short_key(data: Mapping[str, Any]) -> str:
    """Return the same for an answer of an earlier version, which has no hash.

    All that is known of its question.
    """
    return f"{id_of(data)}\0\0{data.get('question', '')}"


def _written_key(data: Mapping[str, Any]) -> str:
    """Return the key of a line of answers or failures."""
    if "answer" not in data and "response" not in data:
        return _key_of(data)  # a failure repeats the line of the input
    return f"{id_of(data)}\0{data['input']}" if "input" in data else _short_key(data)


def failed_path(answers: Path) -> Path:
    """Return the name of the file of failures: `answers.failed.jsonl` for `answers.jsonl`."""
    return answers.with_name(f"{answers.stem}.failed{answers.suffix or '.jsonl'}")


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchResult:
    """What became of a question.

    Its `line` among the answers, or among the failures where there is a `failure`.
    """

    line: Mapping[str, Any]
    cost: Decimal | None = None
    failure: Failure | None = None


@dataclass
class Batch:
    """A batch on disk: what is left of its input, its answers and its failures.

    Made by `open_batch`.
    """

    items: Iterator[BatchItem]
    answers: Lines
    failures: Lines
    progress: BatchProgress
    retries: bool = False
    """Whether failed questions are asked again: then the input does not say in which order the
    answers belong.
    """
    source: Path = Path()
    is_lost: bool = False  # Somebody else has removed, replaced or cut a file of it
    has_answers: bool = False
    """Whether some were answered before this process began, though perhaps with other keys or
    another planner.
    """
    record: Path = Path()
    """The file that remembers what the calls of the batch have cost: see `run/budget.py`."""
    done: Callable[[str], bool] = lambda _: False
    """Whether the question of an id was answered, or failed, before this process began."""

    def write(self, asked: BatchResult) -> None:
        """Write what became of a question. Raises `UsageError` where the disk refuses it."""
        failed = asked.failure is not None
        now = self.progress
        try:
            (self.failures if failed else self.answers).append(asked.line)
        except OSError as error:
            hint = "free some space; the same command continues"
            raise UsageError(
                f"the answers cannot be written: {describe_system_error(error)}", hint=hint
            ) from None
        self.progress = replace(
            now,
            answered=now.answered + (not failed),
            failed=now.failed + failed,
            cost=now.cost + (asked.cost or Decimal(0)),
        )


def batch_result_of(item: BatchItem, trace: Trace, *, stores: bool) -> BatchResult:
    """Return what became of a question by the trace of its run.

    Its line names the run where that is stored.

    Where it does not, the line is the same whenever the answer is.
    """
    failure = trace.error
    usage = trace.usage
    cost: dict[str, Any] = {"cost": float(usage.cost)} if usage.cost else {}
    line: dict[str, Any]
    if failure is not None:
        said = {
            "kind": failure.kind,
            "reason": failure.reason,
            "message": failure.message,
            "hint": failure.hint,
        }
        line = {**item.data, "error": {name: text for name, text in said.items() if text} | cost}
    elif _is_openai(item.data):
        said = {"role": "assistant", "content": trace.answer}
        body = {
            "id": f"chatcmpl-{trace.run}",
            "object": "chat.completion",
            "model": "conductor",
            "choices": [{"index": 0, "message": said, "finish_reason": "stop"}],
            "usage": {
                "prompt_tokens": usage.tokens_in,
                "completion_tokens": usage.tokens_out,
                "total_tokens": usage.tokens,
            },
        }
        response = {"status_code": 200, "request_id": trace.run, "body": body}
        line = {
            "id": f"batch_req_{trace.run}",
            "custom_id": item.id,
            "response": response,
            "error": None,
            **cost,
        }
        line["input"] = _hash_of(item.data)
    else:
        stored = {"run": trace.run} if stores and trace.stored else {}
        line = {
            "id": item.id,
            "question": item.data["question"],
            "answer": trace.answer,
            "tokens": usage.tokens,
        }
        line |= {"input": _hash_of(item.data)} | cost | stored
    return BatchResult(line=line, cost=usage.cost, failure=failure)


@contextmanager
def open_batch(source: Path, answers: Path, locks: Path) -> Iterator[Batch]:
    """Open a batch and find out what is left of it. Its lock is in the directory `locks`.

    Where the input is the batch's own file of failures, these are asked again. Raises `UsageError`
    for an input that cannot be asked, for answers of something else, or while another process works
    on the same answers.
    """

    def busy() -> NoReturn:
        raise UsageError(f"another process writes {answers}", hint="wait until it has ended")

    failures = failed_path(answers)
    name = hashlib.sha256(os.fsencode(os.path.realpath(answers))).hexdigest()[:16]
    with ExitStack() as stack:
        try:
            stack.enter_context(exclusive_lock(locks / f"{name}.lock", busy))
            if answers.exists():
                stack.enter_context(_file_lock(answers, busy))
            record = locks / f"{name}.spent.jsonl"
            if not answers.exists() and not failures.exists():
                record.unlink(missing_ok=True)  # it is that of an earlier batch of this name
            # both are a batch's, before one is changed
            answered = _Written(answers)
            _ = _Written(failures)
            for path in (answers, failures):
                mend_last_line(path)
            _drop_answered(answered.ids, failures)
            failed = _Written(failures)
            retries = source.exists() and failures.exists() and failures.samefile(source)
            recorded, _ = read_spent(record)
            total, first, *done = _count_input(source, answered, failed)
            stack.callback(
                lambda: _drop_answered(_Written(answers).ids if retries else answered.ids, failures)
            )
            writers = [stack.enter_context(closing(Lines(path))) for path in (answers, failures)]
        except OSError as error:
            raise UsageError(
                f"{answers} cannot be written: {describe_system_error(error)}"
            ) from None
        items = read_items(source, 0 if retries else first)
        left: Iterator[BatchItem] = (each for each in items if each.id not in answered.ids)
        spent = max(answered.cost + failed.cost, recorded)
        progress = BatchProgress(total=total, cost=spent)
        if retries:
            left = iter([*left])  # all are read before the first of them is written again
        else:
            left = (each for each in left if each.id not in failed.ids)
            progress = replace(progress, answered=done[0], failed=done[1])
        yield Batch(
            items=left,
            answers=writers[0],
            failures=writers[1],
            progress=progress,
            retries=retries,
            source=source,
            record=record,
            has_answers=bool(answered.ids),
            done=lambda name: name in answered.ids or name in failed.ids,
        )


@contextmanager
def _file_lock(path: Path, busy: Callable[[], NoReturn]) -> Iterator[None]:
    """Hold a lock on a file itself, which may have several names.

    Where the system has none, nobody is kept out.
    """
    descriptor = os.open(path, os.O_RDONLY)
    try:
        with suppress(ImportError, OSError):
            import fcntl  # POSIX only

            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                busy()
        yield
    finally:
        os.close(descriptor)


class _Written:
    """What the lines of a file of answers or failures are of, and what they cost."""

    def __init__(self, path: Path) -> None:
        hashes = (array("q"), array("q"))
        self.cost = Decimal(0)
        for data in written_lines(path):
            hashes[0].append(hash(id_of(data)))
            hashes[1].append(hash(_written_key(data)))
            self.cost += cost_of(data)
        self.ids, self.keys = (_Hashes(each) for each in hashes)


def _count_input(source: Path, *written: _Written) -> list[int]:
    """Return how many questions a file has, how many of its first ones are written, and how many in
    each file.

    Raises `UsageError` for a bad line, for two with the same id, and where another question with an
    id is in `written`.
    """
    hashes = array("q")
    counts = [0] * len(written)
    first = 0
    for item in read_items(source):
        hashes.append(hash(item.id))
        keys = _key_of(item.data), _short_key(item.data)
        for place, each in enumerate(written):
            if any(key in each.keys for key in keys):
                counts[place] += 1
                break
            if item.id in each.ids:
                hint = "name another file with -o, or give the question another id"
                message = (
                    f"{source}: the id {item.id!r:.80} has an answer already, to another question"
                )
                raise UsageError(message, hint=hint)
        if sum(counts) == len(hashes):
            first = len(hashes)
    if _Hashes(hashes).repeat:
        seen = set[str]()
        for item in read_items(source):
            if item.id in seen:
                raise UsageError(
                    f"{source}: two questions have the id {item.id!r:.80}",
                    hint="give each its own id",
                )
            seen.add(item.id)
    return [len(hashes), first, *counts]


def _drop_answered(answered: _Hashes, failures: Path) -> None:
    """Leave of the failures the last line of each question that was not answered later.

    Raises `OSError`.
    """
    places = {id_of(data): place for place, data in enumerate(written_lines(failures))}
    last = {place for name, place in places.items() if name not in answered}
    if not last:
        failures.unlink(missing_ok=True)
    elif len(last) < sum(1 for _ in written_lines(failures)):
        with temporary_path(failures) as new:
            with new.open("xb") as file:
                file.writelines(
                    json_line(data)
                    for place, data in enumerate(written_lines(failures))
                    if place in last
                )
            new.replace(failures)


class LinePlaces:
    """Where the line of each id begins in a file of a batch. It takes 16 bytes for each."""

    def __init__(self, path: Path) -> None:
        """Raises `OSError`."""
        hashes = array("q")
        starts = array("q")
        start = 0
        with path.open("rb") as file:
            for raw in file:
                hashes.append(hash(id_of(read_json(raw))))
                starts.append(start)
                start += len(raw)
        order = sorted(range(len(hashes)), key=hashes.__getitem__)
        self._hashes = array("q", (hashes[place] for place in order))
        self.starts = array("q", (starts[place] for place in order))

    def find(self, name: str) -> int | None:
        return _find(self._hashes, name)


def sort_answers(source: Path, answers: Path) -> None:
    """Bring the answers into the order of their questions; those of other questions follow.

    Raises `OSError`.
    """
    answers = answers.resolve()  # a link stays one
    places = LinePlaces(answers)
    with answers.open("rb") as file, temporary_path(answers) as new:
        with new.open("xb") as ordered:
            left = bytearray(b"\1") * len(places.starts)
            for item in read_items(source):
                if (place := places.find(item.id)) is not None:
                    file.seek(places.starts[place])
                    ordered.write(file.readline())
                    left[place] = 0
            for start in sorted(compress(places.starts, left)):
                file.seek(start)
                ordered.write(file.readline())
            ordered.flush()
            os.fsync(ordered.fileno())
        new.replace(answers)


# Asking


class Sharing(Protocol):
    """What hands out the questions of a batch that several machines work on.

    See `app/shared_batch.py`.
    """

    stopped: Failure | None  # Why no more are handed out
    # Whether some questions are asked and not written, so that their shards cannot be whole
    holding: bool

    async def next(self) -> BatchItem | None: ...
    def wrote(self, asked: BatchResult) -> None: ...
    async def settle(self) -> None: ...


async def run_batch(
    batch: Batch,
    ask: Callable[[BatchItem], Awaitable[BatchResult]] | None = None,
    *,
    elsewhere: AsyncGenerator[BatchResult, None] | None = None,
    shared: Sharing | None = None,
    parallel: int,
    budget: Budget,
    tell: Callable[[BatchProgress], None],
) -> Failure | None:
    """Ask what is left, at most `parallel` at once.

    Returns why the batch stopped early, None where it did not.

    Without `ask`, the runs are made `elsewhere`, which counts them in the `budget`. What is
    `shared` with other machines hands out the questions. The batch stops when the budget is used
    up, at a failure that says nothing about the question, where many questions in a row are
    refused, and where nobody was reachable many times in a row. What was asked then is asked again
    when the batch goes on. `tell` is called after each question. Raises `UsageError` where nothing
    can be written any more.
    """
    stopped: Failure | None = None
    unreachable = 0
    refused: list[BatchResult] = []  # Those in a row, which are not written yet

    def write(asked: BatchResult) -> None:
        batch.write(asked)
        if shared is not None:
            shared.wrote(asked)
        tell(batch.progress)

    def stop(asked: Sequence[BatchResult]) -> None:
        """End the batch, and leave what was asked to the next time."""
        nonlocal stopped
        stopped = stopped or asked[0].failure
        lost = sum((each.cost or Decimal(0) for each in asked), Decimal(0))
        batch.progress = replace(batch.progress, cost=batch.progress.cost + lost)
        if shared is not None:
            shared.stopped = stopped

    def take_refused() -> list[BatchResult]:
        taken = list(refused)
        refused.clear()
        if shared is not None:
            shared.holding = False
        return taken

    def finish(asked: BatchResult) -> None:
        nonlocal unreachable
        failure = asked.failure
        is_unreachable = failure is not None and failure.kind == "unreachable"
        unreachable = unreachable + 1 if is_unreachable else 0
        if failure is not None and failure.kind in REFUSED:
            refused.append(asked)
            if shared is not None:
                shared.holding = True
            if len(refused) >= max(MAX_REFUSED, parallel):
                stop(take_refused())
            return
        says_nothing = failure is not None and (
            failure.kind in STOPPING or failure.reason in STOPPING_REASONS
        )
        if says_nothing or unreachable > MAX_UNREACHABLE * parallel:
            stop([asked])
            return
        if failure is None:  # so planner, workers and keys work
            for each in take_refused():
                write(each)
        write(asked)

    def finish_refused() -> None:
        """Decide about the last questions, after which no other was answered."""
        asked = take_refused()
        one_by_one = all(
            each.failure is not None and each.failure.reason == "refused" for each in asked
        )
        if stopped is None and (batch.progress.answered or batch.has_answers or one_by_one):
            for each in asked:
                write(each)
        elif asked:
            stop(asked)

    async def work() -> None:
        nonlocal stopped
        assert ask is not None
        while stopped is None and await budget.wait_start():
            item = None
            if stopped is None:  # it may have been stopped while this waited
                item = next(batch.items, None) if shared is None else await shared.next()
            if item is None:
                budget.finish(None)
                if shared is not None:
                    stopped = stopped or shared.stopped
                return
            asked = await ask(item)
            budget.finish(asked.cost)
            finish(asked)
            if shared is not None:
                await shared.settle()

    async def take() -> None:
        assert elsewhere is not None
        async with aclosing(elsewhere):
            async for asked in elsewhere:
                finish(asked)
                if stopped is not None:
                    return

    async def sync() -> None:
        nonlocal stopped
        while True:
            await asyncio.sleep(SYNC_SECONDS)
            for lines in (batch.answers, batch.failures):
                await asyncio.to_thread(lines.sync)
                if loss := lines.loss:
                    stopped = Failure(
                        kind="usage", message=f"{lines.path} was {loss} by somebody else"
                    )
                    if shared is not None:
                        shared.stopped = stopped

    def keep_lines() -> None:
        """Keep the lines of files that somebody else has removed, replaced or cut."""
        nonlocal stopped
        try:
            losses = [lines.keep() for lines in (batch.answers, batch.failures)]
        except OSError as error:
            losses = [f"the answers cannot be kept: {describe_system_error(error)}"]
        if message := "; ".join(filter(None, losses)):
            batch.is_lost = True
            hint = "move the lines where they belong; the same command continues with what is there"
            stopped = Failure(kind="usage", message=message, hint=hint)

    syncing = asyncio.create_task(sync())
    try:
        is_over = False
        while not is_over:
            async with asyncio.TaskGroup() as tasks:
                for _ in range(parallel if ask is not None else 1):
                    tasks.create_task(work() if ask is not None else take())
            # With other machines, what was held back may be all that they wait for.
            is_over = shared is None or not refused
            finish_refused()
            if shared is not None:
                await shared.settle()
    except* ConductorError as group:
        raise group.exceptions[0] from None
    finally:
        syncing.cancel()
        keep_lines()
    return stopped
