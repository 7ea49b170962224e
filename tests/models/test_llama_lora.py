"""LoRA in PEFT form: what llama.cpp computes with the converted adapter is what it computes with merged weights.

The weights and the adapters are made here, random, in the names and the order of transformers, and are merged and put
into llama.cpp's order here too: neither the order of rows nor a scale is taken from what is tested.
"""

from __future__ import annotations

import ctypes
import json
import math
import os
import struct
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from conductor_cli.core.errors import ModelError
from conductor_cli.models.llama.bindings import load_bindings
from conductor_cli.models.llama.gguf import MEBIBYTE, check_model_file, read_header
from conductor_cli.models.llama.lora import check_adapter, convert_adapter
from tests.tiny_gguf import finish, make

np = pytest.importorskip("numpy")
gguf = pytest.importorskip("gguf")
pytestmark = pytest.mark.usefixtures("models")

Weights = dict[str, Any]

WIDTH, INNER, LAYERS, HEADS, KEYS, WORDS = 32, 48, 2, 4, 2, 64
HEAD = {"llama": 8, "qwen2": 8, "qwen3": 12}
"""Numbers a head has; qwen3 has more of them than its width divided by its heads."""
TOKENS = (3, 60, 17, 17, 5, 41)
EVERY = (
    "self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj", "self_attn.o_proj", "mlp.gate_proj", "mlp.up_proj",
    "mlp.down_proj",
)  # fmt: skip
NAMES = {
    "self_attn.q_proj": "attn_q", "self_attn.k_proj": "attn_k", "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output", "self_attn.q_norm": "attn_q_norm", "self_attn.k_norm": "attn_k_norm",
    "mlp.gate_proj": "ffn_gate", "mlp.up_proj": "ffn_up", "mlp.down_proj": "ffn_down",
    "input_layernorm": "attn_norm", "post_attention_layernorm": "ffn_norm", "model.norm": "output_norm",
    "lm_head": "output", "model.embed_tokens": "token_embd",
}  # fmt: skip


def shapes(architecture: str) -> dict[str, tuple[int, ...]]:
    """Every weight of a model of this architecture, as transformers names it."""
    head = HEAD[architecture]
    layer: dict[str, tuple[int, ...]] = {
        "self_attn.q_proj.weight": (HEADS * head, WIDTH),
        "self_attn.k_proj.weight": (KEYS * head, WIDTH),
        "self_attn.v_proj.weight": (KEYS * head, WIDTH),
        "self_attn.o_proj.weight": (WIDTH, HEADS * head),
        "mlp.gate_proj.weight": (INNER, WIDTH),
        "mlp.up_proj.weight": (INNER, WIDTH),
        "mlp.down_proj.weight": (WIDTH, INNER),
        "input_layernorm.weight": (WIDTH,),
        "post_attention_layernorm.weight": (WIDTH,),
    }
    if architecture == "qwen2":
        layer |= {f"self_attn.{name}_proj.bias": layer[f"self_attn.{name}_proj.weight"][:1] for name in "qkv"}
    if architecture == "qwen3":
        layer |= {"self_attn.q_norm.weight": (head,), "self_attn.k_norm.weight": (head,)}
    return {
        "model.embed_tokens.weight": (WORDS, WIDTH),
        **{f"model.layers.{number}.{name}": shape for number in range(LAYERS) for name, shape in layer.items()},
        "model.norm.weight": (WIDTH,),
        "lm_head.weight": (WORDS, WIDTH),
    }


def random_weights(architecture: str) -> Weights:
    draw = np.random.default_rng(1)
    found = {name: draw.standard_normal(shape).astype(np.float32) for name, shape in shapes(architecture).items()}
    return {name: 1 + array / 4 if "norm" in name else array / 6 for name, array in found.items()}


def save_model(path: Path, architecture: str, weights: Weights) -> Path:
    head = HEAD[architecture]
    writer = gguf.GGUFWriter(path, architecture)
    writer.add_context_length(64)
    writer.add_embedding_length(WIDTH)
    writer.add_block_count(LAYERS)
    writer.add_feed_forward_length(INNER)
    writer.add_head_count(HEADS)
    writer.add_head_count_kv(KEYS)
    writer.add_layer_norm_rms_eps(1e-6)
    writer.add_rope_freq_base(10000.0)
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("qwen2")
    writer.add_token_list([chr(0x100 + at) for at in range(WORDS)])
    writer.add_token_types([1] * WORDS)
    writer.add_token_merges([f"{chr(0x100)} {chr(0x101)}"])
    if head != WIDTH // HEADS:
        writer.add_key_length(head)
        writer.add_value_length(head)
    if architecture == "llama":
        writer.add_rope_dimension_count(head)
    for name, array in weights.items():
        turned = architecture == "llama" and name.endswith(("q_proj.weight", "k_proj.weight"))
        writer.add_tensor(gguf_name(name), (neighbours(array, head) if turned else array).astype(np.float32))
    finish(writer)
    return path


