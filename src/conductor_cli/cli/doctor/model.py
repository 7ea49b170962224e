"""What `doctor` looks at around the local model: the llama.cpp build, GPUs, memory, and the model itself."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Final

from conductor_cli.app.checks import Check
from conductor_cli.core.errors import ConductorError, ModelError
from conductor_cli.core.formatting import format_size

if TYPE_CHECKING:
    from conductor_cli.cli.installing import Place
    from conductor_cli.config import Settings
    from conductor_cli.core.pool import Worker
    from conductor_cli.models.llama.build_info import BuildInfo
    from conductor_cli.models.machine import Gpu

SHOWN: Final = (
    "AVX", "AVX2", "FMA", "AVX_VNNI", "AVX512", "AVX512_VNNI", "AVX512_BF16", "AMX_INT8", "NEON", "DOTPROD",
    "MATMUL_INT8", "SVE", "OPENMP",
)  # fmt: skip
"""What matters for speed on a processor."""

WANTED: Final = frozenset({"AVX2", "FMA", "F16C", "AVX512", "AVX512_VNNI", "DOTPROD", "MATMUL_INT8"})
"""What a build should use where the processor has it."""

BACKENDS: Final = {"cuda": ("CUDA",), "rocm": ("ROCm", "HIP"), "metal": ("MTL", "Metal"), "vulkan": ("Vulkan",)}
"""How llama.cpp calls them."""


def llama(settings: Settings) -> list[Check]:
    """The installed llama.cpp: its version, and what of the processor it uses."""
    from conductor_cli.cli.installing import build
    from conductor_cli.models.llama.build_info import RANGE
    from conductor_cli.models.machine import cpu_features

    del settings
    name = "llama.cpp"
    try:
        found = _build()
    except ModelError as error:
        return [Check(name=name, state="failed", found=error.message, hint=error.hint, code=5)]
    parts = [f"CPU with {' '.join(item for item in SHOWN if item in found.features)}".removesuffix(" with ")]
    parts += [backend for backend in found.backends if backend != "CPU"]
    text = f"llama-cpp-python {found.version}, {', '.join(parts)}"
    if not found.supported:
        hint = f"it was tested with {RANGE}; when something fails, install one of these"
        return [Check(name=name, state="warning", found=text, hint=hint)]
    lacking = sorted(cpu_features() & WANTED - found.features) if found.features else []
    if lacking:
        text = f"{text}; built without {' '.join(lacking)}, which the processor has"
        return [Check(name=name, state="warning", found=text, hint=build(found.version, here()))]
    return [Check(name=name, state="ok", found=text)]


def gpu(settings: Settings) -> list[Check]:
    """What the machine has beside what llama.cpp can use of it."""
    from conductor_cli.models.machine import find_gpus

    try:
        found = _build()
    except ModelError:
        return []  # it was said
    return [gpu_check(found, find_gpus(settings.environ), here())]


def gpu_check(build: BuildInfo, gpus: tuple[Gpu, ...], place: Place) -> Check:
    """The verdict on one build and the GPUs of one machine."""
    from conductor_cli.cli.installing import for_gpu

    used = [device.about or device.name for device in build.devices if device.kind == "gpu"]
    if used or (build.gpu and not build.devices):
        return Check(name="GPU", state="ok", found=f"{', '.join(used) or 'one'}, used by llama.cpp")
    if not gpus:
        return Check(name="GPU", state="ok", found="none found, models run on the processor")
    names = ", ".join(_named(item) for item in gpus)
    if any(backend in BACKENDS[gpus[0].kind] for backend in build.backends):
        hint = "llama.cpp was built for it, so check the driver" + (": nvidia-smi" if gpus[0].kind == "cuda" else "")
        return Check(name="GPU", state="warning", found=f"{names}, which llama.cpp does not see", hint=hint)
    command, memory_needed = for_gpu(gpus[0], build.version, place)
    state = "ok" if gpus[0].kind == "vulkan" else "warning"  # whether one of these is faster is not known
    found = f"{names}, which this build of llama.cpp cannot use"
    return Check(name="GPU", state=state, found=found, hint="\n".join(filter(None, (command, memory_needed))))


def memory(settings: Settings) -> list[Check]:
    """The RAM beside what the chosen model needs."""
    from conductor_cli.models.machine import processor_name, read_memory

    had = read_memory()
    if not had.total:
        return []
    found = f"{format_size(had.total)}, {format_size(had.available)} free; {processor_name()}"
    need = _need(settings)
    if need == 0:
        return [Check(name="memory", state="ok", found=found)]
    found = f"{found}; the conductor model needs {format_size(need)}"
    # On a GPU the weights are not in this memory, or only in part.
    if need <= had.available or _uses_gpu():
        return [Check(name="memory", state="ok", found=found)]
    hint = "close other programs" if need <= had.total else "it will be very slow, or fail"
    return [
        Check(name="memory", state="warning", found=found, hint="\n".join((hint, *_fitting(had.available, settings))))
    ]


def too_large(settings: Settings) -> str:
    """What to say of a local conductor that this machine has no memory for at all; empty for any other."""
    from conductor_cli.models.machine import read_memory

    need, total = _need(settings), read_memory().total
    if not 0 < total < need or _uses_gpu():
        return ""
    return f"the model needs {format_size(need)}, and this machine has {format_size(total)}"


def known(settings: Settings) -> list[Check]:
    """What is known of models: whether the registry can be read, and which entries of the model store cannot."""
    from conductor_cli.app.planner_resolution import open_model_store
    from conductor_cli.models.weights.problems import find_problems
    from conductor_cli.models.weights.registry import as_of, load_registry

    name = "registry"
    try:
        found = f"{len(load_registry(settings.environ))} models, as of {as_of(settings.environ)}"
        checks = [Check(name=name, state="ok", found=found)]
    except ConductorError as error:
        checks = [Check(name=name, state="failed", found=error.message, hint=error.hint, code=error.exit_code)]
    try:
        ailing = find_problems(open_model_store(settings), settings.environ)
    except ConductorError as error:
        return [
            *checks,
            Check(name="store", state="failed", found=error.message, hint=error.hint, code=error.exit_code),
        ]
    return [
        *checks,
        *(Check(name=f"model {item.name}", state="warning", found=item.problem, hint=item.hint) for item in ailing),
    ]


def conductor_model(settings: Settings) -> list[Check]:
    """The model that plans: whether it is there, whole, and who vouches for it. Nobody is asked."""
    from conductor_cli.app.planner_resolution import (
        describe_planner,
        missing_key_notice,
        open_model_store,
        resolve_planner,
    )

    name = "conductor model"
    try:
        planner = resolve_planner(settings)
        found = describe_planner(planner, open_model_store(settings))
        if planner.kind == "llama":
            return [Check(name=name, state="ok", found=f"{found}, {_state(planner, settings)}")]
        missing = missing_key_notice(planner, settings)
    except ConductorError as error:
        other = "or choose another: conductor model use NAME | FILE | URL | provider/model"
        hint = error.hint if "conductor" in error.hint else f"{error.hint}\n{other}".strip()
        return [Check(name=name, state="failed", found=error.message, hint=hint, code=error.exit_code)]
    if missing:
        hint = f"conductor keys set {planner.kind}, or set its variable"
        return [Check(name=name, state="failed", found=f"{found}: {missing}", hint=hint, code=4)]
    return [Check(name=name, state="ok", found=found)]


def here() -> Place:
    """The Python that this runs in."""
    import platform
    import sys
    from importlib.util import find_spec

    from conductor_cli.cli.installing import Place

    return Place(
        python=sys.executable, system=sys.platform, machine=platform.machine(), pip=find_spec("pip") is not None,
        checkout=(Path(__file__).parents[3] / "scripts" / "setup.py").is_file(),
    )  # fmt: skip


def _build() -> BuildInfo:
    from conductor_cli.models.llama.bindings import load_bindings
    from conductor_cli.models.llama.build_info import read_build_info

    return read_build_info(load_bindings())


def _uses_gpu() -> bool:
    try:
        return _build().gpu
    except ModelError:
        return False


def _named(gpu: Gpu) -> str:
    return f"{gpu.name} (CUDA {gpu.cuda[0]}.{gpu.cuda[1]})" if gpu.cuda != (0, 0) else gpu.name


def _state(planner: Worker, settings: Settings) -> str:
    """What is known of a local model's file, which is looked at but not read to its end. Raises `ConductorError`."""
    from conductor_cli.app.planner_resolution import planner_manifest
    from conductor_cli.cli.model.pulling import TRUST
    from conductor_cli.models.llama import read_model_info
    from conductor_cli.models.llama.gguf import check_model_file

    path = Path(planner.model)
    check_model_file(path)
    manifest = planner_manifest(settings)
    known = TRUST[manifest.trust].format(endpoint=manifest.endpoint) if manifest else "never checked"
    return f"{format_size(read_model_info(path).size)}, SHA-256 {known}"


