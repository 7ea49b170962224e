"""Attaches files to a question. What they are is found from their content, and all is bounded.

Text becomes a `File`. Of an image or a PDF the bytes are kept apart, and a PDF's text is extracted
for the workers that cannot read the file itself.
"""

from __future__ import annotations

import math
import os
import select
import shlex
import stat
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import BinaryIO, Final, Literal
from urllib.parse import unquote

from conductor_cli.app.documents import (
    DocumentUnread,
    describe_unread,
    limits_within,
    read_document,
    read_pdf,
)
from conductor_cli.app.file_tree import PART_HINT, FileTree, is_pattern, list_files
from conductor_cli.app.notebooks import read_notebook
from conductor_cli.config.settings import Settings
from conductor_cli.core.chat import Attachment
from conductor_cli.core.errors import UsageError
from conductor_cli.core.formatting import format_count, format_names, format_size
from conductor_cli.core.media import (
    NAMES,
    PDF,
    SUFFIXES,
    conversion_command,
    describe_encoding,
    describe_refused,
    guess_encoding,
    image_size,
    media_type_of,
)
from conductor_cli.core.path_patterns import look_of
from conductor_cli.core.question import File, Question
from conductor_cli.core.secret_files import is_secret_name, is_secret_text
from conductor_cli.core.terminal_text import escape_name, shell_word
from conductor_cli.core.usage import CHARS_PER_TOKEN
from conductor_cli.programs.bounded_child import ChildLimits
from conductor_cli.state.interfaces import AttachmentStore
from conductor_cli.system.disk import open_finite

_WORD_PART: Final = b"word/document.xml"
"""The part of a Word document that has its text.

A ZIP archive has the names of its parts in plain letters.
"""
TEXT_LIMIT: Final = 16 * 1024 * 1024  # Bytes of one text. More is a mistake: no worker reads it
ATTACHABLE: Final = (
    "attach text, PNG, JPEG, GIF, WebP, PDF, .docx or HTML files, notebooks or directories"
)

_NO_FILE: Final = "stdin"  # The path of what comes by a pipe or from a source

SILENCE_SECONDS: Final = 3.0  # After which it is said that input is waited for
_HEAD_BYTES: Final = 4096  # By which the type of a file is found
_MB: Final = 10**6

# For all PDFs and Word documents of a directory: at most 500 could take 20 s each
TREE_SECONDS: Final = 30.0
# Files of a directory or a pattern. More is a mistake
MAX_TREE_FILES: Final = 5000
MAX_ATTACHMENTS: Final = 20  # Images and PDFs of a question, those of earlier turns included
MAX_ATTACHED_BYTES: Final = 64 * _MB  # Together: each worker is sent a copy


class NoTextError(UsageError):
    """A file is none of the kinds that can be attached."""


