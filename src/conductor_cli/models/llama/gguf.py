"""The header of a GGUF file, read without llama.cpp, and the checks before that may see a file.

llama.cpp aborts the whole process on many damaged files. So a file is checked here first, and
nothing here believes the file: every count is compared with the file's size before it is used.
Weights are not read, so only a checksum finds damage in them.

The format: github.com/ggml-org/ggml, docs/gguf.md. The types of numbers and their sizes are ggml's:
github.com/ggml-org/llama.cpp, ggml/include/ggml.h and ggml/src/ggml-common.h. What is stored in
which type: conversion/base.py there, by which such files are made.
"""

from __future__ import annotations

import hashlib
import mmap
import re
import struct
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Final, NamedTuple

from conductor_cli.core.errors import ModelError
from conductor_cli.core.terminal_text import short_line

Scalar = str | int | float | bool

MEBIBYTE: Final = 1 << 20

MAX_LAYERS: Final = 512  # The most layers that llama.cpp supports

MAX_STRING_BYTES: Final = 16 * MEBIBYTE
"""The most bytes of a text in a header, of all that are kept together, and of a vocabulary."""

MAX_TOKENS: Final = 600_000
"""Tokens of a vocabulary, of which each is kept for a moment; the largest known one has 262,144."""

MAX_MERGES: Final = 2_000_000  # A vocabulary has about two merges for each token

_STRING: Final = 8
_ARRAY: Final = 9
_NUMBER_FORMATS: Final = dict(enumerate("BbHhIif?", start=0)) | {10: "Q", 11: "q", 12: "d"}

_DOWNLOAD: Final = "get the file again, or name another one"

F32: Final = 0  # The number of the type of plain numbers of 32 bits

UNUSABLE_TYPES: Final = frozenset({9, 15, 24, 25, 26, 27, 28})
"""The types that ggml cannot multiply a matrix of.

Q8_1 and Q8_K (only for intermediate results), integers, and F64.
"""

BLOCK_SIZES: Final[Mapping[int, tuple[int, int]]] = {
    0: (1, 4),
    1: (1, 2),
    2: (32, 18),
    3: (32, 20),
    6: (32, 22),
    7: (32, 24),
    8: (32, 34),
    9: (32, 36),
    10: (256, 84),
    11: (256, 110),
    12: (256, 144),
    13: (256, 176),
    14: (256, 210),
    15: (256, 292),
    16: (256, 66),
    17: (256, 74),
    18: (256, 98),
    19: (256, 50),
    20: (32, 18),
    21: (256, 110),
    22: (256, 82),
    23: (256, 136),
    24: (1, 1),
    25: (1, 2),
    26: (1, 4),
    27: (1, 8),
    28: (1, 8),
    29: (256, 56),
    30: (1, 2),
    34: (256, 54),
    35: (256, 66),
    39: (32, 17),
    40: (64, 36),
    41: (128, 18),
    42: (64, 18),
}
"""How many numbers form a block and in how many bytes, by the number of their type."""

_INTEGER_TABLES: Final = {"ffn_gate_tid2eid.weight": 26, "d2t": 27}
"""The type that each tensor must have which is a table of integers, by its name within a layer."""


class TensorInfo(NamedTuple):
    """What a GGUF says of a tensor.

    `shape` has the fastest dimension first, `kind` is the number of its type, and `start` is in
    bytes from the first weight.
    """

    shape: tuple[int, ...]
    kind: int
    start: int = 0

    @property
    def end(self) -> int:
        """The byte after it, or where it starts if the type is not known."""
        numbers, size = BLOCK_SIZES.get(self.kind, (1, 0))
        return self.start + prod(self.shape) // numbers * size


def is_matrix(name: str, tensor: TensorInfo) -> bool:
    """Return whether llama.cpp multiplies with the tensor.

    Norms and biases are none, whatever their shape.
    """
    return len(tensor.shape) > 1 and not name.endswith(("_norm.weight", ".bias"))


def has_usable_type(name: str, tensor: TensorInfo) -> bool:
    """Return whether llama.cpp can compute with the tensor: it aborts the process on another type.

    Everything that is not a matrix has plain numbers.
    """
    table = _INTEGER_TABLES.get(name.split(".", 2)[-1])
    if table is not None:
        return tensor.kind == table
    if is_matrix(name, tensor):
        return tensor.kind not in UNUSABLE_TYPES
    return tensor.kind == F32