def _need(settings: Settings) -> int:
    """Bytes of RAM that the chosen local model takes; 0 where there is none or it cannot be told."""
    from conductor_cli.app.planner_resolution import resolve_planner
    from conductor_cli.models.llama import read_model_info
    from conductor_cli.models.llama.gguf import read_header
    from conductor_cli.models.weights.registry import memory_needed

    try:
        planner = resolve_planner(settings)
        if planner.kind != "llama":
            return 0
        path = Path(planner.model)
        about, values = read_model_info(path), read_header(path).values
    except ConductorError:
        return 0
    head = f"{about.architecture}."
    numbers = {key.removeprefix(head): value for key, value in values.items() if isinstance(value, int)}
    heads = numbers.get("attention.head_count", 1)
    width = numbers.get("attention.key_length", numbers.get("embedding_length", 0) // max(1, heads))
    per_token = 4 * numbers.get("block_count", 0) * numbers.get("attention.head_count_kv", heads) * width
    return memory_needed(about.size, per_token, min(settings["conductor.context"], about.context))


def _fitting(available: int, settings: Settings) -> list[str]:
    from conductor_cli.models.weights.registry import load_registry

    try:
        fits = [entry for entry in load_registry(settings.environ) if 0 < entry.memory <= available and not entry.base]
    except ConductorError:
        return []
    best = max(fits, key=lambda entry: entry.memory, default=None)
    return [f"conductor model pull {best.name}   needs {format_size(best.memory)}"] if best else []
