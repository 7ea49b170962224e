"""The weights of a GGUF file as transformers reads them: `config.json` and safetensors files.

A matrix holds exactly what the file's quantised numbers stand for, rounded to 16 bits, which is
finer than any quantisation. So a training computes with the very weights that llama.cpp runs. How
llama.cpp lays weights out, and where that differs from transformers: github.com/ggml-org/llama.cpp,
convert_hf_to_gguf.py.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import numpy as np
from gguf import GGUFReader, dequantize, get_tensor_name_map
from safetensors.numpy import save_file

from conductor_cli.core.errors import ModelError
from conductor_cli.core.terminal_text import short_line
from conductor_cli.models.llama.gguf import Header, check_whole_model, part_files, read_all_tensors
from conductor_cli.models.llama.lora import ARCHITECTURES

# Of a file of weights, and so about what is held in memory at a time
SHARD_BYTES: Final = 400 << 20

CLASSES: Final = {
    "llama": "LlamaForCausalLM",
    "qwen2": "Qwen2ForCausalLM",
    "qwen3": "Qwen3ForCausalLM",
}

LAYER_MODULES: Final = (
    "self_attn.q_proj",
    "self_attn.k_proj",
    "self_attn.v_proj",
    "self_attn.o_proj",
    "self_attn.q_norm",
    "self_attn.k_norm",
    "mlp.gate_proj",
    "mlp.up_proj",
    "mlp.down_proj",
    "input_layernorm",
    "post_attention_layernorm",
)
"""The modules of a layer that have weights. An architecture has most of them."""

# The modules that may have one in transformers
MODULES_WITH_BIAS: Final = ("q_proj", "k_proj", "v_proj")

OUTER_MODULES: Final = ("model.embed_tokens", "model.norm", "lm_head")
"""The modules before and after the layers."""


def check_convertible(path: Path) -> Header:
    """Return the header of a GGUF model that can be dequantised.

    Raises `ModelError` of kind `file` with the reason.
    """
    header = check_whole_model(path)
    architecture = header.architecture
    if architecture not in CLASSES:
        problem = (
            f"its architecture is {short_line(architecture)}, and supported are "
            f"{', '.join(CLASSES)}"
        )
        raise _not_convertible(path, problem)
    is_stretched = any(name.startswith(f"{architecture}.rope.scaling.") for name in header.values)
    if is_stretched or "rope_freqs.weight" in read_all_tensors(path):
        raise _not_convertible(path, "its rotary positions are scaled, and that is not supported")
    return header


def dequantise(path: Path, out: Path) -> None:
    """Write `config.json` and the weights of a GGUF model to the directory `out`, which exists.

    Raises `ModelError` of kind `file`, and `OSError` where the directory cannot be written.
    """
    header = check_convertible(path)
    names = _transformers_names(header)
    unknown = sorted(read_all_tensors(path).keys() - names.keys())
    if unknown:
        raise _not_convertible(
            path, f"it has {short_line(unknown[0])}, which transformers does not have"
        )
    files = dict[str, str]()
    shard = dict[str, Any]()
    size = 0
    for name, array in _arrays(path, header):
        shard[names[name]] = array
        size += array.nbytes
        if size >= SHARD_BYTES:
            files |= _write_shard(out, shard)
            shard = {}
            size = 0
    files |= _write_shard(out, shard)
    index = {"metadata": {}, "weight_map": files}
    (out / "model.safetensors.index.json").write_text(json.dumps(index, indent=1, sort_keys=True))
    (out / "config.json").write_text(json.dumps(model_config(path, header), indent=1))


def model_config(path: Path, header: Header) -> dict[str, Any]:
    """Return the configuration of the model as transformers reads it.

    Raises `ModelError` of kind `file`.
    """
    tensors = read_all_tensors(path)
    prefix = f"{header.architecture}."
    values = {}
    for name, value in header.values.items():
        if name.startswith(prefix):
            values[name.removeprefix(prefix)] = value
    tokenizer = {}
    for name, key in (("bos", "bos"), ("eos", "eos"), ("pad", "padding")):
        token = header.values.get(f"tokenizer.ggml.{key}_token_id")
        if token is not None:
            tokenizer[f"{name}_token_id"] = token
    width = values.get("embedding_length")
    heads = header.heads
    if heads is None or not isinstance(width, int):
        raise _not_convertible(path, "it does not say how many heads it has, or how wide it is")
    theta = values.get("rope.freq_base", 10_000.0)
    has_biases = "blk.0.attn_q.bias" in tensors
    if has_biases and header.architecture != "qwen2":
        raise _not_convertible(
            path, "its attention has biases, and those of this architecture have none"
        )
    return {
        "architectures": [CLASSES[header.architecture]],
        "model_type": header.architecture,
        "hidden_size": width,
        "intermediate_size": values.get("feed_forward_length"),
        "num_hidden_layers": header.layers,
        "num_attention_heads": heads[0],
        "num_key_value_heads": heads[1],
        "head_dim": values.get("attention.key_length", width // heads[0]),
        "max_position_embeddings": values.get("context_length"),
        "rms_norm_eps": values.get("attention.layer_norm_rms_epsilon"),
        "rope_theta": theta,
        "rope_parameters": {"rope_type": "default", "rope_theta": theta},
        "vocab_size": tensors["token_embd.weight"].shape[1],
        # A file may have an output matrix of its own although the embedding was used for both
        # before it was quantised.
        "tie_word_embeddings": "output.weight" not in tensors,
        "torch_dtype": "float16",
        **tokenizer,
    }


def _transformers_names(header: Header) -> dict[str, str]:
    """Return the name in transformers of each tensor that a model of this architecture may have."""
    mapping = get_tensor_name_map(ARCHITECTURES[header.architecture], header.layers)
    modules = list(OUTER_MODULES)
    for number in range(header.layers):
        modules += [f"model.layers.{number}.{part}" for part in LAYER_MODULES]
    names = {}
    for module in modules:
        name = mapping.get_name(module)
        if name is None:
            continue
        names[f"{name}.weight"] = f"{module}.weight"
        if module.endswith(MODULES_WITH_BIAS):
            names[f"{name}.bias"] = f"{module}.bias"
    return names


def _arrays(path: Path, header: Header) -> Iterator[tuple[str, Any]]:
    """Yield every tensor by its name in the file, as numbers in the order of transformers."""
    for part in part_files(path):
        for tensor in GGUFReader(part).tensors:
            array = dequantize(tensor.data, tensor.tensor_type)
            is_query = tensor.name.endswith("attn_q.weight")
            is_key = tensor.name.endswith("attn_k.weight")
            if header.architecture == "llama" and (is_query or is_key):
                array = _in_halves(array, header, keys=is_key)
            number = np.float16 if array.ndim > 1 else np.float32
            yield tensor.name, np.ascontiguousarray(array, dtype=number)


def _in_halves(array: Any, header: Header, *, keys: bool) -> Any:  # noqa: ANN401 - of numpy
    """Return the rows of each head in two halves.

    llama.cpp has those rows beside each other that are turned together.
    """
    assert header.heads is not None
    count = header.heads[keys]
    pairs = array.reshape(count, len(array) // count // 2, 2, array.shape[1])
    return pairs.swapaxes(1, 2).reshape(array.shape)


def _write_shard(out: Path, shard: Mapping[str, Any]) -> dict[str, str]:
    """Write some weights to a file of their own; the name of that file for each of them."""
    if not shard:
        return {}
    name = f"model-{len(list(out.glob('model-*.safetensors'))) + 1:05}.safetensors"
    save_file(dict(shard), out / name, metadata={"format": "pt"})
    return dict.fromkeys(shard, name)


def _not_convertible(path: Path, problem: str) -> ModelError:
    hint = "use --base DIR with the model in Hugging Face format"
    return ModelError("file", f"{path} cannot be trained from: {problem}", hint=hint)