@dataclass(frozen=True, slots=True)
class Attacher:
    """Reads files to attach. `tell` is given what the user should know about them, a line each.

    `warn` is given what of them is left out or guessed; without one, `tell` is.
    """

    attachments: AttachmentStore
    settings: Settings
    tell: Callable[[str], None] = lambda _: None
    warn: Callable[[str], None] | None = None
    reads_sources: bool = False
    """Whether URLs and other sources are read: only where the user's own words name them."""

    def attach(
        self,
        path: Path,
        *,
        pages: bool = True,
        linked: bool = True,
        limits: ChildLimits | None = None,
    ) -> File:
        """Return the file at a path: an image, a PDF, a Word document or a text.

        With `pages`, one that is called HTML is read as a page, and not as the source of one.
        Without `linked`, a link is an error. `limits` are those of reading a document. Raises
        `UsageError`.
        """
        path = path.expanduser()
        try:
            with self._open(path, linked=linked) as file:
                before = os.fstat(file.fileno())
                content = self._read(file, escape_name(path.name), before)
                after = os.fstat(file.fileno())
        except OSError as error:
            message = f"{_shown(path)} cannot be read: {error.strerror}"
            raise UsageError(message, hint="check its name") from None
        is_same_size = before.st_size == after.st_size
        if not is_same_size or before.st_mtime_ns != after.st_mtime_ns:
            hint = "attach it again when nobody writes it"
            raise UsageError(f"{_shown(path)} changed while it was read", hint=hint)
        is_page = pages and path.suffix.lower() in {".html", ".htm"}
        return self.take(content, path.name, path=str(path), page=is_page, limits=limits)

    def attach_all(self, name: str) -> list[File]:
        """Return the file of this name, or those of a directory or of a pattern (`src/**/*.py`).

        Of several files, links, hidden ones, those that a `.gitignore` names, those that look like
        secrets, images and what is no text are left out, and a line says so. A file that the user
        names is attached whatever it is. Raises `UsageError`.
        """
        if not name:  # to Python it is the working directory, which would be sent
            hint = 'a variable may be empty, as in -f "$FILE"; to attach this directory: -f .'
            raise UsageError("the name of a file is empty", hint=hint)
        name = path_of_address(name)
        sources = self._attach_source(name)
        if sources is not None:
            return sources
        path = Path(name).expanduser()
        if not path.is_dir() and (path.exists() or not is_pattern(name)):
            return [self._attach_named(self._seen_by(path))]
        how = _use_of_link(path)
        if how:
            self.tell(f"{escape_name(name)} {how} a link to {_shown(path.resolve())}")
        tree = list_files(path)
        name = escape_name(name)
        files = self._attach_tree(tree, name)
        left_out = _describe_left_out(tree)
        if not files:
            message = f"{name}: there are no files to attach"
            if left_out:
                message += f"; left out: {left_out}"
            hint = "hidden files do not count; a file is attached by its own name: -f PATH"
            raise UsageError(message, hint=hint)
        tokens = int(sum(len(file.text) for file in files) / CHARS_PER_TOKEN)
        line = f"{name}: {format_count(len(files), 'file')}, about {tokens:,} tokens"
        if left_out:
            line += f"; left out: {left_out}"
        self._say(line, is_whole=not tree.is_partial)
        return files

    def _seen_by(self, path: Path) -> Path:
        """Return the path of the file that a name means, and tell where it is written otherwise."""
        found = file_seen_as(path)
        if found != path:
            self.tell(
                f"{_shown(path)} is attached by the name that it has, which only looks the same"
            )
        return found

    def _say(self, text: str, *, is_whole: bool) -> None:
        """Tell how a file is attached, or warn where that is not all of it."""
        say = self.tell
        if not is_whole and self.warn is not None:
            say = self.warn
        say(text)

    def _attach_source(self, name: str) -> list[File] | None:
        """Return what a source gives, such as a URL; None where the name is that of a file.

        Raises `UsageError`.
        """
        if not self.reads_sources:
            if not name.startswith(("http://", "https://")):
                return None
            hint = f"curl -sSL -o page.html {shlex.quote(name)}; then: page.html"
            raise UsageError("only the command line attaches what is at a URL", hint=hint)
        from conductor_cli.app.sources import SourceContext, read_source  # most name a file

        context = SourceContext(settings=self.settings, limit=TEXT_LIMIT, tell=self.tell)
        texts = read_source(name, context)
        if texts is None:
            return None
        files: list[File] = []
        for text in texts:
            file = self.take(text.content, text.name, path=_NO_FILE, page=text.is_page)
            length = f"{len(file.text):,} characters"
            tokens = int(len(file.text) / CHARS_PER_TOKEN)
            if file.attachment is None and not text.is_page:  # of a page that was told
                self.tell(f"{text.name} is attached: {length}, about {tokens:,} tokens")
            if is_secret_text(text.name, file.text):
                self.tell(f"{text.name} looks like a secret, and is attached because it is named")
            files.append(file)
        return files

    def _attach_named(self, path: Path) -> File:
        """Attach a file that the user names, unless that name hides a secret behind a link.

        Raises `UsageError`.
        """
        file = self.attach(path)
        shown = _shown(path)
        if not file.text and file.attachment is None:
            self._say(f"{shown} is empty", is_whole=False)
        claimed = _claimed_type(path.name)
        if claimed and file.attachment is None:
            # What stands for a picture where Git LFS has not fetched it, or the error of a server
            self._say(f"{shown} is no {NAMES[claimed]}, and is attached as text", is_whole=False)
        # The shell may have made the name from a pattern, and a link in a stranger's directory
        # leads anywhere.
        how = _use_of_link(path)
        target = path
        if how and path.is_file():
            target = path.resolve()
        name = target.absolute().as_posix()
        is_secret = is_secret_name(name) or is_secret_text(name, file.text)
        if target == path and is_secret:
            self.tell(f"{shown} looks like a secret, and is attached because it is named")
        elif is_secret:
            message = f"{shown} {how} a link to {_shown(target)}, which looks like a secret"
            raise UsageError(message, hint=f"to attach it, name it: -f {shell_word(str(target))}")
        elif target != path:
            self.tell(f"{shown} {how} a link to {_shown(target)}")
        return file

    def _attach_tree(self, tree: FileTree, name: str) -> list[File]:
        """Return what can be attached of a tree, and note in it what cannot.

        `name` is what the user called it, as it is shown. Raises `UsageError` where it is too much.
        """
        if len(tree.files) > MAX_TREE_FILES:
            message = f"{name} has {len(tree.files):,} files; the limit is {MAX_TREE_FILES:,}"
            raise UsageError(message, hint=PART_HINT)
        files = list[File]()
        size = 0
        seconds = TREE_SECONDS
        for path in tree.files:
            limits = limits_within(seconds)
            begin = time.monotonic()
            try:
                # In a tree a page is source code
                file = self.attach(path, pages=False, linked=False, limits=limits)
            except DocumentUnread:
                tree.late.append(path)
                continue
            except NoTextError:
                tree.other += 1
                continue
            except UsageError:
                tree.unread.append(path)
                continue
            finally:
                seconds -= time.monotonic() - begin
            if file.attachment is not None and file.attachment.media_type != PDF:
                tree.other += 1
                continue
            if is_secret_text(path.as_posix(), file.text):
                tree.secrets.append(path)
                continue
            size += len(file.text)
            if size > TEXT_LIMIT:
                message = f"{name} has more than {TEXT_LIMIT >> 20} MiB of text"
                raise UsageError(message, hint=PART_HINT)
            files.append(replace(file, name=escape_name(path.as_posix()), directory=name))
            check_attachments([file.attachment for file in files if file.attachment is not None])
        return files

    def attach_stream(self, stream: BinaryIO, name: str) -> File:
        """Return what a stream holds, such as stdin. Raises `UsageError`."""
        return self.take(self._read(stream, name), name)

    def take(
        self,
        content: bytes,
        name: str,
        *,
        path: str = "",
        page: bool = False,
        limits: ChildLimits | None = None,
    ) -> File:
        """Return these bytes as a file of this name, in which control characters are escaped.

        With `page` it is what a web page says. Raises `UsageError`.
        """
        name = escape_name(name)
        media_type = media_type_of(content)
        self._check_suffix(content, name, media_type)
        self._check_size(name, media_type, len(content))
        if media_type == PDF:
            return self._take_pdf(content, name, limits)
        if media_type:
            return self._take_image(content, name, media_type)
        is_word_document = content.startswith(b"PK") and _WORD_PART in content
        if page or is_word_document:
            return self._take_document(content, name, limits)
        text = decode_text(content, name, path)
        if name.endswith(".ipynb"):
            text = self._read_notebook(text, name)
        return File(name=name, text=text)

    def _read_notebook(self, text: str, name: str) -> str:
        """Return what a Jupyter notebook says, and tell which results that lacks."""
        said, left_out = read_notebook(text)
        if left_out:
            self._say(
                f"{name}: {left_out} of the notebook left out; to write them as files that can "
                "be attached: jupyter nbconvert --to markdown",
                is_whole=False,
            )
        return said

    def _check_suffix(self, content: bytes, name: str, media_type: str) -> None:
        """Tell where the name of a file claims another type than it has.

        Raises `UsageError` for an empty file that claims one.
        """
        claimed = _claimed_type(name)
        if not content and claimed:
            raise UsageError(f"{name} is empty", hint=f"a {NAMES[claimed]} was expected")
        if not media_type or media_type == claimed:
            return
        if claimed:
            types = f"a {NAMES[media_type]}, not a {NAMES[claimed]}"
            self.tell(f"{name} is {types}, and is attached as such")
        elif "." in name:
            self.tell(f"{name} is a {NAMES[media_type]}, and is attached as such")

    def _take_image(self, content: bytes, name: str, media_type: str) -> File:
        size = image_size(content, media_type)
        if size is None:
            message = f"{name} is a damaged or truncated {NAMES[media_type]}"
            raise UsageError(message, hint="open it, save it again")
        width, height = size
        attachment = Attachment(
            name=name,
            media_type=media_type,
            sha256=self.attachments.add(content),
            size=len(content),
            width=width,
            height=height,
        )
        return File(name=name, text="", attachment=attachment)

    def _take_pdf(self, content: bytes, name: str, limits: ChildLimits | None) -> File:
        document = read_pdf(content, limits)
        if document.problem == "encrypted":
            hint = "remove its password first: qpdf --decrypt IN.pdf OUT.pdf"
            raise UsageError(f"{name} is encrypted", hint=hint)
        if document.problem == "damaged" and not document.pages:
            raise UsageError(f"{name} is a damaged PDF document", hint="open it, save it again")
        if message := describe_unread(document):
            self._say(f"{name}: {message}", is_whole=False)
        attachment = Attachment(
            name=name,
            media_type=PDF,
            sha256=self.attachments.add(content),
            size=len(content),
            pages=document.pages,
        )
        return File(name=name, text=document.text, attachment=attachment)

    def _take_document(self, content: bytes, name: str, limits: ChildLimits | None) -> File:
        """Return a Word document or a web page as its text, and tell what was left out."""
        document = read_document(content, name, limits)
        tokens = int(len(document.text) / CHARS_PER_TOKEN)
        message = f"{name} is read as text: about {tokens:,} tokens"
        if document.left_out:
            message += f"; left out: {', '.join(document.left_out)}"
        if document.guessed:
            message += "; it names no encoding, so Windows-1252 is assumed: save it as UTF-8 if not"
        self._say(message, is_whole=not document.left_out and not document.guessed)
        return File(name=name, text=document.text)

    def _open(self, path: Path, *, linked: bool = True) -> BinaryIO:
        """Open a file, or a pipe as a shell makes it of `<(…)`. Raises `UsageError`, `OSError`."""
        if not linked:
            return open_finite(path, linked=False)
        mode = path.stat().st_mode
        if stat.S_ISCHR(mode) or stat.S_ISBLK(mode) or stat.S_ISSOCK(mode):
            kind = "a device"
            if stat.S_ISSOCK(mode):
                kind = "a socket"
            raise UsageError(f"{_shown(path)} is {kind}", hint="attach files only")
        if not stat.S_ISFIFO(mode):
            return open_finite(path)
        # Opening a pipe that nobody writes to would wait for ever without a word.
        pipe = os.fdopen(os.open(path, os.O_RDONLY | os.O_NONBLOCK), "rb")
        if not select.select([pipe], [], [], SILENCE_SECONDS)[0]:
            self.tell(f"waiting for somebody to write to the pipe {_shown(path)}")
            select.select([pipe], [], [])
        os.set_blocking(pipe.fileno(), True)
        return pipe

    def _read(self, stream: BinaryIO, name: str, status: os.stat_result | None = None) -> bytes:
        """Return all of a stream, and of one that is too large not more than its beginning.

        `status` is that of a file. Raises `UsageError`, `OSError`.
        """
        content = stream.read(_HEAD_BYTES)
        media_type = media_type_of(content)
        if status is not None and stat.S_ISREG(status.st_mode):
            self._check_size(name, media_type, status.st_size)
        if len(content) == _HEAD_BYTES:
            content += stream.read(self._limit(media_type) + 1 - len(content))
        self._check_size(name, media_type, len(content))
        return content

    def _limit(self, media_type: str) -> int:
        """Return how many bytes a file of a type may have; without one it is a text."""
        if not media_type:
            return TEXT_LIMIT
        return int(self.settings[_limit_setting(media_type)]) * _MB

    def _check_size(self, name: str, media_type: str, size: int) -> None:
        limit = self._limit(media_type)
        if size <= limit:
            return
        if not media_type:
            message = f"{name} is larger than {TEXT_LIMIT >> 20} MiB"
            raise UsageError(message, hint="attach only the part that matters")
        message = f"{name} is larger than {limit // _MB} MB, the limit for a {NAMES[media_type]}"
        command = f"conductor config set {_limit_setting(media_type)} {math.ceil(size / _MB)}"
        raise UsageError(message, hint=f"make it smaller, or raise the limit: {command}")


