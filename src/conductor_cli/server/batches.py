"""OpenAI's Files and Batches APIs: the requests of a file, each a run as any other, with their answers in another file.

A file is its bytes and a record of JSON beside them, below the directory of the state. A client sees its own files. An
upload goes to the disk while it arrives, so memory does not hold it.

A batch is a record of JSON, its input and the two files that grow by a line for each request (`app/batch.py`). So a
batch goes on where it stopped when the server is started again, and what is finished is kept when it is cancelled or
expires. One of several servers over one directory has it, by a lock. What says nothing about a request, such as a limit
of the day, makes the batch wait.
"""

from __future__ import annotations

import asyncio
import json
import logging
import re
import secrets
import time
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, closing, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NoReturn

from starlette.exceptions import HTTPException
from starlette.responses import FileResponse, Response
from starlette.routing import Route

from conductor_cli.app.batch import (
    MAX_ID,
    MAX_LINE,
    Asked,
    Batch,
    BatchItem,
    BatchProgress,
    Lines,
    mend_last_line,
    run_batch,
    written_lines,
)
from conductor_cli.core.errors import ConductorError, Failure
from conductor_cli.core.terminal_text import one_line
from conductor_cli.evals.cost import Budget
from conductor_cli.models.disk import exclusive_lock, make_private_directory, write_atomically
from conductor_cli.server.access import MAX_UPLOAD, UPLOADS, Principal, describe_error, principal_from, principal_of
from conductor_cli.server.answers import answering
from conductor_cli.server.api.bodies import refused
from conductor_cli.server.api.errors import error_body
from conductor_cli.server.api.request import RequestError, ServedAnswer
from conductor_cli.server.body import read_body, read_json

Record = dict[str, Any]
"""What is kept of a file or a batch: the object that its client is shown, and `owner`, which it is not."""

if TYPE_CHECKING:
    from starlette.requests import Request

    from conductor_cli.server.run_registry import RunRegistry, ServedRun

    Begin = Callable[
        [str, dict[str, Any], Principal], Awaitable[tuple[ServedRun, Callable[[ServedAnswer], dict[str, Any]]]]
    ]
    """Begins the run of a body for a path; returns it, and what writes its answer. Raises `RequestError`."""

log = logging.getLogger(__name__)

MAX_STORED: Final = 4_000_000_000
"""Bytes of all files of one client."""

MAX_LISTED: Final = 10_000
"""Entries of one answer, as at OpenAI."""

PRIVATE: Final = 0o600


class Records:
    """Records of JSON in a directory, named by their ids, each for one client."""

    def __init__(self, directory: Path, prefix: str, what: str) -> None:
        self.directory = directory
        self._prefix = prefix
        self._what = what

    def write(self, record: Record) -> None:
        """Keep a record, in the place of an earlier one. Raises `OSError`."""
        make_private_directory(self.directory)
        write_atomically(self.directory / f"{record['id']}.json", json.dumps(record), mode=PRIVATE)

    def read(self, name: str, client: Principal) -> Record:
        """Return a record of this client. Raises `RequestError` where there is none."""
        if re.fullmatch(rf"{self._prefix}[0-9a-f]{{24}}", name):
            found = self._load(self.directory / f"{name}.json")
            if found is not None and found["owner"] == client.origin:
                return found
        raise RequestError(404, "not_found", f"there is no {self._what} with the id {one_line(name)[:60]}")

    def all(self) -> list[Record]:
        """Return the records of everybody, newest first."""
        found = [self._load(path) for path in self.directory.glob(f"{self._prefix}*.json")]
        return sorted((each for each in found if each is not None), key=lambda each: (-each["created_at"], each["id"]))

    def listed(self, http: Request, **fields: str | None) -> Record:
        """Return a page of a client's records, as OpenAI lists them; those with other `fields` are left out."""
        owner, query = principal_of(http.scope).origin, http.query_params
        count = query.get("limit", str(MAX_LISTED if fields else 20))
        if not (count.isascii() and count.isdigit() and 0 < int(count[:6]) <= MAX_LISTED):
            raise refused("limit", f"must be a number from 1 to {MAX_LISTED:,}")
        own = [each for each in self.all() if each["owner"] == owner]
        own = [each for each in own if all(value in {None, each[name]} for name, value in fields.items())]
        if query.get("order") == "asc":
            own.reverse()
        names = [each["id"] for each in own]
        if (after := query.get("after")) in names:
            own = own[names.index(after) + 1 :]
        page = [shown(each) for each in own[: int(count)]]
        ends = {"first_id": page[0]["id"], "last_id": page[-1]["id"]} if page else {"first_id": None, "last_id": None}
        return {"object": "list", "data": page, **ends, "has_more": len(own) > len(page)}

    def _load(self, path: Path) -> Record | None:
        try:
            found = json.loads(path.read_text("utf-8"))
        except (OSError, ValueError):
            return None  # it is deleted, or was damaged by somebody else
        return found if isinstance(found, dict) and {"id", "owner", "created_at"} <= found.keys() else None


