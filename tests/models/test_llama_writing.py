"""GGUF files that we write ourselves: the `gguf` package and llama.cpp read them, and half a file is never left."""

from __future__ import annotations

import errno
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from conductor_cli.core.errors import ModelError
from conductor_cli.models.llama.bindings import CancelToken
from conductor_cli.models.llama.gguf import check_model_file, read_header
from conductor_cli.models.llama.loading import LlamaOptions, LoadedModel
from conductor_cli.models.llama.writing import ALIGNMENT, Kind, Tensor, Value, write
from tests.tiny_gguf import make

VALUES: dict[str, Value] = {
    "general.architecture": "qwen2",
    "general.name": "Größe \U0001f980",
    "some.number": 0xFFFFFFFF,
    "some.float": 0.25,
    "some.truth": True,
    "some.words": ("", "a", "é"),
    "some.numbers": (0, -1, 7),
    "some.floats": (0.5, -2.0),
    "some.truths": (True, False),
}


def ones(name: str = "one", kind: Kind = Kind.F32, parts: tuple[bytes, ...] = (b"\0\0\x80\x3f" * 5,)) -> Tensor:
    return Tensor(name=name, shape=(5,), kind=kind, parts=parts)


def value(field: Any) -> object:
    """What the `gguf` package read, as plain Python."""
    found = field.contents()
    return tuple(found) if isinstance(found, list) else found


def test_the_gguf_package_reads_every_kind_of_value(tmp_path: Path) -> None:
    """Texts, numbers, truth values and lists of each come back as they were."""
    gguf = pytest.importorskip("gguf")
    write(tmp_path / "a.gguf", VALUES, [ones()])
    fields = gguf.GGUFReader(tmp_path / "a.gguf").fields
    assert {name: value(fields[name]) for name in VALUES} == VALUES
    assert value(fields["GGUF.version"]) == 3


