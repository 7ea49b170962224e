"""Export of a trained model, as transformers or PEFT saved it, to a GGUF file for llama.cpp. Imports torch.

The directory is untrusted. What is missing, damaged, or would be another model in llama.cpp is refused.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, Final, NamedTuple

from gguf import MODEL_ARCH, LlamaFileType, RopeScalingType, SpecialVocab, TokenType, get_tensor_name_map
from safetensors import SafetensorError, safe_open

from conductor_cli.core.errors import ModelError
from conductor_cli.models import disk
from conductor_cli.models.llama.gguf import MAX_LAYERS, check_model_file, short_line
from conductor_cli.models.llama.gguf_writer import LazyTensor, new_writer, write_gguf
from conductor_cli.models.llama.lora import WEIGHTS, LoraBase, convert_adapter, damaged, read_json_file, unreadable
from conductor_cli.models.llama.template_sandbox import MAX_CHARACTERS
from conductor_cli.train.dependencies import require

with require("torch"):
    import torch
with require("transformers"):
    from tokenizers import Tokenizer
    from tokenizers.pre_tokenizers import ByteLevel
    from transformers import Qwen2Config, Qwen2ForCausalLM

ARCHITECTURE: Final = "qwen2"

PRE_TOKENIZER: Final = "qwen2"
"""llama.cpp's name for splitting a text by `SPLIT` before the merges."""

SPLIT: Final = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
"""The pattern of Qwen2's tokenizer. Each digit is a token."""

COUNTS: Final = {
    "num_hidden_layers": MAX_LAYERS, "hidden_size": 1 << 20, "num_attention_heads": 1 << 20,
    "num_key_value_heads": 1 << 20, "intermediate_size": 1 << 20, "vocab_size": 1 << 20,
    "max_position_embeddings": 1 << 30,
}  # fmt: skip
"""Settings that have to be there, and how large each may be."""

MAX_FILE: Final = 64 << 20
"""No file but weights is larger, in bytes."""

HEADROOM: Final = 16 << 20
"""Bytes for what precedes the weights: more than the largest vocabulary needs."""

F16_MAX: Final = 65504.0

_SAVE: Final = "save it again with transformers (save_pretrained)"
_MERGE: Final = "merge an adapter first (merge_and_unload), and save the model with save_pretrained"


def export_model(source: Path, path: Path, *, name: str) -> Path:
    """Write the merged model in the directory `source` to `path`: matrices in 16 bits, norms and biases in 32.

    Raises `ModelError` of kind `file` for what is missing, damaged or cannot be written, `ConductorUnusable` if the
    disk has no room. Then nothing is left behind.
    """
    config = _read_config(source)
    writer = new_writer(ARCHITECTURE)
    writer.add_type("model")
    writer.add_name(name)
    writer.add_file_type(LlamaFileType.MOSTLY_F16)
    add_hyperparameters(writer, config)
    _add_tokenizer(writer, source, config.vocab_size)
    tensors = _find_tensors(source, config)
    _check_room(path, sum(tensor.bytes for tensor in tensors) + HEADROOM)
    write_gguf(path, writer, tensors)
    try:
        check_model_file(path)
    except ModelError:
        path.unlink()
        raise
    return path


def export_adapter(source: Path, base: Path, path: Path) -> Path:
    """Write the LoRA in the directory `source` to `path`, for `base`: a GGUF file or a directory of transformers.

    Raises as `export_model`.
    """
    try:
        size = 2 * (source / WEIGHTS).stat().st_size
    except OSError as error:
        raise unreadable(source / WEIGHTS, error) from error
    _check_room(path, size)
    convert_adapter(source, _read_base(base) if base.is_dir() else base, path)
    return path


def _check_room(path: Path, size: int) -> None:
    try:
        disk.check_room(path.parent, size)
    except OSError as error:
        raise ModelError("file", f"{path} cannot be written: {error.strerror}", hint="choose another path") from error