@dataclass(frozen=True, slots=True, kw_only=True)
class Header:
    """What a GGUF says of itself.

    `arrays` has the type of the items of each list, and how many there are.

    `has_byte_tokens` is whether every single byte is a token of the vocabulary, as SentencePiece
    writes it.
    """

    tensors: int
    values: Mapping[str, Scalar]
    arrays: Mapping[str, tuple[int, int]]
    has_byte_tokens: bool = True

    @property
    def architecture(self) -> str:
        return str(self.values.get("general.architecture", ""))

    @property
    def layers(self) -> int:
        """How many layers the model has, 0 if the header does not say it."""
        count = self.values.get(f"{self.architecture}.block_count", 0)
        if not isinstance(count, int):
            return 0
        return count

    @property
    def heads(self) -> tuple[int, int] | None:
        """The numbers of query heads and of key heads in each layer.

        None if the header does not say them.
        """
        queries = self.values.get(f"{self.architecture}.attention.head_count")
        keys = self.values.get(f"{self.architecture}.attention.head_count_kv", queries)
        if not isinstance(queries, int) or not isinstance(keys, int):
            return None
        return queries, keys


def check_model_file(path: Path, *, first: bool = True) -> Header:
    """Return the header of a file that llama.cpp may see.

    Raises `ModelError` of kind `file` for any other file.

    Without `first` it is a further part of a split model, which has nothing but weights.
    """
    header, tensors = read_header_and_tensors(path)
    for name, tensor in tensors.items():
        if not has_usable_type(name, tensor):
            problem = (
                f"is damaged: {short_line(name)} has the type {tensor.kind}, with which llama.cpp "
                "cannot compute"
            )
            raise _damaged(path, problem)
    if not first:
        return header
    if not header.architecture:
        raise _damaged(path, "does not say which architecture it has")
    # The first part of a split model may have none
    if header.tensors == 0 and "split.count" not in header.values:
        raise ModelError("file", f"{path} has a vocabulary but no weights", hint=_DOWNLOAD)
    _check_keys(path, header)
    return header


def read_header(path: Path, *, brief: bool = False) -> Header:
    """Return the keys of the file.

    `brief` leaves out the vocabulary, which is most of them, and all that follows it.

    Raises `ModelError` of kind `file`, and nothing else.
    """
    with _open_reader(path) as reader:
        return reader.header(brief=brief)


def read_header_and_tensors(path: Path) -> tuple[Header, Mapping[str, TensorInfo]]:
    """Return all keys, and every tensor by its name, in a file that is long enough for them.

    Raises `ModelError` of kind `file`, and nothing else.
    """
    with _open_reader(path) as reader:
        header = reader.header(brief=False)
        tensors = reader.tensors(header.tensors)
        reader.check_length(header, tensors)
        return header, tensors


def read_chat_template(path: Path) -> str:
    """Return the chat template of the file, empty if it has none or cannot be read. Raises nothing.

    The template stands behind the vocabulary, which takes half a second to read. So its key is
    looked for: what is found is not checked as the whole header is.
    """
    with suppress(ModelError), _open_reader(path) as reader:
        return reader.text_of_key(b"tokenizer.chat_template")
    return ""


@contextmanager
def _open_reader(path: Path) -> Iterator[_Reader]:
    try:
        if not path.exists():
            raise ModelError("file", f"there is no file {path}", hint="check the path")
        if not path.is_file():
            raise ModelError("file", f"{path} is not a file", hint="name the GGUF file itself")
        if path.stat().st_size == 0:  # an empty file cannot be mapped into memory
            raise _damaged(path, "is empty")
        with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as view:
            yield _Reader(path, view)
    except OSError as error:
        raise ModelError(
            "file", f"{path} cannot be read: {error.strerror}", hint="check the path"
        ) from error


def _damaged(path: Path, problem: str) -> ModelError:
    return ModelError("file", f"{path} {problem}", hint=_DOWNLOAD)


def _check_keys(path: Path, header: Header) -> None:
    """Raise `ModelError` for a vocabulary or numbers on which llama.cpp would abort the process."""
    _check_vocabulary(path, header)
    _check_numbers(path, header)


