"""How a reply ends: each documented word means one thing, whichever API says it."""

from __future__ import annotations

from typing import Any, Final

import pytest

from conductor_cli.core.chat import Chunk, Finish
from conductor_cli.core.errors import ModelError
from conductor_cli.models.chat_api_model import ChatApiModel
from conductor_cli.models.end_words import END_WORDS, EndMeaning, meaning_of
from tests.models.kit import asked_by, broken_off, failure_of, play, text, user_request
from tests.servers import Script, delta, loopback, saying

FINISHES: Final[dict[EndMeaning, Finish]] = {
    "whole": "stop",
    "cut": "length",
    "filtered": "refusal",
}
OWN_FORMS: Final = ("OpenAI Responses", "Anthropic", "Gemini")
"""The tables of APIs that do not say their words as chat completions does."""


def words(meaning: EndMeaning, *, own_form: bool) -> list[Any]:
    """Each API and word of a meaning, as the parameters of a test."""
    parameters = []
    for api, meanings in END_WORDS.items():
        if (api in OWN_FORMS) is own_form:
            for word, its_meaning in meanings.items():
                if its_meaning == meaning:
                    parameters.append(pytest.param(api, word, id=f"{api}-{word}"))
    return parameters


def reply(*frames: Any, done: bool = True) -> list[Chunk]:
    return reply_of(saying(*frames, done=done))


def reply_of(script: Script) -> list[Chunk]:
    with loopback(script) as server:
        return play(ChatApiModel("m", f"{server.url}/v1"), user_request())[0]


def failed(*frames: Any, done: bool = True) -> tuple[list[Chunk], ModelError]:
    with loopback(saying(*frames, done=done)) as server:
        return broken_off(ChatApiModel("m", f"{server.url}/v1"), user_request())


def notes(chunks: list[Chunk]) -> list[str]:
    return [chunk.note for chunk in chunks if chunk.note and "does not count" not in chunk.note]


def of_api(api: str, word: str) -> list[dict[str, Any]]:
    """A reply of `OK` in the form of an API, which ends with a word."""
    if api == "Anthropic":
        return [
            {"type": "message_start", "message": {"usage": {"input_tokens": 1}}},
            {"type": "content_block_start", "index": 0, "content_block": {"type": "text"}},
            {
                "type": "content_block_delta",
                "index": 0,
                "delta": {"type": "text_delta", "text": "OK"},
            },
            {"type": "message_delta", "delta": {"stop_reason": word}},
            {"type": "message_stop"},
        ]
    if api == "Gemini":
        content = {"parts": [{"text": "OK"}]}
        return [{"candidates": [{"content": content, "finishReason": word.upper()}]}]
    response: dict[str, Any] = {"object": "response", "status": "incomplete"}
    if word in ("max_output_tokens", "content_filter"):
        response["incomplete_details"] = {"reason": word}
    else:
        response["status"] = word
    if word in ("queued", "in_progress"):
        return [response]
    return [
        {"type": "response.output_text.delta", "output_index": 0, "delta": "OK"},
        {"type": "response.completed", "response": response},
    ]


def api_key(api: str) -> str:
    return api.removeprefix("OpenAI ").lower()


def test_no_word_has_two_meanings() -> None:
    for meanings in END_WORDS.values():
        for word, meaning in meanings.items():
            assert meaning_of(word) == meaning
            assert meaning_of(word.upper()) == meaning


@pytest.mark.parametrize("meaning", FINISHES)
def test_each_word_of_chat_completions_ends_a_reply_as_documented(meaning: EndMeaning) -> None:
    for parameter in words(meaning, own_form=False):
        chunks = reply(delta("OK"), delta(finish=parameter.values[1]))
        assert (text(chunks), chunks[-1].finish) == ("OK", FINISHES[meaning]), parameter.id


@pytest.mark.parametrize(("api", "word"), words("failed", own_form=False))
@pytest.mark.parametrize("message", ["OK", ""])
def test_a_word_of_a_fault_fails_the_attempt(api: str, word: str, message: str) -> None:
    _, error = failed(delta(message), delta(finish=word))
    assert (error.reason, error.retryable) == ("overloaded", True)
    assert repr(word) in error.message


