"""`conductor model pull` against a hub on this machine.

Models of the registry, any GGUF, and what can go wrong.
"""

from __future__ import annotations

import os
import signal
import struct
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import SupportsIndex

import pytest

from conductor_cli.models.weights.huggingface import repo_folder
from tests.cli.stage import COMMAND, Stage, finished
from tests.cli.terminals import PATIENCE, terminal
from tests.cli.test_model import chosen, entry, register, row, sha256
from tests.hub import Fault, Hub, hub, read_environment
from tests.models.test_weights_download import HALVES
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
def server(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> Iterator[Hub]:
    """An empty hub; no planner is chosen, and the registry is a file of the test."""
    stage.configure(conductor=None)
    with hub() as opened:
        monkeypatch.setenv("CONDUCTOR_LLM_REGISTRY", str(stage.home / "registry.toml"))
        monkeypatch.setenv("HF_ENDPOINT", opened.url)
        read_environment()
        yield opened


@pytest.fixture
def pulled(stage: Stage, server: Hub, tiny: Path) -> Hub:
    """A hub with the tiny model as `small`, the default, and as `other`.

    The registry lacks the size and the hash of `other`.
    """
    register(stage, entry("small", tiny), entry("other", tiny, hashed=False, sized=False))
    for name in ("small", "other"):
        server.commit(f"acme/{name}", {tiny.name: tiny.read_bytes()})
    return server


def test_a_model_is_pulled_and_plans(stage: Stage, pulled: Hub, tiny: Path) -> None:
    done = stage.ok("model", "pull")
    path, verdict, using, following = done.out.splitlines()
    assert Path(path).read_bytes() == tiny.read_bytes()
    assert verdict == f"SHA-256 {sha256(tiny)}: matches conductor's registry"
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
    faults = Faults([Fault(kind="stall", after=1000)] * 3)
    pulled.faults = faults
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
        shown.until("chat --demo")
        for command in ("conductor setup", "conductor model pull", "conductor chat --demo"):
            assert f"  {command}  " in shown.screen
        shown.program.send("How many?\r")
        shown.until("no planner is chosen")
        shown.program.send("\x04")
        assert shown.end() == 0
    assert pulled.front.requests == []


REPO = "acme/Tiny-Chat-GGUF"
PARTS = [f"f16/tiny-chat-F16-0000{number}-of-00002.gguf" for number in (1, 2)]


@pytest.fixture
def acme(stage: Stage, server: Hub, tiny: Path, tmp_path: Path) -> Hub:
    """A hub with one model in three quantizations, the largest in two parts.

    The registry lists another model.
    """
    register(stage, entry("small", tiny))
    files = {
        "README.md": b"# Tiny Chat",
        "tiny-chat-Q4_K_M.gguf": tiny.read_bytes(),
        "tiny-chat-Q8_0.gguf": make(tmp_path / "other.gguf", seed=7).read_bytes(),
        "mmproj-tiny-chat-F16.gguf": bytes(2000),
        **dict(zip(PARTS, HALVES, strict=True)),
    }
    server.commit(REPO, files)
    server.commit("acme/small", {tiny.name: tiny.read_bytes()})
    server.listing = {"cardData": {"license": "mit"}}
    return server


def header(values: dict[str, str | int]) -> bytes:
    """The beginning of a GGUF with these keys and one tensor of 32 numbers."""

    def text(value: str) -> bytes:
        return struct.pack("<Q", len(value)) + value.encode()

    def scalar(value: str | int) -> bytes:
        return (
            struct.pack("<II", 4, value)
            if isinstance(value, int)
            else struct.pack("<I", 8) + text(value)
        )

    keys = [
        text(name) + scalar(value)
        for name, value in {"general.architecture": "qwen2", **values}.items()
    ]
    tensor = text("t") + struct.pack("<IQIQ", 1, 32, 0, 0)
    return b"GGUF" + struct.pack("<IQQ", 3, 1, len(keys)) + b"".join(keys) + tensor


def huge() -> bytes:
    """A GGUF whose header asks for more memory than any machine has."""
    values = {
        "qwen2.block_count": 100,
        "qwen2.attention.head_count": 1,
        "qwen2.embedding_length": 1 << 31,
    }
    return header({**values}) + bytes(300_000)


def test_any_gguf_of_the_hub_is_pulled_and_plans(stage: Stage, acme: Hub, tiny: Path) -> None:
    done = stage.ok("model", "pull", REPO)
    name, path, verdict, using, following = done.out.splitlines()
    assert name == "installed tiny-chat-q4_k_m:"
    assert Path(path).read_bytes() == tiny.read_bytes()
    assert verdict == (
        f"SHA-256 {sha256(tiny)}: checksum reported by {acme.url} only, not independently "
        "verified; saved for next time"
    )
    assert (using, following) == ("the planner is now tiny-chat-q4_k_m", 'next: conductor ask "…"')
    lines = done.err.splitlines()
    assert lines[0] == "tiny-chat-q4_k_m: 264 kB, licence mit"
    assert lines[1].startswith(f"from {REPO} at ")
    assert " free" in lines[1]
    assert lines[2] == "file tiny-chat-Q4_K_M.gguf"
    assert lines[3].startswith("mit is not Apache-2.0")
    assert "(computed from the file's header)" in lines[4]
    assert chosen(stage) == "tiny-chat-q4_k_m"
    stage.ok("ask", "How many?", "--seed", "3")


@pytest.mark.parametrize(
    ("choice", "name"), [(":Q8_0", "tiny-chat-q8_0"), (f":{PARTS[1]}", "tiny-chat-f16")]
)
def test_a_quantization_or_a_file_chooses(stage: Stage, acme: Hub, choice: str, name: str) -> None:
    assert stage.ok("model", "pull", f"hf.co/{REPO}{choice}").out.startswith(f"installed {name}:\n")
    repository = acme.repos[REPO].commits[acme.repos[REPO].revisions["main"]]
    files = PARTS if name.endswith("f16") else ["tiny-chat-Q8_0.gguf"]
    assert row(stage, name)["size"] == sum(len(repository[file]) for file in files)


def test_a_listed_model_is_found_by_its_repository(stage: Stage, acme: Hub) -> None:
    assert "matches conductor's registry" in stage.inside("model", "pull", "acme/small").out
    assert row(stage, "small")["state"] == "installed"


def test_two_models_never_have_one_name(
    stage: Stage, acme: Hub, tiny: Path, tmp_path: Path
) -> None:
    acme.commit("other/Tiny-Chat-GGUF", {"x-Q4_K_M.gguf": tiny.read_bytes()})
    acme.commit("acme/rest", {"small.gguf": make(tmp_path / "rest.gguf", seed=9).read_bytes()})
    for reference, name in (
        (REPO, "tiny-chat-q4_k_m"),
        ("other/Tiny-Chat-GGUF", "other-tiny-chat-q4_k_m"),
        ("acme/rest", "acme-small"),
    ):
        assert stage.inside("model", "pull", reference).out.startswith(f"installed {name}:\n")


def test_json_of_a_pull_is_the_model_and_nothing_else(stage: Stage, acme: Hub, tiny: Path) -> None:
    """Standard output has JSON only, whether the model was pulled or was there."""
    for _ in range(2):
        report = stage.inside("model", "pull", REPO, "--json").json
        assert (report["name"], report["state"], report["in_use"]) == (
            "tiny-chat-q4_k_m",
            "installed",
            True,
        )
        assert [file["sha256"] for file in report["files"]] == [sha256(tiny)]
    assert stage.inside("model", "pull", "small", "--json").json["hash_source"] == "registry"


def test_memory_is_estimated_from_the_size_where_the_header_does_not_say_it(
    stage: Stage, acme: Hub
) -> None:
    done = stage.inside("model", "pull", f"{REPO}:F16")
    assert "memory: needs about 602 MB (estimated from the file's size)" in done.err
    assert "file f16/tiny-chat-F16-00001-of-00002.gguf and 1 more part" in done.err


@pytest.mark.parametrize(
    "licence", [None, "", "mit\n\x1b[31m", ["mit", "x"], {"other": 1}], ids=repr
)
def test_a_licence_is_one_clean_line(stage: Stage, acme: Hub, licence: object) -> None:
    acme.listing = {"cardData": {"license": licence}}
    done = stage.ok("model", "pull", REPO)
    assert "\x1b" not in done.err
    assert done.err.splitlines()[0].startswith("tiny-chat-q4_k_m: 264 kB, licence ")
    if not licence:
        assert "licence unknown" in done.err
        assert "the repository names no licence" in done.err
    acme.listing = {"cardData": {"license": "other", "license_name": "tiny-research"}}
    assert "licence tiny-research" in stage.inside("model", "pull", f"{REPO}:Q8_0").err


@pytest.mark.parametrize(
    ("reference", "message", "hint"),
    [
        (
            f"{REPO}:Q2_K",
            f"{REPO} has no Q2_K",
            "there are Q4_K_M (264 kB), Q8_0 (264 kB), F16 (2.00 MB)",
        ),
        (f"{REPO}:gone.gguf", f"{REPO} has no gone.gguf", f"conductor model pull {REPO}:Q4_K_M"),
        ("acme/safe", "acme/safe has no GGUF model", "conductor model pull OWNER/safe-GGUF"),
        (
            "acme/nothing",
            "has no repository acme/nothing, or it is private",
            "check its name; set HF_TOKEN",
        ),
        ("acme/gated", "acme/gated is gated", "accept its licence at "),
        ("acme/page", "page.gguf of acme/page is not a GGUF file", "nothing was downloaded"),
        (
            "acme/lora",
            "lora.gguf of acme/lora is a LoRA adapter",
            "conductor model import FILE --base NAME",
        ),
        ("acme/evil", "acme/evil has no GGUF model", "find a repository"),
        ("models/gone.gguf", "unknown model 'models/gone.gguf'", "conductor model import FILE"),
        ("acme/a/b", "unknown model 'acme/a/b'", "conductor model pull OWNER/REPO"),
    ],
)
def test_a_model_that_cannot_be_pulled_is_explained(
    stage: Stage, acme: Hub, tiny: Path, reference: str, message: str, hint: str
) -> None:
    acme.commit("acme/safe", {"model.safetensors": bytes(2000), "mmproj-F16.gguf": bytes(2000)})
    acme.commit("acme/gated", {tiny.name: tiny.read_bytes()})
    acme.gated = {"acme/gated"}
    acme.commit("acme/page", {"page.gguf": b"<html>Please log in</html>" * 100})
    acme.commit("acme/lora", {"lora.gguf": header({"general.type": "adapter"}) + bytes(2000)})
    acme.commit(
        "acme/evil", {"../../../evil.gguf": tiny.read_bytes(), "a\x1b[2Jb.gguf": tiny.read_bytes()}
    )
    done = stage.fails(5, "model", "pull", reference)
    text = " ".join(done.err.split())
    assert message in text
    assert hint in text
    assert [row["name"] for row in stage.inside("model", "list", "--json").json] == ["small"]


def test_offline_no_repository_can_be_asked(
    stage: Stage, acme: Hub, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    read_environment()
    stage.fails(5, "model", "pull", REPO, told=("HF_HUB_OFFLINE", "conductor model import FILE"))
    assert acme.ranges == []


@pytest.mark.parametrize(
    ("repo", "file", "name", "after"),
    [
        ("acme/small", "tiny.gguf", "small", ["not installed"]),
        (REPO, "tiny-chat-Q4_K_M.gguf", f"{REPO}:tiny-chat-Q4_K_M.gguf", []),
    ],
    ids=["of the registry", "of any repository"],
)
def test_a_stopped_pull_is_listed_and_can_be_removed(
    stage: Stage, acme: Hub, tiny: Path, repo: str, file: str, name: str, after: list[str]
) -> None:
    partial = repo_folder(repo) / f".conductor-llm/{file}@{sha256(tiny)}"
    partial.parent.mkdir(parents=True)
    partial.write_bytes(tiny.read_bytes()[:100_000])
    assert [row(stage, name)[key] for key in ("state", "partial")] == ["partial", 100_000]
    assert row(stage, name)["size"] == (
        tiny.stat().st_size if name == "small" else row(stage, name)["size"]
    )
    assert "partial, 100 kB downloaded" in stage.inside("model", "list").out
    assert stage.inside("model", "rm", name).code == 2
    done = stage.ok("model", "rm", name, "--yes", out=f"removed {name}, 100 kB freed\n")
    assert done.err == ""
    left = stage.inside("model", "list", "--json").json
    assert [item["state"] for item in left if item["name"] == name] == after
    assert not repo_folder(repo).exists()
    assert stage.inside("model", "rm", name, "--yes").code == 2


def test_ctrl_c_shows_the_command_that_continues(stage: Stage, acme: Hub, tiny: Path) -> None:
    acme.faults = [Fault(kind="drip"), Fault(kind="stall", after=100_000), Fault(kind="stall")]
    with terminal(stage, "model", "pull", REPO, command=COMMAND) as shown:
        shown.until("downloading")
        shown.program.sendintr()
        assert shown.end() == 130
        assert f"conductor model pull {REPO}:tiny-chat-Q4_K_M.gguf" in " ".join(
            shown.scrolled.split()
        )
        assert shown.cursor_shown
        assert "Traceback" not in shown.raw
    acme.faults = []
    done = stage.ok("model", "pull", f"{REPO}:tiny-chat-Q4_K_M.gguf")
    assert Path(done.out.splitlines()[1]).read_bytes() == tiny.read_bytes()


def test_a_person_is_asked_about_a_model_that_needs_too_much_memory(
    stage: Stage, acme: Hub
) -> None:
    acme.commit("acme/huge", {"huge-Q8_0.gguf": huge()})
    with terminal(stage, "model", "pull", "acme/huge") as shown:
        screen = shown.until("[y/N]")
        assert "too little" in screen
        shown.program.sendline("")
        assert shown.end() == 0
        assert "nothing was downloaded" in shown.screen
    assert acme.ranges == ["bytes=0-262143"]
    with terminal(stage, "model", "pull", "acme/huge", "--yes") as shown:
        assert shown.end() == 0
        assert "[y/N]" not in shown.scrolled
    assert row(stage, "huge-q8_0")["state"] == "installed"
