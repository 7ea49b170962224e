"""A model with a memory: what is kept, what is not, and a file that may be cut anywhere."""

from __future__ import annotations

import asyncio
import json
import multiprocessing
import os
from contextlib import aclosing, suppress
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from conductor_cli.core.chat import (
    Chunk,
    Finish,
    ImageDetail,
    Message,
    Request,
    Tool,
    ToolCall,
    ToolCallDelta,
)
from conductor_cli.core.errors import ModelError
from conductor_cli.core.pool import Timeouts, Worker
from conductor_cli.core.usage import Usage
from conductor_cli.models.base import Model, ScriptedModel
from conductor_cli.models.response_cache import (
    CachedModel,
    ResponseCache,
    model_identity,
    reply_key,
)
from conductor_cli.run.attempt import read_chunks
from tests.models.kit import CHART, calls, chunks_of, text, used, user_request
from tests.run.kit import virtually

USED = Usage(tokens_in=7, tokens_out=3, cost=Decimal("0.0012"), seconds=1.5, calls=1)


def says(*texts: str, usage: Usage = USED) -> ScriptedModel:
    return ScriptedModel(reply=lambda _: [*texts, Chunk(usage=usage, finish="stop")])


def reply(model: Model, request: Request) -> list[Chunk]:
    return asyncio.run(chunks_of(model, request))


def kept_in(path: Path) -> int:
    """How many replies another process finds there, each with a text."""
    replies = 0
    for line in path.read_bytes().decode("utf-8", "replace").split("\n"):
        with suppress(ValueError, TypeError, KeyError):
            replies += bool(json.loads(line)["finish"])
    return replies


def test_the_same_request_is_asked_once(tmp_path: Path) -> None:
    model = says("one ", "two")
    book = ResponseCache(tmp_path / "calls.jsonl")
    kept = CachedModel(model, book, "who")
    first = reply(kept, user_request())
    second = reply(kept, user_request())
    assert (text(first), text(second)) == ("one two", "one two")
    assert first[-1] == Chunk(usage=USED, finish="stop")
    assert second[-1] == replace(first[-1], from_cache=True)
    assert (len(model.requests), kept_in(tmp_path / "calls.jsonl")) == (1, 1)


def test_a_reply_that_ended_by_itself_has_no_length_of_its_request(tmp_path: Path) -> None:
    """A limit on money gives each call other `max_tokens`; nothing is paid twice for that.

    A reply that was cut off is asked for again where there is more room, and a longer one where
    there is less.
    """

    def room(most: int | None) -> Request:
        return replace(user_request(), max_tokens=most)

    model = says("one")
    asking = CachedModel(model, ResponseCache(tmp_path / "calls.jsonl"), "who")
    found = [reply(asking, room(most))[-1].from_cache for most in (500, 400, None, 3, 2, 2)]
    assert found == [False, True, True, True, False, True]
    again = CachedModel(ScriptedModel(), ResponseCache(tmp_path / "calls.jsonl"), "who")
    assert reply(again, room(300))[-1].from_cache
    cut = ScriptedModel(reply=lambda _: ["one", Chunk(usage=USED, finish="length")])
    asking = CachedModel(cut, ResponseCache(tmp_path / "cut.jsonl"), "who")
    assert [reply(asking, room(most))[-1].from_cache for most in (3, 4)] == [False, False]


def test_a_cache_is_read_again(tmp_path: Path) -> None:
    whole = Chunk(text="B\u2028é", thinking="hm", choice_shares={"A": 0.25, "B": 0.75})
    model = ScriptedModel(reply=lambda _: [whole, Chunk(usage=USED, finish="length")])
    book = ResponseCache(tmp_path / "calls.jsonl")
    first = reply(CachedModel(model, book, "who"), user_request())
    book.close()
    again = ResponseCache(tmp_path / "calls.jsonl")
    *pieces, last = first
    assert reply(CachedModel(ScriptedModel(), again, "who"), user_request()) == [
        *pieces,
        replace(last, from_cache=True),
    ]
    assert kept_in(tmp_path / "calls.jsonl") == 1


