"""The model that a training starts from: found on this machine, measured, checked, and loaded.

Nothing is downloaded, no code of a model is run, and weights are read only from safetensors files.
To measure it needs no library of the training; torch and transformers are imported where a model is
checked or loaded.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import re
import tempfile
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from logging import ERROR, getLogger
from pathlib import Path
from typing import Any, Final

from conductor_cli.config.files import app_paths
from conductor_cli.core.chat import OPEN
from conductor_cli.core.errors import ConfigError, ModelError
from conductor_cli.core.formatting import format_size
from conductor_cli.core.terminal_text import short_line
from conductor_cli.models.llama.dequantise import check_convertible, dequantise, model_config
from conductor_cli.models.llama.gguf import part_files, read_all_tensors
from conductor_cli.models.weights.huggingface import cached_path
from conductor_cli.system.disk import check_room, make_private_directory
from conductor_cli.system.hardware import read_memory
from conductor_cli.train.job import process_count
from conductor_cli.train.recipe import LoraSettings, Recipe, require

LONGEST_HEADER: Final = 100_000_000
"""Bytes of the description in front of the weights of a safetensors file: the bound of that
format.
"""

NO_ADAPTER: Final = ("lm_head", "embed_tokens")
"""How the names of matrices end that get no adapter."""

NAMES_IN_FILES: Final = {
    "output.weight": "lm_head.weight",
    "token_embd.weight": "model.embed_tokens.weight",
}
"""What transformers calls them, by their names in GGUF files."""

CONVERSION: Final = 1  # Counts up when a GGUF file is dequantised in another way

THINKING_SWITCH: Final = "enable_thinking"
"""The variable of a chat template that leaves thinking out if it is false (Qwen3, and many others
since).
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class BaseModel:
    """A base model on disk. `architecture` is its name in transformers, such as `qwen2`.

    `context` is in tokens.

    `adapter_weights` counts the weights of the adapter that will be trained, 0 without one. `heads`
    are the numbers of query heads and of key heads in a layer. `tokenizer` is one of transformers,
    None where the model is only measured.
    """

    directory: Path
    weights: int
    adapter_weights: int
    architecture: str = ""
    layers: int = 0
    context: int = 0
    heads: tuple[int, int] | None = None
    tokenizer: Any = None


def measure_base_model(name: str, lora: LoraSettings | None = None) -> BaseModel:
    """Return the base model in a directory, or with an id in the Hugging Face cache, by its files.

    Raises `ConfigError`.
    """
    path = Path(name).expanduser()
    config_file = None
    if path.suffix == ".gguf" or path.is_file():
        return _measure_file(path, lora)
    if not path.is_dir():
        with suppress(OSError, ValueError):  # not a valid model id
            config_file = cached_path(name, "main", "config.json")
        if config_file is None:
            hint = f"hf download {name}, or use a directory: --base DIR"
            raise ConfigError(
                f"the base model {name} is neither a directory nor in the Hugging Face cache",
                hint=hint,
            )
    directory = path.absolute()
    if config_file is not None:
        directory = config_file.parent
    with _explain_errors(name):
        config = json.loads((directory / "config.json").read_text())
        index = directory / "model.safetensors.index.json"
        files = {"model.safetensors"}
        if index.is_file():
            files = set(json.loads(index.read_text())["weight_map"].values())
        if missing := sorted(file for file in files if not (directory / file).is_file()):
            problem = f"{name} is incomplete: {directory / missing[0]} is missing"
            raise ConfigError(problem, hint="download the model again")
        shapes: dict[str, list[int]] = {}
        for file in files:
            with (directory / file).open("rb") as header:  # its length in eight bytes, then JSON
                named = json.loads(
                    header.read(min(int.from_bytes(header.read(8), "little"), LONGEST_HEADER))
                )
            for key, tensor in named.items():
                if key != "__metadata__":
                    shapes[key] = tensor["shape"]
        return _measured(directory, config, shapes, lora)


def _measured(
    directory: Path,
    config: Mapping[str, Any],
    shapes: Mapping[str, Sequence[int]],
    lora: LoraSettings | None,
) -> BaseModel:
    """Return the model of this configuration and these shapes of weights."""
    # An adapter adds two matrices to each linear layer but the output.
    adapter_weights = 0
    if lora:
        for key, shape in shapes.items():
            is_linear = len(shape) == 2
            if is_linear and not key.removesuffix(".weight").endswith(NO_ADAPTER):
                adapter_weights += lora.rank * sum(shape)
    heads = int(config["num_attention_heads"])
    return BaseModel(
        directory=directory,
        architecture=str(config["model_type"]),
        layers=int(config["num_hidden_layers"]),
        weights=sum(map(math.prod, shapes.values())),
        adapter_weights=adapter_weights,
        heads=(heads, int(config.get("num_key_value_heads", heads))),
        context=int(config["max_position_embeddings"]),
    )