def _shown(path: Path) -> str:
    return escape_name(str(path))


def path_of_address(name: str) -> str:
    """Return the path in a `file://` address, which some file managers paste; other names as is."""
    if not name.startswith(("file:///", "file://localhost/")):
        return name
    return unquote(name.removeprefix("file://").removeprefix("localhost"))


def file_seen_as(path: Path) -> Path:
    """Return a path, or of a file that is not there the only one beside it that looks the same."""
    if os.path.lexists(path):
        return path
    wanted = look_of(path.name)
    with suppress(OSError):
        alike = [name for name in os.listdir(path.parent) if look_of(name) == wanted]  # noqa: PTH208
        if len(alike) == 1:
            return path.with_name(alike[0])
    return path


def _use_of_link(path: Path) -> Literal["is", "leads through", ""]:
    """Return whether a path is a link, or leads through one below the working directory.

    Empty where it does neither. What is above that directory, and other absolute paths, are the
    user's own.
    """
    if path.is_symlink():
        return "is"
    here = Path.cwd()
    if path.is_absolute():
        if not path.is_relative_to(here):
            return ""
        path = path.relative_to(here)
    for above in path.parents:
        if above.name not in {"", ".."} and (here / above).is_symlink():
            return "leads through"
    return ""


def _claimed_type(name: str) -> str:
    """Return the media type that a file claims by the end of its name; empty for others."""
    return SUFFIXES.get(name.rpartition(".")[2].lower(), "")


