"""Makes a real GGUF of the Qwen2 architecture with random weights, a few hundred kilobytes.

It has all that llama.cpp wants of a model: a byte-level BPE tokenizer that was trained on the text
below, special tokens, a chat template, a context of 8192 tokens. What it writes has no meaning:
every token is about equally likely, unless `bias` makes some likelier. Needs `gguf` and `numpy`
only.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from itertools import pairwise, product
from pathlib import Path
from typing import Any

CHATML = """{%- if messages[0]['role'] != 'system' %}
    {{- '<|im_start|>system\\nYou are a helpful assistant.<|im_end|>\\n' }}
{%- endif %}
{%- for message in messages %}
    {{- '<|im_start|>' + message['role'] + '\\n' + message['content'] + '<|im_end|>' + '\\n' }}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|im_start|>assistant\\n' }}
{%- endif %}
"""

TRUSTED = (
    "{% for message in messages %}<|im_start|>{{ message.role }}\n{{ message.content }}<|im_end|>\n"
    "{% endfor %}"
    "<|im_start|>assistant\n"
)
"""ChatML as `models/llama/prompt.py` has it: it is rendered without a child process, so tests start
faster.
"""

SPECIAL = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
END = "<|im_end|>"

INSTRUCT = (
    "{{ bos_token }}{% for message in messages %}{% if message.role == 'user' %}[INST] {{ "
    "message.content }} [/INST]"
    "{% elif message.role == 'assistant' %} {{ message.content }}{{ eos_token }}"
    "{% else %}{{ raise_exception('there are only user and assistant') }}{% endif %}{% endfor %}"
)
"""A template in the manner of the first Mistral models, which have no system turn. It goes with
`sentence`.
"""

TEXT = """Check the sum of the numbers and write the answer. Find a proof, then test each step of \
the proof with a
short program. List what is known, what is asked, and which of the earlier answers may be wrong. \
Solve the problem again
in another way and compare the two results. Write the code that the question asks for, with the \
tests for it. Read the
code that was written before, look for mistakes, and correct them. Explain the result to the user \
in one short text.
A | | Work out the number of apples. B | 1 | Check the answer to step one. C | 1 2 | Write the \
last answer for the user.
You are a helpful assistant. system user assistant"""


@dataclass(frozen=True, kw_only=True)
class Shape:
    """The model's size.

    `merges` is how many tokens the tokenizer has beside the 256 bytes and the special ones.
    """

    width: int = 64
    layers: int = 2
    heads: int = 4
    key_heads: int = 2
    inner: int = 128
    merges: int = 140
    context: int = 8192


TINY = Shape()


@dataclass(frozen=True, kw_only=True)
class Extra:
    """What a test may want changed.

    `bias` adds to the logit of a token, named by its text; None leaves that tensor out. `template`
    None leaves the chat template out. `metadata` adds keys, whole numbers without a sign. `pre` is
    how text is split before the BPE. `marks` are further special tokens. `sentence` makes a vocabulary of SentencePiece instead.
    `rwkv` makes one of RWKV, where no token ends a text and one ends a turn. `tensors` false makes a vocabulary only.
    """

    bias: Mapping[str, float] | None = field(default_factory=dict)
    template: str | None = TRUSTED
    metadata: Mapping[str, str | int] = field(default_factory=dict)
    architecture: str = "qwen2"
    pre: str = "qwen2"
    marks: tuple[str, ...] = ()
    add_bos: bool = False
    sentence: bool = False
    rwkv: bool = False
    tensors: bool = True


PLAIN = Extra()


def make(path: Path, *, seed: int = 0, shape: Shape = TINY, extra: Extra = PLAIN) -> Path:
    """Write the model to `path` and return the path. The same arguments write the same bytes."""
    import gguf

    tokens, merges = (sentence_pieces(), []) if extra.sentence else vocabulary(shape.merges)
    if extra.rwkv:
        tokens = rwkv_tokens()
    tokens = [*tokens, *extra.marks]
    writer = gguf.GGUFWriter(path, extra.architecture)
    _add_shape(writer, shape, len(tokens))
    if extra.sentence:
        _add_sentence_tokenizer(writer, tokens)
    elif extra.rwkv:
        _add_rwkv_tokenizer(writer, tokens)
    else:
        _add_tokenizer(writer, tokens, merges, extra)
    writer.add_add_bos_token(extra.add_bos)
    if extra.template is not None:
        writer.add_chat_template(extra.template)
    for key, value in extra.metadata.items():
        if isinstance(value, str):
            writer.add_string(key, value)
        else:
            writer.add_uint32(key, value)
    if extra.tensors:
        for name, tensor in _tensors(seed, shape, tokens, extra.bias):
            writer.add_tensor(name, tensor)
    finish(writer)
    return path


def finish(writer: Any) -> None:
    """Write the file that a writer of the library `gguf` has collected."""
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def lora(
    path: Path,
    *,
    seed: int = 1,
    width: int = 64,
    rank: int = 4,
    strength: float = 1.0,
    **overrides: Any,
) -> Path:
    """A LoRA on one matrix of the tiny model, as llama.cpp's converter writes it.

    `more` replaces its keys.
    """
    import gguf
    import numpy as np

    keys = {
        "architecture": "qwen2",
        "type": "adapter",
        "kind": "lora",
        "alpha": 8.0,
        "second": "lora_b",
        **overrides,
    }
    writer = gguf.GGUFWriter(path, keys["architecture"])
    draw = np.random.default_rng(seed)
    writer.add_type(keys["type"])
    writer.add_string("adapter.type", keys["kind"])
    writer.add_float32("adapter.lora.alpha", keys["alpha"])
    target = keys.get("target", "blk.0.attn_q.weight")
    writer.add_tensor(
        f"{target}.lora_a", (strength * draw.standard_normal((rank, width))).astype(np.float32)
    )
    second = draw.standard_normal((keys.get("rows", 64), rank)).astype(np.float32)
    writer.add_tensor(f"{target}.{keys['second']}", second)
    finish(writer)
    return path


def _add_shape(writer: Any, shape: Shape, tokens: int) -> None:
    writer.add_name("tiny random")
    writer.add_context_length(shape.context)
    writer.add_embedding_length(shape.width)
    writer.add_block_count(shape.layers)
    writer.add_feed_forward_length(shape.inner)
    writer.add_head_count(shape.heads)
    writer.add_head_count_kv(shape.key_heads)
    writer.add_layer_norm_rms_eps(1e-6)
    writer.add_rope_freq_base(10000.0)
    writer.add_vocab_size(tokens)
    writer.add_file_type(1)


def _add_tokenizer(writer: Any, tokens: list[str], merges: list[str], extra: Extra) -> None:
    normal = 1
    control = 3
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre(extra.pre)
    writer.add_token_list(tokens)
    special = (*SPECIAL, *extra.marks)
    writer.add_token_types([control if token in special else normal for token in tokens])
    writer.add_token_merges(merges)
    writer.add_bos_token_id(tokens.index("<|endoftext|>"))
    writer.add_eos_token_id(tokens.index(END))
    writer.add_pad_token_id(tokens.index("<|endoftext|>"))


def _add_sentence_tokenizer(writer: Any, tokens: list[str]) -> None:
    normal = 1
    unknown = 2
    control = 3
    byte = 6
    kinds = [unknown, control, control, *[byte] * 256]
    writer.add_tokenizer_model("llama")
    writer.add_token_list(tokens)
    writer.add_token_scores(
        [0.0] * len(kinds) + [-float(at) for at in range(len(tokens) - len(kinds))]
    )
    writer.add_token_types(kinds + [normal] * (len(tokens) - len(kinds)))
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)
    writer.add_unk_token_id(0)


def _add_rwkv_tokenizer(writer: Any, tokens: list[str]) -> None:
    normal = 1
    writer.add_tokenizer_model("rwkv")
    writer.add_token_list(tokens)
    writer.add_token_types([normal] * len(tokens))
    writer.add_eot_token_id(tokens.index(r"\n\n"))


@cache
def vocabulary(merges: int) -> tuple[list[str], list[str]]:
    """Tokens and merges of a byte-level BPE, in the alphabet of GPT-2, trained on `TEXT`.

    They are the same lists at each call: nobody may change them.
    """
    letter = byte_letters()
    words = Counter(tuple(letter[byte] for byte in word.encode()) for word in _words(TEXT))
    pairs: list[tuple[str, str]] = []
    while len(pairs) < merges:
        counts: Counter[tuple[str, str]] = Counter()
        for word, times in words.items():
            for pair in pairwise(word):
                counts[pair] += times
        best = max(counts, key=lambda pair: (counts[pair], pair))
        pairs.append(best)
        words = Counter({_merged(word, best): times for word, times in words.items()})
    made = [first + second for first, second in pairs]
    return [*letter.values(), *dict.fromkeys(made), *SPECIAL], [" ".join(pair) for pair in pairs]


def sentence_pieces() -> list[str]:
    """Tokens in the manner of SentencePiece.

    All bytes, all letters of `TEXT`, the beginnings of its words.
    """
    words = [f"▁{word}" for word in TEXT.split()]
    beginnings = [word[:length] for length, word in product(range(2, 8), words)]
    return [
        "<unk>",
        "<s>",
        "</s>",
        *(f"<0x{byte:02X}>" for byte in range(256)),
        *dict.fromkeys([*beginnings, "▁", *sorted(set(TEXT) - set(" \n"))]),
    ]


def rwkv_tokens() -> list[str]:
    """Tokens in the manner of RWKV: all bytes, escaped, and the words of `TEXT`."""
    words = [f" {word}" for word in dict.fromkeys(TEXT.split())]
    return ["<s>", *(f"\\x{byte:02x}" for byte in range(256)), *words, r"\n\n"]


def byte_letters() -> dict[int, str]:
    """The printable letter that stands for each byte in a GPT-2 vocabulary."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    letters = {byte: chr(byte) for byte in printable}
    for byte in range(256):
        if byte not in letters:
            letters[byte] = chr(0x100 + len(letters) - len(printable))
    return dict(sorted(letters.items()))