def _read_base(directory: Path) -> LoraBase:
    config = _read_config(directory)
    shapes = {weight.gguf_name: weight.shape for weight in list_weights(config).values()}
    return LoraBase(path=directory, architecture=ARCHITECTURE, layers=config.num_hidden_layers, shapes=shapes)


# The settings


def _read_config(source: Path) -> Any:  # noqa: ANN401 - of transformers, untyped
    """The model's settings. Raises `ModelError` for a model that llama.cpp would run differently."""
    path = source / "config.json"
    values = read_json_file(path, MAX_FILE)
    problem = _find_unsupported(values)
    config: Any = None
    if not problem:
        try:
            config = Qwen2Config.from_dict(values)
            problem = _find_invalid(config)
            list_weights(config)
        except Exception as error:  # transformers raises many kinds for wrong values  # noqa: BLE001
            problem = f"transformers rejects it: {short_line(str(error), 160)}"
    if problem:
        raise ModelError("file", f"{path}: {problem}", hint="use the directory of a trained Qwen2 model")
    return config


def _find_unsupported(values: Mapping[str, Any]) -> str:
    """Why a model with these settings cannot be exported, or nothing."""
    given = values.get("architectures") or values.get("model_type")
    architecture = given[0] if isinstance(given, list) and given else given
    if architecture not in ("Qwen2ForCausalLM", ARCHITECTURE) or values.get("model_type") != ARCHITECTURE:
        shown = short_line(str(architecture or "not given"), 60)
        return f"the architecture is {shown}, and only Qwen2ForCausalLM can be exported"
    layers = values.get("layer_types")
    if values.get("use_sliding_window") or (isinstance(layers, list) and "sliding_attention" in layers):
        return "the model uses a sliding window, which llama.cpp does not support for Qwen2"
    if values.get("hidden_act", "silu") != "silu":
        return f"the activation is {short_line(str(values['hidden_act']), 40)}, and llama.cpp uses silu for Qwen2"
    if values.get("quantization_config"):
        return "the weights are quantized; save them in 16 or 32 bits"
    # A model is built from these below. Large values would take memory or time before anything fails.
    for key, most in COUNTS.items():
        value = values.get(key)
        if type(value) is not int or not 0 < value <= most:
            return f"{key} is {short_line(str(value), 40)}, and has to be a number from 1 to {most}"
    return ""


def _find_invalid(config: Any) -> str:  # noqa: ANN401
    heads, key_heads, width = config.num_attention_heads, config.num_key_value_heads, config.hidden_size
    head = getattr(config, "head_dim", None) or width // heads
    if width % heads or heads % key_heads or head * heads != width or head % 2:
        return f"{heads} heads, {key_heads} of them for keys, do not divide a width of {width}"
    epsilon, rope = config.rms_norm_eps, config.rope_parameters
    if not 0 < float(epsilon) < 1:
        return f"rms_norm_eps is {epsilon}"
    if rope["rope_type"] not in ("default", "linear", "yarn"):
        return f"the rotary embedding is {short_line(str(rope['rope_type']), 40)}; default, linear and yarn are known"
    return ""


def add_hyperparameters(writer: Any, config: Any) -> None:  # noqa: ANN401
    """Add the settings of a Qwen2 model to the metadata of a GGUF file."""
    writer.add_context_length(config.max_position_embeddings)
    writer.add_embedding_length(config.hidden_size)
    writer.add_block_count(config.num_hidden_layers)
    writer.add_feed_forward_length(config.intermediate_size)
    writer.add_head_count(config.num_attention_heads)
    writer.add_head_count_kv(config.num_key_value_heads)
    writer.add_layer_norm_rms_eps(config.rms_norm_eps)
    rope = config.rope_parameters
    writer.add_rope_freq_base(float(rope["rope_theta"]))
    writer.add_vocab_size(config.vocab_size)
    if rope["rope_type"] != "default":
        writer.add_rope_scaling_type(RopeScalingType(rope["rope_type"]))
        writer.add_rope_scaling_factor(float(rope["factor"]))
    if rope["rope_type"] == "yarn":
        original = rope.get("original_max_position_embeddings") or config.max_position_embeddings
        writer.add_rope_scaling_orig_ctx_len(original)


