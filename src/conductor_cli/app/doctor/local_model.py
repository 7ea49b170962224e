"""Checks of the local model: the llama.cpp build, GPUs, memory, the model store, and the model that plans."""

from __future__ import annotations

import platform
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Final

import conductor_cli
from conductor_cli.app.checks import Check
from conductor_cli.app.doctor.install_hint import PythonEnvironment, build_command, gpu_command
from conductor_cli.app.models import describe_hash_source
from conductor_cli.app.planner_resolution import (
    describe_planner,
    missing_key_notice,
    open_model_store,
    planner_manifest,
    resolve_planner,
)
from conductor_cli.config import Settings
from conductor_cli.core.errors import ConductorError, ModelError
from conductor_cli.core.formatting import format_size
from conductor_cli.models.llama import read_model_info
from conductor_cli.models.llama.bindings import load_bindings
from conductor_cli.models.llama.build_info import RANGE, BuildInfo, read_build_info
from conductor_cli.models.llama.gguf import check_model_file
from conductor_cli.models.machine import Gpu, cpu_features, find_gpus, processor_name, read_memory
from conductor_cli.models.weights.memory_estimate import file_memory
from conductor_cli.models.weights.problems import find_problems
from conductor_cli.models.weights.registry import load_registry, registry_date

SHOWN: Final = (
    "AVX", "AVX2", "FMA", "AVX_VNNI", "AVX512", "AVX512_VNNI", "AVX512_BF16", "AMX_INT8", "NEON", "DOTPROD",
    "MATMUL_INT8", "SVE", "OPENMP",
)  # fmt: skip
"""The features of a build that matter for its speed on a CPU."""

WANTED: Final = frozenset({"AVX2", "FMA", "F16C", "AVX512", "AVX512_VNNI", "DOTPROD", "MATMUL_INT8"})
"""The features that a build should use where the CPU has them."""

BACKENDS: Final = {"cuda": ("CUDA",), "rocm": ("ROCm", "HIP"), "metal": ("MTL", "Metal")}
"""llama.cpp's names for them."""


def llama_build(settings: Settings) -> list[Check]:
    """The installed llama.cpp: its version, and which features of the CPU it uses."""
    del settings
    try:
        build = _build_info()
    except ModelError as error:
        return [Check(name="llama.cpp", state="failed", found=error.message, hint=error.hint, code=5)]
    parts = [f"CPU with {' '.join(item for item in SHOWN if item in build.features)}".removesuffix(" with ")]
    parts += [backend for backend in build.backends if backend != "CPU"]
    found = f"llama-cpp-python {build.version}, {', '.join(parts)}"
    if not build.supported:
        hint = f"conductor was tested with {RANGE}; if something fails, install one of those versions"
        return [Check(name="llama.cpp", state="warning", found=found, hint=hint)]
    unused = sorted(cpu_features() & WANTED - build.features) if build.features else []
    if unused:
        found = f"{found}; built without {' '.join(unused)}, which this CPU has"
        hint = build_command(build.version, this_python())
        return [Check(name="llama.cpp", state="warning", found=found, hint=hint)]
    return [Check(name="llama.cpp", state="ok", found=found)]


def gpu(settings: Settings) -> list[Check]:
    """The GPUs of this machine, and whether llama.cpp can use them."""
    try:
        build = _build_info()
    except ModelError:
        return []  # `llama_build` reports it
    return [check_gpu(build, find_gpus(settings.environ), this_python())]


def check_gpu(build: BuildInfo, gpus: tuple[Gpu, ...], python: PythonEnvironment) -> Check:
    """The verdict on one build and the GPUs of one machine."""
    used = [device.about or device.name for device in build.devices if device.kind == "gpu"]
    if used or (build.gpu and not build.devices):
        return Check(name="GPU", state="ok", found=f"{', '.join(used) or 'one'}, used by llama.cpp")
    if not gpus:
        return Check(name="GPU", state="ok", found="none found; models run on the CPU")
    named = [f"{gpu.name} (CUDA {gpu.cuda[0]}.{gpu.cuda[1]})" if gpu.cuda != (0, 0) else gpu.name for gpu in gpus]
    first = gpus[0]
    if any(backend in BACKENDS[first.kind] for backend in build.backends):
        hint = "llama.cpp was built for it, so check the driver" + (": nvidia-smi" if first.kind == "cuda" else "")
        return Check(name="GPU", state="warning", found=f"{', '.join(named)}, which llama.cpp does not see", hint=hint)
    command, needs = gpu_command(first, build.version, python)
    return Check(
        name="GPU", state="warning",
        found=f"{', '.join(named)}, which this build of llama.cpp cannot use",
        hint="\n".join(filter(None, (command, needs))),
    )  # fmt: skip


