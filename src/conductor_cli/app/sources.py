"""Sources: what `-f` attaches besides files, by the word before the first colon.

`-f https://…`, `-f pr:OWNER/REPO#N`, `-f issue:OWNER/REPO#N`, `-f diff:REV..REV`, `-f clipboard:`.
One row of `SOURCES` for each. An installed package adds further ones by an entry point in the group
`conductor_llm.sources`: a function that takes what stands behind the colon and returns text or
bytes. It is loaded when its word is used, and never in place of a source of this module.

What a source gives is read, bounded and refused like a file of the user, and it is as untrusted.
"""

from __future__ import annotations

import asyncio
import os
import re
import shlex
import shutil
import sys
import threading
from asyncio.subprocess import DEVNULL, PIPE
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from conductor_cli.app.github import (
    read_issue,
    read_pull_request,
    reference_of_page,
    repository_of,
)
from conductor_cli.app.keys import service_key
from conductor_cli.app.web_tools import web_rules
from conductor_cli.config.settings import Settings
from conductor_cli.core.errors import ModelError, UsageError
from conductor_cli.core.formatting import format_count, format_names
from conductor_cli.core.question import SourceText
from conductor_cli.core.secret_files import is_secret_name, is_secret_text
from conductor_cli.core.terminal_text import escape_name, one_line
from conductor_cli.models.web import fetch_page, shown_url
from conductor_cli.system.event_loop import run_async

ENTRY_POINTS: Final = "conductor_llm.sources"
PROGRAM_SECONDS: Final = 20.0  # For git and for the program that reads the clipboard

_FORM: Final = re.compile(r"([a-z][a-z0-9-]+):(.*)", re.DOTALL | re.IGNORECASE)


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceContext:
    """What a source may use: the settings, the most bytes that it may give, and whom to tell."""

    settings: Settings
    limit: int
    tell: Callable[[str], None]


