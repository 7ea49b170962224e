"""The loop that no program around llama.cpp can be faster than: `llama_decode` and the largest logit, by ctypes."""

from __future__ import annotations

import ctypes
import time
from typing import Any


class Raw:
    """A second context on the model of a first one, with its settings and the first `depth` tokens that it has read."""

    def __init__(self, context: Any, depth: int) -> None:  # noqa: ANN401 - a C pointer
        import llama_cpp as lib

        self._lib, self._depth = lib, depth
        model = lib.llama_get_model(context)
        params = lib.llama_context_default_params()
        params.n_ctx, params.n_batch, params.n_ubatch = (
            lib.llama_n_ctx(context), lib.llama_n_batch(context), lib.llama_n_ubatch(context),
        )  # fmt: skip
        params.n_threads = params.n_threads_batch = lib.llama_n_threads(context)
        self._context = lib.llama_init_from_model(model, params)
        self._tokens = lib.llama_vocab_n_tokens(lib.llama_model_get_vocab(model))
        size = lib.llama_state_seq_get_size(context, 0)
        state = (ctypes.c_uint8 * size)()
        lib.llama_state_seq_get_data(context, state, size, 0)
        if lib.llama_state_seq_set_data(self._context, state, size, 0) != size:
            raise SystemExit("the state of one context does not go into another")

    def run(self, count: int) -> float:
        """Write `count` tokens behind the prompt; seconds for each."""
        import numpy as np

        lib, token = self._lib, (ctypes.c_int32 * 1)(0)
        lib.llama_memory_seq_rm(lib.llama_get_memory(self._context), 0, self._depth, -1)
        batch = lib.llama_batch_get_one(token, 1)
        began = time.perf_counter()
        for _ in range(count):
            if lib.llama_decode(self._context, batch) != 0:
                raise SystemExit("llama.cpp could not go on")
            logits = np.ctypeslib.as_array(lib.llama_get_logits_ith(self._context, -1), (self._tokens,))
            token[0] = int(np.argmax(logits))
        return (time.perf_counter() - began) / count