def test_only_its_owner_may_read_a_cache(tmp_path: Path) -> None:
    ResponseCache(tmp_path / "deep" / "calls.jsonl").close()
    assert (tmp_path / "deep" / "calls.jsonl").stat().st_mode & 0o077 == 0


def test_tool_calls_are_kept_whole(tmp_path: Path) -> None:
    pieces = [
        ToolCallDelta(index=0, id="a1", name="now", arguments='{"zone"'),
        ToolCallDelta(index=1, id="b2", name="weather", arguments="{}"),
        ToolCallDelta(index=0, arguments=': "UTC"}'),
    ]
    last = Chunk(usage=USED, finish="tool", provider_data={"reasoning_content": "Hm."})
    model = ScriptedModel(reply=lambda _: [*(Chunk(tool_call=piece) for piece in pieces), last])
    reply(CachedModel(model, ResponseCache(tmp_path / "calls.jsonl"), "who"), user_request())
    again = reply(
        CachedModel(ScriptedModel(), ResponseCache(tmp_path / "calls.jsonl"), "who"), user_request()
    )
    assert calls(again) == (
        ToolCall(id="a1", name="now", arguments='{"zone": "UTC"}'),
        ToolCall(id="b2", name="weather", arguments="{}"),
    )
    assert again[-1] == replace(last, from_cache=True)


@pytest.mark.parametrize(
    "other",
    [
        {"max_tokens": 5},
        {"temperature": 0.1, "seed": 1},
        {"seed": 1},
        {"stop": ("x",)},
        {"grammar": "root ::= x"},
        {"choices": ("A",)},
        {"schema": {"type": "object"}},
        {"messages": (Message(role="system", content="Yes?"),)},
        {"messages": (Message(role="user", content="Yes?"), Message(role="user", content=""))},
        {"messages": (Message(role="user", content="Yes?", attachments=(CHART,)),)},
        {"tools": (Tool(name="now"),)},
        {"tool_choice": "none"},
        {"tool_choice": Tool(name="now")},
        {"parallel_tool_calls": False},
    ],
    ids=lambda other: next(iter(other)),
)
def test_a_request_that_differs_is_another_one(other: dict[str, Any]) -> None:
    assert reply_key("who", user_request()) != reply_key("who", replace(user_request(), **other))
    assert reply_key("who", user_request()) != reply_key("someone else", user_request())
    assert reply_key("who", user_request()) == reply_key(
        "who", user_request(deadline=3.0, cuts=(1,))
    )


def test_an_image_counts_with_its_detail_where_it_has_one() -> None:
    """Without one its key is what it was before images had details."""

    def key(detail: ImageDetail | None) -> str | None:
        image = replace(CHART, detail=detail)
        return reply_key(
            "who", Request(messages=(Message(role="user", content="?", attachments=(image,)),))
        )

    assert len({key(None), key("low"), key("high")}) == 3
    assert key(None) == "4b666d6639203d1ecc091e09407841935a766b24ed391a382257fb78a69a5cd0"


def test_a_sampled_reply_without_a_seed_is_drawn_again(tmp_path: Path) -> None:
    model = says("x")
    kept = CachedModel(model, ResponseCache(tmp_path / "calls.jsonl"), "who")
    for _ in range(2):
        reply(kept, user_request(temperature=0.7))
        reply(kept, user_request(temperature=0.7, seed=3))
        reply(kept, user_request(temperature=0.0))
    assert [request.seed for request in model.requests] == [None, 3, None, None]


def test_the_seconds_of_a_silent_model_are_measured(tmp_path: Path) -> None:
    kept = CachedModel(
        ScriptedModel(reply=lambda _: [0.02, "x"]), ResponseCache(tmp_path / "calls.jsonl"), "who"
    )
    first = reply(kept, user_request())
    second = reply(kept, user_request())
    assert used(first).seconds >= 0.02
    assert second[-1].usage == first[-1].usage


