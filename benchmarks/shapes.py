"""Makes a GGUF of random weights in the exact shape of a Qwen2.5 model at Q4_K_M: `shapes.py 7b [--into DIR]`.

What such a file writes has no meaning, but it takes the time and the memory of the real one: the same tensors, the same
quantization of each as llama.cpp's recipe gives it, the vocabulary of Qwen2 and the chat template of Qwen2.5. It is
written once, into the user's cache directory of conductor unless told otherwise, and gets its name when it is whole.

Vocabulary and template come from the source distribution of llama-cpp-python, which holds llama.cpp's own source, and
in it a GGUF of the vocabulary alone. pip fetches it (77 MB) exactly as requirements.lock has it and compiles nothing;
what is needed is kept, the rest goes.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import time
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

from conductor_cli.config.files import app_paths

LOCK: Final = Path(__file__).resolve().parent.parent / "requirements.lock"
PACKAGE: Final = "llama-cpp-python"

WANTED: Final = ("ggml-vocab-qwen2.gguf", "templates/Qwen-Qwen2.5-7B-Instruct.jinja")
"""Under vendor/llama.cpp/models of the source distribution."""

TEXT_END: Final = "<|endoftext|>"
END: Final = "<|im_end|>"

_UNUSED: Final = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class Vocabulary:
    """The tokens, what kind each is, how they merge, and how a conversation is written."""

    tokens: list[str]
    kinds: list[int]
    merges: list[str]
    template: str

    def padded(self, size: int) -> Vocabulary:
        """The same with `size` tokens."""
        more = range(len(self.tokens), size)
        tokens = [*self.tokens, *(f"[PAD{number}]" for number in more)]
        return replace(self, tokens=tokens, kinds=[*self.kinds, *(_UNUSED for _ in more)])


def fetched(place: Path) -> tuple[Path, Path]:
    """The vocabulary's GGUF and the template, in `place`; fetched where they are not there yet."""
    vocabulary, template = (place / Path(name).name for name in WANTED)
    if not (vocabulary.exists() and template.exists()):
        with tempfile.TemporaryDirectory(dir=place) as here:
            _extract(_download(Path(here)), Path(here), place)
    return vocabulary, template


def _download(place: Path) -> Path:
    """The source distribution. Without isolation pip needs no other package to look at its metadata."""
    found = re.search(rf"^{PACKAGE}==.*(?:\n[ \t]+.*)*", LOCK.read_text(encoding="utf-8"), re.MULTILINE)
    if found is None:
        raise SystemExit(f"{LOCK} does not name {PACKAGE}")
    wanted = place / "wanted.txt"
    wanted.write_text(found[0], encoding="utf-8")
    print(f"fetching the source distribution of {PACKAGE}, 77 MB …", file=sys.stderr, flush=True)
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--no-binary", PACKAGE,
               "--no-build-isolation", "--require-hashes", "--dest", str(place), "-r", str(wanted)]  # fmt: skip
    if subprocess.run(command, check=False).returncode:
        raise SystemExit(f"the source distribution of {PACKAGE} could not be fetched")
    return next(place.glob("*.tar.gz"))


def _extract(source: Path, here: Path, place: Path) -> None:
    """Put what is wanted into `place`, each file only when it is whole."""
    with tarfile.open(source) as archive:
        for member in archive:
            name = member.name.partition("/vendor/llama.cpp/models/")[2]
            data = archive.extractfile(member) if name in WANTED else None
            if data is not None:
                part = here / Path(name).name
                part.write_bytes(data.read())
                part.replace(place / part.name)


def read(vocabulary: Path, template: Path) -> Vocabulary:
    """What the two files say."""
    import gguf

    fields = gguf.GGUFReader(vocabulary).fields
    tokens, kinds, merges = (fields[f"tokenizer.ggml.{name}"].contents() for name in ("tokens", "token_type", "merges"))
    return Vocabulary(
        tokens=tokens, kinds=[int(kind) for kind in kinds], merges=merges, template=template.read_text(encoding="utf-8")
    )


GIGABYTE: Final = 1e9

CONTEXT: Final = 32768
MOSTLY_Q4_K_M: Final = 15  # llama.cpp's number for the mixture, as it stands in the file
BLOCK: Final = {"Q4_K": (256, 144), "Q6_K": (256, 210), "Q5_0": (32, 22), "Q8_0": (32, 34), "F32": (1, 4)}
"""How many weights a block of each type has, and how many bytes."""

