"""A GGUF file -> a model and a context in memory; and back. For one thread."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal

from conductor_cli.core.errors import ModelError
from conductor_cli.models.llama import gguf
from conductor_cli.models.llama.bindings import CancelToken, clear_log, last_error, load_bindings
from conductor_cli.models.llama.lora_check import check_adapter
from conductor_cli.models.llama.model_info import check_parts, part_files, read_model_info
from conductor_cli.models.machine import physical_cores

BATCH: Final = 512
"""Tokens of a prompt that are decoded at once; between two of these a model on a GPU can be stopped."""

SMALL: Final = 16 << 20
"""Models of fewer bytes write with one thread, unless told otherwise.

Measured on two cores, 13 MB, tokens a second: alone 211 with one thread and 244 with two, beside a busy program 182 and
112. Of a quarter of a megabyte: 3538 and 2792, 3487 and 986. Prompts are read about 1.8 times as fast by two.
"""

STEP: Final = 4096
"""Tokens that a context holds at first, and more each time that a prompt and its answer need more.

Their keys and values are written as soon as it is opened: 235 MB for a model of 7 billion parameters.
"""

_ALL: Final = 0x7FFFFFFF


@dataclass(frozen=True, slots=True, kw_only=True)
class LlamaOptions:
    """How a model is loaded.

    `context` is in tokens, bounded by what the model was trained for; memory is taken for as many as are needed.
    `threads` None means one for each physical core, but a small model writes with one. `gpu_layers` auto puts all
    layers on a GPU where llama.cpp was built for one and its memory suffices. `seed` is for requests that have none;
    None draws one. `repack` has llama.cpp rearrange the weights while it loads them, which takes seconds and memory;
    whether prompts are then read faster depends on the processor. `adapter` is a LoRA in a GGUF file, applied on top of
    the weights. `cache` is the directory for the states of prompt prefixes; None keeps none.
    """

    context: int = 4096
    threads: int | None = None
    gpu_layers: Literal["auto", "all"] | int = "auto"
    seed: int | None = None
    repack: bool = False
    mmap: bool = True
    adapter: Path | None = None
    cache: Path | None = None


class Stopped(Exception):
    """The reader of a reply has gone, or the model was closed."""


class Loaded:
    """A model and its context: the pointers that llama.cpp works with.

    `identity` names all that the keys and values of a text depend on beside the text. `most` is how many tokens a
    context may hold.
    """

    def __init__(self, path: Path, options: LlamaOptions, flag: CancelToken) -> None:
        """Raises `ModelError` of kind `file`, or `Stopped` when `flag` is set meanwhile."""
        part_files(path)  # the name alone tells that a part is not the first
        self._header = gguf.check_model_file(path)
        check_parts(path, self._header)
        self.lib = load_bindings()
        self._path, self._options, self._flag = path, options, flag
        self._size = read_model_info(path).size
        self._threads = options.threads or physical_cores()
        self._stretched = f"{self._header.architecture}.rope.scaling.original_context_length" in self._header.values
        self.identity = self._identity()
        self._adapter: Any = None
        self.most = options.context
        self.model, self.context = self._open(flag)
        try:
            self._adapt()
        except ModelError:
            self.close()
            raise

    def widen(self, tokens: int, move: Callable[[Any], None]) -> None:
        """Put a context for so many tokens in place of the one there is, once `move` has taken over what that has read.

        Raises `ModelError` of kind `length`; then all is as it was, and shorter prompts can be read.
        """
        try:
            context = self._adapted_context(-(-tokens // STEP) * STEP)
        except ModelError as error:
            raise ModelError("length", error.message, hint=error.hint) from error
        move(context)
        self.lib.llama_free(self.context)
        self.context = context

    def _adapted_context(self, tokens: int) -> Any:  # noqa: ANN401 - a C pointer
        context = self._new_context(self.model, tokens)
        try:
            self._lay(context)
        except ModelError:
            self.lib.llama_free(context)
            raise
        return context

    def close(self) -> None:
        self.lib.llama_free(self.context)
        if self._adapter is not None:
            self.lib.llama_adapter_lora_free(self._adapter)
        self.lib.llama_model_free(self.model)

    def _identity(self) -> str:
        models = [self._path, *([self._options.adapter] if self._options.adapter is not None else [])]
        named = [read_model_info(model).identity for model in models]
        named += [str(file.stat().st_mtime_ns) for model in models for file in part_files(model)]
        named += [f"context {self._options.context}"] if self._stretched else []
        return "\n".join([*named, f"llama-cpp-python {self.lib.__version__}", "keys and values of f16"])

    def _adapt(self) -> None:
        """Load the adapter and lay it over the weights."""
        path = self._options.adapter
        if path is None:
            return
        check_adapter(path, self._header, self._path)
        clear_log()
        self._adapter = self.lib.llama_adapter_lora_init(self.model, os.fsencode(path))
        if not self._adapter:
            self._adapter = None
            raise ModelError(
                "file", f"{path} cannot be laid over {self._path.name}: {last_error('llama.cpp gave no reason')}",
                hint="get the file again; an adapter fits the model that it was trained on, and no other",
            )  # fmt: skip
        self._lay(self.context)

    def _lay(self, context: Any) -> None:  # noqa: ANN401 - a C pointer
        """Lay the adapter, if there is one, over what a context reads the weights for."""
        if self._adapter is None:
            return
        adapters = (self.lib.llama_adapter_lora_p_ctypes * 1)(self._adapter)
        if self.lib.llama_set_adapters_lora(context, adapters, 1, (ctypes.c_float * 1)(1.0)) != 0:
            path = self._options.adapter
            raise ModelError("file", f"{path} cannot be used: {last_error('llama.cpp gave no reason')}")

    def _open(self, flag: CancelToken) -> tuple[Any, Any]:
        layers = self._options.gpu_layers
        if layers == "auto" and self.lib.llama_supports_gpu_offload():
            try:
                return self._open_with(_ALL, flag)
            except ModelError:
                return self._open_with(0, flag)
        named = {"auto": 0, "all": _ALL}
        return self._open_with(named[str(layers)] if str(layers) in named else int(layers), flag)

    def _open_with(self, layers: int, flag: CancelToken) -> tuple[Any, Any]:
        model = self._open_model(layers, flag)
        trained = int(self.lib.llama_model_n_ctx_train(model))
        if self.lib.llama_model_has_encoder(model) or not self.lib.llama_model_has_decoder(model) or trained < 1:
            self.lib.llama_model_free(model)
            raise ModelError("file", f"{self._path} is damaged, or no model that writes text", hint="name another file")
        self.most = max(1, min(self._options.context, trained))
        # On a GPU too little memory has to show now, while there is the processor to turn to. The keys of a stretched
        # model depend on how large its context is, so they could not be moved.
        at_once = self._stretched or (layers > 0 and self.lib.llama_supports_gpu_offload())
        try:
            return model, self._new_context(model, self.most if at_once else STEP)
        except ModelError:
            self.lib.llama_model_free(model)
            raise

    def _new_context(self, model: Any, tokens: int) -> Any:  # noqa: ANN401 - C pointers
        """A context for so many tokens, but for no more than it may hold."""
        clear_log()
        context = self.lib.llama_init_from_model(model, self._context_params(min(tokens, self.most)))
        if not context:
            raise ModelError(
                "file", f"{self._path} cannot be used: {last_error('llama.cpp gave no reason')}",
                hint="there may be too little memory: try a smaller context or a smaller model",
            )  # fmt: skip
        return context

    def _open_model(self, layers: int, flag: CancelToken) -> Any:  # noqa: ANN401 - a C pointer
        clear_log()
        go_on = self.lib.llama_progress_callback(lambda *_: not flag.is_set)
        model = self.lib.llama_model_load_from_file(os.fsencode(self._path), self._model_params(layers, go_on))
        if flag.is_set:
            if model:
                self.lib.llama_model_free(model)
            raise Stopped
        if not model:
            raise ModelError(
                "file", f"{self._path} cannot be loaded: {last_error('llama.cpp gave no reason')}",
                hint="get the file again, or one that this version of llama-cpp-python knows",
            )  # fmt: skip
        return model

    def _model_params(self, layers: int, go_on: object) -> Any:  # noqa: ANN401 - a C structure
        params = self.lib.llama_model_default_params()
        params.n_gpu_layers = layers
        params.use_extra_bufts = self._options.repack
        params.load_mode = self.lib.LLAMA_LOAD_MODE_MMAP if self._options.mmap else self.lib.LLAMA_LOAD_MODE_NONE
        params.progress_callback = go_on
        return params

    def _context_params(self, tokens: int) -> Any:  # noqa: ANN401 - a C structure
        params = self.lib.llama_context_default_params()
        params.n_ctx = tokens
        params.n_batch = params.n_ubatch = BATCH
        params.n_threads_batch = self._threads
        small = self._options.threads is None and self._size < SMALL
        params.n_threads = 1 if small else params.n_threads_batch
        return params