def neighbours(array: Any, head: int) -> Any:
    """The rows of each head so that those that are turned together, `i` and `i` plus half a head, are neighbours."""
    order = [at for i in range(head // 2) for at in (i, i + head // 2)]
    return array[[start + at for start in range(0, len(array), head) for at in order]]


def gguf_name(name: str) -> str:
    module, _, kind = name.rpartition(".")
    if not module.startswith("model.layers."):
        return f"{NAMES[module]}.{kind}"
    _, _, number, rest = module.split(".", 3)
    return f"blk.{number}.{NAMES[rest]}.{kind}"


class Adapter:
    """A random LoRA as PEFT saves it, and what it adds."""

    def __init__(self, architecture: str, modules: Mapping[str, int], dtype: str = "F32", **config: object) -> None:
        """`modules` has the rank of each."""
        self.config: dict[str, Any] = {"peft_type": "LORA", "r": 4, "lora_alpha": 8, "bias": "none", **config}
        self.architecture, self.dtype, self.modules = architecture, dtype, modules
        self.tensors: dict[str, tuple[str, Any]] = {}
        draw = np.random.default_rng(2)
        for module, rank in modules.items():
            rows, columns = shapes(architecture)[f"{module}.weight"]
            for side, shape in (("A", (rank, columns)), ("B", (rows, rank))):
                self.tensors[f"base_model.model.{module}.lora_{side}.weight"] = (dtype, draw.standard_normal(shape) / 3)

    def merged(self, weights: Weights, scales: Callable[[str, int], float]) -> Weights:
        """The weights with this laid over them; `scales` is what PEFT multiplies a module of a rank with."""
        found = dict(weights)
        for module, rank in self.modules.items():
            a, b = (exact(*array) for name, array in self.tensors.items() if f".{module}." in name)
            change = scales(module, rank) * (b @ a)
            found[f"{module}.weight"] = weights[f"{module}.weight"] + change
        return found

    def save(self, directory: Path) -> Path:
        directory.mkdir(exist_ok=True)
        (directory / "adapter_config.json").write_text(json.dumps(self.config))
        save_tensors(directory / "adapter_model.safetensors", self.tensors)
        return directory


def encoded(dtype: str, array: Any) -> bytes:
    if dtype == "BF16":
        return bytes((array.astype("<f4").view("<u4") >> 16).astype("<u2").tobytes())
    return bytes(array.astype({"F32": "<f4", "F16": "<f2"}.get(dtype, "<f8")).tobytes())


def exact(dtype: str, array: Any) -> Any:
    """The numbers that a file of this type holds."""
    if dtype == "BF16":
        return (array.astype("<f4").view("<u4") & 0xFFFF0000).view("<f4").astype(np.float64)
    return array.astype({"F32": "<f4", "F16": "<f2"}[dtype]).astype(np.float64)


def save_tensors(path: Path, tensors: Mapping[str, tuple[str, Any]]) -> None:
    index: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    body = b""
    for name, (dtype, array) in tensors.items():
        data = encoded(dtype, array)
        index[name] = {"dtype": dtype, "shape": array.shape, "data_offsets": [len(body), len(body) + len(data)]}
        body += data
    save_parts(path, index, body)


def save_parts(path: Path, index: object, body: bytes) -> None:
    head = json.dumps(index).encode()
    path.write_bytes(struct.pack("<Q", len(head)) + head + body)


@contextmanager
def opened(path: Path) -> Iterator[tuple[Any, Any, Any]]:
    """llama.cpp's own functions, a model and a context that rounds nothing to 16 bits."""
    lib = load_bindings()
    params = lib.llama_model_default_params()
    params.use_extra_bufts, params.n_gpu_layers = False, 0
    model = lib.llama_model_load_from_file(os.fsencode(path), params)
    settings = lib.llama_context_default_params()
    settings.n_ctx, settings.n_threads, settings.n_threads_batch = 64, 1, 1
    settings.type_k = settings.type_v = lib.GGML_TYPE_F32
    settings.flash_attn_type = lib.LLAMA_FLASH_ATTN_TYPE_DISABLED
    context = lib.llama_init_from_model(model, settings)
    try:
        yield lib, model, context
    finally:
        lib.llama_free(context)
        lib.llama_model_free(model)


def logits(path: Path, adapter: Path | None = None) -> Any:
    """What llama.cpp gives after `TOKENS`."""
    with opened(path) as (lib, model, context):
        if adapter is not None:
            laid = lib.llama_adapter_lora_init(model, os.fsencode(adapter))
            assert laid
            one = (lib.llama_adapter_lora_p_ctypes * 1)(laid)
            assert lib.llama_set_adapters_lora(context, one, 1, (ctypes.c_float * 1)(1.0)) == 0
        tokens = (lib.llama_token * len(TOKENS))(*TOKENS)
        assert lib.llama_decode(context, lib.llama_batch_get_one(tokens, len(TOKENS))) == 0
        return np.ctypeslib.as_array(lib.llama_get_logits_ith(context, -1), (WORDS,)).astype(np.float64)


def convert(source: Path, base: Path, out: Path) -> None:
    """Convert an adapter and check that it fits its base model, as an import does."""
    header = check_model_file(base)
    convert_adapter(source, out, architecture=header.architecture, layers=header.layers, heads=header.heads)
    try:
        check_adapter(out, header, base, source=source)
    except ModelError:
        out.unlink()
        raise


def modules(*names: str, rank: int = 4) -> dict[str, int]:
    return {f"model.layers.{number}.{name}": rank for number in range(LAYERS) for name in names}


@pytest.mark.parametrize(("architecture", "dtype"), [("llama", "F32"), ("qwen2", "F16"), ("qwen3", "BF16")])
def test_an_adapter_computes_what_merged_weights_compute(tmp_path: Path, architecture: str, dtype: str) -> None:
    check_merged(tmp_path, Adapter(architecture, modules(*EVERY), dtype), lambda _, rank: 8 / rank)


def check_merged(place: Path, adapter: Adapter, scales: Callable[[str, int], float]) -> None:
    """The converted adapter changes the logits as merging it does, but for rounding, and by much."""
    weights = random_weights(adapter.architecture)
    base = save_model(place / "base.gguf", adapter.architecture, weights)
    merged = save_model(place / "merged.gguf", adapter.architecture, adapter.merged(weights, scales))
    convert(adapter.save(place / "lora"), base, place / "lora.gguf")
    wanted = logits(merged)
    assert np.abs(wanted - logits(base)).max() > 0.1
    assert np.abs(logits(base, place / "lora.gguf") - wanted).max() < 1e-4


RANKS = modules("self_attn.q_proj", rank=2) | modules("mlp.down_proj", rank=8)
SCALES: dict[str, tuple[dict[str, Any], dict[str, int], Callable[[str, int], float]]] = {
    "each-rank": ({}, RANKS, lambda _, rank: 8 / rank),
    "root": ({"use_rslora": True}, modules(*EVERY), lambda _, rank: 8 / math.sqrt(rank)),
    "root-each-rank": ({"use_rslora": True}, RANKS, lambda _, rank: 8 / math.sqrt(rank)),
    "head": ({}, {"lm_head": 4} | modules("mlp.up_proj"), lambda _, rank: 8 / rank),
}


@pytest.mark.parametrize("name", SCALES)
def test_ranks_and_scales_are_those_of_peft(tmp_path: Path, name: str) -> None:
    config, ranks, scales = SCALES[name]
    check_merged(tmp_path, Adapter("qwen2", ranks, **config), scales)


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """A directory with a base model and an adapter for it, both whole."""
    save_model(tmp_path / "base.gguf", "qwen2", random_weights("qwen2"))
    Adapter("qwen2", modules("self_attn.q_proj")).save(tmp_path / "lora")
    return tmp_path


def test_the_safetensors_file_can_be_named(place: Path) -> None:
    weights = (place / "lora" / "adapter_model.safetensors").rename(place / "lora" / "best.safetensors")
    convert(weights, place / "base.gguf", place / "lora.gguf")
    assert read_header(place / "lora.gguf").values == {
        "general.type": "adapter", "general.architecture": "qwen2", "general.name": "lora", "adapter.type": "lora",
        "adapter.lora.alpha": 8.0,
    }  # fmt: skip
    assert read_header(place / "lora.gguf").tensors == 2 * LAYERS


def test_an_adapter_for_the_embedding_is_refused(tmp_path: Path) -> None:
    weights = {name: array for name, array in random_weights("qwen2").items() if name != "lm_head.weight"}
    base = save_model(tmp_path / "base.gguf", "qwen2", weights)
    problems = {"model.embed_tokens": "changes the embedding", "lm_head": "changes output.weight"}
    for module, problem in problems.items():
        refused(Adapter("qwen2", {module: 4}).save(tmp_path / "lora"), base, problem)


def refused(source: Path, base: Path, problem: str) -> None:
    """The error gives the reason and a next step, and no file is left."""
    out = source.parent / "refused.gguf"
    with pytest.raises(ModelError) as error:
        convert(source, base, out)
    assert problem in error.value.message
    assert (error.value.reason, bool(error.value.hint)) == ("file", True)
    assert not any(path.name.startswith((".refused", "refused")) for path in source.parent.iterdir())


def test_rows_that_heads_cannot_share_are_refused(tmp_path: Path) -> None:
    source = Adapter("llama", modules("self_attn.k_proj")).save(tmp_path / "lora")
    for heads in (None, (HEADS, 5), (HEADS, 0)):
        with pytest.raises(ModelError, match="heads cannot share"):
            convert_adapter(source, tmp_path / "lora.gguf", architecture="llama", layers=LAYERS, heads=heads)
    assert not (tmp_path / "lora.gguf").exists()


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"use_dora": True}, "it uses use_dora"),
        ({"lora_bias": True}, "it uses lora_bias"),
        ({"bias": "lora_only"}, "it uses bias"),
        ({"bias": []}, "it uses bias"),
        ({"modules_to_save": ["embed_tokens"]}, "it uses modules_to_save"),
        ({"trainable_token_indices": [1]}, "it uses trainable_token_indices"),
        ({"layer_replication": [[0, 2]]}, "it uses layer_replication"),
        ({"alora_invocation_tokens": [1]}, "it uses alora_invocation_tokens"),
        ({"target_parameters": ["experts"]}, "it uses target_parameters"),
        ({"init_lora_weights": "pissa_niter_4"}, "its initialisation (pissa_niter_4)"),
        ({"peft_type": "IA3"}, "not a LoRA but IA3"),
        ({"peft_type": None}, "not a LoRA but None"),
        ({"alpha_pattern": {"q_proj": 2}}, "it uses alpha_pattern"),
        ({"lora_alpha": 0}, "not a number"),
        ({"lora_alpha": None}, "not a number"),
        ({"lora_alpha": 10**400}, "not a number"),
        ({"lora_alpha": math.nan}, "not a number"),
    ],
)
def test_what_llama_cpp_would_ignore_is_refused(place: Path, change: dict[str, object], problem: str) -> None:
    path = place / "lora" / "adapter_config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | change))
    refused(place / "lora", place / "base.gguf", problem)


