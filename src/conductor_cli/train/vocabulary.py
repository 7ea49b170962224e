"""A byte-level BPE as the library `tokenizers` has it -> the vocabulary of a GGUF file.

A directory that transformers saved is not believed: `tokenizers` reads its file, and what llama.cpp would split in
another way, or die of, is refused.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from conductor_cli.core.errors import ModelError
from conductor_cli.models.llama.gguf import one_line
from conductor_cli.models.llama.safetensors import read_json, unreadable
from conductor_cli.models.llama.template_sandbox import MAX_CHARACTERS
from conductor_cli.models.llama.writing import Value
from conductor_cli.train.dependencies import require

if TYPE_CHECKING:
    from tokenizers import Tokenizer

PRE: Final = "qwen2"
"""llama.cpp's name for the way in which `SPLIT` splits a text before the merges."""

SPLIT: Final = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
"""As Qwen2 has it: each digit alone."""

FILE: Final = "tokenizer.json"
TEMPLATE_FILE: Final = "chat_template.jinja"

LARGEST: Final = 64 << 20
"""No file but weights is larger, in bytes."""

_NORMAL, _CONTROL, _OWN, _UNUSED = 1, 3, 4, 5
"""llama.cpp's kinds of tokens; its own kind has what a user has added."""

_SAVE: Final = "save it anew with transformers (save_pretrained)"


@dataclass(frozen=True, slots=True, kw_only=True)
class Marks:
    """The tokens that end, begin and pad a text, whether a text begins with one, and the chat template."""

    end: int
    begin: int | None = None
    pad: int | None = None
    begins: bool = False
    template: str = ""


def spelled(tokenizer: Tokenizer, marks: Marks, rows: int) -> dict[str, Value]:
    """The keys of a vocabulary for a model whose embedding has `rows`. Raises `ValueError` for one that cannot be."""
    words, kinds = _words(tokenizer, rows)
    found: dict[str, Value] = {
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.pre": PRE,
        "tokenizer.ggml.tokens": words,
        "tokenizer.ggml.token_type": kinds,
        "tokenizer.ggml.merges": [" ".join(pair) for pair in json.loads(tokenizer.to_str())["model"]["merges"]],
        # Without these llama.cpp takes token 11 for both.
        "tokenizer.ggml.bos_token_id": marks.end if marks.begin is None else marks.begin,
        "tokenizer.ggml.eos_token_id": marks.end,
    }
    if marks.pad is not None:
        found["tokenizer.ggml.padding_token_id"] = marks.pad
    found["tokenizer.ggml.add_bos_token"] = marks.begins
    return {**found, "tokenizer.chat_template": marks.template} if marks.template else found


def _words(tokenizer: Tokenizer, rows: int) -> tuple[list[str], list[int]]:
    """The tokens by their number, and their kinds; a row of the embedding that has no token gets a name."""
    numbers = tokenizer.get_vocab(with_added_tokens=True)
    by_number = {number: word for word, number in numbers.items()}
    if len(by_number) != len(numbers):
        raise ValueError("two of its tokens have one number")
    if max(by_number, default=0) >= rows:
        raise ValueError(f"it has a token {max(by_number)}, and the embedding {rows} rows")
    added = tokenizer.get_added_tokens_decoder()
    words, kinds = [], []
    for number in range(rows):
        word = by_number.get(number)
        words.append(_unused(number, numbers) if word is None else word)
        token = added.get(number)
        looks_special = words[-1].startswith("<|") and words[-1].endswith("|>")
        own = _CONTROL if token is not None and (token.special or looks_special) else _OWN
        kinds.append(_UNUSED if word is None else _NORMAL if token is None else own)
    return words, kinds


def _unused(number: int, taken: Mapping[str, int]) -> str:
    name = f"[PAD{number}]"
    while name in taken:
        name = f"{name}_"
    return name


def read(directory: Path, config: Mapping[str, Any], rows: int) -> dict[str, Value]:
    """The vocabulary of a directory that transformers saved. Raises `ModelError` of kind `file`.

    `config` is what its `config.json` tells, `rows` those of its embedding.
    """
    path = directory / FILE
    tokenizer = _read(path)
    try:
        _check(tokenizer)
        return spelled(tokenizer, _marks(tokenizer, directory, config, rows), rows)
    except ValueError as error:
        raise ModelError("file", f"{path} cannot be written as GGUF: {error}", hint=_SAVE) from error