def test_a_failure_is_not_kept(tmp_path: Path) -> None:
    model = ScriptedModel(
        [[ModelError("rate", "slow down")], ["half", ModelError("broken", "cut off")], ["whole"]]
    )
    book = ResponseCache(tmp_path / "calls.jsonl")
    kept = CachedModel(model, book, "who")
    for reason in ("rate", "broken"):
        with pytest.raises(ModelError) as error:
            reply(kept, user_request())
        assert error.value.reason == reason
    assert text(reply(kept, user_request())) == "whole"
    assert kept_in(tmp_path / "calls.jsonl") == 1


@pytest.mark.parametrize("finish", ["stop", "length"])
def test_a_reply_without_text_is_not_kept(tmp_path: Path, finish: Finish) -> None:
    blank = [Chunk(thinking="hm", text=" \n"), Chunk(usage=USED, finish=finish)]
    kept = CachedModel(
        ScriptedModel([blank, ["four"]]), ResponseCache(tmp_path / "calls.jsonl"), "who"
    )
    assert [text(reply(kept, user_request())) for _ in range(3)] == [" \n", "four", "four"]


def test_a_blank_reply_in_an_old_cache_does_not_count(tmp_path: Path) -> None:
    path = tmp_path / "calls.jsonl"
    book = ResponseCache(path)
    reply(CachedModel(says("four"), book, "who"), user_request())
    book.close()
    path.write_text(path.read_text().replace("four", " "))
    assert (
        text(reply(CachedModel(says("five"), ResponseCache(path), "who"), user_request())) == "five"
    )


def test_a_reply_that_nobody_waited_for_is_not_kept(tmp_path: Path) -> None:
    model = says("one", "two")
    book = ResponseCache(tmp_path / "calls.jsonl")

    async def first_piece() -> None:
        async with aclosing(CachedModel(model, book, "who").stream(user_request())) as chunks:
            async for _ in chunks:
                break

    asyncio.run(first_piece())
    assert (kept_in(tmp_path / "calls.jsonl"), model.closed) == (0, 1)


def test_two_who_ask_the_same_at_once_ask_once(tmp_path: Path) -> None:
    failing = iter([True, False])
    model = ScriptedModel(
        reply=lambda _: (
            [0.01, ModelError("rate", "no")]
            if next(failing, False)
            else [0.01, "x", Chunk(usage=USED, finish="stop")]
        )
    )
    kept = CachedModel(model, ResponseCache(tmp_path / "calls.jsonl"), "who")

    async def all_at_once() -> list[Any]:
        return await asyncio.gather(
            *(chunks_of(kept, user_request()) for _ in range(4)), return_exceptions=True
        )

    results = asyncio.run(all_at_once())
    assert isinstance(results[0], ModelError)
    assert [text(chunks) for chunks in results[1:]] == ["x", "x", "x"]
    assert len(model.requests) == 2


def test_whoever_waits_for_an_equal_request_hears_that_it_goes_on(tmp_path: Path) -> None:
    slow = ScriptedModel(reply=lambda _: [3.0, "x", Chunk(usage=USED, finish="stop")])
    kept = CachedModel(slow, ResponseCache(tmp_path / "calls.jsonl"), "who")

    async def second() -> list[Chunk]:
        await asyncio.sleep(0.01)
        timeouts = Timeouts(first_token=1.0, idle=1.0, total=10.0)
        chunks: list[Chunk] = []
        await read_chunks(kept.stream(user_request()), chunks.append, timeouts)
        return chunks

    async def both() -> list[Chunk]:
        first = asyncio.create_task(chunks_of(kept, user_request()))
        gone = asyncio.create_task(second())
        waited = asyncio.create_task(second())
        await asyncio.sleep(1.0)
        gone.cancel()
        await asyncio.wait([first, gone])
        return await waited

    chunks = virtually(both())
    assert text(chunks) == "x"
    assert chunks[0] == Chunk()
    assert len(slow.requests) == 1