@pytest.mark.parametrize("text", ["", "[]", "[" * 100_000, "\x1b[31m", " " * (MEBIBYTE + 1)])
def test_an_invalid_configuration_is_an_error(place: Path, text: str) -> None:
    (place / "lora" / "adapter_config.json").write_text(text)
    refused(place / "lora", place / "base.gguf", "it is not a JSON object of at most 1 MiB")


@pytest.mark.parametrize("name", ["adapter_config.json", "adapter_model.safetensors"])
def test_a_missing_file_is_named(place: Path, name: str) -> None:
    (place / "lora" / name).unlink()
    refused(place / "lora", place / "base.gguf", f"{name} cannot be read: No such file")


def entry(start: int = 0, end: int = 16, dtype: object = "F32", shape: object = (2, 2)) -> dict[str, object]:
    return {"dtype": dtype, "shape": shape, "data_offsets": [start, end]}


DAMAGED = "adapter_model.safetensors is damaged: Error while deserializing"


@pytest.mark.parametrize(
    ("index", "size", "problem"),
    [
        ({"x": entry()}, 15, DAMAGED),
        ({"x": entry()}, 17, DAMAGED),
        ({"x": entry(0, 1 << 60)}, 16, DAMAGED),
        ({"x": entry(0, 1 << 62, shape=[1 << 30, 1 << 30])}, 16, DAMAGED),
        ({"x": entry(-16, 0)}, 16, DAMAGED),
        ({"x": entry(16, 32)}, 32, DAMAGED),
        ({"x": entry(), "y": entry(8, 24)}, 24, DAMAGED),
        ({"x": entry(shape=[-2, -2])}, 16, DAMAGED),
        ({"x": entry(dtype="\x1b[2J")}, 16, DAMAGED),
        ({"x": 7}, 16, DAMAGED),
        ([], 16, DAMAGED),
        ({"x": entry(dtype="F64", shape=[2])}, 16, "x is stored as F64"),
        ({}, 0, "contains no LoRA"),
    ],
)
def test_the_header_of_a_safetensors_file_is_untrusted(place: Path, index: object, size: int, problem: str) -> None:
    save_parts(place / "lora" / "adapter_model.safetensors", index, bytes(size))
    refused(place / "lora", place / "base.gguf", problem)


