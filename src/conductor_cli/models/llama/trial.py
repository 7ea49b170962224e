"""How fast a made-up model reads a prompt with repacked weights and without: `python -m ...trial Q4_K_M THREADS DIR`.

It runs in a process of its own (`repack` starts it), prints a line of JSON as soon as it knows the speed without, and
one with both at the end.
"""

from __future__ import annotations

import json
import os
import random
import struct
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any, Final

from conductor_cli.core.errors import ModelError
from conductor_cli.models.llama.library import forget, library, reason
from conductor_cli.models.llama.writing import Kind, Tensor, Value, write

TOKENS: Final = 256
"""How long the prompt is that is read."""

SECONDS: Final = 0.8
"""No further round begins after this many seconds of reading."""

ROUNDS: Final = (4, 9)
"""The fewest and the most rounds; one reads the prompt without repacking and with it."""

_WORDS: Final = 32
_HEAD: Final = 128


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """The size of the made-up model: its matrices are as wide as those of the smaller models in use."""

    width: int = 1024
    inner: int = 2816
    layers: int = 2
    keys: int = 256


@dataclass(frozen=True, slots=True, kw_only=True)
class Mix:
    """The types of most matrices of a quantised file, and of its finer ones."""

    most: Kind
    finer: Kind


SHAPE: Final = Shape()

MIXES: Final = {
    "Q4_0": Mix(most=Kind.Q4_0, finer=Kind.Q4_0),
    "Q8_0": Mix(most=Kind.Q8_0, finer=Kind.Q8_0),
    "Q4_K_S": Mix(most=Kind.Q4_K, finer=Kind.Q5_K),
    "Q4_K_M": Mix(most=Kind.Q4_K, finer=Kind.Q6_K),
    "Q5_K_S": Mix(most=Kind.Q5_K, finer=Kind.Q5_K),
    "Q5_K_M": Mix(most=Kind.Q5_K, finer=Kind.Q6_K),
    "Q6_K": Mix(most=Kind.Q6_K, finer=Kind.Q6_K),
}
"""By the name that files of this kind have."""

