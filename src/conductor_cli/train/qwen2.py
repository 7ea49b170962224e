"""Qwen2 as transformers and as GGUF have it: the settings, and the names and shapes of the weights. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from conductor_cli.core.errors import ConfigError
from conductor_cli.models.llama.gguf import MAX_LAYERS, Scalar, one_line

ARCHITECTURE: Final = "qwen2"

LAYER: Final = {
    "input_layernorm.weight": "attn_norm.weight",
    "self_attn.q_proj.weight": "attn_q.weight",
    "self_attn.q_proj.bias": "attn_q.bias",
    "self_attn.k_proj.weight": "attn_k.weight",
    "self_attn.k_proj.bias": "attn_k.bias",
    "self_attn.v_proj.weight": "attn_v.weight",
    "self_attn.v_proj.bias": "attn_v.bias",
    "self_attn.o_proj.weight": "attn_output.weight",
    "post_attention_layernorm.weight": "ffn_norm.weight",
    "mlp.gate_proj.weight": "ffn_gate.weight",
    "mlp.up_proj.weight": "ffn_up.weight",
    "mlp.down_proj.weight": "ffn_down.weight",
}
"""Names in transformers -> names in GGUF, within a layer."""

HEAD: Final = "lm_head.weight"
"""The output's weights. A tied model has none: it shares those of the embedding."""

MOST: Final = 1 << 20
"""No width, number of tokens or count of heads is larger."""


def names(layers: int, *, tied: bool = True) -> dict[str, str]:
    """Names in transformers -> names in GGUF, of all weights."""
    inner = {
        f"model.layers.{at}.{ours}": f"blk.{at}.{theirs}" for at in range(layers) for ours, theirs in LAYER.items()
    }
    found = {"model.embed_tokens.weight": "token_embd.weight", **inner, "model.norm.weight": "output_norm.weight"}
    return found if tied else {**found, HEAD: "output.weight"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Qwen2:
    """The settings of a model. `words` is the size of its vocabulary, `rope` how GGUF stretches its context."""

    width: int
    layers: int
    heads: int
    key_heads: int
    inner: int
    context: int
    words: int
    epsilon: float
    theta: float
    tied: bool = True
    rope: Mapping[str, Scalar] = field(default_factory=dict)

    def values(self) -> dict[str, Scalar]:
        """As GGUF has them."""
        found: dict[str, Scalar] = {
            "context_length": self.context,
            "embedding_length": self.width,
            "block_count": self.layers,
            "feed_forward_length": self.inner,
            "attention.head_count": self.heads,
            "attention.head_count_kv": self.key_heads,
            "attention.layer_norm_rms_epsilon": self.epsilon,
            "rope.freq_base": self.theta,
            "vocab_size": self.words,
            **self.rope,
        }
        return {f"{ARCHITECTURE}.{name}": value for name, value in found.items()}

    def shapes(self) -> dict[str, tuple[int, ...]]:
        """The shape of each weight, by its name in transformers."""
        keys = self.width // self.heads * self.key_heads
        rows = {"q_proj": self.width, "k_proj": keys, "v_proj": keys, "gate_proj": self.inner, "up_proj": self.inner}

        def shape(name: str) -> tuple[int, ...]:
            if name in {"model.embed_tokens.weight", HEAD}:
                return self.words, self.width
            module, kind = name.split(".")[-2:]
            if module.endswith("norm") or kind == "bias":
                return (rows.get(module, self.width),)
            return rows.get(module, self.width), self.inner if module == "down_proj" else self.width

        return {name: shape(name) for name in names(self.layers, tied=self.tied)}


def read(told: Mapping[str, Any]) -> Qwen2:
    """The settings that a `config.json` tells. Raises `ConfigError` for a model that llama.cpp would run otherwise."""
    _check_kind(told)
    width, heads = _whole(told, "hidden_size"), _whole(told, "num_attention_heads")
    key_heads = _whole(told, "num_key_value_heads", heads)
    head = _whole(told, "head_dim", width // heads)
    if width % heads or heads % key_heads or head * heads != width or head % 2:
        raise ConfigError(f"{heads} heads, {key_heads} of them for keys, do not divide a width of {width}")
    theta, rope = _rope(told)
    return Qwen2(
        width=width, layers=_whole(told, "num_hidden_layers", most=MAX_LAYERS), heads=heads, key_heads=key_heads,
        inner=_whole(told, "intermediate_size"), context=_whole(told, "max_position_embeddings", most=1 << 30),
        words=_whole(told, "vocab_size"), epsilon=_number(told, "rms_norm_eps", 1e-6, most=1), theta=theta,
        tied=told.get("tie_word_embeddings") is True, rope=rope,
    )  # fmt: skip


def _check_kind(told: Mapping[str, Any]) -> None:
    kind = told.get("architectures") or told.get("model_type")
    first = kind[0] if isinstance(kind, list) and kind else kind
    if first not in ("Qwen2ForCausalLM", ARCHITECTURE) or told.get("model_type") != ARCHITECTURE:
        shown = one_line(str(first or "not told"), 60)
        raise ConfigError(f"its architecture is {shown}, and only Qwen2ForCausalLM can be written")
    layers = told.get("layer_types")
    if told.get("use_sliding_window") or (isinstance(layers, list) and "sliding_attention" in layers):
        raise ConfigError("it looks at a sliding window, which llama.cpp does not do for Qwen2")
    if told.get("hidden_act", "silu") != "silu":
        raise ConfigError(
            f"its activation is {one_line(str(told['hidden_act']), 40)}, and llama.cpp has silu for Qwen2"
        )
    if told.get("quantization_config"):
        raise ConfigError("its weights are quantized already: save them in 16 or 32 bits")


def _rope(told: Mapping[str, Any]) -> tuple[float, dict[str, Scalar]]:
    """The base of the rotation, and GGUF's keys where the context is stretched."""
    rope = told.get("rope_parameters") or told.get("rope_scaling") or {}
    if not isinstance(rope, Mapping):
        raise ConfigError("its rotation (rope) is not described")
    theta = _number(rope if "rope_theta" in rope else told, "rope_theta", 10000.0, most=1e12)
    match rope.get("rope_type", rope.get("type", "default")):
        case "default":
            return theta, {}
        case "yarn" | "linear" as way:
            found: dict[str, Scalar] = {"rope.scaling.type": way, "rope.scaling.factor": _number(rope, "factor")}
            if way == "yarn":
                known, before = {**told, **rope}, "original_max_position_embeddings"
                length = _whole(known, before, told.get("max_position_embeddings"), most=1 << 30)
                found["rope.scaling.original_context_length"] = length
            return theta, found
        case other:
            raise ConfigError(f"its rotation (rope) is {one_line(str(other), 40)}: default, linear and yarn are known")


def _whole(told: Mapping[str, Any], key: str, otherwise: int | None = None, *, most: int = MOST) -> int:
    value = told.get(key)
    value = otherwise if value is None else value
    if type(value) is not int or not 0 < value <= most:
        raise ConfigError(f"its {key} is {one_line(str(told.get(key)), 40)}, and should be a number from 1 to {most}")
    return value


def _number(told: Mapping[str, Any], key: str, otherwise: float | None = None, *, most: float = 1e6) -> float:
    value = told.get(key)
    value = otherwise if value is None else value
    if type(value) not in (int, float) or not 0 < value <= most:  # type: ignore[operator]
        raise ConfigError(
            f"its {key} is {one_line(str(told.get(key)), 40)}, and should be more than 0, at most {most:g}"
        )
    return float(value)  # type: ignore[arg-type]
