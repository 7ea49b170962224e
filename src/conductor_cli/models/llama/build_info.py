"""What is used of llama-cpp-python, and what the installed build of it has.

llama-cpp-python follows llama.cpp's C interface, which changes without notice. So everything that is used is named
here. A test compares the names with our source, and `missing_names` compares them with what is installed before
anything is called.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
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
    "llama_progress_callback", "llama_sampler_accept", "llama_sampler_apply",
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


def can_use_gpu(lib: Any) -> bool:  # noqa: ANN401 - the module, as `load_bindings` gives it
    """Whether layers of a model can be put on a GPU: llama.cpp was built for one, and there is one."""
    return bool(lib.llama_supports_gpu_offload())
