"""A GGUF file as a `Model`.

Each model has a thread on which llama.cpp is imported, loads, reads and writes. llama.cpp's calls
last for seconds and a context may be used by one thread at a time, so the event loop only hands
over calls and takes chunks, and calls are answered one after the other.
"""

from __future__ import annotations

import asyncio
import atexit
import threading
import time
import weakref
from collections.abc import AsyncGenerator, Callable, Iterable
from contextlib import suppress
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from queue import SimpleQueue
from typing import Final

from conductor_cli.core.chat import Chunk, Request
from conductor_cli.core.errors import ModelError
from conductor_cli.core.formatting import format_duration
from conductor_cli.core.terminal_text import short_line
from conductor_cli.models.base import NO_FEATURES, Features, check_features
from conductor_cli.models.llama.bindings import CancelToken
from conductor_cli.models.llama.engine import LlamaEngine
from conductor_cli.models.llama.gguf import read_chat_template
from conductor_cli.models.llama.loading import Cancelled, LlamaOptions
from conductor_cli.models.llama.schema_grammar import SchemaGrammars
from conductor_cli.models.llama.tool_calls import form_of

Work = Callable[[LlamaEngine, CancelToken], Iterable[Chunk]]
"""What the thread does for a call.

It raises `ModelError`, or `Cancelled` soon after the token is set.
"""

STOP_TIMEOUT: Final = 5.0
"""Seconds that stopping a call, or closing a model, waits for the thread.

On a CPU it needs less than 0.2.
"""

NO_GRAMMAR: Final = (
    "llama.cpp has no grammar for this JSON Schema, so the answer is only checked when it is "
    "complete; a simpler schema is held to from the first token"
)


class LlamaCall:
    """Made on the event loop.

    The thread calls `put` with chunks, perhaps with an error, and at last with None.
    """

    def __init__(self, work: Work, deadline: float | None) -> None:
        """`deadline` is in seconds from now."""
        self.work = work
        self.cancel = CancelToken()
        self._loop = asyncio.get_running_loop()
        self._seconds = deadline
        self._until: float | None = None
        if deadline is not None:
            self._until = self._loop.time() + deadline
        self._results: asyncio.Queue[Chunk | ModelError | None] = asyncio.Queue()
        self._held: list[Chunk] = []  # only the thread uses this and the next
        self._handed_over = 0.0
        self.is_started = False  # set by the thread
        self._ended = False

    def put(self, result: Chunk | ModelError | None) -> None:
        """From the thread: hand over a result.

        A chunk may be held back until the next one, and is joined with it.
        """
        joins = isinstance(result, Chunk) and not (
            result.tool_call or result.note or result.progress
        )
        if isinstance(result, Chunk) and joins:
            self._held.append(result)
            now = time.monotonic()
            # A tiny model writes thousands of tokens a second: waking the loop for each would take
            # more than the model.
            if now - self._handed_over < 0.004:
                return
            self._handed_over = now
        if self._held:
            text = "".join(chunk.text for chunk in self._held)
            thinking = "".join(chunk.thinking for chunk in self._held)
            self._send(replace(self._held[-1], text=text, thinking=thinking))
            self._held = []
        if not joins:
            self._send(result)

    def _send(self, result: Chunk | ModelError | None) -> None:
        try:
            self._loop.call_soon_threadsafe(self._results.put_nowait, result)
        except RuntimeError:  # the loop has closed, so nobody will read this
            self.cancel.set()

    async def get(self) -> Chunk | None:
        """Return the next chunk; None at the end. Raises the thread's error."""
        if self._ended:
            return None
        try:
            async with asyncio.timeout_at(self._until):
                result = await self._results.get()
        except TimeoutError:
            limit = format_duration(self._seconds or 0)
            raise ModelError("timeout", f"the model did not finish within {limit}") from None
        if isinstance(result, ModelError):
            raise result
        self._ended = result is None
        return result

    async def stop(self) -> None:
        """Make the thread stop, and wait until it has if it had started.

        The wait is `STOP_TIMEOUT` at most.
        """
        self.cancel.set()
        with suppress(TimeoutError):
            async with asyncio.timeout(STOP_TIMEOUT):
                # What the thread still hands over is dropped, up to its None.
                while self.is_started and not self._ended:
                    self._ended = await self._results.get() is None


_OPEN_MODELS: weakref.WeakSet[Llama] = weakref.WeakSet()