ReadSource = Callable[[str, SourceContext], Awaitable[list[SourceText]]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """A source: how it is written, and what reads what stands behind the colon."""

    form: str
    read: ReadSource


def read_source(name: str, context: SourceContext) -> list[SourceText] | None:
    """Return what a source gives; None where the name is that of a file. Raises `UsageError`."""
    match = _FORM.fullmatch(name)
    # An address may be longer than the name of a file, which `Path.exists` takes for an error.
    if match is None or os.path.exists(name):  # noqa: PTH110
        return None
    word = match[1].lower()
    reference = match[2]
    source = SOURCES.get(word) or _installed_source(word)
    if source is None:
        return None
    try:
        return _run_apart(source.read(reference, context))
    except ModelError as error:
        raise UsageError(error.message, hint=error.hint) from None


def _run_apart(reading: Awaitable[list[SourceText]]) -> list[SourceText]:
    """Return what is read in a thread of its own: a chat has a loop that runs in this one."""
    results: list[list[SourceText]] = []
    errors: list[BaseException] = []

    async def read() -> list[SourceText]:
        return await reading

    def run() -> None:
        try:
            results.append(run_async(read()))
        except BaseException as error:  # noqa: BLE001 - raised again by the caller
            errors.append(error)

    thread = threading.Thread(target=run, daemon=True)  # a Ctrl-C does not wait for it
    thread.start()
    thread.join()
    if errors:
        raise errors[0]
    return results[0]


async def _read_url(url: str, context: SourceContext) -> list[SourceText]:
    page = await fetch_page(url, web_rules(context.settings), limit=context.limit)
    if page.url != url:
        context.tell(f"{shown_url(url)} led to {shown_url(page.url)}")
    # Without the query, which may hold a key: workers read the name.
    return [SourceText(name=shown_url(url), content=page.text_content, is_page=page.is_html)]


def _url_source(scheme: str) -> Source:
    async def read(rest: str, context: SourceContext) -> list[SourceText]:
        return await _read_url(f"{scheme}:{rest}", context)

    return Source(form=f"{scheme}://HOST/PATH", read=read)


def _github_source(
    word: str,
    read: Callable[..., Coroutine[Any, Any, tuple[list[SourceText], list[str]]]],
) -> Source:
    async def read_reference(reference: str, context: SourceContext) -> list[SourceText]:
        settings = context.settings
        url = str(settings["web.github_url"])
        key = service_key(settings, "github", url)
        if reference.removeprefix("#").isdecimal():
            reference = await _complete_reference(word, reference.removeprefix("#"), url, context)
        reference = reference_of_page(reference, url) or reference
        texts, notices = await read(url, key, reference, limit=context.limit)
        for notice in notices:
            context.tell(notice)
        return texts

    return Source(form=f"{word}:OWNER/REPO#N", read=read_reference)


_REMOTES: Final = ("upstream", "origin")  # The first of these that is there: a fork has both


async def _complete_reference(word: str, number: str, url: str, context: SourceContext) -> str:
    """Return `OWNER/REPO#N` for a number alone: the repository is that of the working directory.

    It is told, since it follows from settings that a clone has. Raises `UsageError`.
    """
    hint = f"name the repository: -f {word}:OWNER/REPO#{number}"
    for remote in _REMOTES:
        try:
            address = await _git("config", "--get", f"remote.{remote}.url")
        except UsageError as error:
            if error.hint:  # no Git, or no repository
                raise UsageError(f"{word}:{number}: {error.message}", hint=hint) from None
            continue
        repository = repository_of(address.decode("utf-8", "replace").strip(), url)
        if not repository:
            message = f"{word}:{number}: the remote {remote} is at another place than {url}"
            raise UsageError(message, hint=hint)
        context.tell(f"{word}:{number} is {repository}#{number}, by the remote {remote}")
        return f"{repository}#{number}"
    message = f"{word}:{number}: this repository has no remote {' or '.join(_REMOTES)}"
    raise UsageError(message, hint=hint)


# Changes in the working tree


async def _read_diff(reference: str, context: SourceContext) -> list[SourceText]:
    """Return the difference of two revisions, without the files that look like secrets."""
    begin, dots, end = reference.partition("...")
    if not dots:
        begin, dots, end = reference.partition("..")
    if not dots or not (begin or end):
        hint = "for changes that are not committed: git diff | conductor ask … -f -"
        raise UsageError(f"diff:{one_line(reference)[:80]} is not diff:REV..REV", hint=hint)
    first = await _commit(begin or "HEAD")
    last = await _commit(end or "HEAD")
    if dots == "...":
        first = (await _git("merge-base", first, last)).decode().strip()
    listed = await _git("diff", "--name-only", "-z", *_PLAIN_DIFF, first, last)
    paths = [path.decode("utf-8", "replace") for path in listed.split(b"\0") if path]
    if not paths:
        raise UsageError(f"diff:{reference} has no change", hint="check both revisions")
    diff = await _git("diff", *_PLAIN_DIFF, first, last, limit=context.limit)
    # A line of a file begins with a sign or a space, so only headers begin like this.
    parts = re.split(rb"^(?=diff --git )", diff, flags=re.MULTILINE)[1:]
    if len(parts) != len(paths):
        raise UsageError(f"diff:{reference} cannot be read", hint=_PIPE_HINT)
    return [_without_secrets(f"diff:{reference}", paths, parts, context)]


def _without_secrets(
    name: str, paths: Sequence[str], parts: Sequence[bytes], context: SourceContext
) -> SourceText:
    """Return the parts of a diff, one for each path, without those that look like secrets.

    The repository may call any file binary, whose change is not shown then: such files are told.
    """
    kept: list[bytes] = []
    secrets: list[str] = []
    without_text: list[str] = []
    for path, part in zip(paths, parts, strict=True):
        if is_secret_name(path) or is_secret_text(path, part.decode("utf-8", "replace")):
            secrets.append(escape_name(path))
        else:
            kept.append(part)
        if _BINARY_CHANGE.search(part):
            without_text.append(escape_name(path))
    line = f"{name}: {format_count(len(kept), 'changed file')}"
    if secrets:
        left_out = f"{format_count(len(secrets), 'likely secret')} ({format_names(secrets)})"
        line += f"; left out: {left_out}; to attach it all the same: {_PIPE_HINT}"
    if without_text:
        line += f"; without their text, as binary files: {format_names(without_text)}"
    context.tell(line)
    if not kept:
        raise UsageError(f"{name}: every changed file looks like a secret", hint=_PIPE_HINT)
    return SourceText(name=name, content=b"".join(kept))


_BINARY_CHANGE: Final = re.compile(rb"^Binary files .* differ$", re.MULTILINE)  # A header's line

_PIPE_HINT: Final = "git diff REV REV -- PATH | conductor ask … -f -"

_PLAIN_DIFF: Final = (
    "--no-ext-diff",
    "--no-textconv",
    "--no-color",
    "--no-renames",
    "--submodule=short",
    "--ignore-submodules=dirty",
)
"""A diff of two commits that runs no program of a repository's settings."""

_GIT_SETTINGS: Final = ("-c", "core.fsmonitor=false", "-c", "core.quotePath=false", "--no-pager")
_GIT_VARIABLES: Final = {
    "GIT_ALLOW_PROTOCOL": "none",  # what is not here is not fetched
    "GIT_NO_LAZY_FETCH": "1",
    "GIT_LITERAL_PATHSPECS": "1",
    "GIT_OPTIONAL_LOCKS": "0",
    "GIT_TERMINAL_PROMPT": "0",
}


async def _commit(revision: str) -> str:
    """Return the hash of a revision, so that no name is taken for an option."""
    try:
        commit = await _git(
            "rev-parse", "--verify", "--quiet", "--end-of-options", f"{revision}^{{commit}}"
        )
    except UsageError as error:
        if error.hint:
            raise
        hint = "git log --oneline names commits; the working directory must be in the repository"
        raise UsageError(f"git knows no revision {one_line(revision)[:80]}", hint=hint) from None
    return commit.decode().strip()


async def _git(*arguments: str | bytes, limit: int = 1 << 24) -> bytes:
    program = shutil.which("git")
    if program is None:
        raise UsageError("diff: needs git, which is not installed", hint="install git")
    if not _is_in_repository():
        raise UsageError(
            "the working directory is in no Git repository", hint="cd into one, and ask again"
        )
    environ = {**os.environ, **_GIT_VARIABLES}
    try:
        return await _output_of((program, *_GIT_SETTINGS, *arguments), limit, environ)
    except UsageError as error:
        if not error.hint:
            await _check_repository(program, environ)
        raise


async def _check_repository(program: str, environ: Mapping[str, str]) -> None:
    """Raise `UsageError` where Git uses nothing of the repository: not that a part is missing.

    So it does with one of another user, as a container often has it.
    """
    try:
        await _output_of((program, *_GIT_SETTINGS, "rev-parse", "--git-dir"), 1 << 16, environ)
    except UsageError:
        trust = f"git config --global --add safe.directory {shlex.quote(str(_top()))}"
        hint = f"git status says why; if another user owns it, and you trust it: {trust}"
        raise UsageError("git refuses this repository", hint=hint) from None


def _is_in_repository() -> bool:
    return _top() is not None


def _top() -> Path | None:
    """Return the directory of the repository around the working directory; None without one."""
    here = Path.cwd()
    for path in (here, *here.parents):
        if (path / ".git").exists():
            return path
    return None


async def _output_of(
    command: Sequence[str | bytes], limit: int, environ: Mapping[str, str]
) -> bytes:
    """Return what a program writes, in at most `limit` bytes. Raises `UsageError`."""
    name = Path(os.fsdecode(command[0])).stem
    process = await asyncio.create_subprocess_exec(
        *command, stdin=DEVNULL, stdout=PIPE, stderr=DEVNULL, env=environ, start_new_session=True
    )
    assert process.stdout is not None
    output = bytearray()
    try:
        async with asyncio.timeout(PROGRAM_SECONDS):
            while len(output) <= limit and (piece := await process.stdout.read(1 << 16)):
                output += piece
            if len(output) <= limit:
                await process.wait()
    except TimeoutError:
        message = f"{name} did not end within {PROGRAM_SECONDS:g} s"
        raise UsageError(message, hint="attach less of it") from None
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    if len(output) > limit:
        message = f"{name} gave more than {limit >> 20} MiB"
        raise UsageError(message, hint="attach only the part that matters")
    if process.returncode:
        raise UsageError(f"{name} ended with {process.returncode}")
    return bytes(output)


# The clipboard


_CLIPBOARD_PROGRAMS: Final = (
    ("pbpaste",),
    ("wl-paste", "--no-newline"),
    ("xclip", "-selection", "clipboard", "-out"),
    ("xsel", "--clipboard", "--output"),
    ("powershell.exe", "-NoProfile", "-Command", "Get-Clipboard -Raw"),
)
"""The programs that print the clipboard: of macOS, Wayland, X11 (two), Windows and its Linux."""


async def _read_clipboard(_reference: str, context: SourceContext) -> list[SourceText]:
    for name, *arguments in _clipboard_programs():
        program = shutil.which(name)
        if program is None:
            continue
        try:
            content = await _output_of((program, *arguments), context.limit, os.environ)
        except UsageError as error:
            hint = "copy a text first, or pipe it: PROGRAM | conductor ask … -f -"
            raise UsageError(f"the clipboard cannot be read: {error.message}", hint=hint) from None
        if not content.strip():
            raise UsageError("the clipboard has no text", hint="copy a text, and ask again")
        return [SourceText(name="clipboard", content=content)]
    programs = [program for program, *_ in _clipboard_programs() if not program.endswith(".exe")]
    names = ", ".join(programs)
    message = "no program that reads the clipboard is installed"
    raise UsageError(message, hint=f"install one of {names}; or pipe the text: … -f -")


def _clipboard_programs() -> list[tuple[str, ...]]:
    """Return the programs to try here, in order."""
    if sys.platform == "darwin":
        return [_CLIPBOARD_PROGRAMS[0]]
    programs = list(_CLIPBOARD_PROGRAMS[1:])
    if not os.environ.get("WAYLAND_DISPLAY"):
        programs.remove(("wl-paste", "--no-newline"))
    return programs


SOURCES: Final[Mapping[str, Source]] = {
    "https": _url_source("https"),
    "http": _url_source("http"),
    "pr": _github_source("pr", read_pull_request),
    "issue": _github_source("issue", read_issue),
    "diff": Source(form="diff:REV..REV", read=_read_diff),
    "clipboard": Source(form="clipboard:", read=_read_clipboard),
}
"""What `-f` reads besides files, by its word."""


def _installed_source(word: str) -> Source | None:
    """Return the source that an installed package has under this word. Raises `UsageError`."""
    from importlib.metadata import entry_points  # few questions need it

    offered = [*entry_points(group=ENTRY_POINTS, name=word)]
    if not offered:
        return None
    package = offered[0].dist.name if offered[0].dist is not None else "a package"

    async def read(reference: str, context: SourceContext) -> list[SourceText]:
        try:
            content = await asyncio.to_thread(offered[0].load(), reference)
            if isinstance(content, str):
                content = content.encode()
            if not isinstance(content, bytes):
                raise TypeError(f"it returned {type(content).__name__}, not text or bytes")
        except Exception as error:
            message = f"{word}: of {package} failed: {type(error).__name__}: {error}"
            raise UsageError(one_line(message)[:400], hint=f"pip show {package}") from error
        return [SourceText(name=f"{word}:{reference}", content=content[: context.limit + 1])]

    return Source(form=f"{word}:…", read=read)
