"""The model that a training begins with: found on this machine, looked at, and loaded. Imports torch, transformers.

Nothing is fetched, no code of a model is run, and weights are read only from safetensors.
"""

from __future__ import annotations

import json
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from logging import ERROR, getLogger
from pathlib import Path
from typing import Any, Final

from conductor_cli.core.errors import ConfigError
from conductor_cli.train.dependencies import require
from conductor_cli.train.memory_estimate import ModelShape
from conductor_cli.train.recipe import LoraSettings

with require("torch"):
    import torch
    from torch import nn
with require("transformers"):
    from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer
    from transformers.utils import logging
    from transformers.utils.hub import try_to_load_from_cache

_ONE: Final = "model.safetensors"
_INDEX: Final = "model.safetensors.index.json"


@dataclass(frozen=True, slots=True, kw_only=True)
class BaseModel:
    """A base model: `reader` is its tokenizer, `kind` its architecture as transformers calls it."""

    directory: Path
    reader: Any
    kind: str
    shape: ModelShape


def find_base_model(name: str, lora: LoraSettings | None = None) -> BaseModel:
    """The base model of a directory, or of an id in the cache of Hugging Face. Raises `ConfigError`."""
    directory = _directory(name)
    with quiet(), _readable(name):
        config = AutoConfig.from_pretrained(directory, local_files_only=True)
        reader = AutoTokenizer.from_pretrained(directory, local_files_only=True, padding_side="left")
        with torch.device("meta"):
            model = AutoModelForCausalLM.from_config(config)
    _check_weights(name, directory)
    if not reader.chat_template:
        raise ConfigError(
            f"{name} has no chat template, so nobody could ask it for a plan",
            hint="name an instruction-tuned model, or put a chat_template.jinja into its directory",
        )
    return BaseModel(directory=directory, reader=reader, kind=config.model_type, shape=_shape(model, config, lora))


def load_model(base: BaseModel, *, lora: LoraSettings | None) -> tuple[Any, Any]:
    """The model to train, and the configuration of its adapter, None where all weights are trained.

    All weights are trained in 32 bits: in 16, steps as small as these are rounded away. Raises `ConfigError`.
    """
    kind = torch.bfloat16 if lora is not None and torch.cuda.is_available() else torch.float32
    with quiet(), _readable(str(base.directory)):
        model = AutoModelForCausalLM.from_pretrained(
            base.directory, dtype=kind, local_files_only=True, use_safetensors=True
        )
    return model, _adapter(lora) if lora is not None else None


def longest_prompt(base: BaseModel, prompts: list[list[dict[str, str]]]) -> int:
    """Tokens of the longest of some prompts. Raises `ConfigError` where the chat template does not take them."""
    try:
        tokens = base.reader.apply_chat_template(prompts, add_generation_prompt=True, tokenize=True, return_dict=True)
    except Exception as error:
        said = f"the chat template of {base.directory} does not take a conductor's messages: {_line(error)}"
        raise ConfigError(said, hint="take a model whose template takes a system message") from error
    return max(map(len, tokens["input_ids"]))


def _adapter(lora: LoraSettings) -> Any:  # noqa: ANN401 - of peft, untyped
    with require("peft"):
        from peft import LoraConfig
    return LoraConfig(
        r=lora.rank, lora_alpha=lora.alpha, lora_dropout=0.0, target_modules="all-linear", task_type="CAUSAL_LM"
    )


def _directory(name: str) -> Path:
    path = Path(name).expanduser()
    if path.suffix == ".gguf" or path.is_file():
        raise ConfigError(
            f"{name} is a file; a training begins with a directory in Hugging Face's form", hint="name that: --base DIR"
        )
    if path.is_dir():
        return path.absolute()
    try:
        config = try_to_load_from_cache(name, "config.json")
    except (OSError, ValueError):  # no name of a model at all
        config = None
    if not isinstance(config, str):
        raise ConfigError(
            f"the base model {name} is neither a directory nor in Hugging Face's cache",
            hint=f"hf download {name}, or name a directory: --base DIR",
        )
    return Path(config).parent


def _check_weights(name: str, directory: Path) -> None:
    """Whether all files with weights are there. Raises `ConfigError`."""
    parts = {_ONE}
    if (directory / _INDEX).is_file():
        with _readable(name):
            parts = set(json.loads((directory / _INDEX).read_text())["weight_map"].values())
    missing = sorted(part for part in parts if not (directory / part).is_file())
    if missing:
        raise ConfigError(f"{name} is not whole: there is no {directory / missing[0]}", hint="get the model again")


@contextmanager
def quiet() -> Iterator[None]:
    """Without what libraries say of each other, and of each prompt whose runs failed: that is a figure of the step."""
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    getLogger("trl").setLevel(ERROR)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)
        yield


@contextmanager
def _readable(name: str) -> Iterator[None]:
    """Turns whatever a library says of a model's files into one error."""
    try:
        yield
    except ConfigError:
        raise
    except Exception as error:
        raise ConfigError(
            f"{name} cannot be used as a base model: {_line(error)}", hint="name another, or get it again"
        ) from error


def _line(error: BaseException) -> str:
    return " ".join(str(error).split())[:200] or type(error).__name__


def _shape(model: Any, config: Any, lora: LoraSettings | None) -> ModelShape:  # noqa: ANN401
    rank = lora.rank if lora is not None else 0
    linear = [
        (layer.in_features + layer.out_features)
        for name, layer in model.named_modules()
        if isinstance(layer, nn.Linear) and not name.endswith("lm_head")
    ]
    heads = config.num_attention_heads
    key_heads = getattr(config, "num_key_value_heads", None) or heads
    head = getattr(config, "head_dim", None) or config.hidden_size // heads
    return ModelShape(
        weights=sum(weight.numel() for weight in model.parameters()), adapter=rank * sum(linear),
        layers=config.num_hidden_layers, width=config.hidden_size, remembered=2 * key_heads * head,
        vocabulary=config.vocab_size, context=config.max_position_embeddings,
    )  # fmt: skip
