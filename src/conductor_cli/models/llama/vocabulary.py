"""Text to tokens and back, for one loaded model.

Prompts become tokens, the bytes of tokens become chunks.
"""

from __future__ import annotations

import codecs
import ctypes
import re
from collections.abc import Callable, Mapping, Sequence
from functools import cache, cached_property
from typing import Any, Final, NamedTuple

from conductor_cli.core.chat import Chunk, ThinkingSplitter, held_back
from conductor_cli.models.llama.channels import ChannelSplitter
from conductor_cli.models.llama.prompt import PromptPiece, split_for_tokenizer

# llama.cpp's number for a SentencePiece vocabulary, whose tokenizer puts a space before each text
_SPM = 1

_FIRST_BYTES: Final = frozenset((*range(0x80), *range(0xC2, 0xF5)))  # Of characters in UTF-8
_BYTE_TOKENS: Final = 1024  # How many tokens are looked at for those of single bytes

_USER_DEFINED: Final = 1 << 4  # llama.cpp's attribute of a token that is read in any text
_MARK: Final = re.compile(r"<\S+>|\[\S+\]")
"""What a mark looks like. White space may be a token of this kind, too."""


def _is_letter(byte: int) -> bool:
    return chr(byte).isascii() and chr(byte).isalpha()


class TokenizedPrompt(NamedTuple):
    """The tokens of a prompt. `cuts` are the counts of tokens after which a fixed prefix ends."""

    tokens: list[int]
    cuts: tuple[int, ...] = ()
    opens_thinking: bool = False


class Vocabulary:
    """The vocabulary of a model. `pointer` is llama.cpp's own.

    What is asked for each token of a reply is remembered: a call into C costs more than a look into
    a dictionary.
    """

    def __init__(self, lib: Any, model: Any) -> None:  # noqa: ANN401 - the module and a C pointer
        self.lib = lib
        self.pointer = lib.llama_model_get_vocab(model)
        self.size = int(lib.llama_vocab_n_tokens(self.pointer))
        self._spaced = lib.llama_vocab_type(self.pointer) == _SPM
        self._marks: re.Pattern[str] | None = None
        self.is_end = cache(self._is_end)
        self.token_bytes = cache(self._token_bytes)

    def _is_end(self, token: int) -> bool:
        return bool(self.lib.llama_vocab_is_eog(self.pointer, token))

    def _token_bytes(self, token: int) -> bytes:
        """Return the bytes that `token` stands for; none for a control token."""
        write_piece = self.lib.llama_token_to_piece
        room = 0
        length = -64
        while length < 0:
            room = -length  # how much it takes
            buffer = ctypes.create_string_buffer(room)
            length = int(write_piece(self.pointer, token, buffer, room, 0, False))  # noqa: FBT003
        return buffer.raw[:length]

    def token_name(self, token: int) -> str:
        """Return the text of a special token, empty where the vocabulary does not have it."""
        if token < 0:
            return ""
        text = self.lib.llama_vocab_get_text(self.pointer, token)
        if text is None:
            return ""
        return bytes(text).decode("utf-8", "replace")

    def learn_marks(self, template: str) -> None:
        """Read the marks of a chat template as marks in the template's own text alone.

        Those that a file calls user-defined, as llama.cpp itself calls those of gpt-oss, would be
        read in every text.
        """
        marks = set[str]()
        for part in split_for_tokenizer(template):
            for token in self._tokenize(part, control=True):
                if self.lib.llama_vocab_get_attr(self.pointer, token) & _USER_DEFINED:
                    marks.add(self.token_bytes(token).decode("utf-8", "replace"))
        written = sorted(filter(_MARK.fullmatch, marks), key=len, reverse=True)
        if written:
            self._marks = re.compile("|".join(map(re.escape, written)))

    def tokenize_prompt(
        self, prompt: Sequence[PromptPiece], check: Callable[[], None]
    ) -> TokenizedPrompt:
        """Return the tokens of a prompt, with the token that begins a text if the model wants one.

        Each piece is tokenized for itself, so that a cut is also a boundary between tokens. `check`
        is called between parts, and may raise.
        """
        tokens: list[int] = []
        cuts: list[int] = []
        for piece in prompt:
            for part in split_for_tokenizer(piece.text):
                check()
                for words in self._readable_parts(part, control=piece.control):
                    tokens += self._split(words, control=piece.control, first=not tokens)
            if piece.cut:
                cuts.append(len(tokens))
        start = int(self.lib.llama_vocab_bos(self.pointer))
        if start >= 0 and self.lib.llama_vocab_get_add_bos(self.pointer) and tokens[:1] != [start]:
            tokens.insert(0, start)
            cuts = [cut + 1 for cut in cuts]
        return TokenizedPrompt(tokens=tokens, cuts=tuple(cuts))

    def _readable_parts(self, text: str, *, control: bool) -> list[str]:
        """Return a text in parts of which none holds a mark that is not the template's."""
        if control or self._marks is None:
            return [text]
        parts = list[str]()
        start = 0
        for mark in self._marks.finditer(text):
            parts.append(text[start : mark.start() + 1])
            start = mark.start() + 1
        return [*parts, text[start:]]

    def first_token(self, text: str) -> int:
        """Return the first token of a reply that is `text`, -1 if it has none."""
        tokens = self._tokenize(text, control=False)
        if not tokens:
            return -1
        return tokens[0]

    def next_token(self, text: str) -> int:
        """Return the first token of `text` where a reply goes on with it, -1 if it has none."""
        tokens = self.reply_tokens(text)
        if not tokens:
            return -1
        return tokens[0]

    def reply_tokens(self, text: str) -> list[int]:
        """Return the tokens of `text` where a reply goes on with it."""
        return self._split(text, control=False, first=False)

    @cached_property
    def end_token(self) -> int:
        """The token that ends a text or, without one, a turn; -1 where the vocabulary has neither.

        That of RWKV has no token that ends a text.
        """
        ends_text = int(self.lib.llama_vocab_eos(self.pointer))
        if ends_text >= 0:
            return ends_text
        return int(self.lib.llama_vocab_eot(self.pointer))

    @cached_property
    def byte_tokens(self) -> Mapping[int, int]:
        """The token of each byte that may begin a character; empty where one has none.

        Vocabularies have them among their first tokens. Letters come last.
        """
        found = dict[int, int]()
        for token in range(min(self.size, _BYTE_TOKENS)):
            spelling = self.token_bytes(token)
            if len(spelling) == 1 and not self.is_end(token):
                found.setdefault(spelling[0], token)
        if not found.keys() >= _FIRST_BYTES:
            return {}
        return {byte: found[byte] for byte in sorted(found, key=_is_letter)}

    def logits(self, context: Any) -> Any:  # noqa: ANN401 - a C pointer; a numpy array
        """Return the logits of all tokens, in llama.cpp's own memory.

        The next decode overwrites them.
        """
        import numpy as np

        return np.ctypeslib.as_array(self.lib.llama_get_logits_ith(context, -1), (self.size,))

    def _split(self, text: str, *, control: bool, first: bool) -> list[int]:
        if first or not self._spaced:
            return self._tokenize(text, control=control)
        # The tokenizer puts a space before each text. Behind a newline, which is cut off again, it
        # puts none.
        newline = self._tokenize("\n", control=False)
        tokens = self._tokenize("\n" + text, control=control)
        if tokens[: len(newline)] != newline:
            return self._tokenize(text, control=control)
        return tokens[len(newline) :]

    def _tokenize(self, text: str, *, control: bool) -> list[int]:
        spelling = text.encode("utf-8", "replace")
        size = len(spelling)
        room = size + 8
        tokens = (ctypes.c_int32 * room)()
        flags = (False, control)  # add no special token; read those that are spelled
        count = self.lib.llama_tokenize(self.pointer, spelling, size, tokens, room, *flags)
        return tokens[: max(0, count)]


