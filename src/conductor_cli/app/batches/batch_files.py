"""A batch on disk: it is opened, found out what is left of it, and brought into order at its end.

The answers and the failures are all that a machine remembers of a batch, but for a record of what
its calls have cost. The input is read twice: once to check every line before anything is paid for,
and once while it is asked. So memory holds a few bytes for each line, and the lines of the runs in
progress.
"""

from __future__ import annotations

import hashlib
import os
import stat
from array import array
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager, suppress
from dataclasses import dataclass, replace
from decimal import Decimal
from itertools import compress
from pathlib import Path
from typing import Any, NamedTuple, NoReturn

from conductor_cli.app.batches.answer_files import AnswerFiles
from conductor_cli.app.batches.answer_lines import (
    LineFile,
    cost_of,
    failed_path,
    id_of,
    json_line,
    mend_last_line,
    rewriting,
    unpriced_of,
    written_lines,
)
from conductor_cli.app.batches.checked_input import CheckedInput
from conductor_cli.app.batches.id_index import HashSet, LineOffsets
from conductor_cli.app.batches.input_forms import (
    BatchItem,
    ignored_fields,
    input_hash,
    is_failure,
    read_items,
)
from conductor_cli.app.batches.results import BatchProgress
from conductor_cli.app.batches.source import QuestionList
from conductor_cli.core.errors import UsageError, describe_system_error
from conductor_cli.run.budget import read_spent, shorten_record
from conductor_cli.system.disk import exclusive_lock


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    """A batch on disk: what is left of its input, and its files. Made by `open_batch`."""

    source: CheckedInput
    questions: QuestionList
    files: AnswerFiles
    record: Path
    """The file that remembers what the calls of the batch have cost: see `run/budget.py`."""
    retries: bool
    """Whether failed questions are asked again: then the input does not say in which order the
    answers belong.
    """
    is_done: Callable[[str], bool]
    """Whether the question of an id was answered, or failed, before this process began."""
    ignored: Mapping[str, int]
    """Fields of requests that have no effect, and how many questions have each."""

    @property
    def progress(self) -> BatchProgress:
        return self.files.progress


@contextmanager
def open_batch(source: Path, answers: Path, locks: Path) -> Iterator[Batch]:
    """Open a batch and find out what is left of it. Its lock is in the directory `locks`.

    Where the input is the batch's own file of failures, these are asked again. Raises `UsageError`
    for an input that cannot be asked, for answers of something else, or while another process works
    on the same answers.
    """
    with ExitStack() as stack:
        try:
            batch = _open_locked(source, answers, locks, stack)
        except OSError as error:
            message = f"{answers} cannot be written: {describe_system_error(error)}"
            raise UsageError(message) from None
        yield batch


def _open_locked(source: Path, answers: Path, locks: Path, stack: ExitStack) -> Batch:
    """Return a batch whose locks and files are closed by `stack`.

    Raises `OSError` and `UsageError`.
    """
    failures = failed_path(answers)
    record = stack.enter_context(_locked(answers, failures, locks))
    # Both are a batch's, before one of them is changed
    answered = _WrittenLines(answers)
    _ = _WrittenLines(failures)
    for path in (answers, failures):
        mend_last_line(path)
    _drop_answered(answered.ids, failures)
    failed = _WrittenLines(failures)
    is_retry = source.exists() and failures.exists() and failures.samefile(source)
    if not answers.exists():
        stack.callback(_drop_unused, answers, failures, record)
    shorten_record(record)
    recorded, _ = read_spent(record)
    checked = CheckedInput(source)
    counts = _count_input(source, answered, failed)
    if is_retry:
        stack.callback(_drop_answered_since, answers, failures)
    else:
        stack.callback(_drop_answered, answered.ids, failures)
    progress = BatchProgress(
        total=counts.total,
        cost=max(answered.cost + failed.cost, recorded),
        unpriced=answered.unpriced + failed.unpriced,
    )
    if is_retry:
        # All are read before the first of them is written again
        questions = QuestionList([*_items_left(read_items(source), answered)])
    else:
        questions = QuestionList(_items_left(checked.read(counts.first), answered, failed))
        progress = replace(progress, answered=counts.answered, failed=counts.failed)
    answer_lines = stack.enter_context(closing(LineFile(answers)))
    # It has questions, too: nobody may read it who may not read the answers
    mode = stat.S_IMODE(answers.stat().st_mode)
    failure_lines = stack.enter_context(closing(LineFile(failures, mode=mode)))
    return Batch(
        source=checked,
        questions=questions,
        files=AnswerFiles(answer_lines, failure_lines, progress, has_answers=bool(answered.ids)),
        record=record,
        retries=is_retry,
        is_done=lambda name: name in answered.ids or name in failed.ids,
        ignored=counts.ignored,
    )


