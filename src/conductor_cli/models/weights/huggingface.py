"""The model hub, through its own library.

Where its cache is, what is in a repository, and the bytes of a file.

The library reads HF_ENDPOINT, HF_HOME, HF_TOKEN, HF_HUB_OFFLINE and the proxies, most of them once,
at its import. Its `hf_hub_download` is not used, because it deletes what it has downloaded after
every failure. `http_get`, which that function is built on, continues a file at its end. Xet is not
used either: it cannot continue a file.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal, TypeVar
from urllib.parse import urlsplit

from conductor_cli.core.errors import ConductorUnusable, ConfigError, without_numbers
from conductor_cli.core.redact import Secrets
from conductor_cli.core.terminal_text import short_line
from conductor_cli.models.api_errors import clean_excerpt
from conductor_cli.models.http import connection_errors, host_of, reason_of
from conductor_cli.models.weights.model_store import ModelFile
from conductor_cli.models.weights.verify import Report

# Bytes that are written at once: a connection that breaks would lose the library's 10 MiB
CHUNK: Final = 1 << 20
WAITS: Final = (1.0, 4.0, 15.0)  # Seconds before each further try after an error that may pass
_COMMIT: Final = re.compile(r"[0-9a-f]{40}|[0-9a-f]{64}")
_ETAG: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,127}")

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class HubRepository:
    """A repository at one commit.

    Its files by name, and its licence, empty where its card names none.
    """

    name: str
    commit: str
    files: Mapping[str, ModelFile]
    licence: str = ""
    kind: Literal["model", "dataset"] = "model"


def library_settings() -> Any:  # noqa: ANN401 - a module of the library
    """Return what the library has read from the environment.

    Raises `ConfigError` where it cannot.
    """
    try:
        from huggingface_hub import constants
    except ValueError as error:
        hint = "correct or unset HF_ENDPOINT and the other variables of the hub"
        raise ConfigError(f"a variable of the hub is invalid: {error}", hint=hint) from None
    return constants


def cache_directory() -> Path:
    """Return where the library and its other users keep downloads."""
    return Path(library_settings().HF_HUB_CACHE).absolute()


def repo_folder(repo: str) -> Path:
    """Return the directory of a repository in the cache."""
    return cache_directory() / "--".join(["models", *repo.split("/")])


def cached_path(repo: str, revision: str, file: str) -> Path | None:
    """A file of the commit that the revision was last known to be at, if the cache has it.

    The hub is not asked.
    """
    from huggingface_hub import try_to_load_from_cache

    found = try_to_load_from_cache(repo, file, cache_dir=cache_directory(), revision=revision)
    return Path(found) if isinstance(found, str) else None


def is_offline() -> bool:
    """Return whether the environment forbids asking the hub."""
    return bool(library_settings().HF_HUB_OFFLINE)


def offline(problem: str) -> ConductorUnusable:
    """Return the error for something that `is_offline` leaves undone."""
    hint = "pull it without these, or: conductor model import FILE"
    return ConductorUnusable(
        f"HF_HUB_OFFLINE or TRANSFORMERS_OFFLINE is set, and {problem}", hint=hint
    )


def shown_endpoint() -> str:
    """Return the hub's address without a user and a password in it."""
    parts = urlsplit(library_settings().ENDPOINT)
    return str(parts._replace(netloc=parts.netloc.rpartition("@")[2]).geturl())


