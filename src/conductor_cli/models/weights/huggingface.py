"""The model hub, through its own library.

Where its cache is, and what is in a repository. The bytes of a file come by `hub_file`.

The library reads HF_ENDPOINT, HF_HOME, HF_TOKEN, HF_HUB_OFFLINE and the proxies, most of them once,
at its import. Its `hf_hub_download` is not used, because it deletes what it has downloaded after
every failure, and neither is Xet, which cannot continue a file.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal, TypeVar
from urllib.parse import urlsplit

from conductor_cli.core.errors import (
    ConductorUnusable,
    ConfigError,
    ModelError,
    without_numbers,
)
from conductor_cli.core.redact import Secrets
from conductor_cli.core.terminal_text import short_line
from conductor_cli.models.api_errors import ApiError, clean_excerpt
from conductor_cli.models.http import connection_errors, host_of, hub_client, reason_of
from conductor_cli.models.weights.hub_file import FileNotReceived, HubFile, TakePiece, receive_file
from conductor_cli.models.weights.model_store import ModelFile
from conductor_cli.models.weights.verify import Report
from conductor_cli.system.known_secrets import KNOWN_SECRETS

if TYPE_CHECKING:
    from huggingface_hub import DatasetInfo, HfApi, ModelInfo

WAITS: Final = (1.0, 4.0, 15.0)
"""Seconds before each further try after an error that may pass."""

_COMMIT: Final = re.compile(r"[0-9a-f]{40}|[0-9a-f]{64}")
_ETAG: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,127}")

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class HubRepository:
    """A repository at one commit.

    Its files by name, and its licence, empty where its card names none. `anonymous`: the hub
    refuses the user's token, and gives the repository to whoever has none.
    """

    name: str
    commit: str
    files: Mapping[str, ModelFile]
    licence: str = ""
    kind: Literal["model", "dataset"] = "model"
    anonymous: bool = False


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
    """Return a file of the commit that the revision was last known to be at, if the cache has it.

    The hub is not asked.
    """
    from huggingface_hub import try_to_load_from_cache

    cached = try_to_load_from_cache(repo, file, cache_dir=cache_directory(), revision=revision)
    if isinstance(cached, str):
        return Path(cached)
    return None


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
    repo: str,
    revision: str,
    kind: Literal["model", "dataset"] = "model",
    report: Report = lambda *_: None,
) -> HubRepository:
    """Return what the hub has in a repository at the commit that the revision is at.

    A hub that refuses the user's token, as one that has expired, is asked without it: most
    repositories are open to all. `report` is told of that, and of failures after which it is asked
    again. Raises `ConductorUnusable`.
    """
    question = _RepositoryQuestion(
        repo=repo,
        revision=revision,
        kind=kind,
        token=_read_token(),
        api=_open_api(),
        report=report,
    )
    retries = _Retries(f"revision {revision} of {repo}", repo, question.token, report)
    repository = retries.run(question.ask)
    if not repository.files:
        problem = (
            f"{host_of(library_settings().ENDPOINT)} does not answer like a model hub: it lists no "
            f"files of {repo}"
        )
        hint = "check HF_ENDPOINT, the proxy, and whether the network requires a login"
        raise ConductorUnusable(problem, hint=hint)
    return repository


def _open_api() -> HfApi:
    """Return the library's client of the hub, quiet, and with connections of our own."""
    from huggingface_hub import HfApi, __version__, logging, set_client_factory

    is_on_httpx2 = int(__version__.partition(".")[0]) >= 2
    set_client_factory(partial(hub_client, "httpx2" if is_on_httpx2 else "httpx"))
    logging.set_verbosity_error()  # its warnings show signed addresses
    constants = library_settings()
    # Otherwise the library asks the hub which coding agents there are, and names the one it runs
    # under.
    constants.HF_HUB_DISABLE_TELEMETRY = True
    return HfApi(endpoint=constants.ENDPOINT)


