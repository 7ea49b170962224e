"""The model that a training starts from: found on this machine, checked, and loaded. Imports torch and transformers.

Nothing is downloaded, no code of a model is run, and weights are read only from safetensors files.
"""

from __future__ import annotations

import json
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from logging import ERROR, getLogger
from pathlib import Path
from typing import Any, Final

from conductor_cli.core.chat import OPEN
from conductor_cli.core.errors import ConfigError
from conductor_cli.models.llama.gguf import short_line
from conductor_cli.train.recipe import LoraSettings, require

with require("torch"):
    import torch
    from torch import nn
with require("transformers"):
    from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer
    from transformers.utils import logging
    from transformers.utils.hub import try_to_load_from_cache

SWITCH: Final = "enable_thinking"
"""The variable of a chat template that leaves thinking out if it is false (Qwen3, and many others since)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BaseModel:
    """A base model on disk. `architecture` is its name in transformers, such as `qwen2`. `context` is in tokens.

    `adapter_weights` counts the weights of the adapter that will be trained, 0 without one. `heads` are
    the numbers of query heads and of key heads in a layer.
    """

    directory: Path
    tokenizer: Any
    architecture: str
    layers: int
    weights: int
    adapter_weights: int
    context: int
    heads: tuple[int, int] | None = None


def find_base_model(name: str, lora: LoraSettings | None = None) -> BaseModel:
    """The base model in a directory, or with an id in the Hugging Face cache. Raises `ConfigError`."""
    directory = _find_directory(name)
    # Unless it is told False, transformers asks at the terminal whether to run the code that a model brings.
    with quiet_libraries(), _explain_errors(name):
        config = AutoConfig.from_pretrained(directory, local_files_only=True, trust_remote_code=False)
        tokenizer = AutoTokenizer.from_pretrained(
            directory, local_files_only=True, trust_remote_code=False, padding_side="left"
        )
        with torch.device("meta"):  # the shape without the weights
            model = AutoModelForCausalLM.from_config(config, trust_remote_code=False)
    # Raise `ConfigError` if a file with weights is missing.
    files = {"model.safetensors"}
    index = directory / "model.safetensors.index.json"
    if index.is_file():
        with _explain_errors(name):
            files = set(json.loads(index.read_text())["weight_map"].values())
    if missing := sorted(file for file in files if not (directory / file).is_file()):
        raise ConfigError(f"{name} is incomplete: {directory / missing[0]} is missing", hint="download the model again")
    if not tokenizer.chat_template:
        raise ConfigError(
            f"{name} has no chat template, so it cannot be asked for a plan",
            hint="use an instruction-tuned model, or add a chat_template.jinja to its directory",
        )
    # An adapter adds two matrices to each linear layer but the output.
    linear = [
        layer.in_features + layer.out_features
        for module, layer in model.named_modules()
        if isinstance(layer, nn.Linear) and not module.endswith("lm_head")
    ]
    return BaseModel(
        directory=directory, tokenizer=tokenizer, architecture=config.model_type,
        layers=config.num_hidden_layers, weights=sum(weight.numel() for weight in model.parameters()),
        adapter_weights=lora.rank * sum(linear) if lora is not None else 0, context=config.max_position_embeddings,
        heads=(config.num_attention_heads, config.num_key_value_heads),
    )  # fmt: skip


def has_fast_bfloat16() -> bool:
    """Whether numbers of 16 bits are multiplied in hardware: by a GPU, or a CPU with AMX or AVX-512 BF16."""
    found = torch.cpu.get_capabilities()
    return torch.cuda.is_available() or bool(found.get("amx_bf16") or found.get("avx512_bf16"))


def load_model(base: BaseModel, *, lora: LoraSettings | None) -> tuple[Any, Any]:
    """The model, and the settings of its adapter (None to train all weights). Raises `ConfigError`.

    If all weights are trained, they are loaded in 32 bits: in 16, steps as small as these would be rounded away.
    """
    dtype = torch.bfloat16 if lora is not None and has_fast_bfloat16() else torch.float32
    with quiet_libraries(), _explain_errors(str(base.directory)):
        model = AutoModelForCausalLM.from_pretrained(
            base.directory, dtype=dtype, local_files_only=True, use_safetensors=True
        )
    if lora is None:
        return model, None
    with require("peft"):
        from peft import LoraConfig
    return model, LoraConfig(
        r=lora.rank, lora_alpha=lora.alpha, lora_dropout=0.0, target_modules="all-linear", task_type="CAUSAL_LM"
    )


def render_chat(tokenizer: Any, messages: Sequence[Mapping[str, str]]) -> str:  # noqa: ANN401 - of transformers
    """The text of a prompt by the tokenizer's chat template, without thinking where the template has a switch for it.

    A last message of the assistant is the beginning of the reply and follows the text as it is. So a planner reads the
    same text in training and in a run (`models/llama/prompt.py`). A tokenizer without a template joins the contents.
    """
    if not tokenizer.chat_template:
        return "".join(message["content"] for message in messages)
    begun = messages[-1]["content"] if messages[-1]["role"] == "assistant" else ""
    switch = {"enable_thinking": False} if SWITCH in tokenizer.chat_template else {}
    text = tokenizer.apply_chat_template(
        list(messages[:-1] if begun else messages), add_generation_prompt=True, tokenize=False, **switch
    )
    first = tokenizer.bos_token or ""
    if first and text.startswith(first) and tokenizer("")["input_ids"] == [tokenizer.bos_token_id]:
        text = text.removeprefix(first)  # the tokenizer adds it again
    return f"{text}{begun}"


def thinks_by_itself(tokenizer: Any) -> bool:  # noqa: ANN401
    """Whether the prompt opens the model's thinking, and the template has no switch that keeps it closed."""
    return render_chat(tokenizer, [{"role": "user", "content": "x"}]).rstrip().endswith(OPEN)