@pytest.mark.parametrize(
    ("damage", "problem"),
    [
        (lambda _: b"", DAMAGED),
        (lambda data: data[:100], DAMAGED),
        (lambda data: data[:-1], DAMAGED),
        (lambda data: b"\xff" * 8 + data[8:], DAMAGED),
        (lambda _: b"version https://git-lfs.github.com/spec/v1\n", DAMAGED),
        (lambda _: struct.pack("<Q", 100_000) + b"[" * 100_000, DAMAGED),
        (lambda data: data[:8] + b"\xff" + data[9:], DAMAGED),
        (lambda data: data[:-4] + struct.pack("<f", math.nan), "has values that are not finite"),
    ],
)
def test_a_damaged_safetensors_file_is_an_error(place: Path, damage: Callable[[bytes], bytes], problem: str) -> None:
    path = place / "lora" / "adapter_model.safetensors"
    path.write_bytes(damage(path.read_bytes()))
    refused(place / "lora", place / "base.gguf", problem)


LAYER = "base_model.model.model.layers"


def pair(module: str) -> tuple[str, str]:
    return f"{LAYER}.{module}.lora_A.weight", f"{LAYER}.{module}.lora_B.weight"


QUERY = pair("0.self_attn.q_proj")


@pytest.mark.parametrize(
    ("names", "shape", "problem"),
    [
        (QUERY[:1], (4, WIDTH), "does not consist of two matrices"),
        ((QUERY[0], f"{LAYER}.0.self_attn.q_proj.lora_A.default.weight"), (4, WIDTH),
         "lora_A.weight, which llama.cpp cannot use"),
        ((f"{LAYER}.0.self_attn.q_proj.lora_magnitude_vector",), (WIDTH, 1), "lora_magnitude_vector, which"),
        ((f"{LAYER}.0.input_layernorm.weight",), (WIDTH, 1), "input_layernorm.weight, which"),
        (("\x1b]0;evil\x07",), (WIDTH, 1), "]0;evil, which"),
        (pair("0.self_attn.qkv_proj"), (WIDTH, WIDTH), "is not part of the base model"),
        (pair("2.self_attn.q_proj"), (WIDTH, WIDTH), "is not part of the base model"),
        (QUERY, (4, WIDTH), "have different ranks"), (QUERY, (WIDTH,), "does not consist of two matrices"),
        (QUERY, (0, WIDTH), "does not consist of two matrices"),
    ],
)  # fmt: skip
def test_tensors_that_do_not_fit_are_refused(
    place: Path, names: tuple[str, ...], shape: tuple[int, ...], problem: str
) -> None:
    save_tensors(place / "lora" / "adapter_model.safetensors", {name: ("F32", np.zeros(shape)) for name in names})
    refused(place / "lora", place / "base.gguf", problem)