_SCALES: Final = {Kind.Q6_K: (208,), Kind.Q4_K: (0, 2), Kind.Q5_K: (0, 2)}
"""Where in a block its scales stand, 16 bits each; the rest may hold any bytes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """Tokens of a prompt read in a second without repacking; how many times as many with it."""

    plain: float
    gain: float


def measure(mix: Mix, threads: int, path: Path, tell: Callable[[float], None]) -> Measured:
    """Read a prompt both ways with a model made at `path`; `tell` hears the speed without repacking first.

    Raises `ModelError`.
    """
    with ExitStack() as stack:
        make(path, mix)
        plain = stack.enter_context(_opened(path, threads, repack=False))
        plain.read()  # the first time memory is laid out
        tell(TOKENS / plain.read())
        repacked = stack.enter_context(_opened(path, threads, repack=True))
        repacked.read()
        rounds = _alternate(plain, repacked)
    return figures(rounds)


def figures(rounds: Sequence[tuple[float, float]]) -> Measured:
    """What rounds come to, each the seconds without repacking and with it.

    On a busy machine a gain must show in both: in the median of the rounds' own ratios, whose halves were measured
    close together, and in the best times. Staying as one is costs nothing.
    """
    plain, repacked = zip(*rounds, strict=True)
    ratios = [first / second for first, second in rounds]
    return Measured(plain=TOKENS / median(plain), gain=min(median(ratios), min(plain) / min(repacked)))


def make(path: Path, mix: Mix, shape: Shape = SHAPE) -> Path:
    """A model of random weights, with 32 tokens and no tokenizer; every second layer has the finer matrices."""
    values: dict[str, Value] = {
        "general.architecture": "llama",
        "llama.context_length": TOKENS,
        "llama.embedding_length": shape.width,
        "llama.block_count": shape.layers,
        "llama.feed_forward_length": shape.inner,
        "llama.attention.head_count": shape.width // _HEAD,
        "llama.attention.head_count_kv": shape.keys // _HEAD,
        "llama.attention.layer_norm_rms_epsilon": 1e-6,
        "llama.vocab_size": _WORDS,
        "tokenizer.ggml.model": "none",
    }
    write(path, values, list(_tensors(mix, shape)))
    return path


def main(arguments: list[str]) -> int:
    """What `repack` starts; 1 where it did not work."""
    _leave_no_core()
    try:
        kind, threads, place = arguments
        measured = measure(MIXES[kind], int(threads), Path(place) / "trial.gguf", lambda plain: _say(plain=plain))
    except (ModelError, MemoryError):
        return 1
    _say(plain=measured.plain, gain=measured.gain)
    return 0


def _say(**figures: float) -> None:
    sys.stdout.write(json.dumps(figures) + "\n")
    sys.stdout.flush()


def _leave_no_core() -> None:
    """If the process dies, which `repack` expects, it leaves no file behind."""
    if sys.platform != "win32":
        import resource

        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


class _Reader:
    """A loaded model that reads the same prompt again and again."""

    def __init__(self, lib: Any, context: Any, batch: Any) -> None:  # noqa: ANN401 - the module, a pointer, a structure
        self._lib, self._context, self._batch = lib, context, batch
        self._memory = lib.llama_get_memory(context)

    def read(self) -> float:
        """The seconds it takes."""
        self._lib.llama_memory_clear(self._memory, False)  # noqa: FBT003 - a C function knows no names
        began = time.perf_counter()
        if self._lib.llama_decode(self._context, self._batch) != 0:
            raise ModelError("internal", f"llama.cpp could not read a prompt: {reason('it gave no reason')}")
        self._lib.llama_synchronize(self._context)
        return time.perf_counter() - began


def _alternate(plain: _Reader, repacked: _Reader) -> list[tuple[float, float]]:
    """The seconds of each in turns."""
    rounds: list[tuple[float, float]] = []
    began = time.monotonic()
    fewest, most = ROUNDS
    while len(rounds) < fewest or (len(rounds) < most and time.monotonic() - began < SECONDS):
        rounds.append((plain.read(), repacked.read()))
    return rounds


@contextmanager
def _opened(path: Path, threads: int, *, repack: bool) -> Iterator[_Reader]:
    lib = library()
    forget()
    with ExitStack() as stack:
        model = lib.llama_model_load_from_file(os.fsencode(path), _model_params(lib, repack=repack))
        if not model:
            raise ModelError("internal", f"the trial cannot be loaded: {reason('llama.cpp gave no reason')}")
        stack.callback(lib.llama_model_free, model)
        settings = lib.llama_context_default_params()
        settings.n_ctx = settings.n_batch = settings.n_ubatch = TOKENS
        settings.n_threads = settings.n_threads_batch = threads
        context = lib.llama_init_from_model(model, settings)
        if not context:
            raise ModelError("internal", f"the trial cannot be read: {reason('llama.cpp gave no reason')}")
        stack.callback(lib.llama_free, context)
        batch = lib.llama_batch_init(TOKENS, 0, 1)
        stack.callback(lib.llama_batch_free, batch)
        _fill(batch)
        yield _Reader(lib, context, batch)


def _model_params(lib: Any, *, repack: bool) -> Any:  # noqa: ANN401 - the module and a C structure
    params = lib.llama_model_default_params()
    params.n_gpu_layers, params.use_extra_bufts = 0, repack
    return params


def _fill(batch: Any) -> None:  # noqa: ANN401 - a C structure
    """A prompt whose every token is asked for: for the last one alone, the last layer would do a part of its work."""
    batch.n_tokens = TOKENS
    for at in range(TOKENS):
        batch.token[at], batch.pos[at], batch.logits[at] = at % _WORDS, at, 1
        batch.n_seq_id[at], batch.seq_id[at][0] = 1, 0


def _tensors(mix: Mix, shape: Shape) -> Iterator[Tensor]:
    width, inner = shape.width, shape.inner
    yield _matrix("token_embd", _WORDS, width, mix.most)
    for layer in range(shape.layers):
        finer = mix.most if layer % 2 else mix.finer
        rows: Mapping[str, tuple[int, int, Kind]] = {
            "attn_q": (width, width, mix.most),
            "attn_k": (shape.keys, width, mix.most),
            "attn_v": (shape.keys, width, finer),
            "attn_output": (width, width, mix.most),
            "ffn_gate": (inner, width, mix.most),
            "ffn_up": (inner, width, mix.most),
            "ffn_down": (width, inner, finer),
        }
        yield from (_matrix(f"blk.{layer}.{name}", *row) for name, row in rows.items())
        yield from (_ones(f"blk.{layer}.{name}", width) for name in ("attn_norm", "ffn_norm"))
    yield _ones("output_norm", width)
    yield _matrix("output", _WORDS, width, mix.most)


def _ones(name: str, width: int) -> Tensor:
    return Tensor(name=f"{name}.weight", shape=(width,), kind=Kind.F32, parts=(struct.pack("<f", 1.0) * width,))


def _matrix(name: str, rows: int, columns: int, kind: Kind) -> Tensor:
    numbers, size = kind.block
    some = _blocks(kind)
    whole, rest = divmod(rows * columns // numbers * size, len(some))
    return Tensor(name=f"{name}.weight", shape=(rows, columns), kind=kind, parts=(*[some] * whole, some[:rest]))


def _blocks(kind: Kind, count: int = 1024) -> bytes:
    """Random blocks with small scales: no value is infinite, or so near to zero that it is computed more slowly."""
    _, size = kind.block
    data = bytearray(random.Random(int(kind)).randbytes(count * size))  # noqa: S311 - weights, no secret
    for start in range(0, len(data), size):
        for at, scale in zip(_SCALES.get(kind, (0,)), (0.0003, 0.002), strict=False):
            struct.pack_into("<e", data, start + at, scale)
    return bytes(data)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