def _measure_file(path: Path, lora: LoraSettings | None) -> BaseModel:
    """Return the base model in a GGUF file, and the directory that it will be dequantised to.

    Raises `ConfigError`.
    """
    with _explain_errors(str(path)):
        header = check_convertible(path)
        config = model_config(path, header)
        tensors = read_all_tensors(path)
        shapes = {NAMES_IN_FILES.get(name, name): tensor.shape for name, tensor in tensors.items()}
        return _measured(_converted_directory(path), config, shapes, lora)


def _converted_directory(path: Path) -> Path:
    """Return where a GGUF file is kept as a directory.

    By the digest of its bytes, so another file has another one.
    """
    digest = hashlib.sha256()
    for part in part_files(path):
        with part.open("rb") as file:
            digest.update(hashlib.file_digest(file, "sha256").digest())
    return app_paths(os.environ).cache / "base-models" / f"{digest.hexdigest()[:32]}-{CONVERSION}"


def _convert(path: Path, base: BaseModel) -> None:
    """Dequantise a GGUF file into the directory of `base`, unless that was done before.

    Raises `ConfigError`.
    """
    if base.directory.is_dir():
        return
    # Each weight has 16 bits, a vector 32.
    check_room(base.directory, 2 * base.weights + (64 << 20), "CONDUCTOR_LLM_CACHE_DIR=DIR")
    make_private_directory(base.directory.parent)
    with require("transformers"):
        from transformers import AutoTokenizer
    with tempfile.TemporaryDirectory(dir=base.directory.parent, prefix=".") as directory:
        converted = Path(directory) / "model"
        converted.mkdir()
        with quiet_libraries(), _explain_errors(str(path)):
            dequantise(path, converted)
            tokenizer = AutoTokenizer.from_pretrained(
                path.parent, gguf_file=path.name, local_files_only=True
            )
            tokenizer.save_pretrained(converted)
        # Two processes that train together may both convert; the first one to be done wins.
        with suppress(OSError):
            converted.rename(base.directory)
    if not base.directory.is_dir():
        raise ConfigError(
            f"{path} could not be dequantised to {base.directory}",
            hint="check that it can be written",
        )


def guess_base_model(name: str, lora: LoraSettings | None = None) -> BaseModel | None:
    """Return a model that is not here by the number in its name, as in `Qwen2.5-7B`, if any."""
    size = re.search(r"(?<![\d.])(\d+(?:\.\d+)?)([BM])(?![a-z])", name, re.IGNORECASE)
    if size is None:
        return None
    unit = 10**6
    if size[2] in "bB":
        unit = 10**9
    weights = int(float(size[1]) * unit)
    # An adapter of rank 32 has about a hundredth of the weights of a model with 7 billion.
    adapter = 0
    if lora:
        adapter = weights * lora.rank // 3200
    return BaseModel(directory=Path(name), weights=weights, adapter_weights=adapter)


def find_base_model(name: str, lora: LoraSettings | None = None) -> BaseModel:
    """Return as `measure_base_model` does, but checked by transformers, and with a tokenizer.

    Raises `ConfigError`.
    """
    base = measure_base_model(name, lora)
    path = Path(name).expanduser()
    with require("transformers"):
        from transformers import AutoConfig, AutoTokenizer
    if path.is_file():
        _convert(path, base)
    # Unless it is told False, transformers asks at the terminal whether to run the code that a
    # model brings.
    with quiet_libraries(), _explain_errors(name):
        AutoConfig.from_pretrained(base.directory, local_files_only=True, trust_remote_code=False)
        tokenizer = AutoTokenizer.from_pretrained(
            base.directory, local_files_only=True, trust_remote_code=False, padding_side="left"
        )
    if not tokenizer.chat_template:
        hint = "use an instruction-tuned model, or add a chat_template.jinja to its directory"
        raise ConfigError(
            f"{name} has no chat template, so it cannot be asked for a plan", hint=hint
        )
    return replace(base, tokenizer=tokenizer)


def check_memory(base: BaseModel, recipe: Recipe) -> str:
    """Return what the weights and the optimizer need, and what there is.

    Raises `ConfigError` if they do not fit.

    What the layers keep for the backward pass comes on top. It depends on kernels and batches too
    much to be estimated. Several processes may share the weights, so nothing is refused for them;
    and only torch knows the memory of a GPU.
    """
    # The weight, its gradient and Adam's two moments, each in 32 bits.
    needed = 16 * (base.adapter_weights or base.weights)
    if base.adapter_weights:  # the base model is frozen, in 16 bits where these are fast
        needed += 2 * base.weights
    elif recipe.kl:  # it is compared with a copy of the base model
        needed += 4 * base.weights
    processes = process_count()
    try:
        memory, owner = _find_memory(processes)
    except ImportError:
        return f"{format_size(needed)} on a GPU for weights and optimizer, and activations"
    if base.adapter_weights and not has_fast_bfloat16():
        needed += 2 * base.weights
    sampler = 0
    if recipe.vllm:
        sampler = int(recipe.vllm_memory * memory)
    if sampler and sampler <= 2 * base.weights:
        problem = (
            f"vLLM has {format_size(sampler)}, and the weights alone need "
            f"{format_size(2 * base.weights)}"
        )
        raise ConfigError(
            problem, hint="give it a larger share of the memory: --set vllm_memory=0.5"
        )
    needs = format_size(needed)
    if sampler:
        needs += f" and {format_size(sampler)} for vLLM"
    needs += f" of the {format_size(memory)} of {owner}, and activations"
    if needed + sampler > memory and processes == 1:
        hint = "use more GPUs: see docs/train.md"
        if not recipe.lora:
            hint = f"train an adapter (--lora), or {hint}"
        raise ConfigError(f"it needs {needs}", hint=hint)
    return needs


