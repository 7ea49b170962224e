"""A GGUF file -> a model and a context in memory; and back. For one thread."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal

from conductor_cli.core.errors import ModelError
from conductor_cli.models.llama.bindings import CancelToken, clear_log, last_error, load_bindings
from conductor_cli.models.llama.gguf import check_whole_model, part_files, read_model_info
from conductor_cli.system.hardware import idle_cores

BATCH_SIZE: Final = 512
"""Tokens of a prompt that are decoded at once: between two batches a model on a GPU can be stopped.
"""

CPU_COMPUTED_AT_ONCE: Final = 128
"""Tokens of such a batch that a CPU computes at once.

More are no faster there, and without flash attention the memory for them grows with the context.
llama.cpp's flash attention is not used on CPUs. Behind 1,000 tokens a Qwen2.5-Coder-0.5B with an
adapter took 63 ms for a token with it and 50 without, and for each of 32 tokens of a prompt 28 and
8; behind 3,600, without an adapter, 124 and 59, 90 and 16. A prompt of 3,600 tokens took 9.9 and
10.5 ms a token (two threads, AVX-512).
"""

SMALL_MODEL_BYTES: Final = 16 << 20
"""Models of fewer bytes write with one thread.

Two threads are little faster, and far slower beside a busy program.
"""

CONTEXT_STEP: Final = 4096
"""Tokens that a context holds at first, and by which it grows.