def _check_vocabulary(path: Path, header: Header) -> None:
    """Check that each token has all that llama.cpp reads of it.

    It reads as many scores and types as there are tokens, past the end of the list if there are
    fewer. Without a vocabulary it aborts the process on the first text, and if SentencePiece has no
    token for some byte, on a text with a letter that needs it.
    """
    if header.values.get("tokenizer.ggml.model") == "none":
        raise ModelError("file", f"{path} has no vocabulary", hint=_DOWNLOAD)
    if header.values.get("tokenizer.ggml.model") == "llama" and not header.has_byte_tokens:
        hint = "convert the model again, or name another file"
        raise ModelError(
            "file",
            f"{path} cannot be used: some letters have no token in its vocabulary",
            hint=hint,
        )
    _, tokens = header.arrays.get("tokenizer.ggml.tokens", (_STRING, 0))
    wanted = {"tokens": (_STRING,), "scores": (6,), "token_type": (4, 5), "merges": (_STRING,)}
    for name, kinds in wanted.items():
        kind, count = header.arrays.get(f"tokenizer.ggml.{name}", (kinds[0], tokens))
        if kind not in kinds or (name != "merges" and count != tokens):
            raise _damaged(path, f"is damaged: its vocabulary does not fit together ({name})")


def _check_numbers(path: Path, header: Header) -> None:
    """Check the counts of layers and heads, and the epsilons of norms, for what makes no sense."""
    layers = header.values.get(f"{header.architecture}.block_count", 1)
    if not isinstance(layers, int) or not 0 < layers <= MAX_LAYERS:
        raise _damaged(path, f"is damaged: it claims {short_line(str(layers))} layers")
    heads = header.values.get(f"{header.architecture}.attention.head_count", 1)
    keys = header.values.get(f"{header.architecture}.attention.head_count_kv", heads)
    if isinstance(heads, int) and isinstance(keys, int) and heads and not (0 <= keys <= heads):
        raise _damaged(path, f"is damaged: it claims {keys} key heads and {heads} heads")
    for name, value in header.values.items():
        is_small = isinstance(value, float) and 0 <= value < 1
        if name.endswith("epsilon") and not is_small:
            raise _damaged(path, f"is damaged: {short_line(name)} is {short_line(str(value))}")