def test_the_gguf_package_reads_every_kind_of_tensor(tmp_path: Path) -> None:
    """Names, shapes, types and bytes come back as they were, each tensor aligned."""
    gguf = pytest.importorskip("gguf")
    shape = (3, 512)
    tensors = {
        f"tensor.{kind.name}": (kind, bytes((at * 7 + kind) % 256 for at in range(3 * 512 // numbers * size)))
        for kind in Kind
        for numbers, size in [kind.block]
    }
    write(
        tmp_path / "a.gguf",
        VALUES,
        [
            Tensor(name=name, shape=shape, kind=kind, parts=(data[:1], data[1:]))
            for name, (kind, data) in tensors.items()
        ],
    )
    read = gguf.GGUFReader(tmp_path / "a.gguf").tensors
    assert {tensor.name: (Kind(tensor.tensor_type), tensor.data.tobytes()) for tensor in read} == tensors
    assert {tuple(tensor.shape.tolist()) for tensor in read} == {shape[::-1]}
    assert {tensor.data_offset % ALIGNMENT for tensor in read} == {0}


def test_our_own_reader_reads_what_we_write(tmp_path: Path) -> None:
    """The header says the same, and passes the check before llama.cpp."""
    write(tmp_path / "a.gguf", VALUES, [ones()])
    header = read_header(tmp_path / "a.gguf")
    assert header == check_model_file(tmp_path / "a.gguf")
    assert dict(header.values) == {name: item for name, item in VALUES.items() if not isinstance(item, tuple)}
    assert header.arrays == {
        "some.words": (8, 3), "some.numbers": (5, 3), "some.floats": (6, 2), "some.truths": (7, 2),
    }  # fmt: skip


def test_llama_cpp_loads_a_model_that_we_wrote(models: Path, tmp_path: Path) -> None:
    """A copy of a model, written anew, gives the same logits bit for bit."""
    gguf = pytest.importorskip("gguf")
    original = make(models / "copied.gguf")
    read = gguf.GGUFReader(original)
    values = {name: value(field) for name, field in read.fields.items() if not name.startswith("GGUF.")}
    tensors = [
        Tensor(
            name=tensor.name, shape=tuple(tensor.shape.tolist()[::-1]), kind=Kind(tensor.tensor_type),
            parts=(tensor.data.tobytes(),),
        )
        for tensor in read.tensors
    ]  # fmt: skip
    write(tmp_path / "copy.gguf", values, tensors)  # type: ignore[arg-type]  # what was read is what can be written
    assert logits(tmp_path / "copy.gguf") == logits(original)


def logits(path: Path) -> list[float]:
    loaded = LoadedModel(path, LlamaOptions(context=64), CancelToken())
    try:
        tokens = (loaded.lib.llama_token * 3)(5, 6, 7)
        assert loaded.lib.llama_decode(loaded.context, loaded.lib.llama_batch_get_one(tokens, 3)) == 0
        found = loaded.lib.llama_get_logits_ith(loaded.context, -1)
        return [found[at] for at in range(20)]
    finally:
        loaded.close()


def test_a_file_that_cannot_be_finished_leaves_the_old_one(tmp_path: Path) -> None:
    """The path has what it had, and nothing else lies beside it."""
    path = tmp_path / "a.gguf"
    path.write_bytes(b"before")

    def breaks() -> Iterator[bytes]:
        yield b"\0" * 8
        raise OSError(errno.ENOSPC, "No space left on device")

    with pytest.raises(ModelError, match="cannot be written: No space left on device") as error:
        write(path, VALUES, [Tensor(name="x", shape=(5_000_000,), kind=Kind.F32, parts=breaks())])
    assert (error.value.reason, error.value.hint) == ("file", "make room on the disk: 20 MB are needed")
    assert [(file.name, file.read_bytes()) for file in tmp_path.iterdir()] == [("a.gguf", b"before")]


FULL = """
import resource, signal, sys
from pathlib import Path
from conductor_cli.core.errors import ModelError
from conductor_cli.models.llama.writing import Kind, Tensor, write
resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 16, 1 << 16))
try:
    write(Path(sys.argv[1]), {}, [Tensor(name="x", shape=(1 << 18,), kind=Kind.F32, parts=(bytes(1 << 20),))])
except ModelError as error:
    sys.exit(f"{error.message}; {error.hint}")
"""


@pytest.mark.skipif(sys.platform == "win32", reason="Windows bounds no file")
def test_a_file_that_the_system_bounds_is_not_left_half(tmp_path: Path) -> None:
    """Where the kernel refuses to write on, the reason is told and no file is there."""
    done = subprocess.run(
        [sys.executable, "-c", FULL, str(tmp_path / "a.gguf")], capture_output=True, text=True, check=False
    )
    assert done.stderr.strip().endswith("make room on the disk: 1 MB are needed")
    assert "cannot be written: File too large" in done.stderr
    assert list(tmp_path.iterdir()) == []


def test_a_directory_that_is_not_there_is_told(tmp_path: Path) -> None:
    """The reason is the system's own."""
    with pytest.raises(ModelError, match="cannot be written: No such file or directory"):
        write(tmp_path / "no" / "a.gguf", VALUES, [ones()])


@pytest.mark.parametrize(
    ("values", "tensor", "problem"),
    [
        ({}, ones(parts=(b"\0" * 19,)), "19 bytes, 20 wanted"),
        ({}, ones(parts=(b"\0" * 21,)), "21 bytes, 20 wanted"),
        ({}, ones(kind=Kind.Q4_K), "does not divide into blocks of 256"),
        ({"a": ()}, ones(), "needs items"),
        ({"a": (1, "b")}, ones(), "all of one type"),
    ],
)
def test_what_makes_no_file_is_a_fault_of_the_program(
    tmp_path: Path, values: dict[str, Value], tensor: Tensor, problem: str
) -> None:
    """Sizes and types that do not fit raise `ValueError`, and leave no file."""
    with pytest.raises(ValueError, match=problem):
        write(tmp_path / "a.gguf", values, [tensor])
    assert list(tmp_path.iterdir()) == []
