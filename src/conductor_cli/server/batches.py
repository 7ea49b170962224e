"""OpenAI's Files and Batches APIs.

The requests of a file, each a run as any other, with their answers in another file.

A client sees its own files. An upload goes to the disk while it arrives, so memory does not hold
it.

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
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from contextlib import asynccontextmanager, closing, suppress
from functools import partial
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Final, TypeVar

from starlette.exceptions import HTTPException
from starlette.responses import FileResponse, Response, StreamingResponse
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
from conductor_cli.core.errors import ConductorError, Failure, StateUnavailable, TakenOver
from conductor_cli.core.terminal_text import one_line
from conductor_cli.run.budget import Budget
from conductor_cli.server.api.body_models import refused
from conductor_cli.server.api.errors import error_body
from conductor_cli.server.api.request import RequestError, ServedAnswer
from conductor_cli.server.http.access import (
    MAX_UPLOAD,
    UPLOADS,
    Principal,
    describe_error,
    principal_from,
    principal_of,
)
from conductor_cli.server.http.answers import answering
from conductor_cli.server.http.body import read_body, read_json_body
from conductor_cli.state.served_files import OVER, HeldBatch, Record, ServedFiles

if TYPE_CHECKING:
    from starlette.requests import Request

    from conductor_cli.server.runs.run_registry import RunRegistry, ServedRun

    Begin = Callable[
        [str, dict[str, Any], Principal],
        Awaitable[tuple[ServedRun, Callable[[ServedAnswer], dict[str, Any]]]],
    ]
    """Begins the run of a body for a path; returns it, and what writes its answer. Raises
    `RequestError`.
    """

T = TypeVar("T")

log = logging.getLogger(__name__)

MAX_STORED: Final = 4_000_000_000  # Bytes of all files of one client
MAX_LISTED: Final = 10_000  # Entries of one answer, as at OpenAI


def find_record(store: ServedFiles, kind: str, name: str, client: Principal) -> Record:
    """Return the record of a file or a batch of this client.

    Raises `RequestError` where there is none.
    """
    if re.fullmatch(rf"{kind}[-_][0-9a-f]{{24}}", name):
        found = store.find(name)
        if found is not None and found["owner"] == client.origin:
            return found
    raise RequestError(404, "not_found", f"there is no {kind} with the id {one_line(name)[:60]}")


async def find_named(store: ServedFiles, kind: str, http: Request) -> Record:
    """Return the record that the path of a request names. Raises as `find_record`."""
    client = principal_of(http.scope)
    return await asyncio.to_thread(find_record, store, kind, http.path_params[kind], client)


def list_records(store: ServedFiles, kind: str, http: Request, **fields: str | None) -> Record:
    """Return a page of a client's records, as OpenAI lists them.

    Those with other `fields` are left out.
    """
    owner = principal_of(http.scope).origin
    query = http.query_params
    count = query.get("limit", str(MAX_LISTED if fields else 20))
    if not (count.isascii() and count.isdigit() and 0 < int(count[:6]) <= MAX_LISTED):
        raise refused("limit", f"must be a number from 1 to {MAX_LISTED:,}")
    own = [
        each
        for each in store.all(kind, owner)
        if all(v in {None, each[name]} for name, v in fields.items())
    ]
    own.sort(key=lambda each: (-each["created_at"], each["id"]))
    if query.get("order") == "asc":
        own.reverse()
    names = [each["id"] for each in own]
    if (after := query.get("after")) in names:
        own = own[names.index(after) + 1 :]
    page = [without_owner(each) for each in own[: int(count)]]
    ends = (
        {"first_id": page[0]["id"], "last_id": page[-1]["id"]}
        if page
        else {"first_id": None, "last_id": None}
    )
    return {"object": "list", "data": page, **ends, "has_more": len(own) > len(page)}


def without_owner(record: Mapping[str, Any]) -> Record:
    """Return what a client is shown of a record."""
    return {name: value for name, value in record.items() if name != "owner"}


class Files:
    """The files of all clients."""

    def __init__(self, store: ServedFiles) -> None:
        self.store = store
        self._turn = asyncio.Semaphore(4)

    @property
    def routes(self) -> list[Route]:
        one = f"{UPLOADS}/{{file}}"
        return [
            Route(UPLOADS, answering(self._create), methods=["POST"]),
            Route(UPLOADS, answering(self._list), methods=["GET"]),
            Route(one, answering(self._get), methods=["GET"]),
            Route(one, answering(self._delete), methods=["DELETE"]),
            Route(f"{one}/content", answering(self._content), methods=["GET"]),
        ]

    async def _create(self, http: Request) -> Record:
        client = principal_of(http.scope)
        async with self._turn:
            try:
                form = await http.form(max_files=1, max_fields=20)
            except HTTPException as error:
                raise RequestError(
                    400, "invalid_form", f"the body is no form with a file: {error.detail}"
                ) from None
            try:
                upload = form.get("file")
                purpose = form.get("purpose")
                if purpose != "batch":
                    raise refused("purpose", "must be batch: files are for batches")
                if upload is None or isinstance(upload, str):
                    raise refused("file", "is missing")
                name = one_line(upload.filename or "file")[:200]
                return without_owner(
                    await asyncio.to_thread(self._keep, client.origin, upload.file, name)
                )
            finally:
                await form.close()

    def _keep(self, owner: str, upload: IO[bytes], filename: str) -> Record:
        stored = sum(each["bytes"] for each in self.store.all("file", owner))

        def pieces() -> Iterator[bytes]:
            size = 0
            while data := upload.read(1 << 20):
                size += len(data)
                if size > MAX_UPLOAD:
                    raise RequestError(
                        413, "file_too_large", f"a file has at most {MAX_UPLOAD // 10**6} MB"
                    )
                if stored + size > MAX_STORED:
                    message = (
                        f"your files have more than {MAX_STORED // 10**9} GB together: delete some"
                    )
                    raise RequestError(413, "too_many_files", message)
                yield data

        record = file_record(f"file-{secrets.token_hex(12)}", owner, filename, "batch")
        self.store.add(record, pieces())
        return record

    async def _list(self, http: Request) -> Record:
        purpose = http.query_params.get("purpose")
        return await asyncio.to_thread(
            partial(list_records, self.store, "file", http, purpose=purpose)
        )

    async def _get(self, http: Request) -> Record:
        return without_owner(await find_named(self.store, "file", http))

    async def _delete(self, http: Request) -> Record:
        name = (await find_named(self.store, "file", http))["id"]
        batches = await asyncio.to_thread(self.store.open_batches)
        if any(each["input_file_id"] == name for each in batches):
            raise RequestError(
                409, "file_in_use", f"a batch that goes on uses {name}: cancel it first"
            )
        await asyncio.to_thread(self.store.remove, name)
        return {"id": name, "object": "file", "deleted": True}

    async def _content(self, http: Request) -> Response:
        record = await find_named(self.store, "file", http)
        content = await asyncio.to_thread(self.store.content, record["id"])
        if isinstance(content, Path):
            return FileResponse(content, media_type="application/octet-stream")
        # So a client sees that it was deleted meanwhile
        headers = {"content-length": str(record["bytes"])}
        return StreamingResponse(content, headers=headers, media_type="application/octet-stream")


def file_record(name: str, owner: str, filename: str, purpose: str, size: int = 0) -> Record:
    """Return the record of a file of so many bytes."""
    return {
        "id": name,
        "object": "file",
        "bytes": size,
        "created_at": int(time.time()),
        "filename": filename,
        "purpose": purpose,
        "status": "processed",
        "expires_at": None,
        "owner": owner,
    }


# Batches

ENDPOINTS: Final = ("/v1/chat/completions", "/v1/responses")
MAX_LINES: Final = 50_000
MAX_FAULTS: Final = 50  # Lines whose faults are told
WINDOW: Final = 24 * 3600  # Seconds after which a batch expires
WAIT_SECONDS: Final = 30.0  # How long a batch waits where going on would only fail
AWAY_SECONDS: Final = 1.0  # How long a batch waits for a database that is away before it asks again
# Between two looks at what its client wants, and between two records of how far it is
LOOK_SECONDS: Final = 1.0
SCAN_SECONDS: Final = 10.0  # Between two looks for batches that nobody works on

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
        self._turns = asyncio.Semaphore(self._parallel)

    @property
    def routes(self) -> list[Route]:
        one = "/v1/batches/{batch}"
        return [
            Route("/v1/batches", answering(self._create), methods=["POST"]),
            Route("/v1/batches", answering(self._list), methods=["GET"]),
            Route(one, answering(self._get), methods=["GET"]),
            Route(f"{one}/cancel", answering(self._cancel), methods=["POST"]),
        ]

    async def work(self) -> None:
        """Go on with the batches that are not over, until this is cancelled.

        Those that another server leaves later are among them. Cancelled, it leaves them as they
        are: the next server goes on with them.
        """
        try:
            while True:
                try:
                    found = await asyncio.to_thread(self._store.open_batches)
                    # The first may be those that other servers have
                    secrets.SystemRandom().shuffle(found)
                    for record in found:
                        self._work_on(record)
                except (ConductorError, OSError):
                    pass  # a database or a disk that is away is asked again
                except Exception as error:  # noqa: BLE001
                    # One damaged record must not end the batches under way
                    # It may quote a prompt
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
        states = (
            "in_progress",
            "finalizing",
            "completed",
            "failed",
            "expired",
            "cancelling",
            "cancelled",
        )
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
            "expires_at": now + WINDOW,
            **dict.fromkeys(f"{state}_at" for state in states),
            "request_counts": {"total": 0, "completed": 0, "failed": 0},
            "metadata": metadata,
            "owner": client.origin,
        }
        await asyncio.to_thread(self._store.write, record)
        self._work_on(record)
        return without_owner(record)

    async def _list(self, http: Request) -> Record:
        return await asyncio.to_thread(list_records, self._store, "batch", http)

    async def _get(self, http: Request) -> Record:
        record = await find_named(self._store, "batch", http)
        if record["status"] not in OVER and await asyncio.to_thread(
            self._store.is_cancelled, record["id"]
        ):
            record |= {
                "status": "cancelling",
                "cancelling_at": record["cancelling_at"] or int(time.time()),
            }
        return without_owner(record)

    async def _cancel(self, http: Request) -> Record:
        record = await self._get(http)
        if record["status"] in OVER:
            raise RequestError(409, "batch_is_over", f"the batch is {record['status']} already")
        await asyncio.to_thread(self._store.cancel, record["id"])
        return await self._get(http)

    # Work

    def _work_on(self, record: Record) -> None:
        name = record["id"]
        # Others wait for another server, or until one is over
        if name not in self._tasks and len(self._tasks) < 16:
            self._tasks[name] = asyncio.create_task(self._perform(name))
            self._tasks[name].add_done_callback(lambda _: self._tasks.pop(name))

    async def _perform(self, name: str) -> None:
        """Work on a batch to its end, unless another process does."""
        try:
            record = await asyncio.to_thread(self._store.find, name)
            with suppress(BlockingIOError):
                if record is not None:
                    work = _Work(record, self._store, self._ask, self._parallel)
                    async with work.held():
                        await work.perform()
        except (OSError, ConductorError) as error:
            # The disk is full, say: the next scan tries again
            # It may quote a prompt
            log.error("the batch %s cannot go on: %s", name, describe_error(error))  # noqa: TRY400

    async def _ask(self, record: Record, item: BatchItem) -> BatchResult:
        """Ask a request of a batch as if its client had sent it."""
        try:
            async with self._turns:
                client = principal_from(
                    record["owner"], self._registry.starter.settings().paths.config
                )
                served, write = await self._begin(record["endpoint"], item.fields["body"], client)
                reader = self._registry.open(served)
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
            kind = "limit" if error.code.startswith("limit") else _KINDS.get(error.code, "worker")
            reason = error.code if kind == "limit" else ""
            failure = Failure(kind=kind, message=error.message, reason=reason)  # type: ignore[arg-type]
            response = {
                "status_code": error.status,
                "request_id": "",
                "body": error_body(error, record["endpoint"]),
            }
            return BatchResult(line=_line(item.id, response, None), failure=failure)
        response = {"status_code": 200, "request_id": served.id, "body": body}
        return BatchResult(line=_line(item.id, response, None), cost=cost)


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
    ) -> None:
        self._record = record
        self._store = store
        self._ask = ask
        self._parallel = parallel
        number = record["id"].removeprefix("batch_")
        self._names = {"output": f"file-{number[:-1]}0", "error": f"file-{number[:-1]}1"}
        self._batch: HeldBatch

    @asynccontextmanager
    async def held(self) -> AsyncIterator[None]:
        """Let no other process work on it. Raises `BlockingIOError` where one does."""
        name = self._record["id"]
        holding = self._store.held(name, [self._record["input_file_id"], *self._names.values()])
        self._batch = await asyncio.to_thread(holding.__enter__)
        try:
            # Another one had it before
            if (record := await asyncio.to_thread(self._store.find, name)) is not None:
                self._record = record
            yield
        finally:
            await asyncio.shield(asyncio.to_thread(holding.__exit__, None, None, None))

    async def perform(self) -> None:
        """Work to the end, or until it is cancelled or expires."""
        if self._record["status"] not in OVER and not await self._patiently(self._has_input):
            fault = {
                "code": "input_file_missing",
                "line": None,
                "message": "its file is gone",
                "param": None,
            }
            self._record["errors"] = {"object": "list", "data": [fault]}
            await self._enter("failed")
        if self._record["status"] == "validating":
            faults, total = await asyncio.to_thread(self._check)
            self._record["request_counts"]["total"] = total
            if faults:
                self._record["errors"] = {"object": "list", "data": faults}
            await self._enter("failed" if faults else "in_progress")
        if self._record["status"] == "in_progress":
            end = await self._work_until()
            if end == "expired":
                await asyncio.to_thread(self._give_up)
            await self._enter(end)
        if self._record["status"] == "finalizing":
            await self._enter("completed")

    async def _enter(self, status: str) -> None:
        """Write down that the batch is in another state; once it is over, its files are there."""
        self._record |= {"status": status, f"{status}_at": int(time.time())}

        def write() -> None:
            written = []
            for kind, name in self._names.items():
                if status in OVER and (size := self._batch.size(name)):
                    filename = f"{self._record['id']}_{kind}.jsonl"
                    written.append(
                        file_record(name, self._record["owner"], filename, "batch_output", size)
                    )
                    self._record[f"{kind}_file_id"] = name
            self._batch.write(self._record, written)

        await self._patiently(write)

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
        faults = list[Record]()
        seen = set[str]()
        for number, raw in enumerate(self._raw_lines(), start=1):
            fault = (
                _fault_of(raw, self._record["endpoint"], seen)
                if number <= MAX_LINES
                else "too_many_lines"
            )
            if fault:
                message = {"too_many_lines": f"there are more than {MAX_LINES:,} lines"}.get(
                    fault, fault
                )
                faults.append(
                    {"code": "invalid_line", "line": number, "message": message, "param": None}
                )
            if len(faults) == MAX_FAULTS or number > MAX_LINES:
                break
        if not seen and not faults:
            faults.append(
                {
                    "code": "empty_file",
                    "line": None,
                    "message": "the file has no requests",
                    "param": None,
                }
            )
        return faults, len(seen)

    def _raw_lines(self) -> Iterator[bytes]:
        with self._batch.path(self._record["input_file_id"]).open("rb") as file:
            while raw := file.readline(MAX_LINE_BYTES + 1):
                if raw.strip():
                    yield raw

    def _left(self, done: set[str]) -> Iterator[BatchItem]:
        for raw in self._raw_lines():
            data = json.loads(raw)
            if data["custom_id"] not in done:
                yield BatchItem(data["custom_id"], data)

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
                working = working or asyncio.create_task(self._ask_all())
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

        while True:
            ids = await asyncio.to_thread(self._mend)
            with (
                closing(self._open_lines("output")) as answers,
                closing(self._open_lines("error")) as failures,
            ):
                progress = BatchProgress(
                    total=self._record["request_counts"]["total"],
                    answered=len(ids[0]),
                    failed=len(ids[1]),
                )
                files = AnswerFiles(answers, failures, progress)
                stopped = await run_batch(
                    QuestionList(self._left(ids[0] | ids[1])),
                    files,
                    ParallelAsker(ask, parallel=self._parallel, budget=Budget()),
                    parallel=self._parallel,
                    tell=tell,
                )
                tell(files.progress)
            if stopped is None:
                return
            log.warning(
                "the batch %s waits: %s", self._record["id"], one_line(stopped.message)[:200]
            )
            await asyncio.sleep(WAIT_SECONDS)

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


def _fault_of(raw: bytes, endpoint: str, seen: set[str]) -> str:
    """Return what is wrong with a line of the input; empty where nothing is.

    Its id is added to `seen`.
    """
    if len(raw) > MAX_LINE_BYTES:
        return f"it is longer than {MAX_LINE_BYTES >> 20} MB"
    try:
        data = read_json_body(raw)
    except RequestError as error:
        return error.message.replace("the body", "it", 1)
    name = data.get("custom_id")
    if not isinstance(name, str) or not re.fullmatch(
        rf"[^\x00-\x1f]{{1,{MAX_ID_CHARACTERS}}}", name
    ):
        return f"custom_id must be a text of 1 to {MAX_ID_CHARACTERS} characters"
    if name in seen:
        return f"custom_id {name[:80]} is there twice"
    if data.get("method", "POST") != "POST" or data.get("url") != endpoint:
        return f"it is not a POST to {endpoint}"
    if not isinstance(data.get("body"), dict):
        return "body is not an object"
    if data["body"].get("stream"):
        return "stream cannot be asked for in a batch"
    seen.add(name)
    return ""
