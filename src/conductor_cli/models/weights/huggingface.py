"""The model hub, through its own library: where its cache is, what is in a repository, and the bytes of a file.

The library reads HF_ENDPOINT, HF_HOME, HF_TOKEN, HF_HUB_OFFLINE and the proxies, most of them once, at its import. Its
`hf_hub_download` is not used, because it deletes what it has downloaded after every failure. `http_get`, which that
function is built on, continues a file at its end. Xet is not used either: it cannot continue a file.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal, Self, TypeVar
from urllib.parse import urlsplit

from conductor_cli.core.errors import ConductorUnusable, ConfigError, without_numbers
from conductor_cli.core.redact import Secrets
from conductor_cli.models.api_errors import clean_excerpt
from conductor_cli.models.http import connection_errors, host_of, reason_of
from conductor_cli.models.llama.gguf import short_line
from conductor_cli.models.weights.verify import Report

CHUNK: Final = 1 << 20
"""Bytes that are written at once. The library's 10 MiB would be lost whenever a slow connection breaks."""

WAITS: Final = (1.0, 4.0, 15.0)
"""Seconds before each further try after an error that may pass."""

_COMMIT: Final = re.compile(r"[0-9a-f]{40}|[0-9a-f]{64}")
_ETAG: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,127}")

T = TypeVar("T")
Kind = Literal["model", "dataset"]


@dataclass(frozen=True, slots=True, kw_only=True)
class RemoteFile:
    """A file of a repository. `etag` names its bytes in the cache: its SHA-256, or git's hash of a small file.

    `etag` and `sha256` are empty and `size` is 0 where the hub does not say them. `kind` is that of the repository.
    """

    repo: str
    commit: str
    file: str
    etag: str
    size: int = 0
    sha256: str = ""
    kind: Kind = "model"


@dataclass(frozen=True, slots=True, kw_only=True)
class RemoteRepository:
    """A repository at one commit: its files by name, and its licence, empty where its card names none."""

    commit: str
    files: Mapping[str, RemoteFile]
    licence: str = ""


def library_settings() -> Any:  # noqa: ANN401 - a module of the library
    """What the library has read from the environment. Raises `ConfigError` where it cannot."""
    try:
        from huggingface_hub import constants
    except ValueError as error:
        hint = "correct or unset HF_ENDPOINT and the other variables of the hub"
        raise ConfigError(f"a variable of the hub is invalid: {error}", hint=hint) from None
    return constants


def cache_directory() -> Path:
    """Where the library and its other users keep downloads."""
    return Path(library_settings().HF_HUB_CACHE).absolute()


def repo_folder(repo: str) -> Path:
    """The directory of a repository in the cache."""
    return cache_directory() / "--".join(["models", *repo.split("/")])


def cached_path(repo: str, revision: str, file: str) -> Path | None:
    """A file of the commit that the revision was last known to be at, if the cache has it. The hub is not asked."""
    from huggingface_hub import try_to_load_from_cache

    found = try_to_load_from_cache(repo, file, cache_dir=cache_directory(), revision=revision)
    return Path(found) if isinstance(found, str) else None


def is_offline() -> bool:
    """Whether the environment forbids asking the hub."""
    return bool(library_settings().HF_HUB_OFFLINE)


def shown_endpoint() -> str:
    """The hub's address without a user and a password in it."""
    parts = urlsplit(library_settings().ENDPOINT)
    return str(parts._replace(netloc=parts.netloc.rpartition("@")[2]).geturl())


def ask_repository(repo: str, revision: str, kind: Kind = "model") -> RemoteRepository:
    """What the hub has in a repository at the commit that the revision is at. Raises `ConductorUnusable`."""
    from huggingface_hub import HfApi

    constants, token = library_settings(), _read_token()
    # Otherwise the library asks the hub which coding agents there are, and names the one it runs under.
    constants.HF_HUB_DISABLE_TELEMETRY = True
    api = HfApi(endpoint=constants.ENDPOINT, token=token or False)
    seconds = constants.HF_HUB_DOWNLOAD_TIMEOUT

    def ask() -> RemoteRepository:
        ask_info = api.model_info if kind == "model" else api.dataset_info
        info = ask_info(repo, revision=revision, timeout=seconds, files_metadata=True)
        commit = str(info.sha)
        files = (_remote_file(repo, commit, sibling, kind) for sibling in info.siblings or ())
        found = {file.file: file for file in files} if _COMMIT.fullmatch(commit) else {}
        return RemoteRepository(commit=commit, files=found, licence=_read_licence(info))

    repository = _retry(ask, f"revision {revision} of {repo}", repo, token)
    if not repository.files:
        raise ConductorUnusable(
            f"{host_of(constants.ENDPOINT)} does not answer like a model hub: it lists no files of {repo}",
            hint="check HF_ENDPOINT, the proxy, and whether the network requires a login",
        )
    return repository


