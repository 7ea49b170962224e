"""A LoRA as PEFT saves it -> a GGUF adapter as llama.cpp reads it.

PEFT writes `adapter_config.json` beside `adapter_model.safetensors`. Neither is believed, and what llama.cpp could not
do in the same way is refused: a wrong scale or a part left out would only show in what the model writes.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from conductor_cli.core.errors import ModelError
from conductor_cli.models.llama.gguf import MEBIBYTE, Header, one_line, read_header
from conductor_cli.models.llama.model_info import read_all_tensors
from conductor_cli.models.llama.safetensors import Stored, damaged, read_index, read_json, unreadable
from conductor_cli.models.llama.writing import Kind, Tensor, Value, write

WEIGHTS: Final = "adapter_model.safetensors"
CONFIG: Final = "adapter_config.json"

ROTATES: Final = {"qwen2": False, "qwen3": False, "llama": True}
"""Architectures whose adapters can be converted; whether GGUF has rows of `attn_q` and `attn_k` in another order."""

_PLAIN_STARTS: Final = (None, True, False, "gaussian", "orthogonal", "eva")
"""Ways to begin a training that leave the base model as it is."""

_LAYER: Final = {
    "self_attn.q_proj": "attn_q", "self_attn.k_proj": "attn_k", "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output", "mlp.gate_proj": "ffn_gate", "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
}  # fmt: skip
_EMBEDDING: Final = "model.embed_tokens"
_NAME: Final = re.compile(
    r"(?:base_model\.model\.)?(?P<module>lm_head|model\.embed_tokens"
    r"|model\.layers\.(?:0|[1-9][0-9]{0,3})\.(?:self_attn|mlp)\.[a-z]+_proj)\.lora_(?:embedding_)?(?P<side>[AB])(?:\.default)?(?:\.weight)?"
)

_PATTERN: Final = re.compile(r"\^?[A-Za-z0-9_.]{1,200}")
_REFUSED: Final = (
    ("use_dora", "uses DoRA"),
    ("lora_bias", "has biases"),
    ("modules_to_save", "has modules of its own (modules_to_save)"),
    ("trainable_token_indices", "has tokens of its own"),
    ("layer_replication", "repeats layers"),
    ("alora_invocation_tokens", "begins at certain tokens only (aLoRA)"),
    ("target_parameters", "changes parameters that are no modules"),
)

_MERGE: Final = "merge it into its base model with PEFT (merge_and_unload), make a GGUF of the result and import that"


def convert(source: Path, base: Path | Base, out: Path) -> None:
    """Write the adapter `source`, a directory or its safetensors file, for `base`, a GGUF model, to `out`.

    Numbers are written with 32 bits. Raises `ModelError` of kind `file` with the reason, and leaves no half file.
    """
    weights = source / WEIGHTS if source.is_dir() else source
    config = _read_config(weights.with_name(CONFIG))
    pairs = _pairs(weights, read_index(weights))
    model = base if isinstance(base, Base) else Base(base)
    written = config.written(next(iter(pairs.values())).rank)
    values: dict[str, Value] = {
        "general.type": "adapter",
        "general.architecture": model.architecture,
        "general.name": one_line(weights.parent.name),
        "adapter.type": "lora",
        "adapter.lora.alpha": written,
    }
    factors = {module: config.factor(module, pair.rank, written) for module, pair in pairs.items()}
    tensors = [tensor for module, pair in pairs.items() for tensor in _tensors(pair, model, factors[module])]
    write(out, values, tensors)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Pair:
    """What is added to one matrix of the base model: B times A, scaled. `module` is its name in transformers."""

    path: Path
    module: str
    a: Stored
    b: Stored

    @property
    def rank(self) -> int:
        return self.a.shape[0]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Config:
    """What decides the scale of a pair."""

    alpha: float
    alphas: Mapping[str, float]
    root: bool

    def written(self, rank: int) -> float:
        """The alpha of the whole adapter: llama.cpp scales each pair by it, divided by that pair's rank."""
        return self.alpha * math.sqrt(rank) if self.root else self.alpha

    def factor(self, module: str, rank: int, written: float) -> float:
        """What a pair has to be multiplied by, so that this gives the scale that PEFT uses."""
        alpha = next((self.alphas[key] for key in self.alphas if _matches(key, module)), self.alpha)
        return (alpha / math.sqrt(rank) if self.root else alpha / rank) * rank / written


