"""Work that is the same each time, for `instructions.py`, which counts its instructions.

`python benchmarks/counted.py WORK …` does it without network and without a clock that matters.
`mark` divides it into parts that are counted apart: valgrind notices the call by its name.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Final

from conductor_cli.__main__ import main
from conductor_cli.core import events as ev
from conductor_cli.core.chat import Message, Request
from conductor_cli.core.pool import Pool, Worker
from conductor_cli.models.base import ScriptedModel
from conductor_cli.models.http import SseParser
from conductor_cli.models.stream_decoder import ChatReplyDecoder
from conductor_cli.run import Orchestra, RunSpec, Team, start_run
from conductor_cli.server.api.chat_completions import ChatCompletionsApi, ChatEncoder
from conductor_cli.server.runs.conversation import CallIds, read_conversation
from conductor_cli.server.runs.narration import AnswerText, Reasoning, ResponseStream
from conductor_cli.state.trace_store import TraceStore
from conductor_cli.system.known_secrets import KNOWN_SECRETS


def mark() -> None:
    """Begin another part of what is counted."""
    os.getloadavg()  # `instructions.py` names it to valgrind, and nothing else calls it


def run_driver(few: str, many: str) -> None:
    """Answer two streams without connections, the first of few and the second of many pieces.

    Server-sent events, run, stored trace, chunk for a client. One before them fills the caches.
    """
    for count in (few, few, many):
        asyncio.run(_serve(1, deltas=int(count), streams=True))
        mark()


def run_server(*options: str) -> None:
    """Run `conductor serve`, which begins another part at each SIGUSR2."""
    signal.signal(signal.SIGUSR2, lambda *_: mark())
    sys.argv = ["conductor", "serve", *options]
    main()


async def _serve(count: int, *, deltas: int, streams: bool) -> None:
    """Answer requests as a server does, but for its connections."""
    with tempfile.TemporaryDirectory() as directory:
        planner = ScriptedModel(scripts=[["alpha | - | Answer it."]])
        answer = [_event(f"word {number} ") for number in range(deltas)]
        worker = ScriptedModel(reply=lambda _: _decoded(answer))
        pool = Pool(workers=(Worker(name="alpha", kind="scripted"),))
        team = Team(model=planner, pool=pool, workers={"alpha": worker}, mode="mini")
        store = TraceStore(Path(directory))
        for number in range(count):
            await _answer(number, Orchestra(team=team), store, streams=streams)


async def _answer(number: int, orchestra: Orchestra, store: TraceStore, *, streams: bool) -> None:
    text = f"Question {number}: what is the capital of France?"
    body = {
        "model": "conductor",
        "stream": streams,
        "messages": [{"role": "user", "content": text}],
    }
    request = ChatCompletionsApi().parse(json.loads(json.dumps(body)))
    conversation = read_conversation(request, {}, {}, lambda _: None, CallIds(b"secret"))
    run = start_run(orchestra, RunSpec(question=conversation.question, streams_answer=streams))
    writer = store.open(run.id)
    encoder = ChatEncoder(request, run.id, 0)
    stream = ResponseStream()
    written = 0
    async for event, trace in run:
        writer.write(event)
        for piece in stream.read(event, trace):
            if isinstance(piece, AnswerText):
                written += len(encoder.text(piece.text))
            elif isinstance(piece, Reasoning):
                written += len(encoder.reasoning(piece.text))
        if isinstance(event, ev.RunFailed):
            raise SystemExit(f"a run failed: {event.error.message}")
    writer.close()
    outcome = stream.outcome()
    if not written or isinstance(outcome, Exception):
        raise SystemExit(f"a run has no answer: {outcome}")
    json.dumps(encoder.whole(outcome))


def _event(text: str) -> bytes:
    delta = {"index": 0, "delta": {"content": text}, "logprobs": None, "finish_reason": None}
    chunk = {
        "id": "chatcmpl-0",
        "object": "chat.completion.chunk",
        "model": "m",
        "choices": [delta],
    }
    return b"data: %b\n\n" % json.dumps(chunk).encode()


def _decoded(events: list[bytes]) -> list[str]:
    """The texts of server-sent events, read as an adapter does."""
    parser = SseParser()
    decoder = ChatReplyDecoder(
        Request(messages=(Message(role="user", content="?"),)), KNOWN_SECRETS
    )
    texts: list[str] = []
    for event in events:
        for event_data in parser.feed(event):
            texts += [chunk.text for chunk in decoder.frame(json.loads(event_data))]
    return texts


WORK: Final[dict[str, Callable[..., None]]] = {
    "driver": run_driver,
    "server": run_server,
}

if __name__ == "__main__":
    WORK[sys.argv[1]](*sys.argv[2:])
