"""A user's desk for tests.

Settings, a provider server whose models do what they are told, and the real command.
"""

from __future__ import annotations

import io
import json
import os
import shutil
import signal
import subprocess
import sys
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import IO, Any

import pytest
import typer.main

from conductor_cli.cli import entry
from tests import fork_server
from tests.servers import Loopback, Script, SeenRequest, Wire, delta, loopback, usage

SOURCE = Path(__file__).resolve().parents[2] / "src"
COMMAND = (sys.executable, "-m", "conductor_cli")

# Typer makes the commands anew at each call, which took a quarter of a command that runs in this
# process.
typer.main.get_command = cache(typer.main.get_command)
PLANNER = "planner"

OPEN_TERMINALS: list[Any] = []
"""The commands that run in terminals of this process (`tests.cli.terminals`, which Windows cannot
import).
"""

ONE = "alpha | - | Answer it."
TWO = "alpha | - | Find it out.\nbeta | 1 | Check it and answer."
THREE = (
    "alpha | - | Find it out.\nbeta | - | Find it out in another way.\nalpha | 1 2 | Compare "
    "and answer."
)


@dataclass(frozen=True, kw_only=True)
class Done:
    """How a command ended. A command killed by a signal has the code that a shell shows."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)

    @property
    def events(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.out.splitlines()]


def sends(*frames: Any) -> Script:
    """A model that streams these frames."""

    async def script(request: SeenRequest, wire: Wire) -> None:
        await wire.head()
        await wire.frames(*frames)

    return script


def says(*pieces: str, finish: str = "stop", read: int = 11, written: int = 7) -> Script:
    """A model that streams `pieces`, ends well, and says how many tokens that took."""
    return sends(*map(delta, pieces), delta(finish=finish), usage(read, written), "[DONE]")


def stalls(*pieces: str) -> Script:
    """A model that streams `pieces` and then nothing until the client goes."""

    async def script(request: SeenRequest, wire: Wire) -> None:
        await wire.head()
        await wire.frames(*map(delta, pieces))
        await wire.stall()

    return script


def breaks(*pieces: str) -> Script:
    """A model that streams `pieces` and breaks off."""

    async def script(request: SeenRequest, wire: Wire) -> None:
        await wire.head()
        await wire.frames(*map(delta, pieces))
        wire.cut()

    return script


def refuses(status: int, message: str = "no") -> Script:
    """A model that answers with an error."""

    async def script(request: SeenRequest, wire: Wire) -> None:
        await wire.json({"error": {"message": message, "type": "some_error"}}, status)

    return script


def replies(
    content: bytes | str, kind: str = "text/event-stream", status: int = 200, **headers: str
) -> Script:
    """A model whose whole body is `data`."""

    async def script(request: SeenRequest, wire: Wire) -> None:
        await wire.head(status, kind, **headers)
        if content:
            await wire.send(content)

    return script


@dataclass
class Stage:
    """`plan` is what the planner writes.

    `models` says what a worker's model does, else it says its name.
    """

    home: Path
    plan: str = ONE
    models: dict[str, Script] = field(default_factory=dict)
    server: Loopback = field(init=False)

    def __post_init__(self) -> None:
        self.server = loopback(self._serve)

    async def _serve(self, request: SeenRequest, wire: Wire) -> None:
        if request.path.endswith("/models"):
            await wire.json({"object": "list", "data": [{"id": "alpha"}, {"id": "beta"}]})
            return
        name = request.json["model"]
        script = self.models.get(name) or says(self.plan if name == PLANNER else f"{name} answers")
        await script(request, wire)

    @property
    def url(self) -> str:
        return f"{self.server.url}/v1"

    @property
    def config(self) -> Path:
        return self.home / "config/conductor-llm/config.toml"

    @property
    def own_file(self) -> Path:
        return self.config.with_name("settings.toml")

    @property
    def traces(self) -> Path:
        return self.home / "state/conductor-llm/traces"

    def asked(self, model: str) -> list[SeenRequest]:
        """The requests that a model got."""
        return [request for request in self.posts if request.json["model"] == model]

    @property
    def posts(self) -> list[SeenRequest]:
        """The requests that any model got."""
        return [request for request in self.server.requests if request.method == "POST"]

    @property
    def own_settings(self) -> dict[str, Any]:
        """What conductor's own file holds."""
        return tomllib.loads(self.own_file.read_text()) if self.own_file.exists() else {}

    def configure(
        self,
        tables: str = "",
        workers: Sequence[str] | Mapping[str, str] = ("alpha", "beta"),
        conductor: str | None = "",
    ) -> None:
        """Write config.toml.

        The planner, one attempt, `tables`, and one worker of this server for each name.

        `workers` may say what else stands in the table of each. Without a `conductor` (None) no
        model plans.
        """
        lines = ["[conductor]", tables or "[limits]\nattempts = 1"]
        if conductor is not None:
            model = conductor or f"{self.url}#{PLANNER}"
            lines = ["[planner]", f'model = "{model}"', *lines]
        worker_tables = workers if isinstance(workers, Mapping) else dict.fromkeys(workers, "")
        lines += [self.worker(name, table) for name, table in worker_tables.items()]
        self.config.parent.mkdir(parents=True, exist_ok=True)
        self.config.write_text("\n".join(lines) + "\n")

    def worker(self, name: str, keys: str = "") -> str:
        """A worker's table."""
        return (
            f'[workers.{name}]\nkind = "openai-compatible"\nbase_url = "{self.url}"\nmodel = '
            f'"{name}"\n{keys}'
        )

    def pool(self, name: str, *workers: str) -> None:
        """Add a pool to config.toml."""
        with self.config.open("a") as file:
            file.write(f"[pools.{name}]\nworkers = {[*workers]}\n")

    def start(
        self,
        *arguments: str | Path,
        env: dict[str, str] | None = None,
        under: Sequence[str] = (),
        **streams: Any,
    ) -> subprocess.Popen[bytes]:
        """The command in a process group of its own, as under a shell with job control.

        `under` starts it; without it, it is forked where that makes no difference.
        """
        streams = {
            "stdin": subprocess.DEVNULL,
            "stdout": subprocess.PIPE,
            "stderr": subprocess.PIPE,
        } | streams
        environ = self.environ(env)
        words = [*map(str, arguments)]
        # What a test reads must not be missing from what `communicate` reads
        how = {"env": environ, "start_new_session": True, "bufsize": 0, **streams}
        if not under and fork_server.can_start(words, environ):
            return fork_server.ForkedCommand(words, **how)
        return fork_server.Command([*under, *COMMAND, *words], **how)

    def environ(self, variables: dict[str, str] | None = None) -> dict[str, str]:
        return {**os.environ, "PYTHONPATH": str(SOURCE), "COLUMNS": "80", **(variables or {})}

    def run(
        self,
        *arguments: str | Path,
        given: bytes | str | None = None,
        env: dict[str, str] | None = None,
        under: Sequence[str] = (),
        **streams: Any,
    ) -> Done:
        """Run the command to its end; `given` comes on stdin."""
        if given is not None:
            streams["stdin"] = subprocess.PIPE
        with self.start(*arguments, env=env, under=under, **streams) as process:
            return finished(process, given)

    def inside(
        self,
        *arguments: str | Path,
        given: bytes | str = b"",
        env: dict[str, str] | None = None,
        cwd: Path | None = None,
    ) -> Done:
        """Run the command in this process: as `run`, but much faster."""
        input_bytes = given.encode() if isinstance(given, str) else given
        with pytest.MonkeyPatch.context() as patch:
            for name, value in (env or {}).items():
                patch.setenv(name, value)
            if cwd is not None:
                patch.chdir(cwd)
            for name, content in (("stdin", input_bytes), ("stdout", b""), ("stderr", b"")):
                patch.setattr(
                    sys, name, io.TextIOWrapper(io.BytesIO(content), encoding="utf-8", newline="\n")
                )
            code = entry.run_command_line([*map(str, arguments)])
            texts = []
            for stream in (sys.stdout, sys.stderr):
                stream.flush()
                texts.append(stream.buffer.getvalue().decode())  # type: ignore[union-attr]
        return Done(code=code, out=texts[0], err=texts[1])

    def ends(
        self,
        code: int,
        *arguments: str | Path,
        told: str | tuple[str, ...] = (),
        out: str | None = None,
        **how: Any,
    ) -> Done:
        """Run the command in this process.

        Assert its exit code, stdout if `out` is given, and `told` in stderr.
        """
        done = self.inside(*arguments, **how)
        assert done.code == code, done
        assert out in (None, done.out), done
        for text in (told,) if isinstance(told, str) else told:
            assert text in done.err, done
        return done

    def ok(self, *arguments: str | Path, **how: Any) -> Done:
        """Run the command in this process; assert that it succeeds."""
        return self.ends(0, *arguments, **how)

    def fails(self, code: int, *arguments: str | Path, **how: Any) -> Done:
        """Run the command in this process.

        Assert that it fails with this exit code, and an error as it should be.
        """
        done = self.ends(code, *arguments, **how)
        explained(done)
        return done

    def costs_nothing(self, code: int, *arguments: str | Path, **how: Any) -> Done:
        """Run the command in this process.

        Assert that it fails as `fails` says, and before anybody is asked.
        """
        before = len(self.server.requests)
        done = self.fails(code, *arguments, **how)
        assert len(self.server.requests) == before, done
        return done