@dataclass(frozen=True, slots=True, kw_only=True)
class _RepositoryQuestion:
    """What the hub is asked about a repository. The user's token is empty where there is none."""

    repo: str
    revision: str
    kind: Literal["model", "dataset"]
    token: str
    api: HfApi
    report: Report

    def ask(self) -> HubRepository:
        """Return the answer, without the token where the hub refuses it. Raises `_Failure`."""
        try:
            return self._ask_as(self.token)
        except _Failure as failure:
            if failure.status != _UNAUTHORIZED or not self.token:
                raise
            return self._ask_anonymously(failure)

    def _ask_anonymously(self, failure: _Failure) -> HubRepository:
        """Return the answer without a token, and report that. Raises the first failure again."""
        try:
            repository = self._ask_as("")
        except _Failure:
            raise failure from None
        refused = f"{failure.host} rejects your token ({failure.status})"
        self.report(f"{refused}, and gives {self.repo} without one", 0, 0)
        return replace(repository, anonymous=True)

    def _ask_as(self, token: str) -> HubRepository:
        """Return what is listed. Raises `_Failure` for a hub that does not answer that."""
        ask_info = self.api.model_info if self.kind == "model" else self.api.dataset_info
        try:
            info = ask_info(
                self.repo,
                revision=self.revision,
                timeout=library_settings().HF_HUB_DOWNLOAD_TIMEOUT,
                files_metadata=True,
                token=token or False,
            )
            return self._repository_of(info)
        except Exception as error:
            if not isinstance(error, (*connection_errors(), *_UNREADABLE_LISTING)):
                raise
            raise _listing_failure(error, token) from None

    def _repository_of(self, info: ModelInfo | DatasetInfo) -> HubRepository:
        commit = str(info.sha)
        # Without a commit nothing in the answer can be used.
        siblings = (info.siblings or ()) if _COMMIT.fullmatch(commit) else ()
        listed = [_listed_file(sibling) for sibling in siblings]
        return HubRepository(
            name=self.repo,
            commit=commit,
            files={file.file: file for file in listed},
            licence=_licence_of(info.card_data),
            kind=self.kind,
        )


def _listed_file(sibling: Any) -> ModelFile:  # noqa: ANN401 - what the library makes of the answer
    """Return a file of a repository as the hub lists it. Raises `ValueError`."""
    large = sibling.lfs
    sha256 = str(large.sha256) if large else ""
    etag = sha256 or str(sibling.blob_id or "")
    # The hash becomes the name of a file, so the answer is not trusted.
    if etag and not _ETAG.fullmatch(etag):
        raise ValueError("an invalid hash")
    size = large.size if large else sibling.size
    name = str(sibling.rfilename)
    return ModelFile(file=name, size=max(0, int(size or 0)), sha256=sha256, etag=etag)


def _licence_of(card: Any) -> str:  # noqa: ANN401 - what the library makes of the answer
    """Return the licence that a repository's card names, as one line."""
    licence = getattr(card, "license", None)
    if licence == "other":
        licence = getattr(card, "license_name", None) or licence
    if isinstance(licence, list):
        licence = ", ".join(map(str, licence))
    return short_line(str(licence or ""), 60)


def download_file(repository: HubRepository, file: ModelFile, part: Path, report: Report) -> None:
    """Append to `part` what it lacks of the file; only the size is checked.

    Raises `ConductorUnusable`, or `OSError` where the bytes cannot be written.
    """
    subject = f"{file.file} of {repository.name}"
    token = "" if repository.anonymous else _read_token()
    hub_file = _hub_file(repository, file, token)

    def append() -> None:
        with part.open("ab") as stream:
            done = file_size(part)
            report(f"downloading {file.file}", done, file.size)

            def write(offset: int, piece: bytes) -> bool:
                nonlocal done
                if offset != done:  # a host without ranges sends the whole file
                    stream.truncate(offset)
                done = offset + len(piece)
                if done > file.size:
                    problem = f"more bytes of {subject} were sent than the {file.size:,}"
                    hint = "pull again, or from another HF_ENDPOINT"
                    raise ConductorUnusable(f"{problem} that the hub names", hint=hint)
                stream.write(piece)
                report(f"downloading {file.file}", done, file.size)
                return True

            if done < file.size:
                host = _receive(hub_file, write, start=done)
                if done < file.size:
                    message = f"{host}: the connection ended before all of {subject} had come"
                    raise _Failure(host=host, message=message)

    retries = _Retries(subject, repository.name, token, report)
    retries.run(append, lambda: file_size(part))


