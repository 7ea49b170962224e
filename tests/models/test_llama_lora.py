"""LoRA in PEFT form.

What llama.cpp computes with the converted adapter is what it computes with merged weights.

The weights and the adapters are made here, random, in the names and the order of transformers, and
are merged and put into llama.cpp's order here too: neither the order of rows nor a scale is taken
from what is tested.
"""

from __future__ import annotations

import ctypes
import json
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from itertools import chain, product
from pathlib import Path
from typing import Any

import pytest
from safetensors.numpy import save_file

from conductor_cli.core.errors import ModelError
from conductor_cli.models.llama.bindings import load_bindings
from conductor_cli.models.llama.gguf import check_model_file
from conductor_cli.models.llama.lora import (
    check_adapter,
    convert_adapter,
    pack_adapter,
    unpack_adapter,
)
from tests.tiny_gguf import finish, lora, make

np = pytest.importorskip("numpy")
gguf = pytest.importorskip("gguf")
pytestmark = pytest.mark.usefixtures("models")

Weights = dict[str, Any]

WIDTH = 32
INNER = 48
LAYERS = 2
HEADS = 4
KEYS = 2
WORDS = 64
HEAD = {"llama": 8, "qwen2": 8, "qwen3": 12}
"""Numbers a head has; qwen3 has more of them than its width divided by its heads."""
TOKENS = (3, 60, 17, 17, 5, 41)
NAMES = {
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "self_attn.q_norm": "attn_q_norm",
    "self_attn.k_norm": "attn_k_norm",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
    "input_layernorm": "attn_norm",
    "post_attention_layernorm": "ffn_norm",
    "model.norm": "output_norm",
    "lm_head": "output",
    "model.embed_tokens": "token_embd",
}
PROJECTIONS = [name for name in NAMES if name.endswith("_proj")]


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
        layer |= {
            f"self_attn.{name}_proj.bias": layer[f"self_attn.{name}_proj.weight"][:1]
            for name in "qkv"
        }
    if architecture == "qwen3":
        layer |= {"self_attn.q_norm.weight": (head,), "self_attn.k_norm.weight": (head,)}
    layers = {}
    for number, name in product(range(LAYERS), layer):
        layers[f"model.layers.{number}.{name}"] = layer[name]
    ends = {"model.embed_tokens.weight": (WORDS, WIDTH), "model.norm.weight": (WIDTH,)}
    return layers | ends | {"lm_head.weight": (WORDS, WIDTH)}


def random_weights(architecture: str) -> Weights:
    draw = np.random.default_rng(1)
    tensors = {
        name: draw.standard_normal(shape).astype(np.float32)
        for name, shape in shapes(architecture).items()
    }
    return {name: 1 + array / 4 if "norm" in name else array / 6 for name, array in tensors.items()}


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
        writer.add_tensor(
            gguf_name(name), (neighbours(array, head) if turned else array).astype(np.float32)
        )
    finish(writer)
    return path


def neighbours(array: Any, head: int) -> Any:
    """Return the rows of each head so that those that are turned together are neighbours.

    These are `i` and `i` plus half a head.
    """
    half = head // 2
    order = list(chain.from_iterable((row, row + half) for row in range(half)))
    starts = range(0, len(array), head)
    return array[[start + row for start, row in product(starts, order)]]


def gguf_name(name: str) -> str:
    module, _, kind = name.rpartition(".")
    if not module.startswith("model.layers."):
        return f"{NAMES[module]}.{kind}"
    _, _, number, rest = module.split(".", 3)
    return f"blk.{number}.{NAMES[rest]}.{kind}"


class Adapter:
    """A random LoRA as PEFT saves it, and what it adds."""

    def __init__(self, architecture: str, modules: Mapping[str, int]) -> None:
        """`modules` has the rank of each."""
        self.architecture = architecture
        self.modules = modules
        self.tensors: Weights = {}
        draw = np.random.default_rng(2)
        for module, rank in modules.items():
            rows, columns = shapes(architecture)[f"{module}.weight"]
            for side, shape in (("A", (rank, columns)), ("B", (rows, rank))):
                array = (draw.standard_normal(shape) / 3).astype(np.float32)
                self.tensors[f"base_model.model.{module}.lora_{side}.weight"] = array

    def merged(self, weights: Weights) -> Weights:
        """The weights with this laid over them.

        PEFT multiplies each with `lora_alpha` divided by the rank.
        """
        changed = dict(weights)
        for module, rank in self.modules.items():
            a, b = (
                array.astype(np.float64)
                for name, array in self.tensors.items()
                if f".{module}." in name
            )
            changed[f"{module}.weight"] = weights[f"{module}.weight"] + 8 / rank * (b @ a)
        return changed

    def save(self, directory: Path) -> Path:
        directory.mkdir(exist_ok=True)
        (directory / "adapter_config.json").write_text(
            json.dumps({"peft_type": "LORA", "r": 4, "lora_alpha": 8})
        )
        save_file(self.tensors, directory / "adapter_model.safetensors")
        return directory