def read_object(path: Path, *, optional: bool = False) -> dict[str, Any]:
    """A JSON file, nothing where it is `optional` and not there. Raises `ModelError` of kind `file`."""
    return {} if optional and not path.exists() else read_json(path, read_bytes(path))


def read_bytes(path: Path) -> bytes:
    """A file of bounded size. Raises `ModelError` of kind `file`."""
    try:
        with path.open("rb") as file:
            data = file.read(LARGEST + 1)
    except OSError as error:
        raise unreadable(path, error) from error
    if len(data) > LARGEST:
        raise ModelError("file", f"{path} has more than {LARGEST >> 20} MiB, too much for what it is", hint=_SAVE)
    return data


def _read(path: Path) -> Tokenizer:
    with require("tokenizers"):
        from tokenizers import Tokenizer
    data = read_bytes(path)
    try:
        return Tokenizer.from_buffer(data)
    except Exception as error:  # the library raises this very class
        raise ModelError("file", f"{path} is damaged: {one_line(str(error), 120)}", hint=_SAVE) from error


def _check(tokenizer: Tokenizer) -> None:
    """Whether llama.cpp would split a text into the same tokens. Raises `ValueError`."""
    from tokenizers.pre_tokenizers import ByteLevel

    told = json.loads(tokenizer.to_str())
    match told:
        case {"model": {"type": "BPE", "byte_fallback": False}}:
            pass
        case _:
            raise ValueError("it is no byte-level BPE")
    match told["pre_tokenizer"]:
        case {
            "pretokenizers": [
                {"type": "Split", "pattern": {"Regex": regex}, "behavior": "Isolated", "invert": False},
                {"type": "ByteLevel", "add_prefix_space": False, "use_regex": False},
            ]
        } if regex == SPLIT:
            pass
        case _:
            raise ValueError("it splits a text in another way than Qwen2 does")
    if any(told["model"].get(name) for name in ("continuing_subword_prefix", "end_of_word_suffix", "ignore_merges")):
        raise ValueError("its BPE joins words in another way than Qwen2's")
    numbers = tokenizer.get_vocab()
    if missing := [letter for letter in ByteLevel.alphabet() if letter not in numbers]:
        raise ValueError(f"it has no token for {len(missing)} of the 256 bytes")


def _marks(tokenizer: Tokenizer, directory: Path, config: Mapping[str, Any], rows: int) -> Marks:
    told = read_object(directory / "tokenizer_config.json", optional=True)
    also = {**config, **read_object(directory / "generation_config.json", optional=True)}
    found = {kind: _number(tokenizer, kind, told, also, rows) for kind in ("bos", "eos", "pad")}
    end, begin = found["eos"], found["bos"]
    if end is None:
        raise ValueError("nothing tells which token ends a reply (eos_token)")
    plainly, marked = (tokenizer.encode("a", add_special_tokens=added).ids for added in (False, True))
    if marked not in (plainly, [begin, *plainly]):
        raise ValueError("it puts more tokens round a text than one that begins it")
    return Marks(end=end, begin=begin, pad=found["pad"], begins=marked != plainly, template=_template(directory, told))


def _number(tokenizer: Tokenizer, kind: str, told: Mapping[str, Any], also: Mapping[str, Any], rows: int) -> int | None:
    """A special token: by its text in the tokenizer's settings, else by its number in the model's."""
    text = told.get(f"{kind}_token")
    text = text.get("content") if isinstance(text, dict) else text
    if isinstance(text, str):
        number = tokenizer.token_to_id(text)
        if number is None:
            raise ValueError(f"its {kind}_token {one_line(text, 40)} is no token")
        return number
    given = also.get(f"{kind}_token_id")
    first = given[0] if isinstance(given, list) and given else given
    if first is None:
        return None
    if type(first) is not int or not 0 <= first < rows:
        raise ValueError(f"{kind}_token_id is {one_line(str(first), 40)}, which is no token")
    return first


def _template(directory: Path, told: Mapping[str, Any]) -> str:
    """The chat template, empty where there is none."""
    path = directory / TEMPLATE_FILE
    if path.exists():
        found: object = read_bytes(path).decode("utf-8", "replace")
    else:
        found = told.get("chat_template", "")
        by_name = {item.get("name"): item.get("template") for item in found or () if isinstance(item, dict)}  # type: ignore[attr-defined]
        found = by_name.get("default", "") if isinstance(found, list) else found
    if not isinstance(found, str) or len(found) > MAX_CHARACTERS:
        raise ValueError(f"its chat template is no text of at most {MAX_CHARACTERS} characters")
    return found