class Base:
    """What the header of the base model says of its matrices.

    Where the model is in another form, the header that its GGUF would have, and whether it is `tied`, are given.
    """

    def __init__(self, path: Path, header: Header | None = None, *, tied: bool | None = None) -> None:
        self._path, self._header, self._tied = path, header or read_header(path), tied
        self.architecture = self._header.architecture
        if self.architecture not in ROTATES:
            known = ", ".join(ROTATES)
            raise ModelError(
                "file", f"an adapter for {path} cannot be converted: its architecture is "
                f"{one_line(self.architecture) or 'not told'}, and known are {known}", hint=_MERGE,
            )  # fmt: skip
        self.layers, self._heads = self._number("block_count"), self._number("attention.head_count")
        self._key_heads = self._number("attention.head_count_kv", self._heads)

    def shape(self, module: str) -> tuple[str, int, int]:
        """The name of a module's matrix in GGUF, its rows and its columns; the name is empty where there is none."""
        width, (_, words) = self._number("embedding_length"), self._header.arrays.get("tokenizer.ggml.tokens", (0, 0))
        if module == _EMBEDDING:
            return "token_embd", width, words
        if module == "lm_head":
            return "output", words, width
        _, _, layer, rest = module.split(".", 3)
        name = _LAYER.get(rest, "")
        if not name or int(layer) >= self.layers:
            return "", 0, 0
        head, inner = width // self._heads, self._number("feed_forward_length")
        keys, values = self._number("attention.key_length", head), self._number("attention.value_length", head)
        rows, columns = {
            "attn_q": (self._heads * keys, width),
            "attn_k": (self._key_heads * keys, width),
            "attn_v": (self._key_heads * values, width),
            "attn_output": (width, self._heads * values),
            "ffn_down": (width, inner),
        }.get(name, (inner, width))
        return f"blk.{int(layer)}.{name}", rows, columns

    def ordered(self, name: str, b: Any) -> Any:  # noqa: ANN401 - numpy arrays
        """The rows of B as this architecture's GGUF has them: the halves of each head interleaved, in q and k."""
        heads = {"attn_q": self._heads, "attn_k": self._key_heads}.get(name.rpartition(".")[2])
        if heads is None or not ROTATES[self.architecture]:
            return b
        return b.reshape(heads, 2, -1, b.shape[1]).swapaxes(1, 2).reshape(b.shape)

    def is_tied(self) -> bool:
        """Whether the model reads and writes with one matrix: then it has no `output.weight`."""
        return "output.weight" not in read_all_tensors(self._path) if self._tied is None else self._tied

    def _number(self, key: str, otherwise: int | None = None) -> int:
        name = f"{self.architecture}.{key}"
        value = None if name in self._header.arrays else self._header.values.get(name, otherwise)
        if type(value) is not int or not 0 < value < 1 << 31:
            raise ModelError("file", f"{self._path} does not say its {key}, or not as one number", hint=_MERGE)
        return value


