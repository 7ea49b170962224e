"""A GGUF file as a `Model`. Each has a thread of its own, on which llama.cpp is imported, loads, reads and writes.

The event loop only hands calls over and takes chunks; it never waits for llama.cpp. Calls are answered one after the
other.
"""

from __future__ import annotations

import asyncio
import atexit
import threading
import weakref
from collections.abc import AsyncGenerator, Callable
from pathlib import Path
from queue import SimpleQueue
from typing import Final, TypeVar

from conductor_cli.core.chat import Chunk, Request
from conductor_cli.core.errors import ModelError
from conductor_cli.models.llama.bindings import CancelToken
from conductor_cli.models.llama.call import Call
from conductor_cli.models.llama.engine import Engine
from conductor_cli.models.llama.gguf import one_line
from conductor_cli.models.llama.loading import LlamaOptions, Stopped

T = TypeVar("T")

PATIENCE: Final = 5.0
"""Seconds that `close` waits for the thread, which on a CPU needs less than 0.2 to stop."""

_OPEN: weakref.WeakSet[Llama] = weakref.WeakSet()


class Llama:
    """A local model, loaded at the first request or by `load`. Usable from one event loop after the other."""

    def __init__(self, path: Path | str, options: LlamaOptions = LlamaOptions()) -> None:  # noqa: B008 - frozen
        self.path = Path(path)
        self.options = options
        self._calls: SimpleQueue[Call | None] = SimpleQueue()
        self._open: weakref.WeakSet[Call] = weakref.WeakSet()
        self._lock = threading.Lock()
        self._started = False
        self._closed = False
        self._ended = threading.Event()

    async def load(self) -> None:
        """Load the model now. Raises `ModelError` of kind `file` when that cannot be done."""
        await self.do(lambda _engine, _flag: None)

    async def remembers(self, request: Request) -> bool:
        """Whether the fixed part of a request's prompt lies on disk, whole and sound."""

        def look(engine: Engine, flag: CancelToken) -> bool:
            engine.memory.watch(flag)
            return engine.memory.remembers(engine.prompt(request))

        return await self.do(look)

    async def do(self, work: Callable[[Engine, CancelToken], T]) -> T:
        """Have the model's thread do something with the loaded model. Raises what `work` does, as a `ModelError`."""
        found: list[T] = []

        def run(engine: Engine, flag: CancelToken) -> tuple[Chunk, ...]:
            found.append(work(engine, flag))
            return ()

        call = self._submit(Call(run, None))
        try:
            while await call.take():
                pass
        finally:
            await call.stop()
        return found[0]

    async def stream(self, request: Request) -> AsyncGenerator[Chunk, None]:
        """The reply to `request`; see `Model`. Closing it returns when the thread has stopped working on it."""
        call = self._submit(Call(lambda engine, flag: engine.answer(request, flag), request.deadline))
        try:
            while chunk := await call.take():
                yield chunk
        finally:
            await call.stop()

    async def close(self) -> None:
        """Stop what is being written, free the memory and end the thread. May be called again."""
        self._stop()
        if self._started:
            await asyncio.to_thread(self._ended.wait, PATIENCE)

    def _submit(self, call: Call) -> Call:
        with self._lock:
            if self._closed:
                raise ModelError("internal", f"{self.path.name} was closed")
            if not self._started:
                self._started = True
                _OPEN.add(self)
                threading.Thread(target=self._serve, name=f"llama {self.path.name}", daemon=True).start()
            self._open.add(call)
            self._calls.put(call)
        return call

    def _stop(self) -> None:
        with self._lock:
            if not self._closed:
                self._closed = True
                for call in self._open:
                    call.flag.set()
                self._calls.put(None)

    def _serve(self) -> None:
        """The thread: answers calls until there is none."""
        engine: Engine | None = None
        while (call := self._calls.get()) is not None:
            engine = self._answer(engine, call)
        if engine is not None:
            engine.close()
        self._ended.set()

    def _answer(self, engine: Engine | None, call: Call) -> Engine | None:
        try:
            if call.begin():
                engine = engine or Engine(self.path, self.options, call.flag)
                for chunk in call.work(engine, call.flag):
                    call.tell(chunk)
            else:
                call.tell(self._gone())
        except Stopped:
            call.tell(self._gone())
        except ModelError as error:
            call.tell(error)
        except Exception as error:  # noqa: BLE001 - it must reach the reader, and the thread must live on
            unforeseen = ModelError(
                "internal", f"{self.path.name} broke off: {one_line(str(error)) or 'it gave no reason'}"
            )
            unforeseen.__cause__ = error
            call.tell(unforeseen)
        call.tell(None)
        return engine

    def _gone(self) -> ModelError:
        return ModelError("broken", f"{self.path.name} was closed before it had written its answer")


@atexit.register
def _stop_all() -> None:
    """A thread inside llama.cpp must not outlive the interpreter."""
    waiting = list(_OPEN)
    for model in waiting:
        model._stop()  # noqa: SLF001
    for model in waiting:
        model._ended.wait(PATIENCE)  # noqa: SLF001