def read_start(repository: HubRepository, file: ModelFile, count: int) -> bytes:
    """Return the first bytes of a file, at most `count`. Raises `ConductorUnusable`."""
    token = "" if repository.anonymous else _read_token()
    hub_file = _hub_file(repository, file, token)

    def read() -> bytes:
        beginning = bytearray()

        def collect(_: int, piece: bytes) -> bool:
            beginning.extend(piece)
            return len(beginning) < count  # a host without ranges sends the whole file

        _receive(hub_file, collect, end=count)
        return bytes(beginning[:count])

    return _Retries(f"{file.file} of {repository.name}", repository.name, token).run(read)


def _hub_file(repository: HubRepository, file: ModelFile, token: str) -> HubFile:
    from huggingface_hub import hf_hub_url

    settings = library_settings()
    url = hf_hub_url(
        repository.name,
        file.file,
        repo_type=repository.kind,
        revision=repository.commit,
        endpoint=settings.ENDPOINT,
    )
    return HubFile(url=url, size=file.size, silence=settings.HF_HUB_DOWNLOAD_TIMEOUT, token=token)


class _Failure(Exception):
    """One request that failed: what the library or the connection said, in one form.

    `status` is 0 where no answer came; then `message` says why. `code` is the library's name for
    the refusal, and `words` are the server's own. Neither contains a token.
    """

    def __init__(
        self, *, host: str, status: int = 0, code: str = "", words: str = "", message: str = ""
    ) -> None:
        super().__init__(message or words)
        self.host = host
        self.status = status
        self.code = code
        self.words = words
        self.message = message


_UNREADABLE_LISTING: Final = (OSError, ValueError, KeyError, TypeError, AttributeError)
"""What reading a list of files that makes no sense raises."""

_LIBRARY_ERRORS: Final = {
    "GatedRepo": "GatedRepoError",
    "RepoNotFound": "RepositoryNotFoundError",
    "RevisionNotFound": "RevisionNotFoundError",
}
"""The library's error for each code in the header `x-error-code` of the hub."""


def _receive(hub_file: HubFile, take: TakePiece, *, start: int = 0, end: int | None = None) -> str:
    """Receive bytes of a file, and return the host that sent them. Raises `_Failure`."""
    try:
        return receive_file(hub_file, take, start=start, end=end)
    except FileNotReceived as failure:
        error = failure.error
        if not isinstance(error, ApiError):
            raise _Failure(host=failure.host, message=error.message) from None
        secrets = Secrets(hub_file.token)
        words = error.headers.get("x-error-message", "") or error.reported.message
        raise _Failure(
            host=failure.host,
            status=error.status,
            code=_LIBRARY_ERRORS.get(error.headers.get("x-error-code", ""), ""),
            words=clean_excerpt(words, secrets),
        ) from None


def _listing_failure(error: Exception, token: str) -> _Failure:
    """Return what went wrong with the library's request for a list of files."""
    secrets = Secrets(token)
    host = host_of(library_settings().ENDPOINT)
    with suppress(AttributeError, RuntimeError):  # no request was sent
        host = host_of(str(error.request.url))  # type: ignore[attr-defined] # httpx has it
    response = getattr(error, "response", None)
    status = int(getattr(response, "status_code", 0))
    if status:
        return _Failure(
            host=host,
            status=status,
            code=type(error).__name__,
            words=clean_excerpt(str(getattr(error, "server_message", "") or ""), secrets),
        )
    if isinstance(error, ModelError):  # The proxy or the certificates
        return _Failure(host=host, message=f"{host} cannot be reached: {error.message}")
    meaning = "does not answer like a model hub"
    if isinstance(error, (OSError, *connection_errors())):
        meaning = reason_of(error)[1]
    words = without_numbers(clean_excerpt(str(error), secrets))
    return _Failure(host=host, message=f"{host} {meaning}{f': {words}' if words else ''}")