def ask_repository(
    repo: str, revision: str, kind: Literal["model", "dataset"] = "model"
) -> HubRepository:
    """Return what the hub has in a repository at the commit that the revision is at.

    Raises `ConductorUnusable`.
    """
    from huggingface_hub import HfApi

    constants = library_settings()
    token = _read_token()
    # Otherwise the library asks the hub which coding agents there are, and names the one it runs
    # under.
    constants.HF_HUB_DISABLE_TELEMETRY = True
    api = HfApi(endpoint=constants.ENDPOINT, token=token or False)
    seconds = constants.HF_HUB_DOWNLOAD_TIMEOUT

    def ask() -> HubRepository:
        ask_info = api.model_info if kind == "model" else api.dataset_info
        info = ask_info(repo, revision=revision, timeout=seconds, files_metadata=True)
        commit = str(info.sha)
        files = dict[str, ModelFile]()
        for sibling in (info.siblings or ()) if _COMMIT.fullmatch(commit) else ():
            sha256 = str(sibling.lfs.sha256) if sibling.lfs else ""
            etag = sha256 or str(sibling.blob_id or "")
            # The hash becomes the name of a file, so the answer is not trusted.
            if etag and not _ETAG.fullmatch(etag):
                raise ValueError("an invalid hash")
            size = max(0, int((sibling.lfs.size if sibling.lfs else sibling.size) or 0))
            name = str(sibling.rfilename)
            files[name] = ModelFile(file=name, size=size, sha256=sha256, etag=etag)
        # The licence that a repository's card names, as one line.
        card = info.card_data
        named = getattr(card, "license", None)
        if named == "other":
            named = getattr(card, "license_name", None) or named
        if isinstance(named, list):
            named = ", ".join(map(str, named))
        return HubRepository(
            name=repo,
            commit=commit,
            files=files,
            licence=short_line(str(named or ""), 60),
            kind=kind,
        )

    repository = _retry(ask, f"revision {revision} of {repo}", repo, token)
    if not repository.files:
        problem = (
            f"{host_of(constants.ENDPOINT)} does not answer like a model hub: it lists no "
            f"files of {repo}"
        )
        hint = "check HF_ENDPOINT, the proxy, and whether the network requires a login"
        raise ConductorUnusable(problem, hint=hint)
    return repository


def download_file(repository: HubRepository, file: ModelFile, part: Path, report: Report) -> None:
    """Append to `part` what it lacks of the file; only the size is checked.

    Raises `ConductorUnusable`, or `OSError` where the bytes cannot be written.
    """
    from huggingface_hub.file_download import http_get

    token = _read_token()
    what = f"{file.file} of {repository.name}"
    library_settings().DOWNLOAD_CHUNK_SIZE = CHUNK
    url, headers = _file_request(repository, file, token)

    class Progress(AbstractContextManager["Progress"]):
        """What the library shows progress with, in the place of a tqdm bar.

        It also refuses endless answers.
        """

        def __init__(self, *, initial: int, **_: object) -> None:
            self._done = initial
            self.update(0)

        def update(self, count: int) -> None:
            """So many bytes came, and will be written next.

            Raises `ConductorUnusable` for more than the file has.
            """
            self._done += count
            if self._done > file.size:
                problem = (
                    f"more bytes of {what} were sent than the {file.size:,} that the hub names"
                )
                raise ConductorUnusable(problem, hint="pull again, or from another HF_ENDPOINT")
            report(f"downloading {file.file}", self._done, file.size)

        def __exit__(self, *_: object) -> None:
            pass

    def append() -> None:
        with part.open("ab") as stream:
            http_get(
                url,
                stream,
                resume_size=file_size(part),
                headers=headers,
                expected_size=file.size,
                tqdm_class=Progress,
            )

    _retry(append, what, repository.name, token, lambda: file_size(part))


def read_start(repository: HubRepository, file: ModelFile, count: int) -> bytes:
    """Return the first bytes of a file, at most `count`. Raises `ConductorUnusable`."""
    from huggingface_hub.utils import get_session, hf_raise_for_status

    seconds = library_settings().HF_HUB_DOWNLOAD_TIMEOUT
    token = _read_token()
    url, headers = _file_request(repository, file, token)
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

    return _retry(read, f"{file.file} of {repository.name}", repository.name, token)


def _file_request(
    repository: HubRepository, file: ModelFile, token: str
) -> tuple[str, dict[str, str]]:
    from huggingface_hub import hf_hub_url, logging

    logging.set_verbosity_error()  # its warnings show signed addresses
    url = hf_hub_url(
        repository.name,
        file.file,
        repo_type=repository.kind,
        revision=repository.commit,
        endpoint=library_settings().ENDPOINT,
    )
    headers = {"accept-encoding": "identity", "user-agent": "conductor-llm"}
    if token:  # httpx drops this header when a redirect leads to another host
        headers["authorization"] = f"Bearer {token}"
    return url, headers