@contextmanager
def _locked(answers: Path, failures: Path, locks: Path) -> Iterator[Path]:
    """Keep other processes from a batch; yields the file that remembers what its calls have cost.

    Raises `UsageError` where another process has it, and `OSError`.
    """

    def refuse() -> NoReturn:
        raise UsageError(f"another process writes {answers}", hint="wait until it has ended")

    name = hashlib.sha256(os.fsencode(os.path.realpath(answers))).hexdigest()[:16]
    record = locks / f"{name}.spent.jsonl"
    with ExitStack() as stack:
        stack.enter_context(exclusive_lock(locks / f"{name}.lock", refuse))
        if answers.exists():
            stack.enter_context(_file_lock(answers, refuse))
        if not answers.exists() and not failures.exists():
            record.unlink(missing_ok=True)  # it is that of an earlier batch of this name
        yield record


@contextmanager
def _file_lock(path: Path, refuse: Callable[[], NoReturn]) -> Iterator[None]:
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
                refuse()
        yield
    finally:
        os.close(descriptor)


class _WrittenLines:
    """What the lines of a file of answers or failures are of, and what they cost."""

    def __init__(self, path: Path) -> None:
        ids = array("q")
        keys = array("q")
        self.path = path
        self.cost = Decimal(0)
        self.unpriced = 0
        for fields in written_lines(path):
            ids.append(hash(id_of(fields)))
            keys.append(hash(_written_key(fields)))
            self.cost += cost_of(fields)
            self.unpriced += unpriced_of(fields)
        self.ids = HashSet(ids)
        self.keys = HashSet(keys)

    def has_any(self, keys: Sequence[str]) -> bool:
        """Return whether one of the lines is of the question of these keys."""
        return any(key in self.keys for key in keys)


def _key_of(fields: Mapping[str, Any]) -> str:
    """Return what tells the question of a line of the input, or of a failure, from any other."""
    return f"{id_of(fields)}\0{input_hash(fields)}"


def _short_key(fields: Mapping[str, Any]) -> str:
    """Return the same for an answer of an earlier version, whose line has no hash of its input.

    All that is known of its question is the text.
    """
    return f"{id_of(fields)}\0\0{fields.get('question', '')}"


def _written_key(fields: Mapping[str, Any]) -> str:
    """Return the key of a line of answers or failures."""
    if is_failure(fields):
        return _key_of(fields)  # it repeats the line of the input, which may have any field
    if "input" in fields:
        return f"{id_of(fields)}\0{fields['input']}"
    return _short_key(fields)


class _InputCounts(NamedTuple):
    """How many questions an input has, and how many of them are answered or failed.

    The `first` ones of it are all done. `ignored` has how many have each field without effect.
    """

    total: int
    first: int
    answered: int
    failed: int
    ignored: Counter[str]