@pytest.mark.parametrize("meaning", FINISHES)
@pytest.mark.parametrize("api", OWN_FORMS)
def test_each_word_of_an_api_of_its_own_ends_a_reply_as_documented(
    api: str, meaning: EndMeaning
) -> None:
    for parameter in words(meaning, own_form=True):
        if parameter.values[0] != api:
            continue
        script = saying(*of_api(api, parameter.values[1]), done=False)
        chunks, _ = asked_by(api_key(api), script)
        assert (text(chunks), chunks[-1].finish) == ("OK", FINISHES[meaning]), parameter.id


@pytest.mark.parametrize(("api", "word"), words("failed", own_form=True))
def test_a_word_of_a_fault_in_an_api_of_its_own_fails_the_attempt(api: str, word: str) -> None:
    error = failure_of(api_key(api), saying(*of_api(api, word), done=False))
    reason = "refused" if word == "missing_thought_signature" else error.reason
    assert error.reason == reason
    assert error.reason in ("broken", "overloaded", "refused")


def test_a_call_of_a_tool_that_a_filter_cut_off_is_not_made() -> None:
    call = {"index": 0, "id": "c", "function": {"name": "weather", "arguments": "{}"}}
    chunks = reply(delta(tool_calls=[call]), delta(finish="content_filter"))
    assert chunks[-1].finish == "refusal"


@pytest.mark.parametrize("word", ["banana", "OTHER", "new\nword"])
def test_a_word_that_nobody_documents_is_a_notice(word: str) -> None:
    chunks = reply(delta("OK"), delta(finish=word))
    assert (text(chunks), chunks[-1].finish) == ("OK", "other")
    (note,) = notes(chunks)
    assert f"ended the reply with {' '.join(word.split())!r}" in note


@pytest.mark.parametrize("word", ["model_length", "repetition", "model_context_window_exceeded"])
def test_a_limit_other_than_that_of_the_reply_is_named(word: str) -> None:
    (note,) = notes(reply(delta("OK"), delta(finish=word)))
    assert note.endswith(f"cut the reply off: {word}")


def test_a_usual_end_is_no_notice() -> None:
    assert not notes(reply(delta("OK"), delta(finish="stop")))
    assert not notes(reply(delta("OK"), delta(finish="length")))


def test_a_stream_that_only_its_mark_ends_says_that_no_reason_came() -> None:
    chunks = reply(delta("OK"))
    assert (text(chunks), chunks[-1].finish) == ("OK", "other")
    (note,) = notes(chunks)
    assert "without saying why" in note


def test_a_stream_without_an_end_has_broken_off() -> None:
    chunks, error = failed(delta("OK"), done=False)
    assert (text(chunks), error.reason) == ("OK", "broken")


@pytest.mark.parametrize("word", ["stop", "error", None])
@pytest.mark.parametrize("message", ["OK", ""])
def test_an_error_inside_a_choice_is_that_error(word: str | None, message: str) -> None:
    frame = delta(finish=word)
    frame["choices"][0]["error"] = {"code": 502, "message": "upstream died"}
    _, error = failed(delta(message), frame)
    assert error.reason == "overloaded"
    assert "upstream died" in error.message


def test_a_null_reason_before_the_last_event_of_anthropic_is_an_end() -> None:
    frames = of_api("Anthropic", "end_turn")
    frames[3]["delta"]["stop_reason"] = None
    chunks, _ = asked_by("anthropic", saying(*frames, done=False))
    assert (text(chunks), chunks[-1].finish) == ("OK", "other")
    assert "without saying why" in notes(chunks)[0]


def test_a_last_event_whose_response_was_never_brought_up_to_date_is_whole() -> None:
    frames = of_api("OpenAI Responses", "completed")
    frames[1]["response"]["status"] = "in_progress"
    chunks, _ = asked_by("responses", saying(*frames, done=False))
    assert (text(chunks), chunks[-1].finish) == ("OK", "stop")
