"""OpenAI's Files API: the questions and the answers of batches, as files below the directory of the state.

A file is its bytes and a record of JSON beside them. A client sees its own files. An upload goes to the disk while it
arrives, so memory does not hold it.
"""

from __future__ import annotations

import asyncio
import json
import re
import secrets
import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from starlette.exceptions import HTTPException
from starlette.responses import FileResponse, Response
from starlette.routing import Route

from conductor_cli.core.terminal_text import one_line
from conductor_cli.models.disk import make_private_directory, write_atomically
from conductor_cli.server.access import MAX_UPLOAD, UPLOADS, Principal, principal_of
from conductor_cli.server.answers import answering
from conductor_cli.server.api.bodies import refused
from conductor_cli.server.api.request import RequestError

if TYPE_CHECKING:
    from starlette.requests import Request

MAX_STORED: Final = 4_000_000_000
"""Bytes of all files of one client."""

MAX_LISTED: Final = 10_000
"""Entries of one answer, as at OpenAI."""

PRIVATE: Final = 0o600

Record = dict[str, Any]
"""What is kept of a file or a batch: the object that its client is shown, and `owner`, which it is not."""


class Records:
    """Records of JSON in a directory, named by their ids, each for one client."""

    def __init__(self, directory: Path, prefix: str, what: str) -> None:
        self.directory = directory
        self._prefix = prefix
        self._what = what

    def new_id(self) -> str:
        """Return an id that nobody has."""
        return self._prefix + secrets.token_hex(12)

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
                name = self.records.new_id()
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