def _limit_setting(media_type: str) -> str:
    if media_type == PDF:
        return "attachments.pdf_mb"
    return "attachments.image_mb"


def decode_text(content: bytes, source: str, path: str = "") -> str:
    """Return these bytes as text. Raises `UsageError` where they are no UTF-8 or hold NUL bytes.

    `path` is the file's, for the command that converts it, if that is not `source`.
    """
    refused = describe_refused(content)
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        if refused:
            message = f"{source} is {refused}, which cannot be attached"
            raise NoTextError(message, hint=ATTACHABLE) from None
        encoding = guess_encoding(content)
        if not encoding:
            raise NoTextError(f"{source} is not text", hint=ATTACHABLE) from None
        where = f"byte 0x{content[error.start]:02x} at offset {error.start}"
        message = f"{source} is not UTF-8 text: {where}; {describe_encoding(encoding)}"
        raise UsageError(message, hint=_conversion(path or source, encoding)) from None
    if "\x00" in text:
        raise _has_nul_bytes(content, source, path, refused)
    return text


def _has_nul_bytes(content: bytes, source: str, path: str, refused: str) -> UsageError:
    """Return the error of a text with NUL bytes, which is UTF-8 all the same."""
    if refused:
        message = f"{source} is {refused}, which cannot be attached"
        return NoTextError(message, hint=ATTACHABLE)
    encoding = guess_encoding(content)
    if not encoding:
        message = f"{source} holds NUL bytes, so it is not text"
        return NoTextError(message, hint=ATTACHABLE)
    message = f"{source} is not UTF-8 text: {describe_encoding(encoding)}"
    return UsageError(message, hint=_conversion(path or source, encoding))