class TokenDecoder:
    """The bytes of tokens -> chunks: whole characters, thinking apart, stop strings obeyed. Pure.

    Text that may be the start of a stop string is held back until that is known. `thinking` None
    means that all is text, also `<think>`; otherwise it says whether the prompt has opened
    thinking. With `channels` the reply is in the harmony format. After a stop string `stopped` is
    true, and what followed it is dropped. `thinking_tokens` counts the tokens that ended inside
    thinking.
    """

    def __init__(
        self, *, stop: tuple[str, ...] = (), thinking: bool | None = None, channels: bool = False
    ) -> None:
        self.stopped = False
        self.stop_sequence = ""  # The stop string that ended the text
        self.thinking_tokens = 0
        self._stop = tuple(filter(None, stop))
        # A token may end within a character
        self._letters = codecs.getincrementaldecoder("utf-8")("replace")
        self._splitter: ThinkingSplitter | ChannelSplitter | None = None
        if thinking is not None and channels:
            self._splitter = ChannelSplitter()
        elif thinking is not None:
            self._splitter = ThinkingSplitter(inside=thinking)
        self._held = ""

    def feed(self, spelling: bytes) -> Chunk:
        """Return what is certain after the bytes of a token; often empty."""
        text = self._letters.decode(spelling)
        thinking = ""
        if self._splitter is not None:
            text, thinking = self._splitter.feed(text)
            if self._splitter.inside:
                self.thinking_tokens += 1
        return Chunk(text=self._until_stop(text), thinking=thinking)

    def end(self) -> Chunk:
        """Return what was held back, now that nothing more will come.

        Half a character is left out: the limit of the reply has cut it.
        """
        text = self._letters.decode(b"", final=True).rstrip("\N{REPLACEMENT CHARACTER}")
        thinking = ""
        if self._splitter is not None:
            text, thinking = self._splitter.feed(text)
            last_text, last_thinking = self._splitter.end()
            text += last_text
            thinking += last_thinking
        text = self._until_stop(text)
        if not self.stopped:
            text += self._held
        return Chunk(text=text, thinking=thinking)

    def _until_stop(self, text: str) -> str:
        if self.stopped:
            return ""
        self._held += text
        ends = [(self._held.find(mark), mark) for mark in self._stop if mark in self._held]
        self.stopped = bool(ends)
        if ends:
            length, self.stop_sequence = min(ends)
        else:
            length = len(self._held) - held_back(self._held, self._stop)
        text = self._held[:length]
        self._held = self._held[length:]
        return text
