"""A text -> the hidden state of a local model: what it makes of the text, as numbers."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

from conductor_cli.core.errors import ModelError
from conductor_cli.models.llama.bindings import CancelToken, last_error
from conductor_cli.models.llama.loading import BATCH_SIZE, LlamaOptions, LoadedModel
from conductor_cli.models.llama.prompt import PromptPiece
from conductor_cli.models.llama.vocabulary import Vocabulary

MAX_TOKENS: Final = BATCH_SIZE  # Of a text that are read: the beginning says what is asked


class Encoder:
    """A loaded model that only reads. For one thread at a time. Close it."""

    def __init__(self, path: Path) -> None:
        """Load it. Raises `ModelError` of kind `file`."""
        self._loaded = LoadedModel(path, LlamaOptions(context=MAX_TOKENS), CancelToken())
        self._lib = lib = self._loaded.lib
        self._vocabulary = Vocabulary(lib, self._loaded.model)
        self._batch = lib.llama_batch_init(MAX_TOKENS, 0, 1)
        lib.llama_set_embeddings(self._loaded.context, True)  # noqa: FBT003 - a C function
        self.size = int(lib.llama_model_n_embd(self._loaded.model))

    def encode(self, text: str) -> Any:  # noqa: ANN401 - numpy is slow to import
        """Return the mean of the last hidden states over the text's tokens: an array of `size` floats.

        Raises `ModelError`.
        """
        import numpy as np

        lib, context, batch = self._lib, self._loaded.context, self._batch
        pieces = (PromptPiece(text[: MAX_TOKENS * 8], control=False),)
        tokens = self._vocabulary.tokenize_prompt(pieces, lambda: None).tokens[: self._loaded.most]
        if not tokens:
            return np.zeros(self.size)
        batch.n_tokens = len(tokens)
        for at, token in enumerate(tokens):
            batch.token[at], batch.pos[at], batch.logits[at] = token, at, 1
            batch.n_seq_id[at], batch.seq_id[at][0] = 1, 0
        lib.llama_memory_clear(lib.llama_get_memory(context), True)  # noqa: FBT003 - a C function
        if lib.llama_decode(context, batch) != 0:
            raise ModelError("internal", f"the text cannot be read: {last_error('llama.cpp gave no reason')}")
        states = [
            np.ctypeslib.as_array(lib.llama_get_embeddings_ith(context, at), (self.size,)) for at in range(len(tokens))
        ]
        return np.mean(states, axis=0, dtype=np.float64)

    def close(self) -> None:
        self._lib.llama_batch_free(self._batch)
        self._loaded.close()
