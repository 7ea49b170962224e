"""OpenAI's Batches API: the requests of a file, each a run as any other, answered in another file.

A batch is a record of JSON, its input and the two files that grow by a line for each request
(`app/batches`), all of them in the state. So a batch goes on where it stopped when the server is
started again, and what is finished is kept when it is cancelled or expires. One of several servers
over one state has it; where that is gone, another one goes on. What says nothing about a request,
such as a limit of the day, makes the batch wait.
"""

from __future__ import annotations

import asyncio
import json
import logging
import re
import secrets
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, closing, suppress
from functools import partial
from typing import TYPE_CHECKING, Any, Final, TypeVar

from starlette.routing import Route

from conductor_cli.app.batches import (
    AnswerFiles,
    BatchItem,
    BatchProgress,
    BatchResult,
    ParallelAsker,
    QuestionList,
    run_batch,
)
from conductor_cli.app.batches.answer_lines import LineFile, mend_last_line, written_lines
from conductor_cli.app.batches.input_forms import MAX_ID_CHARACTERS, MAX_LINE_BYTES
from conductor_cli.core.errors import (
    ConductorError,
    ConfigError,
    Failure,
    StateUnavailable,
    TakenOver,
)
from conductor_cli.core.terminal_text import one_line
from conductor_cli.programs.turns import CURRENT_CLIENT, FairPlaces
from conductor_cli.run.budget import Budget
from conductor_cli.server.api.body_faults import refused
from conductor_cli.server.api.errors import error_body
from conductor_cli.server.api.ignored_fields import unread_fields
from conductor_cli.server.api.request import RequestError, ServedAnswer
from conductor_cli.server.client_keys import ClientKeys
from conductor_cli.server.files import (
    created,
    file_record,
    find_named,
    find_record,
    list_records,
    without_owner,
)
from conductor_cli.server.http.access import (
    Principal,
    describe_error,
    new_request_id,
    principal_from,
    principal_of,
)
from conductor_cli.server.http.answers import answering
from conductor_cli.server.http.body import read_body, read_json_body
from conductor_cli.state.served_files import END_STATES, HeldBatch, Record, ServedFiles
from conductor_cli.system.threads import FILE_WORK

if TYPE_CHECKING:
    from starlette.requests import Request

    from conductor_cli.server.runs.run_registry import RunRegistry, ServedRun

    Begin = Callable[
        [str, dict[str, Any], Principal],
        Awaitable[tuple[ServedRun, Callable[[ServedAnswer], dict[str, Any]]]],
    ]
    """Begins the run of a body for a path; returns it, and what writes its answer.

    It raises `RequestError`.
    """

T = TypeVar("T")

log = logging.getLogger(__name__)

ENDPOINTS: Final = ("/v1/chat/completions", "/v1/responses")
MAX_LINES: Final = 50_000
MAX_FAULTS: Final = 50  # Lines whose faults are told
_READ_FIELDS: Final = frozenset({"completion_window", "endpoint", "input_file_id", "metadata"})

WINDOW_SECONDS: Final = 24 * 3600  # After which a batch expires
WAIT_SECONDS: Final = 30.0  # How long a batch waits where going on would only fail
AWAY_SECONDS: Final = 1.0  # How long a batch waits for a database that is away before it asks again
# Between two looks at what its client wants, and between two records of how far it is
LOOK_SECONDS: Final = 1.0
SCAN_SECONDS: Final = 10.0  # Between two looks for batches that nobody works on

MAX_WORKED_ON: Final = 16  # Batches that this server works on at once
# Batches that this server has: those that it works on, and those that wait, say for a new day
MAX_HELD: Final = 64

LATER_STATES: Final = (
    "in_progress",
    "finalizing",
    "completed",
    "failed",
    "expired",
    "cancelling",
    "cancelled",
)
"""The states after the first one. A record says when each began."""

_KINDS: Final = {
    "upstream_key": "key",
    "config": "config",
    "planner_unusable": "conductor",
    "server_is_ending": "terminated",
    "busy": "terminated",
    "unreachable": "unreachable",
    "state": "terminated",
    "taken_over": "terminated",
}
"""What an error says that is none of the request's own, by its code."""