def _words(text: str) -> list[str]:
    words: list[str] = []
    for line in text.splitlines():
        words += line.split()[:1]
        words += [f" {word}" for word in line.split()[1:]]
    return words


def _merged(word: tuple[str, ...], pair: tuple[str, str]) -> tuple[str, ...]:
    merged: list[str] = []
    for letter in word:
        if merged and (merged[-1], letter) == pair:
            merged[-1] += letter
        else:
            merged.append(letter)
    return tuple(merged)


def _tensors(
    seed: int, shape: Shape, tokens: list[str], bias: Mapping[str, float] | None
) -> list[tuple[str, Any]]:
    import numpy as np

    draw = np.random.default_rng(seed)
    keys = shape.width // shape.heads * shape.key_heads

    def matrix(rows: int, columns: int) -> Any:
        return (draw.standard_normal((rows, columns)) / columns**0.5).astype(np.float16)

    def ones(size: int) -> Any:
        return np.ones(size, np.float32)

    tensors = [("token_embd.weight", matrix(len(tokens), shape.width))]
    for layer in range(shape.layers):
        tensors += [
            (f"blk.{layer}.attn_norm.weight", ones(shape.width)),
            (f"blk.{layer}.attn_q.weight", matrix(shape.width, shape.width)),
            (f"blk.{layer}.attn_q.bias", 0 * ones(shape.width)),
            (f"blk.{layer}.attn_k.weight", matrix(keys, shape.width)),
            (f"blk.{layer}.attn_k.bias", 0 * ones(keys)),
            (f"blk.{layer}.attn_v.weight", matrix(keys, shape.width)),
            (f"blk.{layer}.attn_v.bias", 0 * ones(keys)),
            (f"blk.{layer}.attn_output.weight", matrix(shape.width, shape.width)),
            (f"blk.{layer}.ffn_norm.weight", ones(shape.width)),
            (f"blk.{layer}.ffn_gate.weight", matrix(shape.inner, shape.width)),
            (f"blk.{layer}.ffn_up.weight", matrix(shape.inner, shape.width)),
            (f"blk.{layer}.ffn_down.weight", matrix(shape.width, shape.inner)),
        ]
    tensors += [
        ("output_norm.weight", ones(shape.width)),
        ("output.weight", matrix(len(tokens), shape.width)),
    ]
    if bias is None:
        return tensors
    lean = np.zeros(len(tokens), np.float32)
    for text, value in bias.items():
        lean[tokens.index(spelled(text))] = value
    return [*tensors, ("output.bias", lean)]


def spelled(text: str) -> str:
    """The token of `text` as the vocabulary writes it."""
    letter = byte_letters()
    return text if text in SPECIAL else "".join(letter[byte] for byte in text.encode())