def _conversion(path: str, encoding: str) -> str:
    """Return the command that converts a file, and what to do then."""
    if path == _NO_FILE:
        return f"convert it first: … | iconv -f {encoding} -t UTF-8 | conductor …"
    command, converted = conversion_command(path, encoding)
    return f"{command}; then: -f {converted}"


def _describe_left_out(tree: FileTree) -> str:
    """Return what was left out of a tree, with numbers, some names, and how to attach it.

    The text is empty if nothing was.
    """
    parts: list[str] = []
    if tree.ignored:
        parts.append(f"{tree.ignored:,} ignored")
    if tree.other:
        parts.append(f"{tree.other:,} not text")
    for kind, paths in (
        ("link", tree.links),
        ("linked .gitignore", tree.linked_rules),
        ("unreadable path", tree.unreadable),
        ("unread document", tree.late),
        ("unread file", tree.unread),
        ("likely secret", tree.secrets),
    ):
        if paths:
            names = format_names([escape_name(path.as_posix()) for path in paths])
            parts.append(f"{format_count(len(paths), kind)} ({names})")
    left_out = ", ".join(parts)
    by_name = tree.secrets or tree.links or tree.unread
    if by_name:
        left_out += f"; to attach one of these, name it: -f {shell_word(str(by_name[0]))}"
    return left_out


def check_total(question: Question) -> None:
    """Raise `UsageError` where the images and documents of a question are too many or too large."""
    check_attachments(question.attachments)


def check_attachments(attached: Iterable[Attachment]) -> None:
    """Raise `UsageError` where images and documents are too many, or together too large."""
    attachments = {attachment.sha256: attachment for attachment in attached}.values()
    total = sum(attachment.size for attachment in attachments)
    if len(attachments) > MAX_ATTACHMENTS:
        message = f"{len(attachments)} images and PDFs are attached; the limit is {MAX_ATTACHMENTS}"
        raise UsageError(message, hint="attach fewer, or ask in several questions")
    if total > MAX_ATTACHED_BYTES:
        sizes = f"{format_size(total)} together; the limit is {format_size(MAX_ATTACHED_BYTES)}"
        message = f"the attached images and PDFs are {sizes}"
        raise UsageError(message, hint="attach fewer or smaller ones")
