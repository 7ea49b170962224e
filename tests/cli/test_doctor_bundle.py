"""`conductor doctor --bundle`: what is in the zip, what never is, and what is refused."""

from __future__ import annotations

import base64
import json
import stat
import zipfile
from pathlib import Path
from urllib.parse import quote

import pytest

from tests.cli.stage import PLANNER, Done, Stage, explained, says

ENV_KEY = "sk-in-variable/0123+456789=="
HEADER_KEY = "hdr-secret/0123+456789abcdef"
FILE_KEY = "sk-in-store/0123+456789abcdef"
OTHER = "tok-of-somebody-else/987+654"
PROXY = "p4ss:word/0123456789"
SECRETS = (ENV_KEY, HEADER_KEY, FILE_KEY, OTHER)


def spellings(key: str) -> list[str]:
    """As it is, in a URL, in base64: alone, and after a user's name."""
    behind = base64.b64encode(f"me:{key}".encode()).decode()
    return [key, quote(key, safe=""), quote(key), base64.b64encode(key.encode()).decode(), behind]


def opened(path: Path) -> dict[str, str]:
    with zipfile.ZipFile(path) as archive:
        return {name: archive.read(name).decode() for name in archive.namelist()}


@pytest.fixture
def planted(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> Stage:
    """Keys in variables, in a header, in an address, in the store, and in all that the models write."""
    monkeypatch.setenv("MY_KEY", ENV_KEY)
    monkeypatch.setenv("SOME_TOKEN", OTHER)
    monkeypatch.setenv("HTTPS_PROXY", f"http://user:{quote(PROXY, safe='')}@127.0.0.1:9")
    stored = stage.inside("keys", "set", "mistral", "--insecure-storage", "--yes", given=FILE_KEY)
    assert stored.code == 0
    more = f'key_env = "MY_KEY"\nheaders = {{ X-Auth = "Bearer {HEADER_KEY}" }}'
    tables = [stage.worker("alpha", more), '[workers.mistral]\nkind = "mistral"\nenabled = false']
    stage.configure("[limits]\nattempts = 1\n" + "\n".join(tables), workers=())
    everything = " ".join(text for key in SECRETS for text in spellings(key))
    stage.models = {"alpha": says(f"so be it: {everything}"), PLANNER: says(f"alpha | - | Use {everything[:300]}.")}
    return stage


def bundle(stage: Stage, path: Path, *more: str) -> Done:
    return stage.inside("doctor", "--bundle", str(path), *more)


def test_no_key_is_in_the_bundle(planted: Stage, tmp_path: Path) -> None:
    """Keys planted raw, URL-quoted and in base64, in variables, header, store, trace and answers, are all redacted."""
    assert planted.inside("ask", f"is {OTHER} good?").code == 0
    done = bundle(planted, tmp_path / "b.zip", "--with-trace", "last")
    texts = opened(tmp_path / "b.zip")
    assert "so be it" in texts["trace.jsonl"], done.err
    assert "[key]" in texts["trace.jsonl"]
    for name, text in texts.items():
        for key in (*SECRETS, PROXY):
            for spelled in spellings(key):
                core = spelled[4:-4]
                assert core not in text, (name, spelled)


def test_the_bundle_has_what_a_bug_report_needs(stage: Stage, tmp_path: Path, tiny: Path) -> None:
    """Versions, settings with their origins, the checks, llama.cpp's log, and a README."""
    stage.configure(conductor=str(tiny))
    done = bundle(stage, tmp_path / "b.zip")
    texts = opened(tmp_path / "b.zip")
    assert set(texts) == {
        "README.txt", "doctor.json", "versions.json", "settings.json", "environment.txt", "llama.log"
    }  # fmt: skip
    assert all(name in texts["README.txt"] for name in texts)
    assert "trace.jsonl" not in texts["README.txt"]
    assert {"planning", "worker alpha"} <= {check["name"] for check in json.loads(texts["doctor.json"])}
    assert json.loads(texts["versions.json"])["libraries"]["litellm"]
    settings = json.loads(texts["settings.json"])
    assert settings["settings"]["limits.attempts"]["value"] == 1
    assert [worker["name"] for worker in settings["workers"]] == ["alpha", "beta"]
    assert "llama" in texts["llama.log"]
    assert str(tmp_path / "b.zip") in done.err.replace("\n", " ")
    assert stat.S_IMODE((tmp_path / "b.zip").stat().st_mode) == 0o600


def test_home_directory_and_url_credentials_are_removed(
    stage: Stage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The home directory becomes a tilde; a URL loses its user and its query."""
    monkeypatch.setenv("OLLAMA_HOST", "http://me:hidden-word@127.0.0.1:9")
    url = f"{stage.url}?sign=abcdefgh-not-to-be-told"
    stage.configure(
        f'[limits]\nattempts = 1\n[workers.odd]\nkind = "openai-compatible"\nmodel = "m"\nbase_url = "{url}"',
        workers=(),
    )
    bundle(stage, tmp_path / "b.zip", "--offline")
    texts = opened(tmp_path / "b.zip")
    assert all(str(stage.home) not in text for text in texts.values())
    assert "~/config/conductor-llm/config.toml" in texts["settings.json"]
    assert all("not-to-be-told" not in text and "hidden-word" not in text for text in texts.values())
    assert "OLLAMA_HOST is set\n" in texts["environment.txt"]


def test_a_run_is_in_the_bundle_only_if_named(stage: Stage, tmp_path: Path) -> None:
    """Then a notice says that question and answers are in it."""
    assert stage.inside("ask", "a private question").code == 0
    plain = bundle(stage, tmp_path / "a.zip", "--offline")
    assert all("a private question" not in text for text in opened(tmp_path / "a.zip").values())
    assert "question" not in plain.err
    done = bundle(stage, tmp_path / "b.zip", "--offline", "--with-trace", "last")
    assert "a private question" in opened(tmp_path / "b.zip")["trace.jsonl"]
    assert "with its question and answers: read it before you send it" in done.err.replace("\n", " ")


def test_nothing_is_overwritten(stage: Stage, tmp_path: Path) -> None:
    """An existing file, dangling link or directory is exit code 2 before any check, and is not changed."""
    file, link = tmp_path / "b.zip", tmp_path / "link.zip"
    file.write_text("mine")
    link.symlink_to(tmp_path / "nowhere")
    for path in (file, link, tmp_path):
        done = bundle(stage, path)
        assert done.code == 2
        explained(done)
        assert done.out == ""
    assert file.read_text() == "mine"
    assert not (tmp_path / "nowhere").exists()
    assert stage.server.requests == []


@pytest.mark.parametrize("arguments", [("missing/b.zip",), ("b.zip", "--with-trace", "20200101-000000-abcdef")])
def test_a_bundle_that_cannot_be_written_fails_before_the_checks(
    stage: Stage, tmp_path: Path, arguments: tuple[str, ...]
) -> None:
    """No such directory, or no such run: exit code 2, and no file."""
    name, *more = arguments
    done = bundle(stage, tmp_path / name, *more)
    assert done.code == 2
    explained(done)
    assert list(tmp_path.glob("*.zip")) == []


def test_json_and_bundle_go_together(stage: Stage, tmp_path: Path) -> None:
    """Standard output has the JSON alone."""
    done = bundle(stage, tmp_path / "b.zip", "--offline", "--json")
    assert done.json["ok"] is True
    kept = json.loads(opened(tmp_path / "b.zip")["doctor.json"])
    assert [check["name"] for check in kept] == [check["name"] for check in done.json["checks"]]
