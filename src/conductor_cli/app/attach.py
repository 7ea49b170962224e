"""Attaching files to a question.

What they are is found from their content, and all of it is bounded.

Text becomes a `File`. Of an image or a PDF the bytes are kept apart, and a PDF's text is extracted
for the workers that cannot read the file itself, by a child process that may neither take long nor
grow large.
"""

from __future__ import annotations

import codecs
import json
import os
import re
import select
import shlex
import stat
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, BinaryIO, Final, Literal

from conductor_cli.app.file_tree import PART_HINT, FileTree, is_pattern, list_files
from conductor_cli.config.settings import Settings
from conductor_cli.core.chat import Attachment
from conductor_cli.core.errors import UsageError
from conductor_cli.core.formatting import format_count, format_names, format_size
from conductor_cli.core.media import (
    NAMES,
    PDF,
    SUFFIXES,
    describe_refused,
    image_size,
    media_type_of,
)
from conductor_cli.core.question import File, Question
from conductor_cli.core.secret_files import is_secret_name, is_secret_text
from conductor_cli.core.usage import CHARS_PER_TOKEN
from conductor_cli.programs.bounded_child import ChildLimits, ChildStopped, run_child
from conductor_cli.state.interfaces import AttachmentStore
from conductor_cli.system.disk import open_finite

PDF_LIMITS: Final = ChildLimits(seconds=20, memory=1 << 30, cpu_seconds=30)
"""Of reading one document: 32 MB of ordinary text take about 10 s and 200 MB."""

_REASONS: Final = {
    "time": "reading it took too long",
    "memory": "reading it took too much memory or time",
    "damaged": "it is damaged",
    "length": "it is very long",
}
_WORD: Final = b"word/document.xml"
"""The part of a Word document that has its text; a ZIP archive has the names of its parts in plain
letters.
"""