def _find_memory(processes: int) -> tuple[int, str]:
    """Return the bytes of memory that a training has, and of what.

    Raises `ImportError` without torch, `ConfigError` where one process would have several GPUs.
    """
    import torch

    if not torch.cuda.is_available():
        return read_memory().total, "this machine"
    gpus = torch.cuda.device_count()
    if processes == 1 and gpus > 1:
        hint = (
            "use accelerate launch (see docs/train.md), or only one of them: CUDA_VISIBLE_DEVICES=0"
        )
        raise ConfigError(
            f"there are {gpus} GPUs, and one process cannot train on several", hint=hint
        )
    return torch.cuda.get_device_properties(0).total_memory, "a GPU"


def has_fast_bfloat16() -> bool:
    """Return whether numbers of 16 bits are multiplied in hardware.

    By a GPU, or a CPU with AMX or AVX-512 BF16.
    """
    import torch

    cpu = torch.cpu.get_capabilities()
    return torch.cuda.is_available() or bool(cpu.get("amx_bf16") or cpu.get("avx512_bf16"))


def load_model(base: BaseModel, *, lora: LoraSettings | None) -> tuple[Any, Any]:
    """Return the model and its adapter's settings (None trains all weights). Raises `ConfigError`.

    If all weights are trained, they are loaded in 32 bits: in 16, steps as small as these would be
    rounded away.
    """
    import torch
    from transformers import AutoModelForCausalLM

    dtype = torch.float32
    if lora is not None and has_fast_bfloat16():
        dtype = torch.bfloat16
    with quiet_libraries(), _explain_errors(str(base.directory)):
        model = AutoModelForCausalLM.from_pretrained(
            base.directory, dtype=dtype, local_files_only=True, use_safetensors=True
        )
    if lora is None:
        return model, None
    with require("peft"):
        from peft import LoraConfig
    return model, LoraConfig(
        r=lora.rank,
        lora_alpha=lora.alpha,
        lora_dropout=0.0,
        target_modules="all-linear",
        task_type="CAUSAL_LM",
    )


# Of transformers
def render_chat(tokenizer: Any, messages: Sequence[Mapping[str, str]]) -> str:  # noqa: ANN401
    """Return the text of a prompt by the tokenizer's chat template.

    It is without thinking where the template has a switch for it.

    A last message of the assistant is the beginning of the reply and follows the text as it is. So
    a planner reads the same text in training and in a run (`models/llama/prompt.py`). A tokenizer
    without a template joins the contents.
    """
    if not tokenizer.chat_template:
        return "".join(message["content"] for message in messages)
    begun = ""
    if messages[-1]["role"] == "assistant":
        begun = messages[-1]["content"]
        if begun:
            messages = messages[:-1]
    switch = {}
    if THINKING_SWITCH in tokenizer.chat_template:
        switch = {THINKING_SWITCH: False}
    text = tokenizer.apply_chat_template(
        list(messages), add_generation_prompt=True, tokenize=False, **switch
    )
    first = tokenizer.bos_token or ""
    if first and text.startswith(first) and tokenizer("")["input_ids"] == [tokenizer.bos_token_id]:
        text = text.removeprefix(first)  # the tokenizer adds it again
    return f"{text}{begun}"


def thinks_by_itself(tokenizer: Any) -> bool:  # noqa: ANN401
    """Return whether the prompt opens the model's thinking.

    The template then has no switch that keeps it closed.
    """
    return render_chat(tokenizer, [{"role": "user", "content": "x"}]).rstrip().endswith(OPEN)


def longest_prompt(base: BaseModel, prompts: list[list[dict[str, str]]]) -> int:
    """Return the number of tokens in the longest prompt.

    Raises `ConfigError` if the chat template fails on one.
    """
    try:
        texts = [render_chat(base.tokenizer, prompt) for prompt in prompts]
    except Exception as error:
        message = (
            f"the chat template of {base.directory} rejects a conductor's messages: "
            f"{short_line(str(error))}"
        )
        raise ConfigError(
            message, hint="use a model whose template accepts a system message"
        ) from error
    return max(map(len, base.tokenizer(texts)["input_ids"]))


@contextmanager
def quiet_libraries() -> Iterator[None]:
    """Keep the libraries quiet inside the block.

    They warn about each other, and TRL warns about each prompt whose runs all failed.
    """
    from transformers.utils import logging

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
    except ModelError as error:
        raise ConfigError(error.message, hint=error.hint) from error
    except Exception as error:
        message = (
            f"{name} cannot be used as a base model: "
            f"{short_line(str(error)) or type(error).__name__}"
        )
        raise ConfigError(message, hint="use another, or download it again") from error