def shown(record: Mapping[str, Any]) -> Record:
    """Return what a client is shown of a record."""
    return {name: value for name, value in record.items() if name != "owner"}


class Files:
    """The files of all clients."""

    def __init__(self, directory: Path) -> None:
        self.records = Records(directory, "file-", "file")
        self._turn = asyncio.Semaphore(4)
        self.is_used: Callable[[str], bool] = lambda _: False
        """Whether something goes on that reads or writes the file of this id."""

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

    def path(self, name: str) -> Path:
        """Where the bytes of a file are."""
        return self.records.directory / name

    def add(self, name: str, owner: str, filename: str, purpose: str) -> Record:
        """Keep the record of a file whose bytes are there. Raises `OSError`."""
        record = {
            "id": name, "object": "file", "bytes": self.path(name).stat().st_size, "created_at": int(time.time()),
            "filename": filename, "purpose": purpose, "status": "processed", "expires_at": None, "owner": owner,
        }  # fmt: skip
        self.records.write(record)
        return record

    async def _create(self, http: Request) -> Record:
        client = principal_of(http.scope)
        async with self._turn:
            try:
                form = await http.form(max_files=1, max_fields=20)
            except HTTPException as error:
                raise RequestError(400, "invalid_form", f"the body is no form with a file: {error.detail}") from None
            try:
                upload, purpose = form.get("file"), form.get("purpose")
                if purpose != "batch":
                    raise refused("purpose", "must be batch: files are for batches")
                if upload is None or isinstance(upload, str):
                    raise refused("file", "is missing")
                name = f"file-{secrets.token_hex(12)}"
                return shown(
                    await asyncio.to_thread(self._keep, name, client.origin, upload.file, upload.filename or "file")
                )
            finally:
                await form.close()

    def _keep(self, name: str, owner: str, upload: Any, filename: str) -> Record:  # noqa: ANN401 - a file that is read
        stored = sum(each["bytes"] for each in self.records.all() if each["owner"] == owner)
        make_private_directory(self.records.directory)
        path = self.path(name)
        try:
            with path.open("xb") as file:
                path.chmod(PRIVATE)
                while data := upload.read(1 << 20):
                    stored += len(data)
                    if file.tell() + len(data) > MAX_UPLOAD:
                        raise RequestError(413, "file_too_large", f"a file has at most {MAX_UPLOAD // 10**6} MB")
                    if stored > MAX_STORED:
                        message = f"your files have more than {MAX_STORED // 10**9} GB together: delete some"
                        raise RequestError(413, "too_many_files", message)
                    file.write(data)
            return self.add(name, owner, one_line(filename)[:200], "batch")
        except BaseException:
            path.unlink(missing_ok=True)
            raise

    async def _list(self, http: Request) -> Record:
        return await asyncio.to_thread(self.records.listed, http, purpose=http.query_params.get("purpose"))

    async def _get(self, http: Request) -> Record:
        return shown(self.records.read(http.path_params["file"], principal_of(http.scope)))

    async def _delete(self, http: Request) -> Record:
        name = self.records.read(http.path_params["file"], principal_of(http.scope))["id"]
        if self.is_used(name):
            raise RequestError(409, "file_in_use", f"a batch that goes on uses {name}: cancel it first")
        self.remove([name])
        return {"id": name, "object": "file", "deleted": True}

    def remove(self, names: Iterable[str]) -> None:
        """Delete files. Raises `OSError`."""
        for name in names:
            for path in (self.records.directory / f"{name}.json", self.path(name)):
                path.unlink(missing_ok=True)

    async def _content(self, http: Request) -> Response:
        name = self.records.read(http.path_params["file"], principal_of(http.scope))["id"]
        return FileResponse(self.path(name), media_type="application/octet-stream")


# Batches