They take memory at once, 235 MB with a 7B model.
"""

_ALL_LAYERS: Final = 0x7FFFFFFF


@dataclass(frozen=True, slots=True, kw_only=True)
class LlamaOptions:
    """How a model is loaded.

    `context` is in tokens, bounded by what the model was trained for; memory is taken for as many
    as are needed. `threads` None means one for each idle physical core, but a small model writes
    with one. `gpu_layers` auto puts all layers on a GPU if llama.cpp was built for one and its
    memory suffices. `seed` is for requests that have none; None draws one. `repack` has llama.cpp
    rearrange the weights while it loads them, which takes seconds and memory; where ggml has tiled
    kernels, as on CPUs with AVX-512, prompts are then read 0.56 to 0.83 times as fast, elsewhere
    perhaps faster. `adapter` is a LoRA in a GGUF file, applied on top of the weights. `cache` is
    the directory for the states of prompt prefixes; None stores none. `refuse_below`: a reply to
    which the model gives less probability than this, as a whole, becomes `?`; such replies are not
    streamed. None writes every reply.
    """

    context: int = 4096
    threads: int | None = None
    gpu_layers: Literal["auto", "all"] | int = "auto"
    seed: int | None = None
    repack: bool = False
    mmap: bool = True
    adapter: Path | None = None
    cache: Path | None = None
    refuse_below: float | None = None


class Cancelled(Exception):
    """The reader of a reply has gone, or the model was closed."""


class LoadedModel:
    """A model and its context: the pointers that llama.cpp works with.

    `identity` names everything that the keys and values of a text depend on besides the text.
    `most` is how many tokens a context may hold.
    """

    def __init__(self, path: Path, options: LlamaOptions, cancel: CancelToken) -> None:
        """Raises `ModelError` of kind `file`, or `Cancelled` when `cancel` is set meanwhile."""
        self._header = check_whole_model(path)
        self.lib = load_bindings()
        self._path = path
        self._options = options
        self._size = read_model_info(path).size
        self._threads = options.threads or idle_cores()
        # The keys of a stretched model (YaRN) depend on how large its context is.
        self._stretched = (
            f"{self._header.architecture}.rope.scaling.original_context_length"
            in self._header.values
        )
        self._adapter: Any = None
        self._is_on_gpu = False
        self.most = options.context
        # llama.cpp loads without holding Python up, so what Python has to check is done meanwhile
        with ThreadPoolExecutor(1, thread_name_prefix="adapter") as beside:
            checking = beside.submit(self._check_adapter)
            self.model, self.context = self._open(cancel)
        self.identity = self._read_identity()
        try:
            checking.result()
            if options.adapter is not None:
                self._load_adapter(options.adapter)
        except ModelError:
            self.close()
            raise

    def _read_identity(self) -> str:
        models = [self._path]
        if self._options.adapter is not None:
            models.append(self._options.adapter)
        names = [read_model_info(model).identity for model in models]
        for model in models:
            names += [str(file.stat().st_mtime_ns) for file in part_files(model)]
        if self._stretched:
            names.append(f"context {self._options.context}")
        names += [f"llama-cpp-python {self.lib.__version__}", "keys and values of f16"]
        if not self._is_on_gpu:
            names.append("without flash attention")  # Values are stored in another order
        return "\n".join(names)

    def grow_context(self, tokens: int, move: Callable[[Any], None]) -> None:
        """Replace the context by one for so many tokens.

        `move` takes over what the old one has read before that is freed.

        Raises `ModelError` of kind `length`; then nothing has changed, and shorter prompts can
        still be read.
        """
        try:
            context = self._new_context(self.model, -(-tokens // CONTEXT_STEP) * CONTEXT_STEP)
            try:
                self._apply_adapter(context)
            except ModelError:
                self.lib.llama_free(context)
                raise
        except ModelError as error:
            raise ModelError("length", error.message, hint=error.hint) from error
        move(context)
        self.lib.llama_free(self.context)
        self.context = context

    def close(self) -> None:
        """Free everything.

        The context uses the adapter, and the adapter the model: the order matters.
        """
        self.lib.llama_free(self.context)
        if self._adapter is not None:
            self.lib.llama_adapter_lora_free(self._adapter)
        self.lib.llama_model_free(self.model)

    def _check_adapter(self) -> None:
        """Raise `ModelError` of kind `file` where there is an adapter that does not fit."""
        if self._options.adapter is None:
            return
        # Slow to import, and few models have an adapter
        from conductor_cli.models.llama.lora import check_adapter

        check_adapter(self._options.adapter, self._header, self._path)

    def _load_adapter(self, path: Path) -> None:
        clear_log()
        self._adapter = self.lib.llama_adapter_lora_init(self.model, os.fsencode(path)) or None
        if self._adapter is None:
            hint = "get the file again; an adapter fits only the model that it was trained on"
            raise ModelError(
                "file", f"{path} cannot be applied to {self._path.name}: {last_error()}", hint=hint
            )
        self._apply_adapter(self.context)

    def _apply_adapter(self, context: Any) -> None:  # noqa: ANN401 - a C pointer
        """Give a context its adapter, which belongs to a context and not to the model."""
        if self._adapter is None:
            return
        adapters = (self.lib.llama_adapter_lora_p_ctypes * 1)(self._adapter)
        if self.lib.llama_set_adapters_lora(context, adapters, 1, (ctypes.c_float * 1)(1.0)) != 0:
            raise ModelError("file", f"{self._options.adapter} cannot be used: {last_error()}")

    def _open(self, cancel: CancelToken) -> tuple[Any, Any]:
        layers = self._options.gpu_layers
        if layers == "auto" and self.lib.llama_supports_gpu_offload():
            with suppress(ModelError):  # too little memory on the GPU, most likely
                return self._open_with(_ALL_LAYERS, cancel)
        match layers:
            case "auto":
                return self._open_with(0, cancel)
            case "all":
                return self._open_with(_ALL_LAYERS, cancel)
        return self._open_with(layers, cancel)

    def _open_with(self, layers: int, cancel: CancelToken) -> tuple[Any, Any]:
        model = self._load_model(layers, cancel)
        try:
            trained = int(self.lib.llama_model_n_ctx_train(model))
            has_encoder = self.lib.llama_model_has_encoder(model)
            has_decoder = self.lib.llama_model_has_decoder(model)
            if has_encoder or not has_decoder or trained < 1:
                problem = f"{self._path} is damaged, or not a model that writes text"
                raise ModelError("file", problem, hint="name another file")
            self.most = max(1, min(self._options.context, trained))
            # On a GPU, too little memory has to show now, while the model can still be loaded for
            # the CPU instead. The keys of a stretched model cannot be moved into a larger context.
            self._is_on_gpu = layers > 0 and self.lib.llama_supports_gpu_offload()
            tokens = CONTEXT_STEP
            if self._is_on_gpu or self._stretched:
                tokens = self.most
            return model, self._new_context(model, tokens)
        except ModelError:
            self.lib.llama_model_free(model)
            raise

    def _load_model(self, layers: int, cancel: CancelToken) -> Any:  # noqa: ANN401 - a C pointer
        params = self.lib.llama_model_default_params()
        params.n_gpu_layers = layers
        params.use_extra_bufts = self._options.repack
        params.load_mode = self.lib.LLAMA_LOAD_MODE_NONE
        if self._options.mmap:
            params.load_mode = self.lib.LLAMA_LOAD_MODE_MMAP
        # Kept in a local variable until loading has ended: ctypes frees a callback that nobody
        # refers to.
        progress_callback = self.lib.llama_progress_callback(lambda *_: not cancel.is_set)
        params.progress_callback = progress_callback
        clear_log()
        model = self.lib.llama_model_load_from_file(os.fsencode(self._path), params)
        if cancel.is_set:
            if model:
                self.lib.llama_model_free(model)
            raise Cancelled
        if not model:
            hint = "get the file again, or one that this version of llama-cpp-python supports"
            raise ModelError("file", f"{self._path} cannot be loaded: {last_error()}", hint=hint)
        return model

    def _new_context(self, model: Any, tokens: int) -> Any:  # noqa: ANN401 - C pointers
        """Return a context for so many tokens, but for no more than it may hold."""
        params = self.lib.llama_context_default_params()
        params.n_ctx = min(tokens, self.most)
        params.n_batch = BATCH_SIZE
        params.n_ubatch = BATCH_SIZE
        if not self._is_on_gpu:
            params.flash_attn_type = self.lib.LLAMA_FLASH_ATTN_TYPE_DISABLED
            params.n_ubatch = CPU_COMPUTED_AT_ONCE
        params.n_threads_batch = self._threads
        params.n_threads = self._threads
        if self._options.threads is None and self._size < SMALL_MODEL_BYTES:
            params.n_threads = 1
        clear_log()
        context = self.lib.llama_init_from_model(model, params)
        if not context:
            hint = "there may be too little memory: try a smaller context or a smaller model"
            raise ModelError("file", f"{self._path} cannot be used: {last_error()}", hint=hint)
        return context