def _tensors(pair: _Pair, model: Base, factor: float) -> Iterator[Tensor]:
    """The two tensors of a pair, multiplied by `factor`. Their numbers are read when they are written."""
    name, rows, columns = model.shape(pair.module)
    told = f"{pair.path}: {one_line(pair.module)}"
    if not name:
        raise ModelError("file", f"{told} is no part of the base model", hint="name the model it was trained on")
    rank = pair.rank
    if pair.a.shape != (rank, columns) or pair.b.shape != (rows, rank):
        raise ModelError(
            "file", f"{told} has shapes {pair.a.shape} and {pair.b.shape}, which do not fit the {rows} × {columns} "
            "of the base model", hint="name the model it was trained on",
        )  # fmt: skip
    if name in {"token_embd", "output"} and model.is_tied():
        raise ModelError(
            "file", f"{told}: the base model reads and writes with one matrix, and llama.cpp cannot adapt that",
            hint=_MERGE,
        )  # fmt: skip

    def of_a() -> Iterator[bytes]:
        a = pair.a.numbers()
        yield (a.T if name == "token_embd" else a).tobytes()

    def of_b() -> Iterator[bytes]:
        b = pair.b.numbers()
        yield model.ordered(name, b * b.dtype.type(factor)).tobytes()

    turned = (columns, rank) if name == "token_embd" else (rank, columns)
    yield Tensor(name=f"{name}.weight.lora_a", shape=turned, kind=Kind.F32, parts=of_a())
    yield Tensor(name=f"{name}.weight.lora_b", shape=(rows, rank), kind=Kind.F32, parts=of_b())


def _pairs(path: Path, index: Mapping[str, Stored]) -> dict[str, _Pair]:
    sides: dict[str, dict[str, Stored]] = {}
    for name, stored in index.items():
        if name.endswith(".base_layer.weight"):  # a copy of the base model's, which PEFT saves beside an embedding's
            continue
        match = _NAME.fullmatch(name)
        if match is None or match["side"] in sides.setdefault(match["module"], {}):
            raise ModelError("file", f"{path} has {one_line(name)}, which llama.cpp could not use", hint=_MERGE)
        sides[match["module"]][match["side"]] = stored
    for module, found in sides.items():
        if len(found) < 2 or any(len(stored.shape) != 2 or 0 in stored.shape for stored in found.values()):
            raise damaged(path, f"is damaged: {module} is not made of two matrices")
    if not sides:
        raise damaged(path, "has no LoRA")
    return {module: _Pair(path=path, module=module, a=side["A"], b=side["B"]) for module, side in sides.items()}


def _read_config(path: Path) -> _Config:
    """The part of the configuration that counts. Raises `ModelError` of kind `file` for what cannot be converted."""
    try:
        with path.open("rb") as file:
            told = read_json(path, file.read(MEBIBYTE))
    except OSError as error:
        raise unreadable(path, error) from error
    if problem := _problem(told):
        raise ModelError("file", f"{path}: {problem}", hint=_MERGE)
    alphas = told.get("alpha_pattern") or {}
    alpha = told.get("lora_alpha")
    if not isinstance(alphas, dict) or not all(map(_is_number, [alpha, *alphas.values()])) or not alpha:
        raise damaged(path, "is damaged: lora_alpha is no number to scale by")
    if not all(_PATTERN.fullmatch(key) for key in alphas):
        raise ModelError("file", f"{path}: alpha_pattern has expressions beside names of modules", hint=_MERGE)
    # A whole number would be written as one, and llama.cpp aborts the process on an alpha that is.
    return _Config(alpha=float(alpha), alphas=alphas, root=bool(told.get("use_rslora")))


def _problem(told: Mapping[str, Any]) -> str:
    """Why the adapter cannot be converted, or nothing."""
    if told.get("peft_type") != "LORA":
        return f"it is no LoRA but {one_line(str(told.get('peft_type')))}"
    if (start := told.get("init_lora_weights")) not in _PLAIN_STARTS:
        return f"its training began with {one_line(str(start))}, which changes the base model too"
    if told.get("bias") not in (None, "none"):
        return "it has biases, which llama.cpp would leave out"
    return next((f"it {problem}, which llama.cpp would leave out" for key, problem in _REFUSED if told.get(key)), "")


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and abs(value) < 1e9  # neither infinite nor none


def _matches(key: str, module: str) -> bool:
    """Whether PEFT takes `key` of a pattern for `module`: the whole name or its end."""
    return module == key.removeprefix("^") or module.endswith(f".{key}")