@contextmanager
def opened(path: Path) -> Iterator[tuple[Any, Any, Any]]:
    """llama.cpp's own functions, a model and a context that rounds nothing to 16 bits."""
    lib = load_bindings()
    params = lib.llama_model_default_params()
    params.use_extra_bufts = False
    params.n_gpu_layers = 0
    model = lib.llama_model_load_from_file(os.fsencode(path), params)
    settings = lib.llama_context_default_params()
    settings.n_ctx = 64
    settings.n_threads = 1
    settings.n_threads_batch = 1
    settings.type_k = lib.GGML_TYPE_F32
    settings.type_v = lib.GGML_TYPE_F32
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
            adapters = (lib.llama_adapter_lora_p_ctypes * 1)(laid)
            assert lib.llama_set_adapters_lora(context, adapters, 1, (ctypes.c_float * 1)(1.0)) == 0
        tokens = (lib.llama_token * len(TOKENS))(*TOKENS)
        assert lib.llama_decode(context, lib.llama_batch_get_one(tokens, len(TOKENS))) == 0
        return np.ctypeslib.as_array(lib.llama_get_logits_ith(context, -1), (WORDS,)).astype(
            np.float64
        )


def convert(source: Path, base: Path, out: Path) -> None:
    """Convert an adapter and check that it fits its base model, as an import does."""
    header = check_model_file(base)
    convert_adapter(
        source, out, architecture=header.architecture, layers=header.layers, heads=header.heads
    )
    try:
        check_adapter(out, header, base)
    except ModelError:
        out.unlink()
        raise


def modules(*names: str, rank: int = 4) -> dict[str, int]:
    places = product(range(LAYERS), names)
    return {f"model.layers.{number}.{name}": rank for number, name in places}


@pytest.mark.parametrize(
    ("architecture", "changed"),
    [
        *((architecture, modules(*PROJECTIONS)) for architecture in ("llama", "qwen2", "qwen3")),
        ("qwen2", {"lm_head": 4} | modules("mlp.up_proj")),
    ],
    ids=["llama", "qwen2", "qwen3", "the output"],
)
def test_an_adapter_computes_what_merged_weights_compute(
    tmp_path: Path, architecture: str, changed: dict[str, int]
) -> None:
    """The converted adapter changes the logits as merging it does, and by much."""
    adapter = Adapter(architecture, changed)
    weights = random_weights(architecture)
    base = save_model(tmp_path / "base.gguf", architecture, weights)
    merged = save_model(tmp_path / "merged.gguf", architecture, adapter.merged(weights))
    convert(adapter.save(tmp_path / "lora"), base, tmp_path / "lora.gguf")
    wanted = logits(merged)
    assert np.abs(wanted - logits(base)).max() > 0.1
    assert np.abs(logits(base, tmp_path / "lora.gguf") - wanted).max() < 1e-4


def test_an_adapter_of_16_bits_is_half_as_large_and_computes_about_the_same(tmp_path: Path) -> None:
    weights = random_weights("qwen2")
    base = save_model(tmp_path / "base.gguf", "qwen2", weights)
    source = Adapter("qwen2", modules(*PROJECTIONS)).save(tmp_path / "lora")
    whole = tmp_path / "whole.gguf"
    half = tmp_path / "half.gguf"
    convert_adapter(source, whole, architecture="qwen2", layers=LAYERS)
    convert_adapter(source, half, architecture="qwen2", layers=LAYERS, half=True)
    check_adapter(half, check_model_file(base), base)
    assert half.stat().st_size < 0.7 * whole.stat().st_size
    assert np.abs(logits(base, half) - logits(base, whole)).max() < 1e-2


@pytest.fixture
def adapted(tmp_path: Path) -> Path:
    """A directory with a base model and an adapter for it, both whole."""
    save_model(tmp_path / "base.gguf", "qwen2", random_weights("qwen2"))
    Adapter("qwen2", modules("self_attn.q_proj")).save(tmp_path / "lora")
    return tmp_path