def _count_input(source: Path, answered: _WrittenLines, failed: _WrittenLines) -> _InputCounts:
    """Return how far an input is done.

    Raises `UsageError` for a bad line, for two with the same id, and where a question was edited
    since it was asked.
    """
    ids = array("q")
    first = 0
    answered_count = 0
    failed_count = 0
    ignored = Counter[str]()
    for item in read_items(source):
        ids.append(hash(item.id))
        ignored.update(ignored_fields(item.fields))
        keys = (_key_of(item.fields), _short_key(item.fields))
        if answered.has_any(keys):
            answered_count += 1
        elif item.id in answered.ids:
            raise _edited(source, item)
        elif failed.has_any(keys):
            failed_count += 1
        elif item.id in failed.ids:
            raise _edited_since_failure(source, item, failed.path)
        if answered_count + failed_count == len(ids):
            first = len(ids)
    if HashSet(ids).has_repeat:
        _check_repeats(source)
    return _InputCounts(len(ids), first, answered_count, failed_count, ignored)


def _edited(source: Path, item: BatchItem) -> UsageError:
    message = f"{source}: the id {item.id!r:.80} has an answer already, to another question"
    hint = "name another file with -o, or give the question another id"
    return UsageError(message, hint=hint)


def _edited_since_failure(source: Path, item: BatchItem, failures: Path) -> UsageError:
    message = f"{source}: the id {item.id!r:.80} has failed, with another question"
    hint = (
        f"remove its line from {failures} to ask it as it is now, or give the question another id"
    )
    return UsageError(message, hint=hint)


def _check_repeats(source: Path) -> None:
    """Raise `UsageError` where two questions have an id, of which so far only the hash is known."""
    ids: set[str] = set()
    for item in read_items(source):
        if item.id in ids:
            message = f"{source}: two questions have the id {item.id!r:.80}"
            raise UsageError(message, hint="give each its own id")
        ids.add(item.id)


def _items_left(items: Iterator[BatchItem], *written: _WrittenLines) -> Iterator[BatchItem]:
    """Yield the questions of which nothing is written."""
    for item in items:
        if not any(item.id in lines.ids for lines in written):
            yield item


def _drop_answered(answered: HashSet, failures: Path) -> None:
    """Leave of the failures the last line of each question that was not answered later.

    Raises `OSError`.
    """
    line_count = 0
    last_lines: dict[str, int] = {}  # The number of the last line of each id
    for fields in written_lines(failures):
        name = id_of(fields)
        if name not in answered:
            last_lines[name] = line_count
        line_count += 1
    if not last_lines:
        _remove(failures)
    elif len(last_lines) < line_count:
        _keep_lines(failures, set(last_lines.values()))


def _drop_answered_since(answers: Path, failures: Path) -> None:
    """Leave of the failures those that were not answered, also by this process. As above."""
    _drop_answered(_WrittenLines(answers).ids, failures)


def _drop_unused(answers: Path, failures: Path, record: Path) -> None:
    """Remove the file of answers of a batch of which nothing was done, or cost anything."""
    spent, _ = read_spent(record)
    is_empty = answers.exists() and not answers.stat().st_size
    if is_empty and not spent and not failures.exists():
        _remove(answers)


def _remove(path: Path) -> None:
    """Remove a file; a link to it stays, for the next one. Raises `OSError`."""
    Path(os.path.realpath(path)).unlink(missing_ok=True)


def _keep_lines(path: Path, numbers: set[int]) -> None:
    """Write a file again with these of its lines, which are counted from 0. Raises `OSError`."""
    with rewriting(path, path.stat()) as file:
        for number, fields in enumerate(written_lines(path)):
            if number in numbers:
                file.write(json_line(fields))


def sort_answers(source: Path, answers: Path) -> None:
    """Bring the answers into the order of their questions; those of other questions follow.

    Raises `OSError`.
    """
    lines = LineOffsets(answers)
    is_left = bytearray(b"\1") * len(lines.offsets)
    with answers.open("rb") as file, rewriting(answers, answers.stat()) as ordered:
        for item in read_items(source):
            index = lines.index_of(item.id)
            if index is not None:
                file.seek(lines.offsets[index])
                ordered.write(file.readline())
                is_left[index] = 0
        for offset in sorted(compress(lines.offsets, is_left)):
            file.seek(offset)
            ordered.write(file.readline())