class Llama:
    """A local model, loaded at the first request or by `load`.

    Usable from one event loop after the other.
    """

    # frozen
    def __init__(self, path: Path | str, options: LlamaOptions = LlamaOptions()) -> None:  # noqa: B008
        self.path = Path(path)
        self.options = options
        self._calls: SimpleQueue[LlamaCall | None] = SimpleQueue()
        self._open_calls: weakref.WeakSet[LlamaCall] = weakref.WeakSet()
        self._lock = threading.Lock()
        self._started = False
        self._closed = False
        self._thread_ended = threading.Event()
        self._grammars = SchemaGrammars()

    @cached_property
    def features(self) -> Features:
        """Tools, if its chat template has a form for them that is read here. Raises nothing."""
        if form_of(read_chat_template(self.path)) is None:
            return NO_FEATURES
        return frozenset({"tools"})

    async def load(self) -> None:
        """Load the model now. Raises `ModelError` of kind `file` if that fails."""
        call = self._submit(LlamaCall(lambda _engine, _cancel: (), None))
        try:
            await call.get()
        finally:
            await call.stop()

    async def stream(self, request: Request) -> AsyncGenerator[Chunk, None]:
        """Return the reply to `request`; see `Model`.

        Closing it returns when the thread has stopped working on it.
        """
        check_features(self.path.name, self.features, request)
        note = _untaken(request)
        if note:
            yield Chunk(note=note)
        if _is_greedy(request):
            request = replace(request, temperature=0.0)
        if request.schema is None or request.grammar is not None or request.tools:
            async for chunk in self._write(request):
                yield chunk
            return
        grammar = await self._grammars.grammar_of(request.schema)
        is_begun = False
        if grammar:
            try:
                async for chunk in self._write(replace(request, grammar=grammar)):
                    is_begun = True
                    yield chunk
            except ModelError as error:
                if is_begun or error.reason != "internal":
                    raise
            else:
                return
        yield Chunk(note=NO_GRAMMAR)
        async for chunk in self._write(request):
            yield chunk

    async def _write(self, request: Request) -> AsyncGenerator[Chunk, None]:
        call = self._submit(
            LlamaCall(lambda engine, cancel: engine.generate(request, cancel), request.deadline)
        )
        try:
            while chunk := await call.get():
                yield chunk
        finally:
            await call.stop()

    async def close(self) -> None:
        """Stop what is being written, free the memory and end the thread. May be called again."""
        self._stop()
        if self._started:
            # Not thread.join(): a KeyboardInterrupt within it makes Python 3.11 believe that the
            # thread has ended.
            await asyncio.to_thread(self._thread_ended.wait, STOP_TIMEOUT)

    def _submit(self, call: LlamaCall) -> LlamaCall:
        with self._lock:
            if self._closed:
                raise ModelError("internal", f"{self.path.name} was closed")
            if not self._started:
                self._started = True
                _OPEN_MODELS.add(self)
                threading.Thread(
                    target=self._serve, name=f"llama {self.path.name}", daemon=True
                ).start()
            self._open_calls.add(call)
            self._calls.put(call)
        return call

    def _stop(self) -> None:
        with self._lock:
            if not self._closed:
                self._closed = True
                for call in self._open_calls:
                    call.cancel.set()
                self._calls.put(None)

    def _serve(self) -> None:
        """Answer calls until there are no more, on the thread of the model."""
        engine: LlamaEngine | None = None
        while (call := self._calls.get()) is not None:
            try:
                call.is_started = True
                if call.cancel.is_set:
                    raise Cancelled
                engine = engine or LlamaEngine(self.path, self.options, call.cancel)
                for chunk in call.work(engine, call.cancel):
                    call.put(chunk)
            except Cancelled:
                problem = f"{self.path.name} was closed before it had written its answer"
                call.put(ModelError("broken", problem))
            except ModelError as error:
                call.put(error)
            except Exception as error:  # noqa: BLE001
                # It must reach the reader, and the thread must live on
                reason = short_line(str(error)) or type(error).__name__
                unforeseen = ModelError("internal", f"{self.path.name} failed: {reason}")
                unforeseen.__cause__ = error
                call.put(unforeseen)
            call.put(None)
        if engine is not None:
            engine.close()
        self._thread_ended.set()


def _is_greedy(request: Request) -> bool:
    """Return whether a request leaves only the likeliest token to draw."""
    top_p = request.sampling.get("top_p")
    return request.sampling.get("top_k") == 1 or (top_p is not None and top_p < 0.01)


def _untaken(request: Request) -> str:
    """Return a note on what a client asks of the sampling that a model file does not do."""
    names = sorted(request.sampling)
    if not names or _is_greedy(request):
        return ""
    return f"a model file takes temperature and seed, but not {', '.join(names)}"


@atexit.register
def _stop_all() -> None:
    """Stop the threads of all models.

    One that is inside llama.cpp while the interpreter is torn down crashes the process.
    """
    models = list(_OPEN_MODELS)
    for model in models:
        model._stop()  # noqa: SLF001
    for model in models:
        model._thread_ended.wait(STOP_TIMEOUT)  # noqa: SLF001