class _Reader:
    """Reads from the start of the file. Every step is checked against its end."""

    def __init__(self, path: Path, view: mmap.mmap) -> None:
        self._path = path
        self._data = view
        self._at = 0
        self._has_byte_tokens = True
        self._room = MAX_STRING_BYTES

    def header(self, *, brief: bool) -> Header:
        if self._data[:4] != b"GGUF":
            hint = (
                "get the file again: a web page or a Git LFS pointer may have been saved in its "
                "place"
            )
            raise ModelError("file", f"{self._path} is not a GGUF file", hint=hint)
        self._at = 4
        version = self._number("I")
        if version not in (2, 3):
            raise _damaged(self._path, f"is GGUF version {version}; versions 2 and 3 can be read")
        tensors = self._number("Q")
        keys = self._number("Q")
        # Both numbers bound the loops below: a file has at least 13 bytes for each key and 24 for
        # each tensor. No model has more than 20,000 of them, and llama.cpp, which compares all with
        # each other, would not come back.
        if self._at + keys * 13 + tensors * 24 > len(self._data) or max(tensors, keys) > 20_000:
            raise _damaged(self._path, f"is damaged: it claims {tensors} tensors and {keys} keys")
        values: dict[str, Scalar] = {}
        arrays: dict[str, tuple[int, int]] = {}
        for _ in range(keys):
            name = self._text()
            kind = self._number("I")
            # The first list is the vocabulary, or follows it. What an overview needs stands before
            # it.
            if kind == _ARRAY and brief and _has_context_length(values):
                break
            if kind == _ARRAY:
                arrays[name] = self._array(unique=name == "tokenizer.ggml.tokens")
            elif kind == _STRING:
                values[name] = self._text()
            elif kind in _NUMBER_FORMATS:
                values[name] = self._unpack(_NUMBER_FORMATS[kind])
            else:
                raise _damaged(self._path, f"is damaged: a key is of the unknown type {kind}")
        return Header(
            tensors=tensors, values=values, arrays=arrays, has_byte_tokens=self._has_byte_tokens
        )

    def tensors(self, count: int) -> dict[str, TensorInfo]:
        """Return the tensors, whose descriptions come after the keys."""
        tensors: dict[str, TensorInfo] = {}
        for _ in range(count):
            name = self._text()
            dimensions = self._number("I")
            if dimensions > 4:  # as ggml has
                raise _damaged(self._path, f"is damaged: a tensor has {dimensions} dimensions")
            shape = tuple(self._number("Q") for _ in range(dimensions))
            kind = self._number("I")
            tensors[name] = TensorInfo(shape=shape, kind=kind, start=self._number("Q"))
        return tensors

    def check_length(self, header: Header, tensors: Mapping[str, TensorInfo]) -> None:
        """Check that all `tensors`, whose data come after what was read, lie within the file."""
        step = header.values.get("general.alignment", 32)
        if type(step) is not int or step < 1 or step & (step - 1):
            shown = short_line(str(step))
            problem = f"is damaged: it is aligned to {shown}, which is not a power of two"
            raise _damaged(self._path, problem)
        if not tensors:
            return
        start = -(-self._at // step) * step
        wanted = start + max(tensor.end for tensor in tensors.values())
        size = len(self._data)
        if wanted > size:
            problem = f"is cut off or damaged: it has {size} bytes, and needs {wanted}"
            raise _damaged(self._path, problem)

    def text_of_key(self, name: bytes) -> str:
        """Return the first text that this key has within the largest header; empty for none."""
        start = len(name).to_bytes(8, "little") + name + _STRING.to_bytes(4, "little")
        at = self._data.find(start, 0, 2 * MAX_STRING_BYTES)
        if at < 0:
            return ""
        self._at = at + len(start)
        return self._text()

    def _number(self, code: str) -> int:
        return int(self._unpack(code))

    def _unpack(self, code: str) -> Scalar:
        form = struct.Struct("<" + code)
        if self._at + form.size > len(self._data):
            raise self._cut()
        value: Scalar = form.unpack_from(self._data, self._at)[0]
        self._at += form.size
        return value

    def _text(self) -> str:
        length = self._number("Q")
        if length > len(self._data) - self._at:
            raise self._cut()
        self._room -= length
        if self._room < 0:
            raise _damaged(
                self._path,
                f"is damaged: its header has more than {MAX_STRING_BYTES >> 20} MiB of text",
            )
        self._at += length
        return self._data[self._at - length : self._at].decode("utf-8", "replace")

    def _array(self, *, unique: bool) -> tuple[int, int]:
        kind = self._number("I")
        count = self._number("Q")
        if kind != _STRING and kind not in _NUMBER_FORMATS:
            raise _damaged(self._path, f"is damaged: a list is of the unknown type {kind}")
        size = 8
        if kind != _STRING:
            size = struct.calcsize("<" + _NUMBER_FORMATS[kind])
        if count * size > len(self._data) - self._at:
            raise self._cut()
        if kind != _STRING:
            self._at += count * size
        elif unique:
            tokens = self._distinct_texts(count)
            self._has_byte_tokens = all(_has_byte(tokens, byte) for byte in range(256))
        else:
            self._skip_texts(count)
        return kind, count

    def _distinct_texts(self, count: int) -> set[bytes]:
        """Return a list's texts, of which none may come twice, as in a vocabulary."""
        self._check_count(count, MAX_TOKENS)
        buffer = self._data
        at = self._at
        end = min(len(buffer) - 8, at + 8 * count + MAX_STRING_BYTES)
        length = struct.Struct("<Q").unpack_from
        texts: set[bytes] = set()
        for _ in range(count):
            if at > end:
                raise self._cut()
            start = at + 8
            at = start + length(buffer, at)[0]
            texts.add(buffer[start:at])
        self._move_to(at)
        if len(texts) < count:  # llama.cpp aborts the process on this
            raise _damaged(self._path, "is damaged: its vocabulary has a token twice")
        return texts

    def _skip_texts(self, count: int) -> None:
        self._check_count(count, MAX_MERGES)
        buffer = self._data
        at = self._at
        end = len(buffer) - 8
        length = struct.Struct("<Q").unpack_from
        for _ in range(count):
            if at > end:
                raise self._cut()
            at = at + 8 + length(buffer, at)[0]
        self._move_to(at)

    def _check_count(self, count: int, most: int) -> None:
        if count > most:
            raise _damaged(self._path, f"is damaged: it claims a list of {count:,} texts")

    def _move_to(self, at: int) -> None:
        if at > len(self._data):
            raise self._cut()
        self._at = at

    def _cut(self) -> ModelError:
        return _damaged(self._path, "is cut off or damaged: it ends in the middle of its header")


def _has_context_length(values: Mapping[str, Scalar]) -> bool:
    return any(name.endswith(".context_length") for name in values)


def _has_byte(tokens: set[bytes], byte: int) -> bool:
    return b"<0x%02X>" % byte in tokens or bytes((byte,)) in tokens


PART_NAME: Final = re.compile(r"(?P<name>.+)-(?P<number>[0-9]{5})-of-(?P<count>[0-9]{5})\.gguf")
"""The names of the parts of a split model; llama.cpp finds the others by the name of the first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelInfo:
    """What tells a model from others. `size` is in bytes, of all parts together.

    `identity` is a hash of the sizes and of the first and last mebibyte of each part: a hash of the
    whole file would take a minute.
    """

    size: int
    identity: str


def read_model_info(path: Path) -> ModelInfo:
    """Return what `path` is, in milliseconds whatever its size.

    Raises `ModelError` of kind `file`.
    """
    read_header(path, brief=True)
    # A changed file nearly always has another size, header or end. A state on disk of another model
    # would be harmful.
    size = 0
    digest = hashlib.sha256()
    for part in part_files(path):
        try:
            length = part.stat().st_size
            with part.open("rb") as file:
                digest.update(str(length).encode() + file.read(MEBIBYTE))
                file.seek(max(0, length - MEBIBYTE))
                digest.update(file.read(MEBIBYTE))
        except OSError as error:
            raise ModelError(
                "file", f"cannot read {part}: {error.strerror}", hint="check the path"
            ) from error
        size += length
    return ModelInfo(size=size, identity=f"sha256-ends:{digest.hexdigest()}")


def part_names(name: str) -> list[str]:
    """Return the names of all parts of the model that a file with this name belongs to.

    The name alone for a whole one.
    """
    match = PART_NAME.fullmatch(name)
    if match is None:
        return [name]
    count = int(match["count"])
    if not 1 < count <= 10 * MAX_LAYERS:  # no model has more parts
        return [name]
    return [f"{match['name']}-{number:05}-of-{count:05}.gguf" for number in range(1, count + 1)]


def part_files(path: Path) -> tuple[Path, ...]:
    """Return all files of the model whose first is `path`, found by their names.

    Raises `ModelError` of kind `file`.
    """
    names = part_names(path.name)
    if len(names) == 1:
        return (path,)
    files = [path.with_name(name) for name in names]
    if path != files[0]:
        raise ModelError(
            "file",
            f"{path} is not the first part of its model",
            hint=f"name the first part: {files[0]}",
        )
    missing = [file.name for file in files if not file.exists()]
    if missing:
        shown = ", ".join(missing[:3])
        if len(missing) > 3:
            shown += " and more"
        problem = f"{path} is the first part of a split model; missing: {shown}"
        raise ModelError("file", problem, hint="put all parts in one directory")
    return tuple(files)


def read_all_tensors(path: Path) -> dict[str, TensorInfo]:
    """Return the tensors of a model by name, from the headers of all its parts.

    Raises `ModelError` of kind `file`.
    """
    all_tensors: dict[str, TensorInfo] = {}
    for part in part_files(path):
        _, tensors = read_header_and_tensors(part)
        all_tensors.update(tensors)
    return all_tensors


def check_whole_model(path: Path) -> Header:
    """Return the header of a model's only or first file, if llama.cpp may see all of its parts.

    Raises `ModelError` of kind `file`.
    """
    # The names come first: a further part has no header that could be checked, and its name tells
    # what it is.
    files = part_files(path)
    header = check_model_file(path)
    count = header.values.get("split.count", 1)
    if count in (0, 1) and len(files) == 1:
        return header
    if count != len(files):
        problem = (
            f"{path} says that its model has {short_line(str(count))} parts, and its name "
            f"says {len(files)}"
        )
        raise ModelError(
            "file", problem, hint="the parts must be called NAME-00001-of-0000N.gguf and so on"
        )
    for number, file in enumerate(files):
        part = header
        if number > 0:
            part = check_model_file(file, first=False)
        if part.values.get("split.no") != number or part.values.get("split.count") != count:
            problem = f"{file} is not part {number + 1} of this model"
            raise ModelError("file", problem, hint="get the file again")
    return header
