"""Pieces of text that come to who reads a reply without waking its task."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from conductor_cli.core.chat import Chunk, Message, Request
from conductor_cli.core.errors import ModelError
from conductor_cli.core.pool import Timeouts
from conductor_cli.models.base import GivesAtOnce
from conductor_cli.models.chat_api_model import ChatApiModel
from conductor_cli.models.reply_events import TextForm
from conductor_cli.models.several_servers import SeveralServers
from conductor_cli.run.attempt import _CallReader
from tests.servers import Script, SeenRequest, Server, Wire, delta, usage

ASKED = Request(messages=(Message(role="user", content="Yes?"),))
FIRST = (delta("-"), delta("-"))
"""The first pieces of a reply, which always come in chunks."""
END = (delta(finish="stop"), usage())
PATIENCE = Timeouts(first_token=10, idle=10, total=20)


class Reader:
    """Reads a reply, and keeps each piece with how it came."""

    def __init__(self) -> None:
        self.is_ready = True
        self.pieces: list[tuple[str, str]] = []
        self.has_more = asyncio.Event()

    def take_at_once(self, text: str, thinking: str) -> None:
        self.add("at once", text + thinking)

    def add(self, how: str, text: str) -> None:
        if text != "-":
            self.pieces.append((how, text))
        self.has_more.set()

    async def read(self, chunks: AsyncGenerator[Chunk, None]) -> Chunk:
        """Read all; return the last chunk."""
        chunk = Chunk()
        async for chunk in chunks:
            if chunk.text or chunk.thinking:
                self.add("chunk", chunk.text + chunk.thinking)
        return chunk

    @property
    def text(self) -> str:
        return "".join(text for _, text in self.pieces)


def one_by_one(reader: Reader, *frames: Any, end: tuple[Any, ...] = END) -> Script:
    """Send `FIRST`, and then each frame when the reader has the one before it."""

    async def script(request: SeenRequest, wire: Wire) -> None:
        await wire.head()
        for frame in (*FIRST, *frames):
            await wire.frames(frame)
            waits = [asyncio.create_task(event.wait()) for event in (reader.has_more, wire.gone)]
            _, waiting = await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
            for task in waiting:
                task.cancel()
            if wire.gone.is_set():
                return
            reader.has_more.clear()
        await wire.frames(*end, "[DONE]")

    return script


@asynccontextmanager
async def opened(
    *scripts: Script, key: str = ""
) -> AsyncGenerator[ChatApiModel | SeveralServers, None]:
    """A model behind servers with these scripts."""
    servers = [Server(script) for script in scripts]
    for server in servers:
        await server.open()
    models = [ChatApiModel("m", f"{server.url}/v1", key=key) for server in servers]
    model = models[0] if len(models) == 1 else SeveralServers(models)
    try:
        yield model
    finally:
        await model.close()
        for server in servers:
            server.close()
        rest = asyncio.all_tasks() - {asyncio.current_task()}
        await asyncio.gather(*rest, return_exceptions=True)


async def read(reader: Reader, *scripts: Script, request: Request = ASKED, key: str = "") -> Chunk:
    """Read the reply of a model behind servers with these scripts; return its last chunk."""
    async with opened(*scripts, key=key) as model:
        assert isinstance(model, GivesAtOnce)
        return await reader.read(model.stream_to(reader, request))


def test_a_piece_of_text_comes_at_once_after_the_first_one() -> None:
    async def main() -> tuple[Reader, Chunk]:
        reader = Reader()
        frames = [delta("One, "), delta("two "), delta('"thr\u00e9e"\n'), delta("\U0001f600")]
        return reader, await read(reader, one_by_one(reader, *frames))

    reader, last = asyncio.run(main())
    assert reader.pieces == [
        ("chunk", "One, "),
        ("at once", "two "),
        ("at once", '"thr\u00e9e"\n'),
        ("at once", "\U0001f600"),
    ]
    assert last.finish == "stop"


def test_what_is_no_text_alone_comes_in_a_chunk_and_in_its_order() -> None:
    async def main() -> Reader:
        reader = Reader()
        frames = [
            delta("One "),
            delta("two "),
            delta(reasoning_content="hm "),
            delta("three "),
            delta("four "),
        ]
        await read(reader, one_by_one(reader, *frames))
        return reader

    reader = asyncio.run(main())
    assert reader.text == "One two hm three four "
    assert [how for how, _ in reader.pieces] == ["chunk", "at once", "chunk", "chunk", "at once"]


def test_a_reader_without_time_is_given_nothing_at_once() -> None:
    async def main() -> Reader:
        reader = Reader()
        reader.is_ready = False
        await read(reader, one_by_one(reader, delta("One "), delta("two "), delta("three ")))
        return reader

    reader = asyncio.run(main())
    assert reader.pieces == [("chunk", "One "), ("chunk", "two "), ("chunk", "three ")]


def test_a_key_in_two_pieces_is_left_out_of_text_that_comes_at_once() -> None:
    key = "sk-a8Kq2Lz91Xw7Vt3"

    async def main() -> Reader:
        reader = Reader()
        frames = [delta("It is ---------- "), delta("known ---------- ")]
        script = one_by_one(reader, *frames, end=(delta(key[:9]), delta(key[9:]), *END))
        await read(reader, script, key=key)
        return reader

    reader = asyncio.run(main())
    assert reader.text == "It is ---------- known ---------- [key]"


def test_an_error_behind_text_that_came_at_once_is_an_error_and_asks_no_other_server() -> None:
    async def main() -> tuple[Reader, str]:
        reader = Reader()
        breaks = one_by_one(
            reader, delta("One "), delta("two "), end=({"error": {"message": "no room"}},)
        )
        other = one_by_one(reader, delta("Another "))
        with pytest.raises(ModelError) as error:
            await read(reader, breaks, other)
        return reader, error.value.message

    reader, message = asyncio.run(main())
    assert "no room" in message
    assert reader.pieces == [("chunk", "One "), ("at once", "two ")]


def test_a_piece_that_makes_a_reply_too_long_ends_it() -> None:
    async def main() -> Reader:
        reader = Reader()
        script = one_by_one(reader, *[delta("x" * 60_000)] * 40)
        request = Request(messages=ASKED.messages, max_tokens=10)
        with pytest.raises(ModelError, match="longer than"):
            await read(reader, script, request=request)
        return reader

    reader = asyncio.run(main())
    assert len(reader.text) < 1024 * 1024 + 10 * 64
    assert ("at once", "x" * 60_000) in reader.pieces


def test_an_error_of_who_takes_a_piece_is_raised_as_it_is() -> None:
    class OwnError(Exception):
        pass

    async def main() -> None:
        heard = Reader()

        def take(chunk: Chunk) -> None:
            heard.add("chunk", chunk.text)

        def take_text(text: str, thinking: str) -> None:
            heard.add("at once", text)
            raise OwnError(text)

        reader = _CallReader(take, PATIENCE, None, take_text)
        script = one_by_one(heard, delta("One "), delta("two "), delta("three "))
        async with opened(script) as model:
            await reader.read_reply(model, ASKED)

    with pytest.raises(OwnError, match="two"):
        asyncio.run(main())


def test_a_reader_that_has_to_wait_reads_on_where_it_stood() -> None:
    async def main() -> list[tuple[str, str]]:
        heard = Reader()
        keeps_up = asyncio.Event()
        keeps_up.set()

        def take(chunk: Chunk) -> None:
            if chunk.text:
                heard.add("chunk", chunk.text)

        def take_text(text: str, thinking: str) -> None:
            heard.add("at once", text)
            if text == "two ":
                keeps_up.clear()
                asyncio.get_running_loop().call_later(0.05, keeps_up.set)

        reader = _CallReader(take, PATIENCE, keeps_up, take_text)
        script = one_by_one(heard, delta("One "), delta("two "), delta("three "))
        async with opened(script) as model:
            await reader.read_reply(model, ASKED)
        return heard.pieces

    assert asyncio.run(main()) == [("chunk", "One "), ("at once", "two "), ("chunk", "three ")]


# The form of events


def text_alone(event: str) -> str | None:
    """Return the text of an event that has a text and nothing else that could change."""
    try:
        value = json.loads(event)
    except ValueError:
        return None
    if not isinstance(value, dict) or value.get("end") is not None:
        return None
    content = value.get("delta", {}).get("content")
    return content if isinstance(content, str) else None


def event_of(content: str, *, before: Any = 0, behind: Any = 0, is_ascii: bool = True) -> str:
    fields = {"before": before, "delta": {"content": content}, "behind": behind}
    return json.dumps(fields, ensure_ascii=is_ascii)


TEXTS = st.text(max_size=12) | st.sampled_from(['"', "\\", "content", '"content": "', "\ud83d"])


@given(
    texts=st.lists(TEXTS, min_size=2, max_size=6),
    before=TEXTS,
    behind=st.fixed_dictionaries({"content": TEXTS}),
    is_ascii=st.booleans(),
)
def test_a_form_reads_the_same_text_as_all_of_the_event(
    texts: list[str], before: str, behind: dict[str, str], is_ascii: bool
) -> None:
    form = TextForm(text_alone)
    for text in texts:
        event = event_of(text, before=before, behind=behind, is_ascii=is_ascii)
        assert form.text_of(event) in (None, text)
        form.learn(event, text)
    assert form.text_of(event) == texts[-1]


@pytest.mark.parametrize(
    "event",
    [
        event_of("b", before=1),
        event_of("b", behind=1),
        event_of("b")[:-1],
        event_of("b") + "}",
        '{"before": 0, "delta": {"content": "b", "content": "c"}, "behind": 0}',
        '{"before": 0, "delta": {"content": "b\n"}, "behind": 0}',
        "",
    ],
)
def test_an_event_that_differs_in_more_than_its_text_has_another_form(event: str) -> None:
    form = TextForm(text_alone)
    form.learn(event_of("a"), "a")
    assert form.text_of(event_of("c")) == "c"
    assert form.text_of(event) is None


def test_a_form_that_is_never_met_again_is_not_learned_without_end() -> None:
    reads = []

    def count(event: str) -> str | None:
        reads.append(event)
        return text_alone(event)

    form = TextForm(count)
    for number in range(100):
        form.learn(event_of("a", before=number), "a")
    assert len(reads) < 20