def test_an_adapter_for_the_embedding_is_refused(tmp_path: Path) -> None:
    weights = {
        name: array for name, array in random_weights("qwen2").items() if name != "lm_head.weight"
    }
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
    assert not any(
        path.name.startswith((".refused", "refused")) for path in source.parent.iterdir()
    )


def test_rows_that_heads_cannot_share_are_refused(tmp_path: Path) -> None:
    source = Adapter("llama", modules("self_attn.k_proj")).save(tmp_path / "lora")
    for heads in (None, (HEADS, 5), (HEADS, 0)):
        with pytest.raises(ModelError, match="heads cannot share"):
            convert_adapter(
                source, tmp_path / "lora.gguf", architecture="llama", layers=LAYERS, heads=heads
            )
    assert not (tmp_path / "lora.gguf").exists()


@pytest.mark.parametrize("name", ["adapter_config.json", "adapter_model.safetensors"])
@pytest.mark.parametrize("damage", [None, b"", b"{}" * 9])
def test_a_missing_or_damaged_file_is_an_error(
    adapted: Path, name: str, damage: bytes | None
) -> None:
    if damage is None:
        (adapted / "lora" / name).unlink()
    else:
        (adapted / "lora" / name).write_bytes(damage)
    refused(adapted / "lora", adapted / "base.gguf", "cannot be read: ")


def test_an_adapter_for_another_width_is_refused(adapted: Path, tiny: Path) -> None:
    refused(adapted / "lora", tiny, "where that has 64 x 64")


@pytest.mark.parametrize(
    ("word", "other", "problem"),
    [
        (b"qwen2", b"qwen9", "architecture is qwen9, and supported are llama, qwen2, qwen3"),
        (b"block_count", b"block_counx", "is not part of the base model"),
    ],
)
def test_a_base_of_another_architecture_or_without_a_layer_count_is_refused(
    adapted: Path, word: bytes, other: bytes, problem: str
) -> None:
    path = adapted / "base.gguf"
    path.write_bytes(path.read_bytes().replace(word, other))
    refused(adapted / "lora", path, problem)


def test_a_packed_adapter_is_small_and_unpacks_to_nearly_the_same_numbers(tmp_path: Path) -> None:
    adapter = lora(tmp_path / "whole.gguf", rank=16)
    pack_adapter(adapter, tmp_path / "packed.gguf")
    unpack_adapter(tmp_path / "packed.gguf", tmp_path / "unpacked.gguf")
    for before, after in zip(
        gguf.GGUFReader(adapter).tensors,
        gguf.GGUFReader(tmp_path / "unpacked.gguf").tensors,
        strict=True,
    ):
        assert before.name == after.name
        assert before.data.shape == after.data.shape
        largest = float(np.abs(before.data).max())
        assert float(np.abs(before.data - after.data).max()) <= largest / 127
    sizes = {
        name: sum(int(tensor.n_bytes) for tensor in gguf.GGUFReader(tmp_path / name).tensors)
        for name in ("packed.gguf", "unpacked.gguf")
    }
    assert sizes["packed.gguf"] * 32 == sizes["unpacked.gguf"] * 17
    base = make(tmp_path / "base.gguf")
    check_adapter(tmp_path / "unpacked.gguf", check_model_file(base), base)
    with pytest.raises(ModelError, match="is not a LoRA adapter"):
        check_adapter(tmp_path / "packed.gguf", check_model_file(base), base)


def test_packing_again_what_was_unpacked_changes_nothing(tmp_path: Path) -> None:
    pack_adapter(lora(tmp_path / "whole.gguf", rank=16), tmp_path / "a.gguf")
    unpack_adapter(tmp_path / "a.gguf", tmp_path / "b.gguf")
    unpack_adapter(tmp_path / "b.gguf", tmp_path / "c.gguf")
    assert (tmp_path / "b.gguf").read_bytes() == (tmp_path / "c.gguf").read_bytes()


def test_an_adapter_whose_rows_are_no_blocks_is_not_packed(tmp_path: Path) -> None:
    adapter = lora(tmp_path / "odd.gguf", width=40)
    with pytest.raises(ModelError, match="cannot be packed"):
        pack_adapter(adapter, tmp_path / "packed.gguf")
    assert not (tmp_path / "packed.gguf").exists()
