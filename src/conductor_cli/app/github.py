"""Pull requests and issues of GitHub as texts: title, description, comments, changes.

They are read by GitHub's REST API. All of it was written by others, and is attached like any file.
"""

from __future__ import annotations

import json
import re
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any, Final
from urllib.parse import urlsplit

from conductor_cli.core.errors import ModelError, UsageError
from conductor_cli.core.formatting import format_count, format_names
from conductor_cli.core.question import SourceText
from conductor_cli.core.redact import Secrets
from conductor_cli.core.secret_files import is_secret_name, is_secret_text
from conductor_cli.core.terminal_text import one_line
from conductor_cli.models.api_errors import ApiError
from conductor_cli.models.http import HttpClient

GITHUB_SECONDS: Final = 30.0  # For one request
PAGE_ENTRIES: Final = 100  # The most that GitHub gives at once
MAX_PAGES: Final = 30  # Of comments, and of changed files: GitHub gives 3,000 of these
MAX_PAGE_BYTES: Final = 64 << 20

_REFERENCE: Final = re.compile(r"([A-Za-z0-9-]{1,100})/([A-Za-z0-9._-]{1,100})#([0-9]{1,9})")

Texts = tuple[list[SourceText], list[str]]
"""What was read, and what the user should know of it, a line each."""


async def read_issue(url: str, key: str | None, reference: str, *, limit: int) -> Texts:
    """Return an issue with its comments. Raises `ModelError`, `UsageError`."""
    path, number = _parts_of(reference, "issue")
    async with _opened(url, key) as github:
        issue = await _get_object(github, f"{path}/issues/{number}")
        comments, notices = await _list(github, f"{path}/issues/{number}/comments", limit)
    name = f"issue:{reference}"
    text = _conversation_text(issue, comments)
    notices.append(f"{name}: {_title(issue)}, {format_count(len(comments), 'comment')}")
    return [SourceText(name=name, content=_bytes_of(text))], notices


async def read_pull_request(url: str, key: str | None, reference: str, *, limit: int) -> Texts:
    """Return a pull request with its comments and reviews, and its changes as a second text.

    Files that look like secrets are left out of the changes. Raises `ModelError`, `UsageError`.
    """
    path, number = _parts_of(reference, "pr")
    async with _opened(url, key) as github:
        pull = await _get_object(github, f"{path}/pulls/{number}")
        comments: list[Mapping[str, Any]] = []
        notices: list[str] = []
        for kind in ("issues/{}/comments", "pulls/{}/reviews", "pulls/{}/comments"):
            listed, problems = await _list(github, f"{path}/{kind.format(number)}", limit)
            comments += listed
            notices += problems
        files, problems = await _list(github, f"{path}/pulls/{number}/files", limit)
        notices += problems
    name = f"pr:{reference}"
    comments.sort(key=lambda comment: str(_when(comment)))
    diff, left_out = _diff_of(files)
    about = [_title(pull), format_count(len(comments), "comment")]
    about.append(format_count(len(files), "changed file"))
    notices.append(f"{name}: {', '.join(about)}{left_out}")
    texts = [SourceText(name=name, content=_bytes_of(_conversation_text(pull, comments)))]
    if diff:
        texts.append(SourceText(name=f"{name}.diff", content=_bytes_of(diff)))
    return texts, notices


def _bytes_of(text: str) -> bytes:
    """Return a text in UTF-8. JSON may hold halves of characters, which have no place in it."""
    return text.encode("utf-8", "replace")


def repository_of(remote: str, api_url: str) -> str:
    """Return OWNER/REPO of the address of a Git remote; empty where another server has it."""
    match = _REMOTE.fullmatch(remote)
    if match is None or match["host"].lower() != _host_of(api_url):
        return ""
    return match["repository"]


