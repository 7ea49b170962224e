"""`conductor model pull` and the one question of `ask`, against a hub on this machine, in a pipe and on a terminal."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import SupportsIndex

import pytest

from conductor_cli.models.weights.huggingface import repo_folder
from tests.cli.stage import Stage, finished
from tests.cli.terminals import PATIENCE, terminal
from tests.cli.test_model import chosen, entry, register, row, sha256
from tests.hub import Fault, Hub, hub, read_environment
from tests.tiny_gguf import make


class Faults(list[Fault]):
    """Faults of which a test can wait for the first."""

    def __init__(self, faults: list[Fault]) -> None:
        super().__init__(faults)
        self.met = threading.Event()

    def pop(self, at: SupportsIndex = -1) -> Fault:
        self.met.set()
        return super().pop(at)


@pytest.fixture
def pulled(stage: Stage, tiny: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Hub]:
    """A hub with the tiny model as `small`, the default, and as `other`, whose size and hash the registry lacks."""
    stage.config.write_text(stage.config.read_text().replace("[conductor]\nmodel", "[conductor]\n#"))
    register(stage, entry("small", tiny), entry("other", tiny, hashed=False, sized=False))
    with hub() as server:
        for name in ("small", "other"):
            server.commit(f"acme/{name}", {tiny.name: tiny.read_bytes()})
        for name, value in (("CONDUCTOR_LLM_REGISTRY", str(stage.home / "registry.toml")), ("HF_ENDPOINT", server.url)):
            monkeypatch.setenv(name, value)
        read_environment()
        yield server


def test_a_model_is_pulled_and_plans(stage: Stage, pulled: Hub, tiny: Path) -> None:
    done = stage.ok("model", "pull")
    path, told, using, following = done.out.splitlines()
    assert Path(path).read_bytes() == tiny.read_bytes()
    assert told == f"SHA-256 {sha256(tiny)}: matches conductor's registry"
    assert (using, following) == ("the planner is now small", 'next: conductor ask "…"')
    lines = done.err.splitlines()
    assert lines[0] == "small: 264 kB, licence Apache-2.0"
    assert lines[1].startswith("from acme/small at main, to ")
    assert "\x1b" not in done.err
    stage.ok("model", "pull", "other", told="other: size unknown, licence Apache-2.0")
    assert chosen(stage) == "small"
    stage.ok("ask", "How many?", "--seed", "3")


@pytest.mark.parametrize("cut", [True, False], ids=["cut", "changed"])
def test_a_damaged_model_is_pulled_again(stage: Stage, pulled: Hub, tiny: Path, cut: bool) -> None:
    path = Path(stage.inside("model", "pull").out.splitlines()[0])
    path.resolve().write_bytes(b"GGUF" if cut else tiny.read_bytes()[:-1] + b"\7")
    assert stage.inside("model", "pull").code == 0
    assert path.read_bytes() == tiny.read_bytes()
    assert stage.inside("model", "verify").code == 0


def test_quiet_prints_errors_only(stage: Stage, pulled: Hub) -> None:
    done = stage.inside("--quiet", "model", "pull")
    assert (done.code, done.err) == (0, "")
    assert "SHA-256" in done.out


def test_a_terminal_shows_a_progress_bar(stage: Stage, pulled: Hub, tmp_path: Path) -> None:
    large = make(tmp_path / "large.gguf", seed=4)
    with large.open("ab") as file:
        file.write(bytes(2_000_000))
    register(stage, entry("small", large))
    pulled.commit("acme/small", {large.name: large.read_bytes()})
    pulled.faults = [Fault(kind="drip", after=1000)]
    with terminal(stage, "model", "pull", size=(40, 12)) as shown:
        shown.until(lambda screen: "downloading" in screen and "/2.3 MB" in screen)
        assert shown.end() == 0
        assert shown.cursor_shown
        assert "theplannerisnowsmall" in "".join(shown.scrolled.split())
        assert "Traceback" not in shown.raw


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM], ids=["SIGINT", "SIGTERM"])
def test_a_signal_ends_a_pull_in_a_pipe(stage: Stage, pulled: Hub, number: signal.Signals) -> None:
    pulled.faults = faults = Faults([Fault(kind="stall", after=1000)] * 3)
    with stage.start("model", "pull") as process:
        assert faults.met.wait(PATIENCE)
        os.kill(process.pid, number)
        done = finished(process)
    with pytest.raises(ProcessLookupError):
        os.killpg(process.pid, 0)
    assert done.code == 128 + number
    assert "Traceback" not in done.err


def test_without_a_planner_setup_is_named(stage: Stage, pulled: Hub) -> None:
    """Nobody is asked to download anything: setup knows the keys, the memory and the cores."""
    with terminal(stage, "plan", "How many?") as shown:
        assert shown.end() == 5
        assert "conductor setup" in shown.screen
    with terminal(stage) as shown:
        shown.until("chat --rehearsal")
        for command in ("conductor setup", "conductor model pull", "conductor chat --rehearsal"):
            assert f"  {command}  " in shown.screen
        shown.program.send("How many?\r")
        shown.until("no planner is chosen")
        shown.program.send("\x04")
        assert shown.end() == 0
    assert pulled.front.requests == []


def test_a_partial_download_is_listed_and_can_be_removed(stage: Stage, pulled: Hub, tiny: Path) -> None:
    partial = repo_folder("acme/small") / f".conductor-llm/{tiny.name}@{sha256(tiny)}"
    partial.parent.mkdir(parents=True)
    partial.write_bytes(tiny.read_bytes()[:100_000])
    found = [row(stage, "small")[key] for key in ("state", "partial", "size")]
    assert found == ["partial", 100_000, tiny.stat().st_size]
    assert "partial, 100 kB downloaded" in stage.inside("model", "list").out
    assert stage.inside("model", "rm", "small").code == 2
    done = stage.inside("model", "rm", "small", "--yes")
    assert (done.code, done.out, done.err) == (0, "removed small, 100 kB freed\n", "")
    assert row(stage, "small")["state"] == "not installed"
    assert not repo_folder("acme/small").exists()
    assert stage.inside("model", "rm", "small", "--yes").code == 2
