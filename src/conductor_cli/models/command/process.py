"""A running program: its pipes, the tail of what it complains about, and its end. Linux and macOS."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

from conductor_cli.programs.guarded import Ending, GuardedProgram

PIECE: Final = 64 * 1024
"""Bytes that are read at once."""

TAIL: Final = 8 * 1024
"""Bytes of standard error that are kept: the last ones."""

STOP_SECONDS: Final = 10.0
"""How long to wait for the guard, which ends a program within 0.6 seconds and gives up after 8.5."""


class RunningProgram:
    """A program under its guard. Leave it by `end`, whatever happens: then nothing that it started is left."""

    def __init__(self, program: GuardedProgram) -> None:
        self._program = program
        self._process = program.process
        self._tail = bytearray()
        self._errors = asyncio.create_task(self._keep_tail())
        self._guard = asyncio.create_task(program.watch())
        self._feeder: asyncio.Task[None] | None = None

    @classmethod
    async def start(cls, words: Sequence[str], *, cwd: Path, environ: Mapping[str, str]) -> RunningProgram:
        """Start a program in a directory, with this environment and no other. Raises `OSError`."""
        return cls(await GuardedProgram.start(words, cwd=cwd, environ=environ))

    def feed(self, data: bytes) -> None:
        """Write to standard input and close it, while the output is read. A program need not read any of it."""
        self._feeder = asyncio.create_task(self._feed(data))

    async def read(self) -> bytes:
        """The next piece of standard output, empty at its end."""
        assert self._process.stdout is not None
        return await self._process.stdout.read(PIECE)

    async def ending(self) -> Ending:
        """How the program ended, once it has."""
        await asyncio.wait([self._guard])
        await asyncio.wait([self._errors], timeout=0.2)
        return self._program.ending

    @property
    def complaint(self) -> str:
        """The last lines of standard error, as far as they were kept."""
        return self._tail.decode("utf-8", "replace")

    async def end(self) -> None:
        """End the program and everything that it has started, unless it has ended."""
        self._program.end()  # this alone suffices, also if the lines below are cancelled
        try:
            async with asyncio.timeout(STOP_SECONDS):
                # A pipe that is not read to its end would stay open.
                while await self.read():
                    pass
                await self._process.wait()
        except TimeoutError:
            with suppress(ProcessLookupError):
                self._process.kill()
        finally:
            tasks = [task for task in (self._errors, self._feeder, self._guard) if task is not None]
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            self._program.close()

    async def _feed(self, data: bytes) -> None:
        stdin = self._process.stdin
        assert stdin is not None
        with suppress(BrokenPipeError, ConnectionResetError):
            stdin.write(data)
            await stdin.drain()
        stdin.close()
        with suppress(BrokenPipeError, ConnectionResetError):
            await stdin.wait_closed()

    async def _keep_tail(self) -> None:
        assert self._process.stderr is not None
        while piece := await self._process.stderr.read(PIECE):
            self._tail += piece
            del self._tail[:-TAIL]
