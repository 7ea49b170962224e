"""OpenAI's Files API: what clients upload for their batches, and what batches leave for them.

A client sees its own files. An upload goes to the disk while it arrives, so memory does not hold
it.
"""

from __future__ import annotations

import asyncio
import re
import secrets
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Final

from starlette.exceptions import HTTPException
from starlette.responses import FileResponse, Response, StreamingResponse
from starlette.routing import Route

from conductor_cli.core.bounded_parsing import parse_whole_number
from conductor_cli.core.mappings import without_keys
from conductor_cli.core.terminal_text import one_line
from conductor_cli.programs.turns import FairPlaces
from conductor_cli.server.api.body_faults import refused
from conductor_cli.server.api.ignored_fields import unread_fields
from conductor_cli.server.api.request import RequestError
from conductor_cli.server.http.access import MAX_UPLOAD, UPLOADS, Principal, principal_of
from conductor_cli.server.http.answers import answering
from conductor_cli.state.served_files import Record, ServedFiles
from conductor_cli.system.threads import FILE_WORK

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.types import ASGIApp

MAX_STORED: Final = 4_000_000_000  # Bytes of all files of one client
MAX_LISTED: Final = 10_000  # Entries of one answer, as at OpenAI
MAX_UPLOADS: Final = 16  # At once, for their clients by turns
READ_BYTES: Final = 1 << 20  # How much of an upload is read at once


def find_record(store: ServedFiles, kind: str, name: str, client: Principal) -> Record:
    """Return the record of a file or a batch of this client.

    Raises `RequestError` where there is none.
    """
    is_id = re.fullmatch(rf"{kind}[-_][0-9a-f]{{24}}", name) is not None
    record = store.find(name) if is_id else None
    if record is None or record["owner"] != client.origin:
        message = f"there is no {kind} with the id {one_line(name)[:60]}"
        raise RequestError(404, "not_found", message)
    return record


async def find_named(store: ServedFiles, kind: str, http: Request) -> Record:
    """Return the record that the path of a request names. Raises as `find_record`."""
    client = principal_of(http.scope)
    return await asyncio.to_thread(find_record, store, kind, http.path_params[kind], client)


def list_records(
    store: ServedFiles, kind: str, http: Request, purpose: str | None = None
) -> Record:
    """Return a page of a client's records, as OpenAI lists them.

    With a `purpose`, files of another one are left out.
    """
    query = http.query_params
    records = store.all(kind, principal_of(http.scope).origin)
    if purpose is not None:
        records = [record for record in records if record["purpose"] == purpose]
    records.sort(key=lambda record: (-record["created_at"], record["id"]))
    if query.get("order") == "asc":
        records.reverse()
    names = [record["id"] for record in records]
    if (after := query.get("after")) in names:
        records = records[names.index(after) + 1 :]
    # As at OpenAI, which lists all files unless a number is asked for
    count = _page_size(query.get("limit"), default=MAX_LISTED if kind == "file" else 20)
    page = [without_owner(record) for record in records[:count]]
    ids = [row["id"] for row in page] or [None]
    return {
        "object": "list",
        "data": page,
        "first_id": ids[0],
        "last_id": ids[-1],
        "has_more": len(records) > len(page),
    }


def _page_size(limit: str | None, *, default: int) -> int:
    """Return how many records a client asks for. Raises `RequestError`."""
    if limit is None:
        return default
    count = parse_whole_number(limit)
    if count is None or not 0 < count <= MAX_LISTED:
        raise refused("limit", f"must be a number from 1 to {MAX_LISTED:,}")
    return count


def without_owner(record: Mapping[str, Any]) -> Record:
    """Return what a client is shown of a record."""
    return without_keys(record, ("owner",))


def created(record: Mapping[str, Any], ignored: Sequence[str]) -> Record:
    """Return the answer to a request that made a record, with its fields that had no effect."""
    shown = without_owner(record)
    if ignored:
        shown["conductor"] = {"ignored": list(ignored)}
    return shown


Act = Callable[["Request"], Awaitable["dict[str, Any] | ASGIApp"]]


def _for_openai(act: Act) -> Callable[[Request], Awaitable[ASGIApp]]:
    """Return a route of OpenAI's Files, which a client of Anthropic's Files is refused.

    That API has the same address, and could not read these answers.
    """

    async def refuse_others(http: Request) -> dict[str, Any] | ASGIApp:
        if "anthropic-version" in http.headers:
            message = (
                "this server has no Files API of Anthropic: send the file in the message, as base64"
            )
            raise RequestError(404, "not_found", message)
        return await act(http)

    return answering(refuse_others)


class Files:
    """The files of all clients."""

    def __init__(self, store: ServedFiles) -> None:
        self.store = store
        self._uploads = FairPlaces(MAX_UPLOADS)

    @property
    def routes(self) -> list[Route]:
        path = f"{UPLOADS}/{{file}}"
        return [
            Route(UPLOADS, _for_openai(self._create), methods=["POST"]),
            Route(UPLOADS, _for_openai(self._list), methods=["GET"]),
            Route(path, _for_openai(self._get), methods=["GET"]),
            Route(path, _for_openai(self._delete), methods=["DELETE"]),
            Route(f"{path}/content", _for_openai(self._content), methods=["GET"]),
        ]

    async def _create(self, http: Request) -> Record:
        client = principal_of(http.scope)
        async with self._uploads:
            try:
                form = await http.form(max_files=1, max_fields=20)
            except HTTPException as error:
                message = f"the body is no form with a file: {error.detail}"
                raise RequestError(400, "invalid_form", message) from None
            try:
                upload = form.get("file")
                purpose = form.get("purpose")
                if purpose != "batch":
                    raise refused("purpose", "must be batch: files are for batches")
                if upload is None or isinstance(upload, str):
                    raise refused("file", "is missing")
                name = one_line(upload.filename or "file")[:200]
                keep = partial(self._keep, client.origin, upload.file, name)
                ignored = unread_fields(dict(form), {"file", "purpose"})
                return created(await FILE_WORK.run(keep), ignored)
            finally:
                await form.close()

    def _keep(self, owner: str, upload: IO[bytes], filename: str) -> Record:
        stored = sum(record["bytes"] for record in self.store.all("file", owner))

        def pieces() -> Iterator[bytes]:
            size = 0
            while piece := upload.read(READ_BYTES):
                size += len(piece)
                if size > MAX_UPLOAD:
                    message = f"a file has at most {MAX_UPLOAD // 10**6} MB"
                    raise RequestError(413, "file_too_large", message)
                if stored + size > MAX_STORED:
                    message = (
                        f"your files have more than {MAX_STORED // 10**9} GB together: delete some"
                    )
                    raise RequestError(413, "too_many_files", message)
                yield piece

        record = file_record(f"file-{secrets.token_hex(12)}", owner, filename, "batch")
        self.store.add(record, pieces())
        return record

    async def _list(self, http: Request) -> Record:
        purpose = http.query_params.get("purpose")
        listing = partial(list_records, self.store, "file", http, purpose=purpose)
        return await asyncio.to_thread(listing)

    async def _get(self, http: Request) -> Record:
        return without_owner(await find_named(self.store, "file", http))

    async def _delete(self, http: Request) -> Record:
        name = (await find_named(self.store, "file", http))["id"]
        batches = await asyncio.to_thread(self.store.open_batches)
        if any(batch["input_file_id"] == name for batch in batches):
            message = f"a batch that goes on uses {name}: cancel it first"
            raise RequestError(409, "file_in_use", message)
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