def memory(settings: Settings) -> list[Check]:
    """The RAM of this machine, and what the conductor model needs of it."""
    ram = read_memory()
    if not ram.total:
        return []
    found = f"{format_size(ram.total)}, {format_size(ram.available)} free; {processor_name()}"
    need = _memory_needed(settings)
    if need:
        found = f"{found}; the conductor model needs {format_size(need)}"
    # On a GPU the weights are not in this memory, or only some of them.
    if need <= ram.available or _uses_gpu():
        return [Check(name="memory", state="ok", found=found)]
    hint = "close other programs" if need <= ram.total else "it will be very slow, or fail"
    try:
        models = [model for model in load_registry(settings.environ) if 0 < model.memory <= ram.available]
    except ConductorError:
        models = []
    best = max((model for model in models if not model.base), key=lambda model: model.memory, default=None)
    if best is not None:
        hint += f"\nconductor model pull {best.name}   needs {format_size(best.memory)}"
    return [Check(name="memory", state="warning", found=found, hint=hint)]


def memory_shortage(settings: Settings) -> str:
    """That the local conductor needs more memory than this machine has, in words; else empty."""
    need, total = _memory_needed(settings), read_memory().total
    if not 0 < total < need or _uses_gpu():
        return ""
    return f"the model needs {format_size(need)}, and this machine has {format_size(total)}"


def model_store(settings: Settings) -> list[Check]:
    """Whether the registry of models can be read, and which models of the store are damaged."""
    try:
        found = f"{len(load_registry(settings.environ))} models, as of {registry_date(settings.environ)}"
        checks = [Check(name="registry", state="ok", found=found)]
    except ConductorError as error:
        checks = [Check.failed("registry", error)]
    try:
        problems = find_problems(open_model_store(settings), settings.environ)
    except ConductorError as error:
        return [*checks, Check.failed("model store", error)]
    return checks + [
        Check(name=f"model {item.name}", state="warning", found=item.problem, hint=item.hint) for item in problems
    ]


def conductor_model(settings: Settings) -> list[Check]:
    """The model that plans: whether it exists, is whole, and how its checksum is known. It is not called."""
    name = "conductor model"
    try:
        planner = resolve_planner(settings)
        found = describe_planner(planner, open_model_store(settings))
        if planner.kind == "llama":
            path = Path(planner.model)
            check_model_file(path)
            manifest = planner_manifest(settings)
            known = describe_hash_source(manifest) if manifest else "never checked"
            found = f"{found}, {format_size(read_model_info(path).size)}, SHA-256 {known}"
            return [Check(name=name, state="ok", found=found)]
        missing = missing_key_notice(planner, settings)
    except ConductorError as error:
        other = "or choose another: conductor model use NAME | FILE | URL | provider/model"
        hint = error.hint if "conductor" in error.hint else f"{error.hint}\n{other}".strip()
        return [Check(name=name, state="failed", found=error.message, hint=hint, code=error.exit_code)]
    if missing:
        hint = f"conductor keys set {planner.kind}, or set its variable"
        return [Check(name=name, state="failed", found=f"{found}: {missing}", hint=hint, code=4)]
    return [Check(name=name, state="ok", found=found)]


def this_python() -> PythonEnvironment:
    """The Python that runs this program."""
    return PythonEnvironment(
        python=sys.executable, system=sys.platform, machine=platform.machine(), pip=find_spec("pip") is not None,
        checkout=(Path(conductor_cli.__file__).parents[2] / "scripts" / "setup.py").is_file(),
    )  # fmt: skip


def _build_info() -> BuildInfo:
    return read_build_info(load_bindings())


def _uses_gpu() -> bool:
    try:
        return _build_info().gpu
    except ModelError:
        return False


def _memory_needed(settings: Settings) -> int:
    """Bytes of RAM that the chosen local model takes; 0 if there is none, or if that is not known."""
    try:
        planner = resolve_planner(settings)
        if planner.kind != "llama":
            return 0
        path = Path(planner.model)
        return file_memory(path, read_model_info(path).size, settings["conductor.context"])
    except ConductorError:
        return 0