def _retry(
    action: Callable[[], T], what: str, repo: str, token: str, done: Callable[[], int] | None = None
) -> T:
    """Return the result of `action`, repeated a few times after a server's error, and for as long
    as bytes come.

    `done` says how many bytes are on the disk, if the action writes any. The library itself repeats
    requests for bytes that are cut off or get no answer. Raises `ConductorUnusable`, or the
    `OSError` of a disk.
    """
    expected: tuple[type[Exception], ...] = (
        *connection_errors(),
        OSError,
        ValueError,
        KeyError,
        TypeError,
        AttributeError,
    )
    tries = 0
    most = done() if done else 0
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
    "RepositoryNotFoundError": (
        "{host} has no repository {repo}, or it is private",
        "check its name; {login}",
    ),
    "RevisionNotFoundError": ("{host} has no {what}", "update conductor-llm, or the registry"),
    401: ("{host} rejects the token for {repo}, or requires one", "{login}"),
    403: ("{host} denies access to {repo}", "see {endpoint}/{repo}; {login}"),
    404: ("{host} has no {what}", "is it a model hub? check HF_ENDPOINT, or update conductor-llm"),
    407: ("the proxy for {host} requires a login", "put user and password into HTTPS_PROXY"),
    429: ("{host}: rate limit reached", "try again later; HF_TOKEN raises the limit"),
}
"""What a refusal means, by the library's exception or else by the status, and what to do next."""


def _explain_error(
    error: Exception, what: str, repo: str, token: str, *, begun: bool
) -> ConductorUnusable:
    """Return an error of the library or of the connection as the one that the user sees.

    It contains no token.

    `begun`: a part of the file is on the disk.
    """
    hub = host_of(library_settings().ENDPOINT)
    status = _status_of(error)
    host = hub
    with suppress(AttributeError, RuntimeError):  # no request was sent
        host = host_of(str(error.request.url))  # type: ignore[attr-defined] # httpx has it
    if not status:
        then = "the next pull continues where this one stopped"
        if not begun:
            then = "without a network, a file that you have: conductor model import FILE.gguf --use"
        hint = f"check the network, HTTPS_PROXY and HF_ENDPOINT; {then}"
        if type(error) is OSError:  # the library compares the size at the end
            return ConductorUnusable(
                f"{host}: the connection ended before all of {what} had come", hint=hint
            )
        failed = isinstance(error, (OSError, *connection_errors()))
        meaning = reason_of(error)[1] if failed else "does not answer like a model hub"
        words = without_numbers(clean_excerpt(str(error), Secrets(token)))
        return ConductorUnusable(f"{host} {meaning}{f': {words}' if words else ''}", hint=hint)
    host = host_of(str(error.response.url))  # type: ignore[attr-defined] # what has a status has an answer
    later = (
        "{host} refuses {what}",
        "try again later, or with another HF_ENDPOINT; the next pull continues",
    )
    message, hint = _REFUSALS.get(type(error).__name__) or _REFUSALS.get(status) or later
    if host != hub:  # the host of the bytes, to which the hub's own reasons do not apply
        message = f"{hub} redirects to {{host}} for {{what}}, which refuses the download"
        hint = later[1]
    login = "check what your token may read" if token else "set HF_TOKEN, or: hf auth login"
    values = {
        "host": host,
        "repo": repo,
        "what": what,
        "login": login,
        "endpoint": shown_endpoint(),
    }
    words = clean_excerpt(str(getattr(error, "server_message", "") or ""), Secrets(token))
    message = f"{message.format_map(values)} ({status}){f': {words}' if words else ''}"
    return ConductorUnusable(message, hint=hint.format_map(values))


def _status_of(error: Exception) -> int:
    """Return the status of the answer that an exception is about, 0 for none."""
    return int(getattr(getattr(error, "response", None), "status_code", 0))


def _read_token() -> str:
    """Return the user's token, empty for none.

    Raises `ConductorUnusable` for one that cannot be sent.
    """
    from huggingface_hub import get_token

    if library_settings().HF_HUB_DISABLE_IMPLICIT_TOKEN:
        return ""
    token = ""
    with suppress(Exception):  # a login that cannot be renewed; the hub then says what it requires
        token = get_token() or ""
    # The text of a header with other characters would appear in the error of the connection.
    if not (token.isascii() and token.isprintable()):
        hint = "set HF_TOKEN, unset it, or: hf auth login"
        raise ConductorUnusable("the token of the hub contains invalid characters", hint=hint)
    return token


def file_size(path: Path) -> int:
    """Return bytes of a file, 0 where there is none."""
    return path.stat().st_size if path.exists() else 0
