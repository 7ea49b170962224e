"""A demo model and its tokenizer to a GGUF file for llama.cpp, and back. Imports torch."""

from __future__ import annotations

import json
from copy import deepcopy
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from gguf import MODEL_ARCH, GGUFReader, GGUFWriter, LlamaFileType, TokenType, get_tensor_name_map

from conductor_cli.core.errors import ModelError
from conductor_cli.models.llama.gguf import MAX_LAYERS
from conductor_cli.models.llama.lora import write_gguf
from conductor_cli.train.recipe import require
from scripts.rehearsal.courses import Course
from scripts.rehearsal.model import new_model
from scripts.rehearsal.tokenizer import END, PAD, token_of

with require("torch"):
    import torch

if TYPE_CHECKING:
    from tokenizers import Tokenizer

LAYER_ORDER: Final = ("input_layernorm", "self_attn", "post_attention_layernorm", "mlp")

TEMPLATE: Final = "{% for message in messages %}{{ message.content }}{% endfor %}"
"""The chat template: nothing but the messages, since `render` writes all that the models read."""


def export(model: Any, tokenizer: Tokenizer, path: Path, *, name: str) -> None:  # noqa: ANN401
    """Write the model to `path`: matrices in 16 bits, the rest in 32. Raises `ModelError` if it cannot be written."""
    writer = GGUFWriter(None, "qwen2")
    writer.add_name(f"conductor rehearsal, {name}")
    writer.add_license("apache-2.0")
    writer.add_file_type(LlamaFileType.MOSTLY_F16)
    _add_hyperparameters(writer, model.config)
    _add_vocabulary(writer, tokenizer)
    end = token_of(tokenizer, END)
    writer.add_bos_token_id(end)
    writer.add_eos_token_id(end)
    writer.add_pad_token_id(token_of(tokenizer, PAD))
    writer.add_add_bos_token(value=False)
    writer.add_chat_template(TEMPLATE)
    weights, names = model.state_dict(), _gguf_names(model)
    for weight in sorted(names, key=_position):
        array = weights[weight].numpy()
        writer.add_tensor(names[weight], array.astype("float16" if array.ndim > 1 else "float32"))
    write_gguf(path, writer)


def _add_hyperparameters(writer: Any, config: Any) -> None:  # noqa: ANN401
    writer.add_context_length(config.max_position_embeddings)
    writer.add_embedding_length(config.hidden_size)
    writer.add_block_count(config.num_hidden_layers)
    writer.add_feed_forward_length(config.intermediate_size)
    writer.add_head_count(config.num_attention_heads)
    writer.add_head_count_kv(config.num_key_value_heads)
    writer.add_layer_norm_rms_eps(config.rms_norm_eps)
    writer.add_rope_freq_base(float(config.rope_parameters["rope_theta"]))
    writer.add_vocab_size(config.vocab_size)


def _add_vocabulary(writer: Any, tokenizer: Tokenizer) -> None:  # noqa: ANN401
    """Add tokens and merges. The added tokens are those that are no text."""
    numbers = tokenizer.get_vocab(with_added_tokens=True)
    added = tokenizer.get_added_tokens_decoder()
    kinds = [TokenType.CONTROL if number in added else TokenType.NORMAL for number in range(len(numbers))]
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("qwen2")
    writer.add_token_list(sorted(numbers, key=numbers.__getitem__))
    writer.add_token_types(list(map(int, kinds)))
    writer.add_token_merges([" ".join(pair) for pair in json.loads(tokenizer.to_str())["model"]["merges"]])


def _gguf_names(model: Any) -> dict[str, str]:  # noqa: ANN401
    """The names in GGUF of a model's weights, by their names in transformers. Its output is its embedding."""
    names = get_tensor_name_map(MODEL_ARCH.QWEN2, model.config.num_hidden_layers)
    return {name: str(names.get_name(name, try_suffixes=(".weight", ".bias"))) for name, _ in model.named_parameters()}


def _position(name: str) -> tuple[int, int]:
    """Where a weight stands in the file. The shipped files are in this order, and a training reproduces their bytes."""
    if ".layers." not in name:
        return (-1 if "embed" in name else MAX_LAYERS), 0
    _, _, layer, module, *_ = name.split(".")
    return int(layer), LAYER_ORDER.index(module)


def rounded(model: Any) -> Any:  # noqa: ANN401
    """A copy of the model with its matrices rounded as in the file."""
    copied = deepcopy(model).eval()
    with torch.no_grad():
        for weight in copied.parameters():
            if weight.dim() > 1:
                weight.copy_(weight.half().float())
    return copied


def loaded(path: Path, course: Course) -> Any:  # noqa: ANN401 - a model of transformers, untyped
    """The model in a file that was made by `course`. Raises `ModelError` for any other file."""
    try:
        tensors = {tensor.name: tensor.data for tensor in GGUFReader(path).tensors}
        model = new_model(course, len(tensors["token_embd.weight"]))
        weights = {name: torch.tensor(tensors[known]).float() for name, known in _gguf_names(model).items()}
        model.load_state_dict({**weights, "lm_head.weight": weights["model.embed_tokens.weight"]})
    except (OSError, ValueError, KeyError, IndexError, RuntimeError) as error:
        reason = " ".join(str(error).split())[:120]
        raise ModelError("file", f"{path} is not a model of this course: {reason}", hint="export it again") from error
    return model