# The weights


class Weight(NamedTuple):
    """A weight of a model: its name in GGUF and its shape."""

    gguf_name: str
    shape: tuple[int, ...]


def list_weights(config: Any) -> dict[str, Weight]:  # noqa: ANN401
    """The weights of a Qwen2 by their names in transformers, in the order of the model."""
    names = get_tensor_name_map(MODEL_ARCH.QWEN2, config.num_hidden_layers)
    with torch.device("meta"):  # shapes without memory
        model = Qwen2ForCausalLM(config)
    # The parameters of a tied model do not include the output, as a GGUF does not.
    return {
        name: Weight(str(names.get_name(name, try_suffixes=(".weight", ".bias"))), tuple(weight.shape))
        for name, weight in model.named_parameters()
    }


def _find_tensors(source: Path, config: Any) -> list[LazyTensor]:  # noqa: ANN401
    """All weights that the model needs, in the shapes that it needs."""
    files: dict[str, Path] = {}
    shapes: dict[str, tuple[int, ...]] = {}
    for file in sorted(source.glob("model*.safetensors")):
        with _open_weights(file) as opened:
            found = {name: tuple(opened.get_slice(name).get_shape()) for name in opened.keys()}  # noqa: SIM118
        if twice := files.keys() & found.keys():
            raise ModelError("file", f"{source} has {short_line(min(twice))} twice", hint=_MERGE)
        files |= dict.fromkeys(found, file)
        shapes |= found
    if not files:
        raise ModelError(
            "file", f"{source} has no model.safetensors, so it does not contain a model",
            hint=_MERGE if (source / WEIGHTS).exists() else "save the model with save_pretrained",
        )  # fmt: skip
    wanted = list_weights(config)
    # A tied model may have saved its output too, and old versions of transformers saved what is computed.
    unknown = [name for name in files if name not in {*wanted, "lm_head.weight"} and not name.endswith("inv_freq")]
    if unknown:
        raise ModelError("file", f"{source} has {short_line(unknown[0])}, which is not part of a Qwen2", hint=_MERGE)
    for name, weight in wanted.items():
        if name not in files:
            raise ModelError("file", f"{source} lacks {name}", hint="copy all files of the model")
        if shapes[name] != weight.shape:
            raise ModelError(
                "file", f"{source}: {name} has the shape {shapes[name]}, and config.json describes {weight.shape}",
                hint="copy all files of one model",
            )  # fmt: skip
    return [
        LazyTensor(
            weight.gguf_name, weight.shape, "float16" if len(weight.shape) > 1 else "float32",
            partial(_load, files[name], name),
        )
        for name, weight in wanted.items()
    ]  # fmt: skip


@contextmanager
def _open_weights(file: Path) -> Iterator[Any]:
    try:
        with safe_open(file, framework="pt") as opened:
            yield opened
    except (OSError, SafetensorError) as error:
        raise damaged(file, short_line(str(error))) from error


def _load(file: Path, name: str) -> Any:  # noqa: ANN401 - a numpy array
    with _open_weights(file) as opened:
        tensor = opened.get_tensor(name)
    if not tensor.is_floating_point():
        raise ModelError("file", f"{file}: {name} is stored as {tensor.dtype}", hint="save it in 16 or 32 bits")
    numbers = tensor.float()
    if not torch.isfinite(numbers).all():
        raise damaged(file, f"{name} has values that are not finite")
    if numbers.dim() > 1 and numbers.abs().max() > F16_MAX:
        raise ModelError(
            "file", f"{file}: {name} has values that are too large for 16 bits",
            hint="convert the model with llama.cpp's own script",
        )  # fmt: skip
    return numbers.numpy()


# The tokenizer