NARROW: Final = {"Q4_K": "Q5_0", "Q6_K": "Q8_0"}  # what llama.cpp takes instead where a row is no multiple of 256


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """The size of a model. `tied`: the output shares the weights of the embedding."""

    name: str
    layers: int
    width: int
    heads: int
    key_heads: int
    inner: int
    tokens: int = 151_936
    tied: bool = True

    @property
    def file(self) -> str:
        return f"qwen2.5-{self.name}-shape-q4_k_m.gguf"


SHAPES: Final[dict[str, Shape]] = {
    shape.name: shape
    for shape in (
        Shape(name="0.5b", layers=24, width=896, heads=14, key_heads=2, inner=4864),
        Shape(name="1.5b", layers=28, width=1536, heads=12, key_heads=2, inner=8960),
        Shape(name="3b", layers=36, width=2048, heads=16, key_heads=2, inner=11008),
        Shape(name="7b", layers=28, width=3584, heads=28, key_heads=4, inner=18944, tokens=152_064, tied=False),
    )
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Tensor:
    """One tensor of the file. A vector has one row. `kind` is its type as gguf names it."""

    name: str
    rows: int
    columns: int
    kind: str

    @property
    def bytes_of_row(self) -> int:
        weights, size = BLOCK[self.kind]
        return self.columns // weights * size

    @property
    def size(self) -> int:
        return self.rows * self.bytes_of_row


def model(name: str, place: Path | None = None) -> Path:
    """The file of the shape `name`, made where it is not there yet; says where it is and how large."""
    shape = SHAPES[name]
    place = place or app_paths(os.environ).cache / "bench"
    path = place / shape.file
    if not path.exists():
        write(shape, path)
    print(f"{path}: {path.stat().st_size / GIGABYTE:.2f} GB", file=sys.stderr)
    return path


def write(shape: Shape, path: Path) -> None:
    """Write the model to `path`, or end with what is missing for it."""
    size = sum(tensor.size for tensor in tensors(shape))
    path.parent.mkdir(parents=True, exist_ok=True)
    free = shutil.disk_usage(path.parent).free
    if free < size * 1.02 + GIGABYTE:
        needed = f"{size / GIGABYTE:.1f} GB and {free / GIGABYTE:.1f} GB are free"
        raise SystemExit(f"there is no room in {path.parent}: the {shape.name} shape needs {needed}")
    print(f"making {path}, {size / GIGABYTE:.2f} GB …", file=sys.stderr, flush=True)
    began, part = time.monotonic(), path.with_suffix(f".{os.getpid()}.part")
    try:
        _write(shape, part, read(*fetched(path.parent)))
        part.replace(path)
    finally:
        part.unlink(missing_ok=True)
    print(f"made in {time.monotonic() - began:.0f} s", file=sys.stderr)


def tensors(shape: Shape) -> Iterator[Tensor]:
    """Every tensor with its type, by the recipe of Q4_K_M."""
    keys = shape.width // shape.heads * shape.key_heads
    yield matrix("token_embd", shape.tokens, shape.width, "Q6_K" if shape.tied else "Q4_K")
    for number in range(shape.layers):
        better = "Q6_K" if more_bits(number, shape.layers) else "Q4_K"
        of = f"blk.{number}"
        yield vector(f"{of}.attn_norm.weight", shape.width)
        for name, rows, kind in (("q", shape.width, "Q4_K"), ("k", keys, "Q4_K"), ("v", keys, better)):
            yield matrix(f"{of}.attn_{name}", rows, shape.width, kind)
            yield vector(f"{of}.attn_{name}.bias", rows)
        yield matrix(f"{of}.attn_output", shape.width, shape.width, "Q4_K")
        yield vector(f"{of}.ffn_norm.weight", shape.width)
        yield matrix(f"{of}.ffn_gate", shape.inner, shape.width, "Q4_K")
        yield matrix(f"{of}.ffn_up", shape.inner, shape.width, "Q4_K")
        yield matrix(f"{of}.ffn_down", shape.width, shape.inner, better)
    yield vector("output_norm.weight", shape.width)
    if not shape.tied:
        yield matrix("output", shape.tokens, shape.width, "Q6_K")


def more_bits(layer: int, layers: int) -> bool:
    """Whether the recipe gives a layer's most sensitive weights six bits: the outer eighths, and each third between."""
    return layer < layers // 8 or layer >= 7 * layers // 8 or (layer - layers // 8) % 3 == 2


def matrix(name: str, rows: int, columns: int, kind: str) -> Tensor:
    """Weights, quantized; of the narrow type where the rows ask for it."""
    return Tensor(name=f"{name}.weight", rows=rows, columns=columns, kind=NARROW[kind] if columns % 256 else kind)


def vector(name: str, size: int) -> Tensor:
    """What is added or multiplied one by one is not quantized."""
    return Tensor(name=name, rows=1, columns=size, kind="F32")


def _write(shape: Shape, path: Path, vocabulary: Vocabulary) -> None:
    """One tensor in memory at a time."""
    import gguf
    import numpy as np

    with closing(gguf.GGUFWriter(path, "qwen2")) as writer:
        _add_shape(writer, shape)
        _add_vocabulary(writer, vocabulary, shape.tokens)
        for tensor in tensors(shape):
            kind = getattr(gguf.GGMLQuantizationType, tensor.kind)
            size = (tensor.columns,) if tensor.kind == "F32" else (tensor.rows, tensor.bytes_of_row)
            number = np.float32 if tensor.kind == "F32" else np.uint8
            writer.add_tensor_info(tensor.name, size, np.dtype(number), tensor.size, raw_dtype=kind)
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_ti_data_to_file()
        draw = np.random.Generator(np.random.SFC64(0))
        for tensor in tensors(shape):
            writer.write_tensor_data(drawn(tensor, draw))


def _add_shape(writer: Any, shape: Shape) -> None:
    writer.add_name(f"Qwen2.5 {shape.name} shape, random weights")
    writer.add_file_type(MOSTLY_Q4_K_M)
    writer.add_quantization_version(2)
    writer.add_context_length(CONTEXT)
    writer.add_embedding_length(shape.width)
    writer.add_block_count(shape.layers)
    writer.add_feed_forward_length(shape.inner)
    writer.add_head_count(shape.heads)
    writer.add_head_count_kv(shape.key_heads)
    writer.add_layer_norm_rms_eps(1e-6)
    writer.add_rope_freq_base(1_000_000.0)


def _add_vocabulary(writer: Any, vocabulary: Vocabulary, size: int) -> None:
    """The vocabulary, filled up to the rows of the embedding as the converter of llama.cpp does it."""
    padded = vocabulary.padded(size)
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("qwen2")
    writer.add_token_list(padded.tokens)
    writer.add_token_types(padded.kinds)
    writer.add_token_merges(padded.merges)
    writer.add_bos_token_id(padded.tokens.index(TEXT_END))
    writer.add_eos_token_id(padded.tokens.index(END))
    writer.add_pad_token_id(padded.tokens.index(TEXT_END))
    writer.add_add_bos_token(False)  # noqa: FBT003 - gguf takes it so
    writer.add_chat_template(padded.template)


def drawn(tensor: Tensor, draw: Any) -> Any:
    """Random weights with a mean of zero that neither grow nor shrink what passes through them; norms of one."""
    import numpy as np

    if tensor.kind == "F32":
        return np.full(tensor.columns, 0.0 if tensor.name.endswith(".bias") else 1.0, np.float32)
    words = draw.integers(0, 1 << 64, size=-(-tensor.size // 8), dtype=np.uint64)
    data = words.view(np.uint8)[: tensor.size]
    _scale(data, tensor.kind, tensor.columns**-0.5)
    return data.reshape(tensor.rows, tensor.bytes_of_row)


def _scale(data: Any, kind: str, deviation: float) -> None:
    """Set the scales of all blocks, by llama.cpp's layout of them (ggml-common.h), so that the weights deviate so."""
    if kind == "Q4_K":  # scale and minimum of each eighth: 16, in the six bits that 0x50 and 0 spell
        blocks = data.view([("d", "<f2"), ("minimum", "<f2"), ("scales", "u1", 12), ("weights", "u1", 128)])
        blocks["d"], blocks["minimum"] = deviation / 4.61 / 16, 7.5 * deviation / 4.61 / 16
        blocks["scales"][:, :8], blocks["scales"][:, 8:] = 0x50, 0
    elif kind == "Q6_K":
        blocks = data.view([("weights", "u1", 192), ("scales", "i1", 16), ("d", "<f2")])
        blocks["scales"], blocks["d"] = 1, deviation / 18.5
    else:
        narrow, spread = {"Q5_0": (20, 9.23), "Q8_0": (32, 73.9)}[kind]
        data.view([("d", "<f2"), ("weights", "u1", narrow)])["d"] = deviation / spread


def main() -> None:
    """The shape named on the command line."""
    parser = argparse.ArgumentParser(description="Make a GGUF of random weights in the shape of a Qwen2.5 model.")
    parser.add_argument("shape", choices=SHAPES)
    parser.add_argument("--into", type=Path, metavar="DIR", help="where it goes; conductor's cache otherwise")
    given = parser.parse_args()
    model(given.shape, given.into)


if __name__ == "__main__":
    main()
