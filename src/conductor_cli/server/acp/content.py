"""The blocks of an editor's prompt, as the text of a question and its files.

A file that is linked is read as `conductor ask --file` reads it, with the same bounds and the same
care about secrets. What an editor embeds is taken as it stands in its buffer.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Sequence
from pathlib import Path, PurePosixPath
from typing import Final
from urllib.parse import SplitResult, unquote, urlsplit
from urllib.request import url2pathname

from acp.schema import (
    AudioContentBlock,
    BlobResourceContents,
    EmbeddedResourceContentBlock,
    ImageContentBlock,
    ResourceContentBlock,
    TextContentBlock,
    TextResourceContents,
)

from conductor_cli.app.attach import Attacher
from conductor_cli.core.errors import UsageError
from conductor_cli.core.question import File
from conductor_cli.core.secret_files import is_secret_name, is_secret_text
from conductor_cli.core.terminal_text import one_line

Block = (
    TextContentBlock
    | ImageContentBlock
    | AudioContentBlock
    | ResourceContentBlock
    | EmbeddedResourceContentBlock
)

MAX_FILES: Final = 100  # Files that one prompt may name; a directory is one of them
MAX_SHOWN: Final = 200  # Characters of an address in an error


def read_prompt(
    blocks: Sequence[Block], directory: Path, attacher: Attacher
) -> tuple[str, tuple[File, ...]]:
    """Return the text of a prompt and its files; what to know about them is told to `attacher`.

    A file's name stands in the text where the editor has it. It reads files, so call it on a
    thread. Raises `UsageError`.
    """
    texts = list[str]()
    files = list[File]()
    count = 0
    for block in blocks:
        if isinstance(block, TextContentBlock):
            texts.append(block.text)
            continue
        count += 1
        if count > MAX_FILES:
            message = f"the prompt names more than {MAX_FILES} files"
            raise UsageError(message, hint="attach their directory instead")
        attached = _read_block(block, directory, attacher)
        files += attached
        if isinstance(block, ResourceContentBlock | EmbeddedResourceContentBlock):
            texts.append(_name_of(block, directory))
    return _join(texts), tuple(dict.fromkeys(files))


def _join(texts: Sequence[str]) -> str:
    """Return the texts as one. An editor cuts a line where it names a file."""
    joined = ""
    for text in texts:
        has_space = not joined or joined[-1].isspace() or text[:1].isspace()
        if not has_space and (text[:1].isalnum() or text[:1] in "`(["):
            joined += " "
        joined += text
    return joined.strip()


def _read_block(block: Block, directory: Path, attacher: Attacher) -> list[File]:
    match block:
        case ImageContentBlock():
            suffix = block.mime_type.rpartition("/")[2]
            name = f"image.{one_line(suffix)[:20]}"
            if block.uri:
                name = _address_name(block.uri, directory)
            return [attacher.take(_decode(block.data, name), name)]
        case EmbeddedResourceContentBlock(resource=TextResourceContents() as resource):
            return [_embedded_text(resource, directory, attacher)]
        case EmbeddedResourceContentBlock(resource=BlobResourceContents() as resource):
            name = _address_name(resource.uri, directory)
            content = _decode(resource.blob, name)
            if not content.strip():
                attacher.tell(f"{name} is empty")
            return [attacher.take(content, name)]
        case ResourceContentBlock():
            return _linked_files(block, attacher)
        case _:
            raise UsageError("audio is not read", hint="write the question as text")


def _embedded_text(resource: TextResourceContents, directory: Path, attacher: Attacher) -> File:
    name = _address_name(resource.uri, directory)
    if "\x00" in resource.text:
        raise UsageError(f"{name} holds NUL bytes, so it is not text", hint="attach text only")
    if not resource.text.strip():
        attacher.tell(f"{name} is empty")
    elif is_secret_name(name) or is_secret_text(name, resource.text):
        attacher.tell(f"{name} looks like a secret, and is attached because the editor embeds it")
    return File(name=name, text=resource.text)


def _linked_files(block: ResourceContentBlock, attacher: Attacher) -> list[File]:
    """Return the file or the files of the directory that a link names, from the disk."""
    address = _address_of(block.uri)
    if address.scheme == "file":
        path = _path_of(block.uri)
        if Path(path).is_fifo():  # nobody may ever write to it, and no editor could end the wait
            raise UsageError(f"{one_line(path)} is a pipe", hint="attach files only")
        return attacher.attach_all(path)
    shown = one_line(block.uri)[:MAX_SHOWN]
    attacher.tell(f"{shown} is not a file on this machine: its name is a part of the question only")
    return []


def _address_of(uri: str) -> SplitResult:
    """Return the parts of an address. Raises `UsageError` where it is none."""
    try:
        return urlsplit(uri)
    except ValueError:
        message = f"{one_line(uri)[:MAX_SHOWN]} is no address"
        raise UsageError(message, hint="this is a fault of the editor") from None


def _path_of(uri: str) -> str:
    """Return the path that a `file:` address names. Raises `UsageError`."""
    address = _address_of(uri)
    if address.netloc not in ("", "localhost"):
        shown = one_line(uri)[:MAX_SHOWN]
        raise UsageError(f"{shown} is on another machine", hint="attach a file of this machine")
    return url2pathname(address.path)


def _name_of(block: ResourceContentBlock | EmbeddedResourceContentBlock, directory: Path) -> str:
    """Return how the text of the question names a resource."""
    if isinstance(block, EmbeddedResourceContentBlock):
        return _address_name(block.resource.uri, directory)
    if _address_of(block.uri).scheme == "file":
        return _address_name(block.uri, directory)
    return f"{one_line(block.name)} ({one_line(block.uri)})"


def _address_name(uri: str, directory: Path) -> str:
    """Return the name of a resource: its path within the directory of the session, else its end.

    Of a part of a file the name has the part: `src/main.py#L10:20`.
    """
    address = _address_of(uri)
    name = PurePosixPath(unquote(address.path)).name
    if address.scheme == "file":
        path = Path(url2pathname(address.path))
        name = path.name
        if path.is_relative_to(directory):
            name = path.relative_to(directory).as_posix()
    if address.fragment:
        name += f"#{unquote(address.fragment)}"
    return one_line(name) or "resource"


def _decode(text: str, name: str) -> bytes:
    """Return the bytes of a block. Raises `UsageError`."""
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        message = f"{name} is not in base64"
        raise UsageError(message, hint="this is a fault of the editor") from None