def _add_tokenizer(writer: Any, source: Path, rows: int) -> None:  # noqa: ANN401
    """Add the vocabulary of a directory, special tokens and chat template included. Raises `ModelError`."""
    path = source / "tokenizer.json"
    read_json_file(path, MAX_FILE)
    settings = source / "tokenizer_config.json"
    if settings.exists():
        read_json_file(settings, MAX_FILE)
    try:
        tokenizer = Tokenizer.from_file(str(path))
        _check_splitting(tokenizer)
        add_vocabulary(writer, tokenizer, rows)
        _add_special_tokens(writer, tokenizer, SpecialVocab(source, n_vocab=rows))
    except Exception as error:  # tokenizers raises plain `Exception`
        raise ModelError("file", f"{path} cannot be exported: {short_line(str(error), 160)}", hint=_SAVE) from error


def _add_special_tokens(writer: Any, tokenizer: Tokenizer, special: Any) -> None:  # noqa: ANN401
    """Add the special tokens and the chat template. Raises `ValueError`."""
    end, begin = (special.special_token_ids.get(kind) for kind in ("eos", "bos"))
    if end is None:
        raise ValueError("no token ends a reply (eos_token)")
    plain, full = (tokenizer.encode("a", add_special_tokens=added).ids for added in (False, True))
    if full not in (plain, [begin, *plain]):
        raise ValueError("it adds more tokens to a text than one at its beginning")
    if begin is None:  # llama.cpp would use token 11
        special.special_token_ids["bos"] = end
    special.add_special_token = {"bos": full != plain}
    if len(str(special.chat_template or "")) > MAX_CHARACTERS:
        raise ValueError(f"its chat template is longer than {MAX_CHARACTERS} characters")
    special.add_to_gguf(writer, quiet=True)


def _check_splitting(tokenizer: Tokenizer) -> None:
    """Raise `ValueError` if llama.cpp would split a text into other tokens."""
    settings = json.loads(tokenizer.to_str())
    model = settings["model"]
    if model["type"] != "BPE" or model.get("byte_fallback"):
        raise ValueError("it is not a byte-level BPE")
    match settings["pre_tokenizer"]:
        case {
            "pretokenizers": [
                {"type": "Split", "pattern": {"Regex": regex}, "behavior": "Isolated", "invert": False},
                {"type": "ByteLevel", "add_prefix_space": False, "use_regex": False},
            ]
        } if regex == SPLIT:
            pass
        case _:
            raise ValueError("it splits a text in another way than Qwen2 does")
    if any(model.get(name) for name in ("continuing_subword_prefix", "end_of_word_suffix", "ignore_merges")):
        raise ValueError("it merges tokens in another way than Qwen2 does")
    tokens = tokenizer.get_vocab()
    if missing := [letter for letter in ByteLevel.alphabet() if letter not in tokens]:
        raise ValueError(f"it has no token for {len(missing)} of the 256 bytes")


def add_vocabulary(writer: Any, tokenizer: Tokenizer, rows: int) -> None:  # noqa: ANN401
    """Add tokens and merges for a model whose embedding has `rows`. Raises `ValueError` if they do not fit.

    A row without a token gets a name that no token has.
    """
    numbers = tokenizer.get_vocab(with_added_tokens=True)
    tokens = {number: token for token, number in numbers.items()}
    if len(tokens) != len(numbers):
        raise ValueError("two of its tokens have the same number")
    if max(tokens, default=0) >= rows:
        raise ValueError(f"it has a token {max(tokens)}, and the embedding has {rows} rows")
    added = tokenizer.get_added_tokens_decoder()
    texts, types = [], []
    for number in range(rows):
        text = tokens.get(number)
        if text is None:
            text = f"[PAD{number}]"
            while text in numbers:
                text += "_"
            kind = TokenType.UNUSED
        elif (token := added.get(number)) is None:
            kind = TokenType.NORMAL
        else:
            is_control = token.special or (text.startswith("<|") and text.endswith("|>"))
            kind = TokenType.CONTROL if is_control else TokenType.USER_DEFINED
        texts.append(text)
        types.append(int(kind))
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre(PRE_TOKENIZER)
    writer.add_token_list(texts)
    writer.add_token_types(types)
    writer.add_token_merges([" ".join(pair) for pair in json.loads(tokenizer.to_str())["model"]["merges"]])