def _read_licence(info: Any) -> str:  # noqa: ANN401 - the library's
    """The licence that a repository's card names, as one line."""
    card = info.card_data
    named = getattr(card, "license", None)
    if named == "other":
        named = getattr(card, "license_name", None) or named
    if isinstance(named, list):
        named = ", ".join(map(str, named))
    return short_line(str(named or ""), 60)


def _remote_file(repo: str, commit: str, sibling: Any, kind: Kind) -> RemoteFile:  # noqa: ANN401 - the library's
    sha256 = str(sibling.lfs.sha256) if sibling.lfs else ""
    etag = sha256 or str(sibling.blob_id or "")
    # The hash becomes the name of a file, so the answer is not trusted.
    if etag and not _ETAG.fullmatch(etag):
        raise ValueError("an invalid hash")
    size = sibling.lfs.size if sibling.lfs else sibling.size
    return RemoteFile(
        repo=repo, commit=commit, file=str(sibling.rfilename), etag=etag, size=max(0, int(size or 0)), sha256=sha256,
        kind=kind,
    )  # fmt: skip


def download_file(remote: RemoteFile, part: Path, report: Report) -> None:
    """Append to `part` what it lacks of the file; only the size is checked.

    Raises `ConductorUnusable`, or `OSError` where the bytes cannot be written.
    """
    from huggingface_hub.file_download import http_get

    token = _read_token()
    library_settings().DOWNLOAD_CHUNK_SIZE = CHUNK
    url, headers = _file_request(remote, token)

    def show(*, initial: int, **_: object) -> _DownloadProgress:
        return _DownloadProgress(remote, initial, report)

    def append() -> None:
        with part.open("ab") as stream:
            http_get(
                url, stream, resume_size=size_of(part), headers=headers, expected_size=remote.size, tqdm_class=show
            )

    _retry(append, f"{remote.file} of {remote.repo}", remote.repo, token, lambda: size_of(part))


def read_start(remote: RemoteFile, count: int) -> bytes:
    """The first bytes of a file, at most `count`. Raises `ConductorUnusable`."""
    from huggingface_hub.utils import get_session, hf_raise_for_status

    seconds, token = library_settings().HF_HUB_DOWNLOAD_TIMEOUT, _read_token()
    url, headers = _file_request(remote, token)
    headers["range"] = f"bytes=0-{count - 1}"

    def read() -> bytes:
        data = b""
        with get_session().stream("GET", url, headers=headers, timeout=seconds) as response:
            hf_raise_for_status(response)
            for chunk in response.iter_bytes(1 << 16):
                data += chunk
                if len(data) >= count:  # a host without ranges sends the whole file
                    break
        return data[:count]

    return _retry(read, f"{remote.file} of {remote.repo}", remote.repo, token)


def _file_request(remote: RemoteFile, token: str) -> tuple[str, dict[str, str]]:
    """The address and the headers of a request for the bytes of a file."""
    from huggingface_hub import hf_hub_url, logging

    logging.set_verbosity_error()  # its warnings show signed addresses
    url = hf_hub_url(
        remote.repo, remote.file, repo_type=remote.kind, revision=remote.commit, endpoint=library_settings().ENDPOINT
    )
    headers = {"accept-encoding": "identity", "user-agent": "conductor-llm"}
    if token:  # httpx drops this header when a redirect leads to another host
        headers["authorization"] = f"Bearer {token}"
    return url, headers


class _DownloadProgress:
    """What the library shows progress with, in the place of a tqdm bar. It also refuses endless answers."""

    def __init__(self, remote: RemoteFile, done: int, report: Report) -> None:
        self._remote = remote
        self._done = done
        self._report = report
        self.update(0)

    def update(self, count: int) -> None:
        """So many bytes came, and will be written next. Raises `ConductorUnusable` for more than the file has."""
        remote = self._remote
        self._done += count
        if self._done > remote.size:
            raise ConductorUnusable(
                f"more bytes of {remote.file} of {remote.repo} were sent than the {remote.size:,} that the hub names",
                hint="pull again, or from another HF_ENDPOINT",
            )
        self._report(f"downloading {remote.file}", self._done, remote.size)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        pass