@dataclass(frozen=True, slots=True)
class _Retries:
    """Repeats a request for `subject` a few times after an error that may pass.

    `report` is told why, and how long it waits.
    """

    subject: str
    repo: str
    token: str
    report: Report = lambda *_: None

    def run(self, action: Callable[[], T], done: Callable[[], int] | None = None) -> T:
        """Return the result of `action`. Raises `ConductorUnusable`.

        `done` says how many bytes are on the disk, if the action writes any: as long as bytes come,
        it is repeated, and also where no answer came.
        """
        tries = 0
        most_bytes = done() if done else 0
        while True:
            try:
                return action()
            except _Failure as failure:
                size = done() if done else 0
                error = _explain(failure, self.subject, self.repo, self.token, begun=size > 0)
                # Bytes that a host without ranges sends once more are no progress.
                if size > most_bytes:
                    tries = 0
                    most_bytes = size
                else:
                    tries += 1
                    may_pass = failure.status >= 500 or (done is not None and not failure.status)
                    if tries > len(WAITS) or not may_pass:
                        raise error from None
            wait = WAITS[max(0, tries - 1)]
            self.report(f"{error.message}; trying again in {wait:g} s", 0, 0)
            time.sleep(wait)


_UNAUTHORIZED: Final = 401
_LOGIN_HINT: Final = (
    "check what your token may read, and whether it has expired: hf auth login, or HF_TOKEN"
)
_REFUSALS: Final = {
    "GatedRepoError": ("{repo} is gated", "accept its licence at {endpoint}/{repo}, then {login}"),
    # To strangers the hub says the same of private repositories and of missing ones.
    "RepositoryNotFoundError": (
        "{host} has no repository {repo}, or it is private",
        "check its name; {login}",
    ),
    "RevisionNotFoundError": ("{host} has no {subject}", "update conductor-llm, or the registry"),
    401: ("{host} rejects the token for {repo}, or requires one", "{login}"),
    403: ("{host} denies access to {repo}", "see {endpoint}/{repo}; {login}"),
    404: (
        "{host} has no {subject}",
        "is it a model hub? check HF_ENDPOINT, or update conductor-llm",
    ),
    407: ("the proxy for {host} requires a login", "put user and password into HTTPS_PROXY"),
    429: ("{host}: rate limit reached", "try again later; HF_TOKEN raises the limit"),
}
"""What a refusal means, by the library's exception or else by the status, and what to do next."""

_REFUSED_LATER: Final = (
    "{host} refuses {subject}",
    "try again later, or with another HF_ENDPOINT; the next pull continues",
)
"""What any other status means."""


def _explain(
    failure: _Failure, subject: str, repo: str, token: str, *, begun: bool
) -> ConductorUnusable:
    """Return a failure as the error that the user sees.

    `begun`: a part of the file is on the disk.
    """
    if not failure.status:
        then = "the next pull continues where this one stopped"
        if not begun:
            then = "without a network, a file that you have: conductor model import FILE.gguf --use"
        hint = f"check the network, HTTPS_PROXY and HF_ENDPOINT; {then}"
        return ConductorUnusable(failure.message, hint=hint)
    hub = host_of(library_settings().ENDPOINT)
    message, hint = _REFUSALS.get(failure.code) or _REFUSALS.get(failure.status) or _REFUSED_LATER
    if failure.host != hub:  # the host of the bytes, to which the hub's own reasons do not apply
        message = f"{hub} redirects to {{host}} for {{subject}}, which refuses the download"
        hint = _REFUSED_LATER[1]
    values = {
        "host": failure.host,
        "repo": repo,
        "subject": subject,
        "login": _LOGIN_HINT if token else "set HF_TOKEN, or: hf auth login",
        "endpoint": shown_endpoint(),
    }
    message = f"{message.format_map(values)} ({failure.status})"
    if failure.words:
        message = f"{message}: {failure.words}"
    return ConductorUnusable(message, hint=hint.format_map(values))


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
    KNOWN_SECRETS.add(token)
    # The text of a header with other characters would appear in the error of the connection.
    if not (token.isascii() and token.isprintable()):
        hint = "set HF_TOKEN, unset it, or: hf auth login"
        raise ConductorUnusable("the token of the hub contains invalid characters", hint=hint)
    return token


def file_size(path: Path) -> int:
    """Return bytes of a file, 0 where there is none."""
    return path.stat().st_size if path.exists() else 0
