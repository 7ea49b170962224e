"""Which model of a repository is meant, and what it is called."""

from __future__ import annotations

import pytest

from conductor_cli.core.errors import ConductorUnusable
from conductor_cli.models.weights.hub_model import (
    OfferedModel,
    choose_offered,
    list_offered,
    parse_reference,
)
from conductor_cli.models.weights.model_store import ModelFile

REPO = "acme/chat-GGUF"


def offer(*names: str, size: int = 1000) -> list[OfferedModel]:
    """What a repository with these files offers.

    Each file is a byte larger than the one before it.
    """
    files = enumerate(names)
    return list_offered({name: ModelFile(file=name, size=size + number) for number, name in files})


@pytest.mark.parametrize(
    ("name", "quantization"),
    [
        ("Qwen2.5-7B-Instruct-Q4_K_M.gguf", "Q4_K_M"),
        ("qwen2.5-7b-instruct-q4_k_m-00001-of-00002.gguf", "Q4_K_M"),
        ("gemma-2-2b-it.IQ3_XXS.gguf", "IQ3_XXS"),
        ("Qwen3-8B-UD-Q4_K_XL.gguf", "UD-Q4_K_XL"),
        ("Phi-3-mini-4k-instruct-fp16.gguf", "FP16"),
        ("BF16/Llama-3.2-1B-BF16.gguf", "BF16"),
        ("gpt-oss-20b-MXFP4.gguf", "MXFP4"),
        ("bitnet-TQ2_0.gguf", "TQ2_0"),
        ("Q8_0.gguf", "Q8_0"),
        ("qwen2.5-7b.gguf", ""),
    ],
)
def test_the_quantization_is_read_from_the_name(name: str, quantization: str) -> None:
    assert OfferedModel(files=(ModelFile(file=name),)).quantization == quantization


@pytest.mark.parametrize(
    ("text", "parsed"),
    [
        ("acme/chat-GGUF", ("acme/chat-GGUF", "")),
        ("acme/chat:Q8_0", ("acme/chat", "Q8_0")),
        ("acme/chat:q8/chat.gguf", ("acme/chat", "q8/chat.gguf")),
        ("https://huggingface.co/acme/chat/", ("acme/chat", "")),
        ("https://huggingface.co/acme/chat/tree/main", ("acme/chat", "")),
        (
            "https://huggingface.co/acme/chat/resolve/main/q8/a.gguf?download=true",
            ("acme/chat", "q8/a.gguf"),
        ),
        ("https://huggingface.co/acme/chat/discussions/1", None),
        ("qwen2.5-7b-q4_k_m", None),
        ("models/chat.gguf", None),
        ("acme/../chat", None),
        ("acme/a--b", None),
        ("https://example.com/acme/chat", None),
        ("", None),
    ],
)
def test_a_reference_names_a_repository_and_a_choice(
    text: str, parsed: tuple[str, str] | None
) -> None:
    assert parse_reference(text) == parsed


def test_a_repository_offers_its_models_only() -> None:
    offered = offer(
        "README.md",
        "chat-Q8_0.gguf",
        "chat-Q4_K_M.gguf",
        "mmproj-chat-f16.gguf",
        "chat-imatrix.gguf",
        "model.bin",
        "../chat-Q2_K.gguf",
        "/chat-Q2_K.gguf",
        "a/../chat.gguf",
        ".hidden.gguf",
        "a b.gguf",
        "\x1b[31mred.gguf",
    )
    assert [model.names for model in offered] == [["chat-Q8_0.gguf"], ["chat-Q4_K_M.gguf"]]


def test_the_parts_of_a_model_are_one_model() -> None:
    part = "f16/chat-F16-0000{}-of-00002.gguf"
    (model,) = offer(part.format(2), part.format(1), part.format(0), part.format(3))
    assert (model.names, model.size) == ([part.format(1), part.format(2)], 2001)


def test_without_a_choice_q4_k_m_is_taken() -> None:
    assert choose_offered(REPO, "", offer("a-Q8_0.gguf", "a-q4_k_m.gguf")).names == [
        "a-q4_k_m.gguf"
    ]
    assert choose_offered(REPO, "", offer("a-Q8_0.gguf")).names == ["a-Q8_0.gguf"]
    with pytest.raises(ConductorUnusable, match=r"acme/chat-GGUF has 2 models") as caught:
        choose_offered(REPO, "", offer("a-Q8_0.gguf", "a-Q2_K.gguf"))
    assert caught.value.hint == (
        "choose one: conductor model pull acme/chat-GGUF:Q8_0\nthere are Q8_0 (1.00 kB), Q2_K "
        "(1.00 kB)"
    )


@pytest.mark.parametrize(
    ("choice", "file"),
    [
        ("q8_0", "a-Q8_0.gguf"),
        ("a-Q8_0.gguf", "a-Q8_0.gguf"),
        ("sub/a-Q2_K.gguf", "sub/a-Q2_K.gguf"),
        ("a-Q2_K.gguf", "sub/a-Q2_K.gguf"),
    ],
)
def test_a_choice_is_a_quantization_or_a_file(choice: str, file: str) -> None:
    assert choose_offered(REPO, choice, offer("a-Q8_0.gguf", "sub/a-Q2_K.gguf")).names == [file]


def test_a_quantization_that_two_models_have_is_no_choice() -> None:
    with pytest.raises(ConductorUnusable, match="has 2 models that are called Q8_0") as caught:
        choose_offered(REPO, "Q8_0", offer("a-Q8_0.gguf", "b-Q8_0.gguf", "b-Q2_K.gguf"))
    assert "a-Q8_0.gguf (1.00 kB), b-Q8_0.gguf (1.00 kB)" in caught.value.hint


def test_a_long_list_is_cut() -> None:
    with pytest.raises(ConductorUnusable) as caught:
        choose_offered(REPO, "Q8_0", offer(*(f"model{number}.gguf" for number in range(500))))
    assert caught.value.hint.endswith("and 460 more")