def reference_of_page(address: str, api_url: str) -> str:
    """Return OWNER/REPO#N of a pull request or an issue that a browser shows at this address.

    Empty for another text, and where another server has it.
    """
    match = _PAGE.match(address)
    if match is None or match["host"].lower() != _host_of(api_url):
        return ""
    return f"{match['repository']}#{match['number']}"


def _host_of(api_url: str) -> str:
    """Return the host of the repositories; that of GitHub's own API has a name of its own."""
    return (urlsplit(api_url).hostname or "").removeprefix("api.")


_REMOTE: Final = re.compile(
    r"(?:https?://(?:[^/@\s]+@)?|ssh://(?:[\w.-]+@)?|[\w.-]+@)(?P<host>[A-Za-z0-9.-]+)(?::\d+)?[:/]"
    r"(?P<repository>[A-Za-z0-9-]{1,100}/[A-Za-z0-9._-]{1,96}?)(?:\.git)?/?"
)
"""Addresses such as https://github.com/o/r.git and git@github.com:o/r."""

_PAGE: Final = re.compile(
    r"https?://(?P<host>[A-Za-z0-9.-]+)(?::\d+)?/(?P<repository>[^/\s]+/[^/\s]+)"
    r"/(?:pull|issues)/(?P<number>\d+)(?:[/?#]|$)"
)


def _parts_of(reference: str, word: str) -> tuple[str, str]:
    match = _REFERENCE.fullmatch(reference)
    if match is None or match[2] in {".", ".."}:
        message = f"{word}:{one_line(reference)[:120]} is not {word}:OWNER/REPO#N"
        hint = f"for example: -f {word}:python/cpython#1, or {word}:1 in a clone of it"
        raise UsageError(message, hint=hint)
    return f"/repos/{match[1]}/{match[2]}", match[3]


@asynccontextmanager
async def _opened(url: str, key: str | None) -> AsyncIterator[HttpClient]:
    headers = {"accept": "application/vnd.github+json", "x-github-api-version": "2022-11-28"}
    secrets = Secrets()
    if key:
        headers["authorization"] = f"Bearer {key}"
        secrets.add(key)
    client = HttpClient(url, headers=headers, secrets=secrets)
    try:
        yield client
    finally:
        await client.close()


async def _get_object(github: HttpClient, path: str) -> Mapping[str, Any]:
    """Return a pull request or an issue. Raises `UsageError`."""
    subject, _ = await _get(github, path)
    if not isinstance(subject, dict):
        raise _not_understood(github, path)
    return subject


async def _get(github: HttpClient, path: str) -> tuple[Any, str]:
    """Return what a path has, which is any JSON, and the links to its other pages."""
    try:
        async with github.open("GET", path, seconds=GITHUB_SECONDS, limit=MAX_PAGE_BYTES) as answer:
            body = await answer.body()
            links = answer.headers.get("link", "")
    except ModelError as error:
        raise _explained(github.name, path, error) from None
    try:
        return json.loads(body), links
    except (ValueError, RecursionError):
        raise _not_understood(github, path) from None


def _not_understood(github: HttpClient, path: str) -> UsageError:
    message = f"{github.name} gave another answer for {path.partition('?')[0]} than GitHub does"
    return UsageError(message, hint="conductor config show web.github_url")


def _explained(server: str, path: str, error: ModelError) -> UsageError:
    """Return the error of a request in the words of pull requests and issues."""
    hint = "conductor keys set github, or GITHUB_TOKEN, for what not everybody may read"
    subject = path.removeprefix("/repos/").partition("?")[0]
    if isinstance(error, ApiError) and 300 <= error.status < 400:
        message = f"{server} says that {subject} has moved, as where a repository was renamed"
        return UsageError(message, hint="give its new name, which a browser shows")
    match error.reason:
        case "missing":
            message = f"{server} has no {subject} that you may read (404)"
        case "auth":
            message = f"{server} does not let you read {subject} (key missing, refused or used up)"
        case "rate":
            message = f"{server} takes no more requests for now (429)"
        case _:
            message = error.message
            hint = (
                "check the network; another server than GitHub's: conductor config set "
                "web.github_url URL"
            )
    return UsageError(message, hint=hint)