class Batches:
    """The batches of all clients."""

    def __init__(self, registry: RunRegistry, store: ServedFiles, begin: Begin) -> None:
        self._registry = registry
        self._store = store
        self._begin = begin
        self._tasks: dict[str, asyncio.Task[None]] = {}
        # Half of the runs that go on at once are left to requests that somebody waits for.
        self._parallel = max(1, registry.limits.parallel // 2)
        self._turns = FairPlaces(self._parallel)
        self._keys = ClientKeys(registry.starter.settings().paths.config)
        self._held = FairPlaces(MAX_HELD)
        self._worked_on = FairPlaces(MAX_WORKED_ON)

    @property
    def routes(self) -> list[Route]:
        path = "/v1/batches/{batch}"
        return [
            Route("/v1/batches", answering(self._create), methods=["POST"]),
            Route("/v1/batches", answering(self._list), methods=["GET"]),
            Route(path, answering(self._get), methods=["GET"]),
            Route(f"{path}/cancel", answering(self._cancel), methods=["POST"]),
        ]

    async def work(self) -> None:
        """Go on with the batches that are not over, until this is cancelled.

        Those that another server leaves later are among them. Cancelled, it leaves them as they
        are: the next server goes on with them.
        """
        try:
            while True:
                try:
                    records = await asyncio.to_thread(self._store.open_batches)
                    # The first may be those that other servers have
                    secrets.SystemRandom().shuffle(records)
                    for record in records:
                        self._work_on(record)
                except (ConductorError, OSError):
                    pass  # a database or a disk that is away is asked again
                except Exception as error:  # noqa: BLE001
                    # One damaged record must not end the batches under way. The error may quote a
                    # prompt, so only what it is and where it arose is logged.
                    log.error("open batches: %s", describe_error(error))  # noqa: TRY400
                await asyncio.sleep(SCAN_SECONDS)
        finally:
            tasks = [*self._tasks.values()]
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    # Requests

    async def _create(self, http: Request) -> Record:
        client = principal_of(http.scope)
        body = await read_body(http, dict)
        endpoint = body.get("endpoint")
        window = body.get("completion_window")
        metadata = body.get("metadata") or {}
        if endpoint not in ENDPOINTS:
            raise refused("endpoint", f"must be one of {', '.join(ENDPOINTS)}")
        if window != "24h":
            raise refused("completion_window", "must be 24h")
        if not isinstance(metadata, dict) or len(json.dumps(metadata)) > 16_000:
            raise refused("metadata", "must be an object of short texts")
        name = str(body.get("input_file_id"))
        source = await asyncio.to_thread(find_record, self._store, "file", name, client)
        if source["purpose"] != "batch":
            raise refused("input_file_id", "must be a file of the purpose batch")
        now = int(time.time())
        record = {
            "id": f"batch_{secrets.token_hex(12)}",
            "object": "batch",
            "endpoint": endpoint,
            "errors": None,
            "input_file_id": source["id"],
            "completion_window": window,
            "status": "validating",
            "output_file_id": None,
            "error_file_id": None,
            "created_at": now,
            "expires_at": now + WINDOW_SECONDS,
            **dict.fromkeys(f"{state}_at" for state in LATER_STATES),
            "request_counts": {"total": 0, "completed": 0, "failed": 0},
            "metadata": metadata,
            "owner": client.origin,
        }
        await asyncio.to_thread(self._store.write, record)
        self._work_on(record)
        return created(record, unread_fields(body, _READ_FIELDS))

    async def _list(self, http: Request) -> Record:
        return await asyncio.to_thread(list_records, self._store, "batch", http)

    async def _get(self, http: Request) -> Record:
        record = await find_named(self._store, "batch", http)
        if record["status"] in END_STATES:
            return without_owner(record)
        if await asyncio.to_thread(self._store.is_cancelled, record["id"]):
            record["status"] = "cancelling"
            record["cancelling_at"] = record["cancelling_at"] or int(time.time())
        return without_owner(record)

    async def _cancel(self, http: Request) -> Record:
        record = await self._get(http)
        if record["status"] in END_STATES:
            raise RequestError(409, "batch_is_over", f"the batch is {record['status']} already")
        await asyncio.to_thread(self._store.cancel, record["id"])
        return await self._get(http)

    # Work

    def _work_on(self, record: Record) -> None:
        name = record["id"]
        client = self._client_of(record)
        # Others wait for another server, or until one is over
        if name not in self._tasks and self._held.take(client):
            self._tasks[name] = asyncio.create_task(self._perform(name, client))
            self._tasks[name].add_done_callback(lambda _: self._end_work(name, client))

    def _client_of(self, record: Record) -> str:
        """Return for whom a batch is worked on, as `CURRENT_CLIENT` says it."""
        try:
            has_others = len(self._keys.all()) > 1
        except ConfigError:
            has_others = True
        owner: str = record["owner"]
        return owner if has_others and owner != Principal().origin else ""

    def _end_work(self, name: str, client: str) -> None:
        del self._tasks[name]
        self._held.give_back(client)

    async def _perform(self, name: str, client: str) -> None:
        """Work on a batch to its end, unless another process does."""
        CURRENT_CLIENT.set(client)  # of this task, and of all that it begins
        try:
            record = await asyncio.to_thread(self._store.find, name)
            with suppress(BlockingIOError):
                if record is not None:
                    work = _Work(record, self._store, self._ask, self._parallel, self._worked_on)
                    async with work.held():
                        await work.perform()
        except (OSError, ConductorError) as error:
            # The disk may be full: the next scan tries again. The error may quote a prompt.
            log.error("the batch %s cannot go on: %s", name, describe_error(error))  # noqa: TRY400

    async def _ask(self, record: Record, item: BatchItem) -> BatchResult:
        """Ask a request of a batch as if its client had sent it."""
        run = ""
        try:
            async with self._turns:
                client = principal_from(
                    record["owner"], self._registry.starter.settings().paths.config
                )
                served, write = await self._begin(record["endpoint"], item.fields["body"], client)
                run = served.id
                reader = self._registry.open(served, takes_pieces=False)
                try:
                    while await reader.pieces() is not None:
                        reader.restart_silence()
                    ended = served.ended or RequestError(500, "internal", "the run has no end")
                finally:
                    self._registry.close(reader, delivered=True)
                    self._registry.cancel(served.id)
                    self._registry.forget(served.id)
            if isinstance(ended, RequestError):
                raise ended
            cost = ended.usage.total.cost
            body = write(ended)
        except RequestError as error:
            body = error_body(error, record["endpoint"])
            # What is refused before it has a run has an id of its own
            request_id = run or new_request_id()
            response = {"status_code": error.status, "request_id": request_id, "body": body}
            line = _line(item.id, response, None)
            return BatchResult(line=line, failure=_failure_of(error))
        response = {"status_code": 200, "request_id": served.id, "body": body}
        return BatchResult(line=_line(item.id, response, None), cost=cost)


def _failure_of(error: RequestError) -> Failure:
    """Return what an error of a request means for its batch."""
    if error.code.startswith("limit"):
        return Failure(kind="limit", message=error.message, reason=error.code)  # type: ignore[arg-type]
    kind = _KINDS.get(error.code, "worker")
    return Failure(kind=kind, message=error.message)  # type: ignore[arg-type]


def _line(name: str, response: Record | None, error: Record | None) -> Record:
    return {"id": f"batch_req_{name}", "custom_id": name, "response": response, "error": error}


class _Work:
    """One batch while somebody works on it.

    Its record is written after each change, and each second.
    """

    def __init__(
        self,
        record: Record,
        store: ServedFiles,
        ask: Callable[[Record, BatchItem], Awaitable[BatchResult]],
        parallel: int,
        places: FairPlaces,
    ) -> None:
        self._record = record
        self._store = store
        self._ask = ask
        self._parallel = parallel
        self._places = places
        number = record["id"].removeprefix("batch_")
        self._names = {"output": f"file-{number[:-1]}0", "error": f"file-{number[:-1]}1"}
        self._batch: HeldBatch

    @asynccontextmanager
    async def held(self) -> AsyncIterator[None]:
        """Let no other process work on it. Raises `BlockingIOError` where one does."""
        name = self._record["id"]
        holding = self._store.held(name, [self._record["input_file_id"], *self._names.values()])
        self._batch = await FILE_WORK.run(holding.__enter__)
        try:
            # Another one had it before
            if (record := await asyncio.to_thread(self._store.find, name)) is not None:
                self._record = record
            yield
        finally:
            leaving = FILE_WORK.run(partial(holding.__exit__, None, None, None))
            await asyncio.shield(asyncio.create_task(leaving))

    async def perform(self) -> None:
        """Work to the end, or until it is cancelled or expires."""
        if self._record["status"] not in END_STATES and not await self._patiently(self._has_input):
            fault = _fault("input_file_missing", "its file is gone")
            self._record["errors"] = {"object": "list", "data": [fault]}
            await self._enter("failed")
        if self._record["status"] == "validating":
            async with self._places:
                faults, total = await FILE_WORK.run(self._check)
            self._record["request_counts"]["total"] = total
            if faults:
                self._record["errors"] = {"object": "list", "data": faults}
            await self._enter("failed" if faults else "in_progress")
        if self._record["status"] == "in_progress":
            end = await self._work_until()
            if end == "expired":
                await FILE_WORK.run(self._give_up)
            await self._enter(end)
        if self._record["status"] == "finalizing":
            await self._enter("completed")

    async def _enter(self, status: str) -> None:
        """Write down that the batch is in another state; once it is over, its files are there."""
        self._record |= {"status": status, f"{status}_at": int(time.time())}

        def write() -> None:
            files = self._name_files() if status in END_STATES else []
            self._batch.write(self._record, files)

        await self._patiently(write)

    def _name_files(self) -> list[Record]:
        """Name the files that have lines in the record of the batch; returns their own records."""
        records: list[Record] = []
        for kind, name in self._names.items():
            size = self._batch.size(name)
            if size:
                filename = f"{self._record['id']}_{kind}.jsonl"
                owner = self._record["owner"]
                records.append(file_record(name, owner, filename, "batch_output", size))
                self._record[f"{kind}_file_id"] = name
        return records

    async def _patiently(self, work: Callable[[], T]) -> T:
        """Do some work with the state, again and again while its database is away.

        Raises `TakenOver` and `OSError`.
        """
        while True:
            try:
                return await asyncio.to_thread(work)
            except TakenOver:
                raise
            except StateUnavailable as error:
                log.warning("the batch %s waits: %s", self._record["id"], error.message)
                await asyncio.sleep(AWAY_SECONDS)

    def _has_input(self) -> bool:
        name = self._record["input_file_id"]
        source = self._store.find(name)
        path = self._batch.path(name)
        return source is not None and path.exists() and path.stat().st_size == source["bytes"]

    def _open_lines(self, kind: str) -> LineFile:
        name = self._names[kind]
        return LineFile(self._batch.path(name), partial(self._batch.append, name))

    def _check(self) -> tuple[list[Record], int]:
        """Return what is wrong with the lines of the input, and how many requests there are."""
        faults: list[Record] = []
        ids: set[str] = set()
        for number, raw in enumerate(self._raw_lines(), start=1):
            if number > MAX_LINES:
                message = f"there are more than {MAX_LINES:,} lines"
                faults.append(_fault("invalid_line", message, number))
                break
            if message := _fault_of(raw, self._record["endpoint"], ids):
                faults.append(_fault("invalid_line", message, number))
            if len(faults) == MAX_FAULTS:
                break
        if not ids and not faults:
            faults.append(_fault("empty_file", "the file has no requests"))
        return faults, len(ids)

    def _raw_lines(self) -> Iterator[bytes]:
        with self._batch.path(self._record["input_file_id"]).open("rb") as file:
            while raw := file.readline(MAX_LINE_BYTES + 1):
                if raw.strip():
                    yield raw

    def _left(self, done: set[str]) -> Iterator[BatchItem]:
        for raw in self._raw_lines():
            fields = json.loads(raw)
            if fields["custom_id"] not in done:
                yield BatchItem(fields["custom_id"], fields)

    async def _work_until(self) -> str:
        """Ask what is left; returns the state in which the batch then is."""
        working: asyncio.Task[None] | None = None
        try:
            while True:
                if await self._patiently(partial(self._store.is_cancelled, self._record["id"])):
                    return "cancelled"
                if time.time() >= self._record["expires_at"]:
                    return "expired"
                await self._patiently(partial(self._batch.write, dict(self._record)))
                if working is None:
                    working = asyncio.create_task(self._ask_all())
                await asyncio.wait([working], timeout=LOOK_SECONDS)
                if working.done():
                    await working
                    return "finalizing"
        finally:
            if working is not None:
                working.cancel()
                await asyncio.gather(working, return_exceptions=True)

    async def _ask_all(self) -> None:
        """Ask what is left, and wait as long as that only fails."""

        def tell(progress: BatchProgress) -> None:
            counts = {
                "total": progress.total,
                "completed": progress.answered,
                "failed": progress.failed,
            }
            self._record["request_counts"] = counts

        async def ask(item: BatchItem) -> BatchResult:
            return await self._ask(self._record, item)

        asker = ParallelAsker(ask, parallel=self._parallel, budget=Budget())
        while True:
            async with self._places:
                stopped = await self._ask_once(asker, tell)
            if stopped is None:
                return
            log.warning(
                "the batch %s waits: %s", self._record["id"], one_line(stopped.message)[:200]
            )
            await asyncio.sleep(WAIT_SECONDS)  # without a place, which others may need

    async def _ask_once(
        self, asker: ParallelAsker, tell: Callable[[BatchProgress], None]
    ) -> Failure | None:
        """Ask what is left; returns why that stopped, None at the end."""
        answered, failed = await FILE_WORK.run(self._mend)
        with (
            closing(self._open_lines("output")) as answers,
            closing(self._open_lines("error")) as failures,
        ):
            progress = BatchProgress(
                total=self._record["request_counts"]["total"],
                answered=len(answered),
                failed=len(failed),
            )
            files = AnswerFiles(answers, failures, progress)
            stopped = await run_batch(
                QuestionList(self._left(answered | failed)),
                files,
                asker,
                parallel=self._parallel,
                tell=tell,
            )
            tell(files.progress)
        return stopped

    def _mend(self) -> list[set[str]]:
        """Mend the files that a kill has cut off; returns the ids of answers and of failures."""
        paths = [self._batch.path(name) for name in self._names.values()]
        for path in paths:
            mend_last_line(path)
        return [{line["custom_id"] for line in written_lines(path)} for path in paths]

    def _give_up(self) -> None:
        """Write that the requests which are left were not asked."""
        answered, failed = self._mend()
        counts = self._record["request_counts"]
        counts |= {"completed": len(answered), "failed": len(failed)}
        error = {
            "code": "batch_expired",
            "message": "this request was not asked before the batch expired",
        }
        with closing(self._open_lines("error")) as failures:
            for item in self._left(answered | failed):
                failures.append(_line(item.id, None, error))
                counts["failed"] += 1


def _fault(code: str, message: str, line: int | None = None) -> Record:
    """Return what is wrong with an input, or with a line of it, as a client is shown it."""
    return {"code": code, "line": line, "message": message, "param": None}


def _fault_of(raw: bytes, endpoint: str, ids: set[str]) -> str:
    """Return what is wrong with a line of the input; empty where nothing is.

    Its id is added to `ids`.
    """
    if len(raw) > MAX_LINE_BYTES:
        return f"it is longer than {MAX_LINE_BYTES >> 20} MB"
    try:
        fields = read_json_body(raw)
    except RequestError as error:
        return error.message.replace("the body", "it", 1)
    name = fields.get("custom_id")
    if not isinstance(name, str) or not re.fullmatch(
        rf"[^\x00-\x1f]{{1,{MAX_ID_CHARACTERS}}}", name
    ):
        return f"custom_id must be a text of 1 to {MAX_ID_CHARACTERS} characters"
    if name in ids:
        return f"custom_id {name[:80]} is there twice"
    if fields.get("method", "POST") != "POST" or fields.get("url") != endpoint:
        return f"it is not a POST to {endpoint}"
    if not isinstance(fields.get("body"), dict):
        return "body is not an object"
    if fields["body"].get("stream"):
        return "stream cannot be asked for in a batch"
    ids.add(name)
    return ""
