"""What is used of llama-cpp-python, and what the installed build of it has: versions, functions, backends, devices.

llama-cpp-python follows llama.cpp's C interface, which changes without notice. So everything that is used is named
here. A test compares the names with our source, and `missing_names` compares them with what is installed before
anything is called.
"""

from __future__ import annotations

import ctypes
import re
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

OLDEST: Final = (0, 3, 36)
BEFORE: Final = (0, 4)
"""The versions of llama-cpp-python that are supported: from the first one on, and before the second."""

RANGE: Final = f"llama-cpp-python>={'.'.join(map(str, OLDEST))},<{'.'.join(map(str, BEFORE))}"
"""The same, as pip takes it."""

FUNCTIONS: Final = (
    "LLAMA_LOAD_MODE_MMAP", "LLAMA_LOAD_MODE_NONE", "ggml_abort_callback", "llama_adapter_lora_free",
    "llama_adapter_lora_init", "llama_adapter_lora_p_ctypes", "llama_backend_init",
    "llama_batch_get_one", "llama_context_default_params", "llama_decode", "llama_free",
    "llama_get_logits_ith", "llama_get_memory", "llama_init_from_model", "llama_log_callback", "llama_log_set",
    "llama_memory_clear", "llama_memory_seq_rm", "llama_model_chat_template", "llama_model_default_params",
    "llama_model_free", "llama_model_get_vocab", "llama_model_has_decoder", "llama_model_has_encoder",
    "llama_model_load_from_file", "llama_model_n_ctx_train", "llama_n_batch", "llama_n_ctx",
    "llama_print_system_info", "llama_progress_callback", "llama_sampler_accept", "llama_sampler_apply",
    "llama_sampler_free", "llama_sampler_init_grammar", "llama_set_abort_callback", "llama_set_adapters_lora",
    "llama_state_seq_get_data", "llama_state_seq_get_size", "llama_state_seq_set_data", "llama_supports_gpu_offload",
    "llama_token_data", "llama_token_data_array", "llama_token_to_piece", "llama_tokenize",
    "llama_vocab_bos", "llama_vocab_eos", "llama_vocab_get_add_bos", "llama_vocab_get_text", "llama_vocab_is_eog",
    "llama_vocab_n_tokens", "llama_vocab_type",
)  # fmt: skip
"""The names that are used of the module `llama_cpp`."""

FIELDS: Final[Mapping[str, tuple[str, ...]]] = {
    "llama_model_params": ("n_gpu_layers", "use_extra_bufts", "load_mode", "progress_callback"),
    "llama_context_params": ("n_ctx", "n_batch", "n_ubatch", "n_threads", "n_threads_batch"),
}
"""The fields that are set, by structure. ctypes silently accepts a field that does not exist."""

_DEVICE_KINDS: Final = ("cpu", "gpu", "gpu", "accelerator")
"""llama.cpp's types of devices by their number; the third shares the memory of the processor."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Device:
    """Something that llama.cpp can compute on. `kind` is cpu, gpu or accelerator."""

    name: str
    about: str
    kind: str


@dataclass(frozen=True, slots=True, kw_only=True)
class BuildInfo:
    """The installed llama.cpp. `features` are the features of the CPU that it uses.

    `backends` and `devices` are empty if llama.cpp does not tell. `gpu` is whether layers can be put on a GPU.
    """

    version: str
    features: frozenset[str]
    backends: tuple[str, ...]
    devices: tuple[Device, ...]
    gpu: bool

    @property
    def supported(self) -> bool:
        return is_supported(self.version)


def is_supported(version: str) -> bool:
    """Whether this version of llama-cpp-python is one that is tested."""
    found = tuple(int(number) for number in re.findall(r"\d+", version)[:3])
    return found >= OLDEST and found[: len(BEFORE)] < BEFORE


def missing_names(lib: Any) -> str:  # noqa: ANN401 - a module of C functions
    """The first name that is used and does not exist in `lib`, or an empty string."""
    absent = [name for name in FUNCTIONS if not hasattr(lib, name)]
    for structure, names in FIELDS.items():
        known = {field[0] for field in getattr(getattr(lib, structure, None), "_fields_", ())}
        absent += [f"{structure}.{name}" for name in names if name not in known]
    return absent[0] if absent else ""


def read_build_info(lib: Any) -> BuildInfo:  # noqa: ANN401 - the module, as `load_bindings` gives it
    """What the installed build has. With a GPU backend this wakes the GPU's driver."""
    features = parse_system_info(lib.llama_print_system_info().decode("utf-8", "replace"))
    backends, devices = _list_devices(Path(lib.__file__).parent / "lib")
    return BuildInfo(
        version=str(lib.__version__), features=features.get("CPU", frozenset()),
        backends=tuple(dict.fromkeys((*backends, *features))), devices=devices,
        gpu=bool(lib.llama_supports_gpu_offload()),
    )  # fmt: skip


def parse_system_info(text: str) -> dict[str, frozenset[str]]:
    """The features of each backend, from `CUDA : USE_GRAPHS = 1 | CPU : SSE3 = 1 | AVX = 0 |`."""
    found: dict[str, set[str]] = {}
    backend = "CPU"
    for item in text.split("|"):
        head, colon, rest = item.rpartition(" : ")
        if colon:
            backend = head.strip()
        name, _, value = rest.partition("=")
        if name.strip():
            found.setdefault(backend, set())
            if value.strip() not in {"", "0"}:
                found[backend].add(name.strip())
    return {name: frozenset(values) for name, values in found.items()}


def _list_devices(directory: Path) -> tuple[tuple[str, ...], tuple[Device, ...]]:
    """Ggml's own list of backends and devices; nothing if a function or a library is not where it is expected.

    llama_cpp does not expose these functions of ggml, so they are looked up in its libraries.
    """
    stems = ("ggml", "ggml-base")
    files = [directory / name for stem in stems for name in (f"lib{stem}.so", f"lib{stem}.dylib", f"{stem}.dll")]
    with suppress(OSError, AttributeError, ValueError, StopIteration):
        libraries = [ctypes.CDLL(str(file)) for file in files if file.exists()]

        def call(name: str, result: Any, *arguments: Any) -> Any:  # noqa: ANN401 - C types and values
            name = f"ggml_backend_{name}"
            function = next(getattr(library, name) for library in libraries if hasattr(library, name))
            function.restype = result
            return function(*arguments)

        def text(name: str, pointer: Any) -> str:  # noqa: ANN401 - a C pointer
            return bytes(call(name, ctypes.c_char_p, pointer) or b"").decode("utf-8", "replace")

        def pointers(what: str) -> list[Any]:
            count = call(f"{what}_count", ctypes.c_size_t)
            return [ctypes.c_void_p(call(f"{what}_get", ctypes.c_void_p, ctypes.c_size_t(n))) for n in range(count)]

        devices = []
        for pointer in pointers("dev"):
            kind = int(call("dev_type", ctypes.c_int, pointer))
            named = _DEVICE_KINDS[kind] if kind < len(_DEVICE_KINDS) else "accelerator"
            about = text("dev_description", pointer)
            devices.append(Device(name=text("dev_name", pointer), about=about, kind=named))
        return tuple(text("reg_name", pointer) for pointer in pointers("reg")), tuple(devices)
    return (), ()