def _retry(action: Callable[[], T], what: str, repo: str, token: str, done: Callable[[], int] | None = None) -> T:
    """The result of `action`, repeated a few times after a server's error, and for as long as bytes come.

    `done` says how many bytes are on the disk, if the action writes any. The library itself repeats requests for bytes
    that are cut off or get no answer. Raises `ConductorUnusable`, or the `OSError` of a disk.
    """
    expected: tuple[type[Exception], ...] = (
        *connection_errors(),
        OSError,
        ValueError,
        KeyError,
        TypeError,
        AttributeError,
    )
    tries, most = 0, done() if done else 0
    while True:
        try:
            return action()
        except expected as error:
            if done and isinstance(error, OSError) and error.errno:
                raise
            # Bytes that a host without ranges sends once more are no progress.
            size = done() if done else 0
            tries, most = (0, size) if size > most else (tries + 1, most)
            if tries > len(WAITS) or (tries and _status_of(error) < 500):
                raise _explain_error(error, what, repo, token, begun=size > 0) from None
        time.sleep(WAITS[max(0, tries - 1)])


_REFUSALS: Final = {
    "GatedRepoError": ("{repo} is gated", "accept its licence at {endpoint}/{repo}, then {login}"),
    # To strangers the hub says the same of private repositories and of missing ones.
    "RepositoryNotFoundError": ("{host} has no repository {repo}, or it is private", "check its name; {login}"),
    "RevisionNotFoundError": ("{host} has no {what}", "update conductor-llm, or the registry"),
    401: ("{host} rejects the token for {repo}, or requires one", "{login}"),
    403: ("{host} denies access to {repo}", "see {endpoint}/{repo}; {login}"),
    404: ("{host} has no {what}", "is it a model hub? check HF_ENDPOINT, or update conductor-llm"),
    407: ("the proxy for {host} requires a login", "put user and password into HTTPS_PROXY"),
    429: ("{host}: rate limit reached", "try again later; HF_TOKEN raises the limit"),
}
"""What a refusal means, by the library's exception or else by the status, and what to do next."""


WITHOUT_NETWORK: Final = "without a network, a file that you have: conductor model import FILE.gguf --use"


def _explain_error(error: Exception, what: str, repo: str, token: str, *, begun: bool) -> ConductorUnusable:
    """An error of the library or of the connection as the one that the user sees. It contains no token.

    `begun`: a part of the file is on the disk.
    """
    hub, status = host_of(library_settings().ENDPOINT), _status_of(error)
    host = hub
    with suppress(AttributeError, RuntimeError):  # no request was sent
        host = host_of(str(error.request.url))  # type: ignore[attr-defined] # httpx has it
    if not status:
        then = "the next pull continues where this one stopped" if begun else WITHOUT_NETWORK
        hint = f"check the network, HTTPS_PROXY and HF_ENDPOINT; {then}"
        if type(error) is OSError:  # the library compares the size at the end
            return ConductorUnusable(f"{host}: the connection ended before all of {what} had come", hint=hint)
        meaning = (
            reason_of(error)[1]
            if isinstance(error, (OSError, *connection_errors()))
            else "does not answer like a model hub"
        )
        words = without_numbers(clean_excerpt(str(error), Secrets(token)))
        return ConductorUnusable(f"{host} {meaning}{f': {words}' if words else ''}", hint=hint)
    host = host_of(str(error.response.url))  # type: ignore[attr-defined] # what has a status has an answer
    later = ("{host} refuses {what}", "try again later, or with another HF_ENDPOINT; the next pull continues")
    message, hint = _REFUSALS.get(type(error).__name__) or _REFUSALS.get(status) or later
    if host != hub:  # the host of the bytes, to which the hub's own reasons do not apply
        message, hint = f"{hub} redirects to {{host}} for {{what}}, which refuses the download", later[1]
    login = "check what your token may read" if token else "set HF_TOKEN, or: hf auth login"
    values = {"host": host, "repo": repo, "what": what, "login": login, "endpoint": shown_endpoint()}
    words = clean_excerpt(str(getattr(error, "server_message", "") or ""), Secrets(token))
    message = f"{message.format_map(values)} ({status}){f': {words}' if words else ''}"
    return ConductorUnusable(message, hint=hint.format_map(values))


def _status_of(error: Exception) -> int:
    """The status of the answer that an exception is about, 0 for none."""
    return int(getattr(getattr(error, "response", None), "status_code", 0))


def _read_token() -> str:
    """The user's token, empty for none. Raises `ConductorUnusable` for one that cannot be sent."""
    from huggingface_hub import get_token

    if library_settings().HF_HUB_DISABLE_IMPLICIT_TOKEN:
        return ""
    token = ""
    with suppress(Exception):  # a login that cannot be renewed; the hub then says what it requires
        token = get_token() or ""
    # The text of a header with other characters would appear in the error of the connection.
    if not (token.isascii() and token.isprintable()):
        raise ConductorUnusable(
            "the token of the hub contains invalid characters", hint="set HF_TOKEN, unset it, or: hf auth login"
        )
    return token


def size_of(path: Path) -> int:
    """Bytes of a file, 0 where there is none."""
    return path.stat().st_size if path.exists() else 0
