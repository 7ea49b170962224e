"""What samples the plans: transformers, or vLLM in the versions that TRL works with."""

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
    """What will sample the plans, in words. Raises `ConfigError` if it cannot."""
    if recipe.vllm == OFF:
        return "transformers samples the plans"
    with require("packaging"):
        from packaging.specifiers import SpecifierSet

    supported = supported_vllm()
    try:
        installed = version("vllm")
    except PackageNotFoundError:
        raise ConfigError(
            "vLLM, which is to sample the plans, is not installed",
            hint=f"pip install 'vllm{supported}', or train without it: --vllm off",
        ) from None
    if installed not in SpecifierSet(supported, prereleases=True):
        raise ConfigError(
            f"TRL works with vllm{supported}, but {installed} is installed", hint=f"pip install 'vllm{supported}'"
        )
    if recipe.vllm == COLOCATE and not gpu:
        raise ConfigError(
            "vLLM needs a GPU to run in the training processes, and there is none",
            hint="--vllm off, or the URL of a vLLM server: --vllm http://HOST:8000",
        )
    return f"vLLM {installed}, {'in the training processes' if recipe.vllm == COLOCATE else recipe.vllm}"


def sampler_arguments(recipe: Recipe, context: int) -> dict[str, Any]:
    """TRL's arguments. A vLLM server has its own limit on the context, from when it was started."""
    if recipe.vllm == OFF:
        return {"use_vllm": False}
    if recipe.vllm != COLOCATE:
        return {"use_vllm": True, "vllm_mode": "server", "vllm_server_base_url": recipe.vllm}
    return {
        "use_vllm": True, "vllm_mode": "colocate", "vllm_gpu_memory_utilization": recipe.vllm_memory,
        "vllm_max_model_length": context, "vllm_enable_sleep_mode": True,
    }  # fmt: skip