def test_an_adapter_for_another_width_is_refused(place: Path, tiny: Path) -> None:
    refused(place / "lora", tiny, "where that has 64 x 64")


@pytest.mark.parametrize(
    ("word", "other", "problem"),
    [
        (b"qwen2", b"qwen9", "architecture is qwen9, and supported are llama, qwen2, qwen3"),
        (b"block_count", b"block_counx", "is not part of the base model"),
    ],
)
def test_a_base_of_another_architecture_or_without_a_layer_count_is_refused(
    place: Path, word: bytes, other: bytes, problem: str
) -> None:
    path = place / "base.gguf"
    path.write_bytes(path.read_bytes().replace(word, other))
    refused(place / "lora", path, problem)


def test_an_adapter_works_on_a_base_model_with_16_bits(models: Path, tmp_path: Path) -> None:
    base = make(models / "adapted.gguf")
    save_tensors(
        (tmp_path / "adapter_model.safetensors"),
        {
            f"{LAYER}.1.mlp.down_proj.lora_A.weight": ("F16", np.ones((2, 128))),
            f"{LAYER}.1.mlp.down_proj.lora_B.weight": ("F16", np.eye(64, 2)),
        },
    )
    (tmp_path / "adapter_config.json").write_text('{"peft_type": "LORA", "lora_alpha": 4}')
    convert(tmp_path, base, tmp_path / "lora.gguf")
    assert np.abs(logits(base, tmp_path / "lora.gguf") - logits(base)).max() > 0.1