class DocumentUnread(UsageError):
    """A document could not be read within the limits."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PdfText:
    """The text of a document with a line before each page, and how many pages there are.

    `read` pages of them were read; `problem` says why not all of them.
    """

    text: str = ""
    pages: int = 0
    read: int = 0
    problem: Literal["", "damaged", "encrypted", "memory", "length", "time"] = ""


def read_pdf(data: bytes, limits: ChildLimits | None = None) -> PdfText:
    """The text of a PDF. Never raises: what cannot be read is a `problem`."""
    lines = _read_in_child(data, limits)
    found = {name: value for line in lines for name, value in line.items()}
    texts = [line["text"] for line in lines if "text" in line]
    text = "\n".join(f"[page {number}]\n{text}" for number, text in enumerate(texts, start=1))
    return PdfText(
        text=text if any(map(str.strip, texts)) else "",
        pages=found.get("pages", 0),
        read=len(texts),
        problem=found["end"],
    )


def _read_in_child(data: bytes, limits: ChildLimits | None = None) -> list[dict[str, Any]]:
    """Return what the child process says of a document; the last line has the `end`."""
    limits = limits or PDF_LIMITS
    if limits.seconds <= 0:
        return [{"end": "time"}]
    try:
        lines = run_child(Path(__file__).with_name("document_process.py"), data, limits)
    except ChildStopped as stopped:
        # By the clock, or because it needed more memory or processor time than allowed
        return [*stopped.values, {"end": "time" if stopped.why == "time" else "memory"}]
    return lines if lines and "end" in lines[-1] else [*lines, {"end": "memory"}]


TEXT_LIMIT: Final = 16 * 1024 * 1024  # Bytes of one text. More is a mistake: no worker reads it

_BINARY: Final = re.compile(rb"[\x00-\x06\x0e-\x1a\x1c-\x1f]")
"""Control characters that no text has, in whatever 8-bit encoding."""

_NOT_WINDOWS: Final = re.compile(rb"[\x81\x8d\x8f\x90\x9d]")
"""Bytes that mean nothing in Windows-1252."""

TO_UTF8: Final = "convert it first, for example with: iconv -t utf-8"

SILENCE: Final = 3.0  # Seconds after which it is said that input is waited for
_HEAD: Final = 4096  # Bytes by which the type of a file is found
_MB: Final = 10**6

# For all PDFs and Word documents of a directory: at most 500 could take 20 s each
TREE_SECONDS: Final = 30.0
# Files of a directory or a pattern. More is a mistake: no worker reads them
MAX_TREE_FILES: Final = 500
MAX_FILES: Final = 20  # Images and PDFs of a question, those of earlier turns included
MAX_TOTAL: Final = 64 * _MB  # Their bytes together: each worker is sent a copy


@dataclass(frozen=True, slots=True)
class Attacher:
    """Reads files to attach. `tell` is given what the user should know about them, a line each."""

    attachments: AttachmentStore
    settings: Settings
    tell: Callable[[str], None] = lambda _: None

    def attach(
        self,
        path: Path,
        *,
        pages: bool = True,
        linked: bool = True,
        limits: ChildLimits | None = None,
    ) -> File:
        """The file at a path, an image, a PDF, a Word document or a text. Raises `UsageError`.

        With `pages`, one that is called HTML is read as a page, and not as the source of one.
        Without `linked`, a link is an error. `limits` are those of reading a document.
        """
        path = path.expanduser()
        try:
            with self._open(path, linked=linked) as file:
                before = os.fstat(file.fileno())
                data = self._read(file, path.name, before)
                after = os.fstat(file.fileno())
        except OSError as error:
            raise UsageError(
                f"{path} cannot be read: {error.strerror}", hint="check its name"
            ) from None
        if (before.st_size, before.st_mtime_ns) != (after.st_size, after.st_mtime_ns):
            raise UsageError(
                f"{path} changed while it was read", hint="attach it again when nobody writes it"
            )
        page = pages and path.suffix.lower() in {".html", ".htm"}
        return self.take(data, path.name, path=str(path), page=page, limits=limits)

    def attach_all(self, name: str) -> list[File]:
        """The file of this name, or those of a directory or of a pattern (`src/**/*.py`).

        Raises `UsageError`.

        Of several files, links, hidden ones, those that a `.gitignore` names, those that look like
        secrets, images and what is no text are left out, and a line says so. A file that the user
        names is attached whatever it is.
        """
        if name.startswith(("http://", "https://")):
            hint = f"curl -sSL -o page.html {shlex.quote(name)}; then: -f page.html"
            raise UsageError("-f reads no URL any more", hint=hint)
        path = Path(name).expanduser()
        if not path.is_dir() and (path.exists() or not is_pattern(name)):
            return [self._attach_named(path)]
        if path.is_symlink():
            self.tell(f"{name} is a link to {path.resolve()}")
        tree = list_files(path)
        files = self._attach_tree(tree, name)
        left_out = _describe_left_out(tree)
        if not files:
            message = f"{name}: there are no files to attach"
            if left_out:
                message += f"; left out: {left_out}"
            hint = "hidden files do not count; a file is attached by its own name: -f PATH"
            raise UsageError(message, hint=hint)
        size = sum(len(file.text) for file in files)
        line = (
            f"{name}: {format_count(len(files), 'file')}, about "
            f"{int(size / CHARS_PER_TOKEN):,} "
            "tokens"
        )
        if left_out:
            line += f"; left out: {left_out}"
        self.tell(line)
        return files

    def _attach_named(self, path: Path) -> File:
        """Attach a file that the user names, unless that name hides a secret behind a link.

        Raises `UsageError`.
        """
        file = self.attach(path)
        # The shell may have made the name from a pattern, and a link in a stranger's directory
        # leads anywhere.
        target = path.resolve() if path.is_symlink() and path.is_file() else path
        name = target.absolute().as_posix()
        is_secret = is_secret_name(name) or is_secret_text(name, file.text)
        if target == path and is_secret:
            self.tell(f"{path} looks like a secret, and is attached because it is named")
        elif is_secret:
            message = f"{path} is a link to {target}, which looks like a secret"
            raise UsageError(message, hint=f"to attach it, name it: -f {shlex.quote(str(target))}")
        elif target != path:
            self.tell(f"{path} is a link to {target}")
        return file

    def _attach_tree(self, tree: FileTree, name: str) -> list[File]:
        """Return what can be attached of a tree, and note in it what cannot.

        Raises `UsageError` where it is too much.

        `name` is what the user called it.
        """
        if len(tree.files) > MAX_TREE_FILES:
            raise UsageError(
                f"{name} has {len(tree.files):,} files; the limit is {MAX_TREE_FILES}",
                hint=PART_HINT,
            )
        files = list[File]()
        size = 0
        seconds = TREE_SECONDS
        for path in tree.files:
            limits = PDF_LIMITS._replace(seconds=min(PDF_LIMITS.seconds, seconds))
            begin = time.monotonic()
            try:
                # In a tree a page is source code
                file = self.attach(path, pages=False, linked=False, limits=limits)
            except DocumentUnread:
                tree.late.append(path)
                continue
            except UsageError:
                tree.other += 1
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
                raise UsageError(
                    f"{name} has more than {TEXT_LIMIT >> 20} MiB of text", hint=PART_HINT
                )
            files.append(replace(file, name=path.as_posix()))
            check_attachments([file.attachment for file in files if file.attachment is not None])
        return files

    def attach_stream(self, stream: BinaryIO, name: str) -> File:
        """Return what a stream holds, such as stdin. Raises `UsageError`."""
        return self.take(self._read(stream, name), name)

    def take(
        self,
        data: bytes,
        name: str,
        *,
        path: str = "",
        page: bool = False,
        limits: ChildLimits | None = None,
    ) -> File:
        """These bytes as a file of this name, or as what a web page says. Raises `UsageError`."""
        found = media_type_of(data)
        claimed = SUFFIXES.get(name.rpartition(".")[2].lower(), "")
        if not data and claimed:
            raise UsageError(f"{name} is empty", hint=f"a {NAMES[claimed]} was expected")
        if claimed and found and found != claimed:
            self.tell(
                f"{name} is a {NAMES[found]}, not a {NAMES[claimed]}, and is attached as such"
            )
        elif found and not claimed and "." in name:
            self.tell(f"{name} is a {NAMES[found]}, and is attached as such")
        self._check_size(name, found, len(data))
        if not found:
            if page or (data.startswith(b"PK") and _WORD in data):
                return self._take_document(data, name, limits)
            text = decode_text(data, name, path)
            return File(name=name, text=_notebook_text(text) if name.endswith(".ipynb") else text)
        if found == PDF:
            return self._take_pdf(data, name, limits)
        size = image_size(data, found)
        if size is None:
            raise UsageError(
                f"{name} is a damaged or truncated {NAMES[found]}", hint="open it, save it again"
            )
        attachment = Attachment(
            name=name,
            media_type=found,
            sha256=self.attachments.add(data),
            size=len(data),
            width=size[0],
            height=size[1],
        )
        return File(name=name, text="", attachment=attachment)

    def _take_pdf(self, data: bytes, name: str, limits: ChildLimits | None) -> File:
        found = read_pdf(data, limits)
        if found.problem == "encrypted":
            raise UsageError(
                f"{name} is encrypted",
                hint="remove its password first: qpdf --decrypt IN.pdf OUT.pdf",
            )
        if found.problem == "damaged" and not found.pages:
            raise UsageError(f"{name} is a damaged PDF document", hint="open it, save it again")
        if found.problem:
            why = _REASONS.get(found.problem, found.problem)
            read = (
                f"only the text of {found.read} of {format_count(found.pages, 'page')} was "
                f"read: {why}"
            )
            self.tell(f"{name}: {read if found.read else f'its text cannot be read: {why}'}")
        elif not found.text:
            self.tell(
                f"{name}: it holds no text, as scanned documents do; only workers that accept "
                "PDFs "
                "can read it"
            )
        attachment = Attachment(
            name=name,
            media_type=PDF,
            sha256=self.attachments.add(data),
            size=len(data),
            pages=found.pages,
        )
        return File(name=name, text=found.text, attachment=attachment)

    def _take_document(self, data: bytes, name: str, limits: ChildLimits | None) -> File:
        """A Word document or a web page as its text, with a line on what was left out."""
        found = {key: value for line in _read_in_child(data, limits) for key, value in line.items()}
        text = found.get("text", "")
        end = found["end"]
        if not text.strip():
            if end == "missing":
                raise UsageError(
                    f"{name} needs two libraries", hint="pip install mammoth selectolax"
                )
            kind = DocumentUnread if end in {"time", "memory"} else UsageError
            raise kind(
                f"{name} cannot be read: {_REASONS.get(end, 'it holds no text')}",
                hint="save it as text",
            )
        left_out = [f"{count:,} {what}" for what, count in found["left_out"].items()]
        left_out += [f"the end, because {_REASONS[end]}"] if end else []
        self.tell(
            f"{name} is read as text: about {int(len(text) / CHARS_PER_TOKEN):,} tokens"
            + (f"; left out: {', '.join(left_out)}" if left_out else "")
        )
        return File(name=name, text=text)

    def _open(self, path: Path, *, linked: bool = True) -> BinaryIO:
        """A file, or a pipe as a shell makes it of `<(…)`. Raises `UsageError` or `OSError`."""
        if not linked:
            return open_finite(path, linked=False)
        mode = path.stat().st_mode
        if stat.S_ISCHR(mode) or stat.S_ISBLK(mode) or stat.S_ISSOCK(mode):
            what = "a socket" if stat.S_ISSOCK(mode) else "a device"
            raise UsageError(f"{path} is {what}", hint="attach files only")
        if not stat.S_ISFIFO(mode):
            return open_finite(path)
        # Opening a pipe that nobody writes to would wait for ever without a word.
        pipe = os.fdopen(os.open(path, os.O_RDONLY | os.O_NONBLOCK), "rb")
        if not select.select([pipe], [], [], SILENCE)[0]:
            self.tell(f"waiting for somebody to write to the pipe {path}")
            select.select([pipe], [], [])
        os.set_blocking(pipe.fileno(), True)
        return pipe

    def _read(self, stream: BinaryIO, name: str, known: os.stat_result | None = None) -> bytes:
        """All of a stream, and of one that is too large not more than its beginning.

        Raises `UsageError`, `OSError`.
        """
        head = stream.read(_HEAD)
        media_type = media_type_of(head)
        if known is not None and stat.S_ISREG(known.st_mode):
            self._check_size(name, media_type, known.st_size)
        most = self._limit(media_type)
        data = head + stream.read(most + 1 - len(head)) if len(head) == _HEAD else head
        self._check_size(name, media_type, len(data))
        return data

    def _limit(self, media_type: str) -> int:
        if not media_type:
            return TEXT_LIMIT
        return (
            int(
                self.settings["attachments.pdf_mb" if media_type == PDF else "attachments.image_mb"]
            )
            * _MB
        )

    def _check_size(self, name: str, media_type: str, size: int) -> None:
        most = self._limit(media_type)
        if size <= most:
            return
        if not media_type:
            raise UsageError(
                f"{name} is larger than {TEXT_LIMIT >> 20} MiB",
                hint="attach only the part that matters",
            )
        setting = "attachments.pdf_mb" if media_type == PDF else "attachments.image_mb"
        hint = (
            f"make it smaller, or raise the limit: conductor config set {setting} {-(-size // _MB)}"
        )
        raise UsageError(
            f"{name} is larger than {most // _MB} MB, the limit for a {NAMES[media_type]}",
            hint=hint,
        )


def decode_text(data: bytes, source: str, path: str = "") -> str:
    """These bytes as text. Raises `UsageError` where they are no UTF-8 or hold NUL bytes.

    `path` is the file's, for the command that converts it, if that is not `source`.
    """
    refused = describe_refused(data)
    attachable = (
        "attach text, PNG, JPEG, GIF, WebP, PDF, .docx or HTML files, notebooks or directories"
    )
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        if refused:
            raise UsageError(
                f"{source} is {refused}, which cannot be attached", hint=attachable
            ) from None
        encoding = _guess_encoding(data)
        if not encoding:
            raise UsageError(f"{source} is not text", hint=attachable) from None
        where = f"byte 0x{data[error.start]:02x} at offset {error.start}; it may be {encoding}"
        hint = _conversion(path or source, encoding)
        raise UsageError(f"{source} is not UTF-8 text: {where}", hint=hint) from None
    if "\x00" in text:
        encoding = _guess_encoding(data)
        if encoding and not refused:
            hint = _conversion(path or source, encoding)
            raise UsageError(f"{source} is not UTF-8 text: it may be {encoding}", hint=hint)
        what = (
            f"is {refused}, which cannot be attached"
            if refused
            else "holds NUL bytes, so it is not text"
        )
        raise UsageError(f"{source} {what}", hint=attachable)
    return text


def _guess_encoding(data: bytes) -> str:
    """Return what text in another encoding than UTF-8 is probably encoded in, as iconv calls it.

    Empty if no text is.

    A byte order mark says it. Without one, UTF-16 of a text in Latin letters has a zero in every
    second byte. Other bytes may be of any encoding of 8 bits: Windows-1252 is the commonest one,
    and holds Latin-1.
    """
    for mark, name in ((codecs.BOM_UTF32_LE, "UTF-32"), (codecs.BOM_UTF32_BE, "UTF-32")):
        if data.startswith(mark):
            return name
    if data.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        return "UTF-16"
    head = data[: _HEAD // 2 * 2]
    zeros = [head[number::2].count(0) for number in (0, 1)]
    for name, mostly, never in (("UTF-16LE", zeros[1], zeros[0]), ("UTF-16BE", zeros[0], zeros[1])):
        if never == 0 and mostly * 4 > len(head):
            return name
    if _BINARY.search(data):
        return ""
    return "ISO-8859-1" if _NOT_WINDOWS.search(data) else "CP1252"


def _conversion(path: str, encoding: str) -> str:
    """Return the command that converts a file, and what to do then."""
    if path == "stdin":
        return f"convert it first: … | iconv -f {encoding} -t UTF-8 | conductor …"
    file = Path(path)
    converted = shlex.quote(str(file.with_name(f"{file.stem}.utf8{file.suffix}")))
    return f"iconv -f {encoding} -t UTF-8 {shlex.quote(path)} > {converted}; then: -f {converted}"


def _notebook_text(text: str) -> str:
    """Return what a Jupyter notebook says: its texts, its code and the texts of its results.

    Else the text as it is.
    """
    try:
        cells = json.loads(text)["cells"]
        parts = []
        for cell in cells:
            source = "".join(cell["source"])
            parts.append(source if cell["cell_type"] != "code" else f"```\n{source}\n```")
            for output in cell.get("outputs", ()):
                said = (
                    output.get("text")
                    or output.get("data", {}).get("text/plain")
                    or output.get("evalue")
                    or ""
                )
                parts += [f"result:\n{''.join(said)}"] if said else []
        return "\n\n".join(parts)
    except (ValueError, RecursionError, LookupError, TypeError, AttributeError):
        return text


def _describe_left_out(tree: FileTree) -> str:
    """Return what was left out of a tree, with numbers, some names, and how to attach it.

    Empty if nothing was.
    """
    parts = []
    if tree.ignored:
        parts.append(f"{tree.ignored:,} ignored")
    if tree.other:
        parts.append(f"{tree.other:,} not text")
    for what, paths in (
        ("link", tree.links),
        ("linked .gitignore", tree.linked_rules),
        ("unreadable path", tree.unreadable),
        ("unread document", tree.late),
        ("likely secret", tree.secrets),
    ):
        if paths:
            names = format_names([path.as_posix() for path in paths])
            parts.append(f"{format_count(len(paths), what)} ({names})")
    by_name = tree.secrets or tree.links
    if by_name:
        parts.append(f"to attach one of these, name it: -f {shlex.quote(str(by_name[0]))}")
    return "; ".join([", ".join(parts[:-1]), parts[-1]]) if by_name else ", ".join(parts)


def check_total(question: Question) -> None:
    """Raise `UsageError` where the images and documents of a question are too many, or together too
    large.
    """
    check_attachments(question.attachments)


def check_attachments(attached: Iterable[Attachment]) -> None:
    """Raise `UsageError` where images and documents are too many, or together too large."""
    attachments = {attachment.sha256: attachment for attachment in attached}.values()
    total = sum(attachment.size for attachment in attachments)
    if len(attachments) > MAX_FILES:
        hint = "attach fewer, or ask in several questions"
        raise UsageError(
            f"{len(attachments)} images and PDFs are attached; the limit is {MAX_FILES}", hint=hint
        )
    if total > MAX_TOTAL:
        raise UsageError(
            (
                f"the attached images and PDFs are {format_size(total)} together; the limit is "
                f"{format_size(MAX_TOTAL)}"
            ),
            hint="attach fewer or smaller ones",
        )