def test_a_cache_survives_being_cut_at_any_byte(tmp_path: Path) -> None:
    path = tmp_path / "calls.jsonl"
    book = ResponseCache(path)
    for name in ("a", "b"):
        reply(CachedModel(says(f"reply to {name}"), book, "who"), user_request(name))
    book.close()
    content = path.read_bytes()
    first = content.index(b"\n", 1)
    for cut in sorted(
        {*range(0, len(content), 11), first - 1, first, first + 1, len(content) - 1, len(content)}
    ):
        path.write_bytes(content[:cut])
        kept_replies = (cut >= first) + (cut >= len(content))
        book = ResponseCache(path)
        model = says("more")
        for name in ("a", "b", "c"):
            reply(CachedModel(model, book, "who"), user_request(name))
        book.close()
        assert len(model.requests) == 3 - kept_replies
        again = ResponseCache(path)
        assert text(reply(CachedModel(ScriptedModel(), again, "who"), user_request("c"))) == "more"
        again.close()


@pytest.mark.parametrize(
    "line", ["{}", "[]", "7", '{"key": 1}', "{" * 100_000, '{"key":"k","text":"t"}', "\x00"]
)
def test_lines_that_are_no_reply_do_not_count(tmp_path: Path, line: str) -> None:
    path = tmp_path / "calls.jsonl"
    path.write_text(line)
    book = ResponseCache(path)
    reply(CachedModel(says("x"), book, "who"), user_request())
    book.close()
    assert (
        text(reply(CachedModel(ScriptedModel(), ResponseCache(path), "who"), user_request())) == "x"
    )


def _add(path: Path, name: str) -> None:
    book = ResponseCache(path)
    for number in range(15):
        reply(CachedModel(says(name * 3000), book, name), user_request(str(number)))
    book.close()


def test_processes_share_a_cache(tmp_path: Path) -> None:
    """Several processes write one file at the same time, and nothing is lost."""
    context = multiprocessing.get_context("spawn")
    path = tmp_path / "calls.jsonl"
    processes = [context.Process(target=_add, args=(path, name)) for name in "xy"]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
    assert kept_in(path) == 30
    assert all(json.loads(line)["text"] for line in path.read_text().split("\n") if line)


def test_a_disk_that_is_full_costs_the_memory_only(tmp_path: Path) -> None:
    book = ResponseCache(tmp_path / "calls.jsonl")
    book.close()  # every write is refused from here on
    model = says("x")
    kept = CachedModel(model, book, "who")
    assert text(reply(kept, user_request())) == text(reply(kept, user_request())) == "x"
    assert book.error is not None
    assert len(model.requests) == 1


def test_who_a_worker_is_holds_no_secret() -> None:
    worker = Worker(name="a", kind="openai", model="m", options={"headers": {"X-Key": "secret"}})
    assert model_identity(worker) == model_identity(replace(worker, name="b"))
    assert model_identity(worker) != model_identity(
        replace(worker, options={"headers": {"X-Key": "other"}})
    )
    assert set(model_identity(worker)) <= set("0123456789abcdef")
    assert model_identity(worker) != model_identity(replace(worker, model="n"))
    assert model_identity(worker) != model_identity(
        replace(worker, options={"base_url": "http://127.0.0.1"})
    )


def test_a_file_that_was_written_again_is_another_model(tmp_path: Path) -> None:
    files = {name: tmp_path / f"{name}.gguf" for name in ("model", "adapter")}
    local = Worker(
        name="l",
        kind="llama",
        model=str(files["model"]),
        options={"adapter": str(files["adapter"])},
    )
    identities = {model_identity(local)}
    for path in files.values():
        for content in ("a", "ab"):
            path.write_text(content)
            identities.add(model_identity(local))
    os.utime(files["adapter"], ns=(1, 1))
    assert len(identities | {model_identity(local)}) == 6


def test_closing_closes_the_model(tmp_path: Path) -> None:
    """Whoever closes what it was given closes the model behind it."""

    class Closable(ScriptedModel):
        ended = False

        async def close(self) -> None:
            self.ended = True

    model = Closable()
    asyncio.run(CachedModel(model, ResponseCache(tmp_path / "calls.jsonl"), "who").close())
    assert model.ended