def longest_prompt(base: BaseModel, prompts: list[list[dict[str, str]]]) -> int:
    """The number of tokens in the longest prompt. Raises `ConfigError` if the chat template fails on one."""
    try:
        texts = [render_chat(base.tokenizer, prompt) for prompt in prompts]
    except Exception as error:
        raise ConfigError(
            f"the chat template of {base.directory} rejects a conductor's messages: {short_line(str(error))}",
            hint="use a model whose template accepts a system message",
        ) from error
    return max(map(len, base.tokenizer(texts)["input_ids"]))


def _find_directory(name: str) -> Path:
    path = Path(name).expanduser()
    if path.suffix == ".gguf" or path.is_file():
        raise ConfigError(
            f"{name} is a file; training needs a model directory in Hugging Face format", hint="use --base DIR"
        )
    if path.is_dir():
        return path.absolute()
    try:
        config = try_to_load_from_cache(name, "config.json")
    except (OSError, ValueError):  # not a valid model id
        config = None
    if not isinstance(config, str):
        raise ConfigError(
            f"the base model {name} is neither a directory nor in the Hugging Face cache",
            hint=f"hf download {name}, or use a directory: --base DIR",
        )
    return Path(config).parent


@contextmanager
def quiet_libraries() -> Iterator[None]:
    """Without the warnings of the libraries about each other, and TRL's about each prompt whose runs all failed."""
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    getLogger("trl").setLevel(ERROR)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)
        yield


@contextmanager
def _explain_errors(name: str) -> Iterator[None]:
    """Turn whatever a library raises about a model's files into one `ConfigError`."""
    try:
        yield
    except ConfigError:
        raise
    except Exception as error:
        raise ConfigError(
            f"{name} cannot be used as a base model: {short_line(str(error)) or type(error).__name__}",
            hint="use another, or download it again",
        ) from error