def limit_file_size(blocks: int) -> tuple[str, ...]:
    """A command prefix.

    Files cannot grow beyond so many KiB, as on a full disk, until the limit is lifted.

    The record of what was spent needs 32 KiB.
    """
    return ("bash", "-c", f'ulimit -S -f {blocks}; exec "$@"', "limited")


def need(program: str) -> str:
    """The path of a program; without it the test is skipped."""
    program_path = shutil.which(program)
    if program_path is None:
        pytest.skip(f"{program} is not installed")
    return program_path


def output_of(directory: Path, *command: str) -> str:
    """What a program prints that succeeds in this directory and complains of nothing."""
    done = subprocess.run(command, cwd=directory, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


def stopped(process: subprocess.Popen[bytes], number: int = signal.SIGINT) -> Done:
    """Send a signal to a command and all that it has started, and wait for its end.

    A terminal does the same.
    """
    os.killpg(process.pid, number)
    return finished(process)


def finished(process: subprocess.Popen[bytes], given: bytes | str | None = None) -> Done:
    """Wait for a command, at most a minute."""
    content = given.encode() if isinstance(given, str) else given
    try:
        out, err = process.communicate(content, timeout=60)
    except subprocess.TimeoutExpired:
        process.kill()
        raise
    code = process.returncode if process.returncode >= 0 else 128 - process.returncode
    return Done(
        code=code,
        out=(out or b"").decode("utf-8", "replace"),
        err=(err or b"").decode("utf-8", "replace"),
    )


def until(stream: IO[bytes] | None, kind: str, step: int = 0) -> list[dict[str, Any]]:
    """Read events from `--format jsonl` until one of this kind, of this step if one is named."""
    assert stream is not None
    events = []
    for line in stream:
        events.append(json.loads(line))
        if events[-1]["kind"] == kind and events[-1].get("step", 0) == (
            step or events[-1].get("step", 0)
        ):
            return events
    raise AssertionError(f"no {kind} came, only {[event['kind'] for event in events]}")


def explained(done: Done) -> None:
    """Assert that stderr is an error as it should be.

    One to three lines, ours, no traceback, nothing raw.
    """
    lines = done.err.splitlines()
    assert 1 <= len(lines) <= 3, done.err
    assert lines[0].startswith("conductor: "), done.err
    assert "Traceback" not in done.err
    assert "this is a bug in conductor" not in done.err
    assert all(letter.isprintable() or letter == "\n" for letter in done.err), repr(done.err)
