"""What writes the plans that are sampled: transformers itself, or vLLM in the versions that TRL works with."""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, requires, version
from typing import Any

from conductor_cli.core.errors import ConfigError
from conductor_cli.train.dependencies import require
from conductor_cli.train.recipe import COLOCATE, OFF, Recipe


def supported_vllm() -> str:
    """The versions of vLLM that the installed TRL works with, as pip writes them: `<=0.31.0,>=0.22.0`."""
    with require("trl"):
        from packaging.requirements import Requirement

        try:
            wanted = [Requirement(text) for text in requires("trl") or ()]
        except PackageNotFoundError as error:
            raise ImportError(str(error)) from error
    return next((str(item.specifier) for item in wanted if item.name == "vllm"), "")


def describe_sampler(recipe: Recipe, *, gpu: bool) -> str:
    """What samples, in words. Raises `ConfigError` where it cannot."""
    if recipe.vllm == OFF:
        return "transformers samples the plans"
    from packaging.specifiers import SpecifierSet

    wanted = supported_vllm()
    try:
        there = version("vllm")
    except PackageNotFoundError:
        said = "vLLM is to sample the plans, and is not installed"
        raise ConfigError(said, hint=f"pip install 'vllm{wanted}', or go without: --vllm off") from None
    if there not in SpecifierSet(wanted, prereleases=True):
        raise ConfigError(f"TRL works with vllm{wanted}, and {there} is installed", hint=f"pip install 'vllm{wanted}'")
    if recipe.vllm == COLOCATE and not gpu:
        said = "vLLM is to run beside the training, and there is no GPU"
        raise ConfigError(said, hint="--vllm off, or the address of a vLLM server: --vllm http://HOST:8000")
    return f"vLLM {there}, {'beside the training' if recipe.vllm == COLOCATE else recipe.vllm}"


def sampler_arguments(recipe: Recipe, context: int) -> dict[str, Any]:
    """TRL's arguments for it. A server's prompts and plans have to fit what it was started with."""
    if recipe.vllm == OFF:
        return {"use_vllm": False}
    if recipe.vllm != COLOCATE:
        return {"use_vllm": True, "vllm_mode": "server", "vllm_server_base_url": recipe.vllm}
    return {
        "use_vllm": True, "vllm_mode": "colocate", "vllm_gpu_memory_utilization": recipe.vllm_memory,
        "vllm_max_model_length": context, "vllm_enable_sleep_mode": True,
    }  # fmt: skip