ENDPOINTS: Final = ("/v1/chat/completions", "/v1/responses")
MAX_LINES: Final = 50_000
MAX_FAULTS: Final = 50
"""Lines whose faults are told."""

WINDOW: Final = 24 * 3600
"""Seconds after which a batch expires."""

WAIT_SECONDS: Final = 30.0
"""How long a batch waits where going on would only fail."""

LOOK_SECONDS: Final = 1.0
"""Between two looks at what its client wants, and between two records of how far it is."""

SCAN_SECONDS: Final = 30.0
"""Between two looks for batches that nobody works on."""

OVER: Final = frozenset({"completed", "failed", "expired", "cancelled"})

_KINDS: Final = {
    "upstream_key": "key", "config": "config", "planner_unusable": "conductor", "server_is_ending": "terminated",
    "busy": "terminated", "unreachable": "unreachable",
}  # fmt: skip
"""What an error says that is none of the request's own, by its code."""


class Batches:
    """The batches of all clients."""

    def __init__(self, registry: RunRegistry, files: Files, directory: Path, begin: Begin) -> None:
        self._registry = registry
        self._files = files
        self._records = _BatchRecords(directory, "batch_", "batch")
        self._begin = begin
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._scanning: asyncio.Task[None] | None = None
        # Half of the runs that go on at once are left to requests that somebody waits for.
        self._parallel = max(1, registry.limits.parallel // 2)
        self._turns = asyncio.Semaphore(self._parallel)
        files.is_used = self._uses

    @property
    def routes(self) -> list[Route]:
        one = "/v1/batches/{batch}"
        return [
            Route("/v1/batches", answering(self._create), methods=["POST"]),
            Route("/v1/batches", answering(self._list), methods=["GET"]),
            Route(one, answering(self._get), methods=["GET"]),
            Route(f"{one}/cancel", answering(self._cancel), methods=["POST"]),
        ]

    def start(self) -> None:
        """Go on with the batches that are not over, also with those that another server leaves later."""

        async def scan() -> None:
            while True:
                for record in await asyncio.to_thread(self._records.all):
                    self._work_on(record)
                await asyncio.sleep(SCAN_SECONDS)

        self._scanning = asyncio.create_task(scan())

    async def close(self) -> None:
        """Leave the batches as they are: the next server goes on with them."""
        tasks = [*self._tasks.values(), *([self._scanning] if self._scanning else [])]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    # Requests

    async def _create(self, http: Request) -> Record:
        client, body = principal_of(http.scope), await read_body(http, dict)
        endpoint, window = body.get("endpoint"), body.get("completion_window")
        metadata = body.get("metadata") or {}
        if endpoint not in ENDPOINTS:
            raise refused("endpoint", f"must be one of {', '.join(ENDPOINTS)}")
        if window != "24h":
            raise refused("completion_window", "must be 24h")
        if not isinstance(metadata, dict) or len(json.dumps(metadata)) > 16_000:
            raise refused("metadata", "must be an object of short texts")
        source = self._files.records.read(str(body.get("input_file_id")), client)
        if source["purpose"] != "batch":
            raise refused("input_file_id", "must be a file of the purpose batch")
        now = int(time.time())
        states = ("in_progress", "finalizing", "completed", "failed", "expired", "cancelling", "cancelled")
        record = {
            "id": f"batch_{secrets.token_hex(12)}", "object": "batch", "endpoint": endpoint, "errors": None,
            "input_file_id": source["id"], "completion_window": window, "status": "validating",
            "output_file_id": None, "error_file_id": None, "created_at": now, "expires_at": now + WINDOW,
            **dict.fromkeys(f"{state}_at" for state in states),
            "request_counts": {"total": 0, "completed": 0, "failed": 0}, "metadata": metadata, "owner": client.origin,
        }  # fmt: skip
        self._records.write(record)
        self._work_on(record)
        return shown(record)

    async def _list(self, http: Request) -> Record:
        return await asyncio.to_thread(self._records.listed, http)

    async def _get(self, http: Request) -> Record:
        return self._shown(self._records.read(http.path_params["batch"], principal_of(http.scope)))

    async def _cancel(self, http: Request) -> Record:
        record = self._records.read(http.path_params["batch"], principal_of(http.scope))
        if record["status"] in OVER:
            raise RequestError(409, "batch_is_over", f"the batch is {record['status']} already")
        self._records.mark(record["id"]).touch(mode=PRIVATE)
        return self._shown(record)

    def _shown(self, record: Record) -> Record:
        if record["status"] not in OVER and self._records.mark(record["id"]).exists():
            record |= {"status": "cancelling", "cancelling_at": record["cancelling_at"] or int(time.time())}
        return shown(record)

    def _uses(self, name: str) -> bool:
        return any(each["input_file_id"] == name and each["status"] not in OVER for each in self._records.all())

    # Work

    def _work_on(self, record: Record) -> None:
        name = record["id"]
        if record["status"] not in OVER and name not in self._tasks:
            self._tasks[name] = asyncio.create_task(self._perform(name))
            self._tasks[name].add_done_callback(lambda _: self._tasks.pop(name))

    async def _perform(self, name: str) -> None:
        """Work on a batch to its end, unless another process does."""

        def busy() -> NoReturn:
            raise BlockingIOError

        try:
            with ExitStack() as stack, suppress(BlockingIOError):
                stack.enter_context(exclusive_lock(self._records.directory / f"{name}.lock", busy, seconds=0))
                record = next((each for each in self._records.all() if each["id"] == name), None)
                if record is not None and record["status"] not in OVER:
                    await _Work(record, self._records, self._files, self._ask, self._parallel).perform()
        except (OSError, ConductorError) as error:  # the disk is full, say: the next scan tries again
            log.error("the batch %s cannot go on: %s", name, describe_error(error))  # noqa: TRY400 - it may quote a prompt

    async def _ask(self, record: Record, item: BatchItem) -> Asked:
        """Ask a request of a batch as if its client had sent it."""
        try:
            async with self._turns:
                client = principal_from(record["owner"], self._registry.runs.settings().paths.config)
                served, write = await self._begin(record["endpoint"], item.data["body"], client)
                reader = self._registry.open(served)
                try:
                    while await reader.pieces() is not None:
                        reader.told()
                    ended = served.ended or RequestError(500, "internal", "the run has no end")
                finally:
                    self._registry.close(reader, delivered=True)
                    self._registry.cancel(served.id)
                    self._registry.forget(served.id)
            if isinstance(ended, RequestError):
                raise ended
            cost, body = ended.usage.total.cost, write(ended)
        except RequestError as error:
            kind = "limit" if error.code.startswith("limit") else _KINDS.get(error.code, "worker")
            failure = Failure(kind=kind, message=error.message, reason=error.code if kind == "limit" else "")  # type: ignore[arg-type]
            response = {"status_code": error.status, "request_id": "", "body": error_body(error, record["endpoint"])}
            return Asked(line=_line(item.id, response, None), failure=failure)
        response = {"status_code": 200, "request_id": served.id, "body": body}
        return Asked(line=_line(item.id, response, None), cost=cost)


class _BatchRecords(Records):
    """Records, and a file beside each that its client wants cancelled: whoever works on it looks for that."""

    def mark(self, name: str) -> Path:
        return self.directory / f"{name}.cancel"


def _line(name: str, response: Record | None, error: Record | None) -> Record:
    return {"id": f"batch_req_{name}", "custom_id": name, "response": response, "error": error}


class _Work:
    """One batch while somebody works on it. `record` is written after each change, and each second."""

    def __init__(
        self, record: Record, records: _BatchRecords, files: Files,
        ask: Callable[[Record, BatchItem], Awaitable[Asked]], parallel: int,
    ) -> None:  # fmt: skip
        self._record = record
        self._records = records
        self._files = files
        self._ask = ask
        self._parallel = parallel
        number = record["id"].removeprefix("batch_")
        self._names = {"output": f"file-{number[:-1]}0", "error": f"file-{number[:-1]}1"}

    async def perform(self) -> None:
        """Work to the end, or until it is cancelled or expires."""
        if self._record["status"] == "validating":
            faults, total = await asyncio.to_thread(self._check)
            self._record["request_counts"]["total"] = total
            if faults:
                self._record["errors"] = {"object": "list", "data": faults}
            self._enter("failed" if faults else "in_progress")
        if self._record["status"] == "in_progress":
            end = await self._work_until()
            if end == "expired":
                await asyncio.to_thread(self._give_up)
            self._enter(end)
        if self._record["status"] == "finalizing":
            self._enter("completed")
        self._records.mark(self._record["id"]).unlink(missing_ok=True)

    def _enter(self, status: str) -> None:
        """Write down that the batch is in another state; once it is over, its files are there."""
        self._record |= {"status": status, f"{status}_at": int(time.time())}
        for kind, name in self._names.items():
            if status in OVER and (path := self._files.path(name)).exists() and path.stat().st_size:
                self._files.add(name, self._record["owner"], f"{self._record['id']}_{kind}.jsonl", "batch_output")
                self._record[f"{kind}_file_id"] = name
        self._records.write(self._record)

    def _check(self) -> tuple[list[Record], int]:
        """Return what is wrong with the lines of the input, and how many requests there are."""
        faults, seen = list[Record](), set[str]()
        for number, raw in enumerate(self._raw_lines(), start=1):
            fault = _fault_of(raw, self._record["endpoint"], seen) if number <= MAX_LINES else "too_many_lines"
            if fault:
                message = {"too_many_lines": f"there are more than {MAX_LINES:,} lines"}.get(fault, fault)
                faults.append({"code": "invalid_line", "line": number, "message": message, "param": None})
            if len(faults) == MAX_FAULTS or number > MAX_LINES:
                break
        if not seen and not faults:
            faults.append({"code": "empty_file", "line": None, "message": "the file has no requests", "param": None})
        return faults, len(seen)

    def _raw_lines(self) -> Iterator[bytes]:
        with self._files.path(self._record["input_file_id"]).open("rb") as file:
            while raw := file.readline(MAX_LINE + 1):
                if raw.strip():
                    yield raw

    def _left(self, done: set[str]) -> Iterator[BatchItem]:
        for raw in self._raw_lines():
            data = json.loads(raw)
            if data["custom_id"] not in done:
                yield BatchItem(data["custom_id"], data)

    async def _work_until(self) -> str:
        """Ask what is left; returns the state in which the batch then is."""
        working = asyncio.create_task(self._ask_all())
        try:
            while True:
                done, _ = await asyncio.wait([working], timeout=LOOK_SECONDS)
                if done:
                    await working
                    return "finalizing"
                if self._records.mark(self._record["id"]).exists():
                    return "cancelled"
                if time.time() >= self._record["expires_at"]:
                    return "expired"
                self._records.write(self._record)
        finally:
            working.cancel()
            await asyncio.gather(working, return_exceptions=True)

    async def _ask_all(self) -> None:
        """Ask what is left, and wait as long as that only fails."""

        def tell(progress: BatchProgress) -> None:
            counts = {"total": progress.total, "completed": progress.answered, "failed": progress.failed}
            self._record["request_counts"] = counts

        async def ask(item: BatchItem) -> Asked:
            return await self._ask(self._record, item)

        while True:
            paths = [self._files.path(name) for name in self._names.values()]
            for path in paths:
                mend_last_line(path)
            ids = [{line["custom_id"] for line in written_lines(path)} for path in paths]
            with ExitStack() as stack:
                answers, failures = (stack.enter_context(closing(Lines(path))) for path in paths)
                progress = BatchProgress(
                    total=self._record["request_counts"]["total"], answered=len(ids[0]), failed=len(ids[1])
                )
                batch = Batch(items=self._left(ids[0] | ids[1]), answers=answers, failures=failures, progress=progress)
                stopped = await run_batch(batch, ask, parallel=self._parallel, budget=Budget(), tell=tell)
                tell(batch.progress)
            if stopped is None:
                return
            log.warning("the batch %s waits: %s", self._record["id"], one_line(stopped.message)[:200])
            await asyncio.sleep(WAIT_SECONDS)

    def _give_up(self) -> None:
        """Write that the requests which are left were not asked."""
        paths = [self._files.path(name) for name in self._names.values()]
        done = {line["custom_id"] for path in paths for line in written_lines(path)}
        error = {"code": "batch_expired", "message": "this request was not asked before the batch expired"}
        with closing(Lines(paths[1])) as failures:
            for item in self._left(done):
                failures.append(_line(item.id, None, error))
                self._record["request_counts"]["failed"] += 1


def _fault_of(raw: bytes, endpoint: str, seen: set[str]) -> str:
    """Return what is wrong with a line of the input; empty where nothing is. Its id is added to `seen`."""
    if len(raw) > MAX_LINE:
        return f"it is longer than {MAX_LINE >> 20} MB"
    try:
        data = read_json(raw)
    except RequestError as error:
        return error.message.replace("the body", "it", 1)
    name = data.get("custom_id")
    if not isinstance(name, str) or not re.fullmatch(rf"[^\x00-\x1f]{{1,{MAX_ID}}}", name):
        return f"custom_id must be a text of 1 to {MAX_ID} characters"
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