async def _list(
    github: HttpClient, path: str, limit: int
) -> tuple[list[Mapping[str, Any]], list[str]]:
    """Return all entries of a list, and what of them is missing.

    A server may put fewer on a page than it is asked for: its links say whether another follows.
    """
    entries: list[Mapping[str, Any]] = []
    size = 0
    for page in range(1, MAX_PAGES + 1):
        listed, links = await _get(github, f"{path}?per_page={PAGE_ENTRIES}&page={page}")
        if not isinstance(listed, list) or not all(isinstance(row, dict) for row in listed):
            raise _not_understood(github, path)
        rows: list[Mapping[str, Any]] = listed
        entries += rows
        size += sum(len(_text(row, "body")) + len(_text(row, "patch")) for row in rows)
        if size > limit:
            message = f"{path.removeprefix('/repos/')} has more than {limit >> 20} MiB"
            raise UsageError(message, hint="attach only the part that matters, as a file")
        if len(rows) < PAGE_ENTRIES and 'rel="next"' not in links:
            return entries, []
    return entries, [f"{path.removeprefix('/repos/')}: only the first {len(entries):,} were read"]


def _conversation_text(subject: Mapping[str, Any], comments: list[Mapping[str, Any]]) -> str:
    """Return a pull request or an issue as Markdown, each comment with its author and day."""
    state = "merged"
    if not subject.get("merged"):
        state = _text(subject, "state")
    parts = [
        f"# {_text(subject, 'title')}",
        f"{state}, by {_author(subject)}, {_when(subject)}",
        _text(subject, "body"),
    ]
    for comment in comments:
        about = ""
        if isinstance(comment.get("path"), str):
            about = f" on {comment['path']}"
        verdict = _text(comment, "state").lower().replace("_", " ")
        heading = f"## {_author(comment)}{about}, {_when(comment)}"
        if verdict:
            heading += f" ({verdict})"
        parts += [heading, _text(comment, "body")]
    return "\n\n".join(filter(None, parts))


def _diff_of(files: list[Mapping[str, Any]]) -> tuple[str, str]:
    """Return the changes of files as one diff, and which of them are left out and why."""
    parts: list[str] = []
    secrets: list[str] = []
    without_text: list[str] = []
    for file in files:
        path = one_line(_text(file, "filename"))
        patch = _text(file, "patch")
        previous = one_line(_text(file, "previous_filename")) or path
        is_secret = is_secret_name(path) or is_secret_name(previous)
        if is_secret or is_secret_text(path, patch):
            secrets.append(path)
        elif patch:
            parts.append(f"--- a/{previous}\n+++ b/{path}\n{patch}")
        else:
            without_text.append(path)
            parts.append(f"--- a/{previous}\n+++ b/{path}\n({_text(file, 'status')}, no text)")
    notes = []
    if secrets:
        kind = format_count(len(secrets), "likely secret")
        notes.append(f"left out: {kind} ({format_names(secrets)})")
    if without_text:
        notes.append(f"without their text: {format_names(without_text)}")
    return "\n".join(parts), "".join(f"; {note}" for note in notes)


def _text(entry: Mapping[str, Any], field: str) -> str:
    value = entry.get(field)
    return value if isinstance(value, str) else ""


def _title(subject: Mapping[str, Any]) -> str:
    return f"“{one_line(_text(subject, 'title'))[:80]}”"


def _author(entry: Mapping[str, Any]) -> str:
    user = entry.get("user")
    if isinstance(user, dict):
        return one_line(_text(user, "login"))
    return "somebody"


def _when(entry: Mapping[str, Any]) -> str:
    return (_text(entry, "created_at") or _text(entry, "submitted_at"))[:10]
