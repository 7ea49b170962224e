"""`-f` with images and PDFs.

Who is sent them, what the others read, what is stored, and what is refused.
"""

from __future__ import annotations

import base64
import json
import os
import stat
import subprocess
import time
import zipfile
from itertools import chain
from pathlib import Path
from typing import Any

import pytest

from conductor_cli.app import attach, documents
from conductor_cli.app.attach import Attacher
from conductor_cli.cli.session import pasted_file
from conductor_cli.core.formatting import format_size
from tests.cli.stage import TWO, Stage, explained, need
from tests.media_files import pdf, pdf_of, png, stream
from tests.servers import Script, SeenRequest, Wire, delta, usage
from tests.traces.stored import trace_bytes

BLIND = "beta | - | Describe it.\nbeta | 1 | Check it and answer."


@pytest.fixture
def seeing(stage: Stage) -> Stage:
    """The worker alpha accepts images and PDFs, beta neither."""
    stage.configure(workers={"alpha": 'accepts = ["image", "pdf"]', "beta": ""})
    return stage


@pytest.fixture
def chart(tmp_path: Path) -> Path:
    """A small picture."""
    path = tmp_path / "chart.png"
    path.write_bytes(png())
    return path


def sent_to(stage: Stage, model: str, call: int = -1) -> list[dict[str, Any]]:
    """The parts of the last message that a model got."""
    content = stage.asked(model)[call].json["messages"][-1]["content"]
    return content if isinstance(content, list) else [{"type": "text", "text": content}]


def text_of(parts: list[dict[str, Any]]) -> str:
    return "\n".join(part["text"] for part in parts if part["type"] == "text")


def stored(stage: Stage) -> list[Path]:
    return sorted(
        path for path in (stage.traces.parent / "attachments").glob("??/*") if len(path.name) == 64
    )


def test_a_worker_that_accepts_images_is_sent_it_and_another_is_told_of_it(
    seeing: Stage, tmp_path: Path
) -> None:
    (tmp_path / "chart.png").write_bytes(png(640, 480))
    seeing.plan = TWO
    seeing.ok("ask", "What does it show?", "-f", tmp_path / "chart.png")
    [image] = [part for part in sent_to(seeing, "alpha") if part["type"] == "image_url"]
    kind, _, encoded = image["image_url"]["url"].partition(",")
    assert (kind, base64.b64decode(encoded)) == ("data:image/png;base64", png(640, 480))
    assert [part["type"] for part in sent_to(seeing, "beta")] == ["text"]
    assert '"chart.png" (PNG image, 640 x 480 pixels' in text_of(sent_to(seeing, "beta"))
    assert "but you cannot see it" in text_of(sent_to(seeing, "beta"))
    assert "Only A can see it" in text_of(sent_to(seeing, "planner"))


@pytest.mark.skipif(os.name == "nt", reason="names of POSIX")
def test_names_with_line_ends_and_escapes_are_shown_escaped_everywhere(
    stage: Stage, tmp_path: Path
) -> None:
    """A stranger's archive may hold any name. A line end in one began a line of the notices."""
    name = "a\n\x1b[31mb.md"
    shown = r"a\n\x1b[31mb.md"
    folder = tmp_path / "docs"
    folder.mkdir()
    (folder / name).write_text("Sums.")
    (folder / f"{name}.env").write_text("")
    done = stage.ok("ask", "What?", "-f", folder, "-f", folder / f"{name}.env")
    assert f"{folder}/{shown}.env is empty\n" in done.err
    assert f"1 likely secret ({folder}/{shown}.env)" in done.err
    assert f"name it: -f $'{folder}/{shown}.env'\n" in done.err
    assert json.dumps(f"{folder}/{shown}") in text_of(sent_to(stage, "alpha"))
    for command in (("trace", "show"), ("trace", "export", "--markdown")):
        assert f"{folder}/{shown} (5 characters)" in stage.ok(*command).out
    stage.fails(2, "ask", "What?", "-f", folder / f"{name}.no", told=f"{shown}.no: there are no")


def test_a_pdf_is_sent_as_a_file_to_those_who_accept_it_and_as_text_to_others(
    seeing: Stage, tmp_path: Path
) -> None:
    (tmp_path / "paper.pdf").write_bytes(pdf("First words", "Last words"))
    seeing.plan = TWO
    seeing.ok("ask", "Sum it up", "-f", tmp_path / "paper.pdf")
    assert "file" in [part["type"] for part in sent_to(seeing, "alpha")]
    assert "First words" not in text_of(sent_to(seeing, "alpha"))
    assert "[page 1]\nFirst words\n[page 2]\nLast words" in text_of(sent_to(seeing, "beta"))


def test_nobody_who_can_see_is_a_usage_error_before_anything_is_called(
    stage: Stage, chart: Path
) -> None:
    stage.fails(
        2,
        "ask",
        "What is it?",
        "-f",
        chart,
        told=("nobody could see chart.png", "--set accepts=image"),
    )
    assert stage.posts == []


def test_the_bytes_are_stored_once_for_their_owner_and_deleted_with_the_last_trace(
    seeing: Stage, chart: Path, tmp_path: Path
) -> None:
    (tmp_path / "copy.png").write_bytes(png())
    for name in ("chart.png", "copy.png"):
        assert seeing.inside("ask", "What?", "-f", tmp_path / name).code == 0
    [file] = stored(seeing)
    assert file.read_bytes() == png()
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert file.parent.name == file.name[:2]
    assert seeing.inside("trace", "rm", "last").code == 0
    assert stored(seeing) == [file]
    trace = seeing.inside("trace", "show", "last", "--json").json["trace"]
    size = format_size(Path(trace).stat().st_size + len(png()))
    assert (
        f"would delete 1 run, {size}"
        in seeing.inside("trace", "rm", "--keep", "0", "--dry-run").out
    )
    assert seeing.inside("trace", "rm", "--keep", "0", "--yes").code == 0
    assert stored(seeing) == []


def test_a_run_without_a_trace_stores_no_bytes(seeing: Stage, chart: Path) -> None:
    assert seeing.inside("ask", "What?", "-f", chart, "--no-trace").code == 0
    assert "image_url" in [part["type"] for part in sent_to(seeing, "alpha")]
    assert stored(seeing) == []


def test_continue_and_rerun_find_the_bytes_and_say_when_they_are_gone(
    seeing: Stage, chart: Path
) -> None:
    seeing.inside("ask", "What?", "-f", chart)
    chart.unlink()
    for again in (("ask", "-c", "And now?"), ("trace", "rerun", "last")):
        seeing.ok(*again)
        assert "image_url" in [part["type"] for part in sent_to(seeing, "alpha")]
    request_count = len(seeing.asked("alpha"))
    stored(seeing)[0].unlink()
    for again in (("ask", "-c", "And now?"), ("trace", "rerun", "last")):
        seeing.fails(2, *again, told="chart.png is not stored any more")
    assert len(seeing.asked("alpha")) == request_count
    assert seeing.inside("trace", "replay", "last", "--speed", "0").code == 0


def test_a_plan_file_carries_the_hash_and_not_the_bytes(seeing: Stage, chart: Path) -> None:
    planned = seeing.ok("plan", "What?", "-f", chart)
    assert len(planned.out) < 2000
    seeing.ok("run", "-", given=planned.out)
    assert "image_url" in [part["type"] for part in sent_to(seeing, "alpha")]


def test_an_image_comes_on_stdin(seeing: Stage) -> None:
    for options in (("-f", "-"), ()):
        assert seeing.inside("ask", "What?", *options, given=png()).code == 0
        assert "image_url" in [part["type"] for part in sent_to(seeing, "alpha")]


def test_a_false_suffix_is_told_and_the_file_taken_for_what_it_is(
    seeing: Stage, tmp_path: Path
) -> None:
    (tmp_path / "chart.png").write_bytes(pdf("Words"))
    done = seeing.ok("ask", "What?", "-f", tmp_path / "chart.png")
    assert "chart.png is a PDF document, not a PNG image, and is attached as such" in done.err
    assert "file" in [part["type"] for part in sent_to(seeing, "alpha")]
    (tmp_path / "notes.txt").write_bytes(png())
    stderr = seeing.inside("ask", "What?", "-f", tmp_path / "notes.txt").err
    assert "notes.txt is a PNG image, and is attached as such" in stderr


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("chart.png", b"", "chart.png is empty"),
        ("chart.png", png()[:-20], "chart.png is a damaged or truncated PNG image"),
        ("paper.pdf", b"%PDF-1.4\nnothing", "paper.pdf is a damaged PDF document"),
        ("letter.docx", b"PK\x03\x04\x14\x00\xff", "letter.docx is a ZIP archive"),
        ("photo.heic", b"\x00\x00\x00\x18ftypheic\xff", "photo.heic is a HEIC image"),
        ("utf16", b"\xfe\xff\x00h", "utf16 is not UTF-8 text"),
        ("latin", b"caf\xe9", "iconv"),
        ("noise", b"\xfc\x10\x01h", "noise is not text"),
        (
            "big.png",
            png(padding=2_100_000),
            "big.png is larger than 2 MB, the limit for a PNG image",
        ),
    ],
)
def test_what_cannot_be_attached_is_refused(
    seeing: Stage, tmp_path: Path, name: str, content: bytes, message: str
) -> None:
    (tmp_path / name).write_bytes(content)
    env = {"CONDUCTOR_LLM_ATTACHMENTS_IMAGE_MB": "2"}
    seeing.costs_nothing(2, "ask", "What?", "-f", tmp_path / name, env=env, told=message)


@pytest.mark.parametrize(
    "encoding", ["latin-1", "cp1252", "utf-16", "utf-16-le", "utf-16-be", "utf-32"]
)
def test_the_command_for_a_text_in_another_encoding_works(
    stage: Stage, tmp_path: Path, encoding: str
) -> None:
    text = "Das Café ist schön und groß.\n"
    (tmp_path / "my notes").mkdir()
    (tmp_path / "my notes/latin.txt").write_bytes(text.encode(encoding))
    done = stage.costs_nothing(
        2,
        "ask",
        "What?",
        "-f",
        "my notes/latin.txt",
        cwd=tmp_path,
        told="latin.txt is not UTF-8 text",
    )
    command = done.err[done.err.index("iconv") : done.err.index("; then: -f")]
    need("iconv")
    subprocess.run(["sh", "-c", command], cwd=tmp_path, check=True)
    assert (tmp_path / "my notes/latin.utf8.txt").read_text() == text
    stage.ok("ask", "What?", "-f", "my notes/latin.utf8.txt", cwd=tmp_path)


@pytest.mark.parametrize(
    ("text", "encoding"),
    [
        ("日本語のテキスト", "shift_jis"),
        ("日本語のテキスト", "euc_jp"),
        ("Привет, как дела?", "koi8-r"),
        ("x = 1  # Привет, как дела сегодня", "cp1251"),
        ("你好世界", "gb18030"),
        ('{"question": "日本語のテキスト"}', "shift_jis"),
        ("Příliš žluťoučký kůň", "cp1250"),
    ],
)
def test_an_encoding_that_cannot_be_guessed_is_not_named(
    stage: Stage, tmp_path: Path, text: str, encoding: str
) -> None:
    (tmp_path / "a.txt").write_bytes(text.encode(encoding))
    messages = ("its encoding is not known", "iconv -f ENCODING -t UTF-8 a.txt")
    stage.costs_nothing(2, "ask", "What?", "-f", "a.txt", cwd=tmp_path, told=messages)


def test_an_empty_file_is_told(stage: Stage, tmp_path: Path) -> None:
    (tmp_path / "a.txt").touch()
    stage.ok("ask", "What?", "-f", tmp_path / "a.txt", told="a.txt is empty")


def test_what_is_not_attached_whole_is_told_with_quiet_too(seeing: Stage, tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "a/b.txt").write_text("words")
    (tmp_path / "a/latin.txt").write_bytes("schön".encode("latin-1"))
    (tmp_path / "scan.pdf").write_bytes(pdf(""))
    (tmp_path / "empty.txt").touch()
    (tmp_path / "whole.txt").write_text("words")
    for name, message in (
        ("a", "left out: 1 unread file (a/latin.txt); to attach one of these, name it"),
        ("scan.pdf", "it holds no text, as scanned documents do"),
        ("empty.txt", "empty.txt is empty"),
    ):
        seeing.ok("-q", "ask", "What?", "-f", name, cwd=tmp_path, told=message)
    assert seeing.ok("-q", "ask", "What?", "-f", "whole.txt", cwd=tmp_path).err == ""


def test_standard_input_that_is_asked_for_and_empty_is_told(stage: Stage) -> None:
    message = "standard input is empty"
    stage.ok("-q", "ask", "Sum it up", "-", given=b" \n", told=message)
    assert message not in stage.ok("ask", "Sum it up", given=b"").err


@pytest.mark.parametrize(
    "words",
    [
        ("ask", "What?", "-f"),
        ("ask", "What?", "--schema"),
        ("run",),
        ("eval", "--yes", "--systems", "best"),
        ("config", "show", "--config"),
    ],
)
@pytest.mark.parametrize("path", ["/proc/kmsg", "/dev/zero"])
# It cannot be read
@pytest.mark.skipif(not os.path.exists("/proc/kmsg"), reason="only Linux has it")  # noqa: PTH110
def test_a_file_that_never_ends_is_refused(
    seeing: Stage, words: tuple[str, ...], path: str
) -> None:
    """The log of the kernel looks like an empty file, and its readers wait for the next message."""
    done = seeing.inside(*words, path)
    assert done.code in {2, 3}, done
    explained(done)


def test_empty_directories_and_devices_are_refused_and_a_pipe_is_read(
    seeing: Stage, tmp_path: Path
) -> None:
    for path, message in (
        (tmp_path, "there are no files"),
        (Path("/dev/zero"), "a device"),
    ):
        seeing.ends(2, "ask", "What?", "-f", path, told=message)
    read, write = os.pipe()
    os.write(write, png())
    os.close(write)
    done = seeing.inside("ask", "What?", "-f", f"/dev/fd/{read}")
    os.close(read)
    assert done.code == 0, done.err
    assert "image_url" in [part["type"] for part in sent_to(seeing, "alpha")]


def test_an_empty_name_is_not_the_working_directory(
    stage: Stage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As of `-f "$FILE"` where the variable is not set: all files here would be sent."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "private.txt").write_text("private")
    for words in (("ask", "Hi"), ("plan", "Hi")):
        stage.costs_nothing(2, *words, "-f", "", told="the name of a file is empty")
    stage.ok("ask", "-m", "alpha", "Hi", "-f", ".")
    assert "private" in stage.asked("alpha")[0].json["messages"][-1]["content"]


@pytest.mark.parametrize("host", ["", "localhost"])
def test_an_address_of_a_file_is_its_path(stage: Stage, tmp_path: Path, host: str) -> None:
    """As some file managers paste one that is dropped on a terminal."""
    (tmp_path / "größe 1.txt").write_text("content of it")
    address = f"file://{host}{tmp_path}/gr%C3%B6%C3%9Fe%201.txt"
    stage.ok("ask", "-m", "alpha", "What?", "-f", address)
    assert "content of it" in stage.asked("alpha")[0].json["messages"][-1]["content"]


@pytest.mark.parametrize(
    ("written", "stored"),
    [
        ("Shot at 4.42 PM.txt", "Shot at 4.42\u202fPM.txt"),
        ("Snímek v 13.05.txt", "Snímek v\u00a013.05.txt"),
        ("größe.txt", "gro\u0308ße.txt"),
    ],
)
def test_a_file_is_found_by_a_name_that_looks_the_same(
    stage: Stage, tmp_path: Path, written: str, stored: str
) -> None:
    """The names of screenshots on a Mac have blanks that few programs copy."""
    (tmp_path / stored).write_text("content of it")
    done = stage.ok("ask", "-m", "alpha", "What?", "-f", tmp_path / written)
    assert "which only looks the same" in " ".join(done.err.split())
    assert "content of it" in stage.asked("alpha")[0].json["messages"][-1]["content"]
    assert pasted_file(str(tmp_path / written)) == str(tmp_path / written)


def test_a_name_that_two_files_look_like_is_none_of_them(stage: Stage, tmp_path: Path) -> None:
    (tmp_path / "a\u202fb.txt").write_text("one")
    (tmp_path / "a\u00a0b.txt").write_text("two")
    stage.costs_nothing(2, "ask", "What?", "-f", tmp_path / "a b.txt", told="cannot be read")
    (tmp_path / "a b.txt").write_text("three")
    stage.ok("ask", "-m", "alpha", "What?", "-f", tmp_path / "a b.txt")
    assert "three" in stage.asked("alpha")[0].json["messages"][-1]["content"]


NOTEBOOK = {
    "cells": [
        {"cell_type": "markdown", "source": ["# Sums\n", "of two"]},
        {
            "cell_type": "code",
            "source": "1 + 1",
            "outputs": [{"data": {"text/plain": ["2"], "image/png": "iVBOR"}}],
        },
    ]
}


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """A repository with hidden, ignored and binary files, and a link to all of it."""
    files = {
        ".gitignore": "*.log\n/out/\n",
        "a.py": "print(1)",
        "b.log": "noise",
        "out/c.py": "made",
        ".env": "SECRET=1",
        "src/d.py": "print(2)",
        "src/.gitignore": "!keep.log\nlocal.py\n",
        "src/keep.log": "kept",
        "src/local.py": "mine",
        "src/e.ipynb": json.dumps(NOTEBOOK),
        "src/deep/f.txt": "deep",
        ".git/config": "[core]",
    }
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    (tmp_path / "src/logo.png").write_bytes(png())
    (tmp_path / "src/data.bin").write_bytes(b"\0\1")
    (tmp_path / "src/again").symlink_to(tmp_path, target_is_directory=True)
    return tmp_path


@pytest.mark.parametrize(
    ("named", "sent", "message"),
    [
        (
            ".",
            ["a.py", "src/d.py", "src/e.ipynb", "src/keep.log", "src/deep/f.txt"],
            (
                "left out: 3 ignored, 2 not text, 1 link (src/again); to attach one of these, name "
                "it: "
                "-f src/again"
            ),
        ),
        (
            "src/",
            ["src/d.py", "src/e.ipynb", "src/keep.log", "src/deep/f.txt"],
            "src/: 4 files, about ",
        ),
        ("**/*.py", ["a.py", "src/d.py"], "left out: 2 ignored"),
        ("src/*.txt", [], "there are no files"),
        ("src/*.bin", [], "there are no files to attach; left out: 1 not text"),
    ],
)
def test_texts_of_a_directory_are_attached(
    seeing: Stage, tree: Path, named: str, sent: list[str], message: str
) -> None:
    done = seeing.ends(0 if sent else 2, "ask", "What?", "-f", named, cwd=tree, told=message)
    if sent:
        (path,) = seeing.traces.glob("*.jsonl")
        files = json.loads(trace_bytes(path).splitlines()[0])["question"]["files"]
        assert [file["name"] for file in files] == sent
        notebooks = [file["text"] for file in files if file["name"].endswith("ipynb")]
        assert notebooks == ["# Sums\nof two\n\n```\n1 + 1\n```\n\nresult:\n2"] * (
            "src/e.ipynb" in sent
        )
    assert "SECRET" not in str(seeing.server.requests)
    assert done.out == "" if not sent else done.out


KEY = (
    "-----BEGIN OPENSSH PRIVATE KEY-----\nb3BlbnNzaC1rZXktdjEAAAAA\n-----END OPENSSH PRIVATE "
    "KEY-----\n"
)


@pytest.fixture
def cloned(tmp_path: Path) -> Path:
    """A stranger's repository beside the user's keys.

    Links in it lead to these in many ways.
    """
    keys = tmp_path / ".ssh"
    keys.mkdir()
    (keys / "id_rsa").write_text(KEY)
    (keys / "notes.txt").write_text("OUTSIDE")
    (keys / "rules").write_text("*.py\n")
    repo = tmp_path / "repo"
    (repo / "docs").mkdir(parents=True)
    (repo / ".git").mkdir()
    (repo / "a.py").write_text("print('INSIDE')")
    (repo / ".env").write_text("TOKEN=OUTSIDE")
    links = {
        "CONTRIBUTING.md": "../.ssh/id_rsa",
        "absolute.md": str(keys / "notes.txt"),
        "second.md": "absolute.md",
        "up.md": "docs/../../.ssh/notes.txt",
        "hidden.md": ".env",
        "back.md": "../.ssh/../repo/.env",
        "process.md": "/proc/self/status",
        "keys": "../.ssh",
        "docs/all": "../..",
        ".gitignore": "../.ssh/rules",
        "broken.md": "nowhere",
        "round": "round",
    }
    for name, target in links.items():
        (repo / name).symlink_to(target)
    return repo


@pytest.mark.parametrize("name", [".", "*.md", "**/*", "docs", "{}", "../repo", "../entry"])
def test_no_link_of_a_directory_sends_what_is_outside(
    stage: Stage, cloned: Path, name: str
) -> None:
    """Links to files, directories, links, hidden files and those of the kernel.

    None is followed, all are told.
    """
    (cloned.parent / "entry").symlink_to(cloned)
    done = stage.inside("ask", "What?", "-f", name.format(cloned), cwd=cloned)
    assert done.code == (2 if name in {"docs", "*.md"} else 0), done.err
    sent = str(stage.server.requests)
    assert not [word for word in ("OUTSIDE", "PRIVATE KEY", "VmRSS") if word in sent]
    assert ("INSIDE" in sent) == (done.code == 0)
    assert " links (" in done.err or "1 link (docs/all)" in done.err
    assert "to attach one of these, name it: -f " in done.err
    if name == ".":
        assert "11 links (CONTRIBUTING.md, absolute.md, back.md, broken.md and 7 more)" in done.err
        assert "1 linked .gitignore" in done.err


def test_a_linked_directory_that_is_named_is_read_and_its_target_told(
    stage: Stage, cloned: Path
) -> None:
    done = stage.ok("ask", "What?", "-f", "keys", cwd=cloned)
    assert f"keys is a link to {cloned.parent / '.ssh'}" in done.err
    assert "1 likely secret (keys/id_rsa)" in done.err
    sent = str(stage.server.requests)
    assert "OUTSIDE" in sent
    assert "PRIVATE KEY" not in sent


def test_a_named_link_says_where_it_leads_and_sends_no_secret(stage: Stage, cloned: Path) -> None:
    target = cloned.parent / ".ssh/id_rsa"
    stage.costs_nothing(
        2,
        "ask",
        "What?",
        "-f",
        "a.py",
        "CONTRIBUTING.md",
        cwd=cloned,
        told=(
            f"CONTRIBUTING.md is a link to {target}, which looks like a secret",
            f"name it: -f {target}",
        ),
    )
    (target.parent / "plain.txt").write_text(KEY)
    (cloned / "plain.md").symlink_to("../.ssh/plain.txt")
    stage.costs_nothing(2, "ask", "What?", "-f", "plain.md", cwd=cloned, told="looks like a secret")
    done = stage.ok("ask", "What?", "-f", "absolute.md", cwd=cloned)
    assert f"absolute.md is a link to {target.parent / 'notes.txt'}" in done.err


@pytest.mark.parametrize("name", ["keys/id_rsa", "./docs/../keys/id_rsa", "{}/keys/id_rsa"])
def test_a_name_that_leads_through_a_link_sends_no_secret(
    stage: Stage, cloned: Path, name: str
) -> None:
    """As the shell makes names of `*/*` in a stranger's directory."""
    target = cloned.parent / ".ssh/id_rsa"
    name = name.format(cloned)
    told = f"leads through a link to {target}, which looks like a secret"
    stage.costs_nothing(2, "ask", "What?", "-f", "a.py", name, cwd=cloned, told=told)
    (target.parent / "plain.txt").write_text("nothing special")
    done = stage.ok("ask", "What?", "-f", "keys/plain.txt", cwd=cloned)
    assert f"keys/plain.txt leads through a link to {target.parent / 'plain.txt'}" in done.err
    done = stage.ok("ask", "What?", "-f", "keys/*", cwd=cloned)
    assert f"keys/* leads through a link to {target.parent / '*'}" in done.err
    assert "PRIVATE KEY" not in str(stage.server.requests)
    stage.ok("ask", "What?", "-f", target, cwd=cloned)


SECRETS = """
    id_rsa id_ed25519 id_rsa_work server.pem server.key key.p12 key.pfx store.jks my.keystore \
putty.ppk pass.kdbx
    signing.asc credentials.json credentials-prod.json service-account.json \
service-account-prod.json secrets.yaml
    Secrets.yml secrets.json terraform.tfstate terraform.tfstate.backup prod.tfvars prod.env \
local.env htpasswd
    kubeconfig kubeconfig.yaml client_secret_1.json auth.json notes.txt config.json
"""


@pytest.fixture
def workplace(tmp_path: Path) -> Path:
    """A directory with secrets of many kinds, and files that only sound like them."""
    directory = tmp_path / "workplace"
    directory.mkdir()
    for name in SECRETS.split():
        (directory / name).write_text("SECRET")
    (directory / "signing.asc").write_text("-----BEGIN PGP PRIVATE KEY BLOCK-----\n\nSECRET")
    (directory / "notes.txt").write_text(f"My key for SECRET is:\n{KEY}")
    (directory / "config.json").write_text(json.dumps({"key": KEY, "for": "SECRET"}))
    for name in (
        ".env",
        ".env.local",
        ".npmrc",
        ".netrc",
        ".pypirc",
        ".git-credentials",
        ".htpasswd",
    ):
        (directory / name).write_text("SECRET")
    public = "-----BEGIN CERTIFICATE-----\nMIIB\n-----END CERTIFICATE-----\n"
    texts = {
        "ca.pem": public,
        "id_rsa.pub": "ssh-rsa AAAA",
        "secrets.py": "read()",
        "credentials.md": "How to get them",
        ".env.example": "TOKEN=",
        "sample.env": "TOKEN=",
        "find.py": 'if "-----BEGIN PRIVATE KEY-----" in text:',
    }
    for name, text in texts.items():
        (directory / name).write_text(text)
    return directory


@pytest.mark.parametrize(
    "names", [(".",), ("*",), (".*", "*.*"), ("[a-z]*", ".env*"), ("../workplace/",)]
)
def test_of_a_directory_or_a_pattern_nothing_that_looks_like_a_secret_is_sent(
    stage: Stage, workplace: Path, names: tuple[str, ...]
) -> None:
    options = chain.from_iterable(("-f", name) for name in names)
    done = stage.ok("ask", "What?", *options, cwd=workplace)
    sent = str(stage.server.requests)
    assert "SECRET" not in sent
    assert "PRIVATE KEY-----\\n" not in sent
    assert "likely secret" in done.err
    if names == (".",):
        secrets = len(SECRETS.split())
        files = {"ca.pem", "credentials.md", "find.py", "id_rsa.pub", "sample.env", "secrets.py"}
        assert f".: {len(files)} files, " in done.err
        assert f"{secrets} likely secrets (Secrets.yml, auth.json" in done.err
        assert (
            f"and {secrets - 4} more); to attach one of these, name it: -f Secrets.yml" in done.err
        )
    if len(names) == 2:
        assert "TOKEN=" in sent  # of .env.example, which is made to be published


def test_a_directory_of_secrets_alone_sends_nothing_and_says_why(
    stage: Stage, workplace: Path
) -> None:
    messages = (
        "there are no files to attach; left out: 3 likely secrets (id_ed25519, id_rsa, id_rsa_work)",
        "-f PATH",
    )
    stage.costs_nothing(2, "ask", "What?", "-f", "id_*[!b]", cwd=workplace, told=messages)


@pytest.mark.parametrize("name", ["id_rsa", ".env", "notes.txt", "prod.env"])
def test_a_secret_that_is_named_is_sent_and_told(stage: Stage, workplace: Path, name: str) -> None:
    done = stage.ok("ask", "What?", "-f", name, cwd=workplace)
    assert "SECRET" in str(stage.server.requests)
    assert f"{name} looks like a secret, and is attached because it is named" in done.err


def test_too_many_and_too_much_together_are_refused(seeing: Stage, tmp_path: Path) -> None:
    paths = [tmp_path / f"{index}.png" for index in range(3)]
    for index, path in enumerate(paths):
        path.write_bytes(png(width=index + 1, padding=400_000))
    for name, most, message in (
        ("MAX_ATTACHMENTS", 1, "the limit is 1"),
        ("MAX_ATTACHED_BYTES", 1_000_000, "the limit is 1"),
    ):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(attach, name, most)
            seeing.ends(2, "ask", "What?", "-f", *paths, told=message)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(attach, "MAX_TREE_FILES", 2)
        seeing.ends(2, "ask", "What?", "-f", tmp_path, told="has 3 files; the limit is 2")


def test_a_file_that_changes_while_it_is_read_is_refused(
    seeing: Stage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "chart.png"
    file.write_bytes(png())
    read = Attacher._read

    def read_and_change(self: Attacher, *given: Any) -> bytes:
        content = read(self, *given)
        file.write_bytes(png(9, 9))
        return content

    monkeypatch.setattr(Attacher, "_read", read_and_change)
    seeing.fails(2, "ask", "What?", "-f", file, told="changed while it was read")


def test_finished_work_on_an_image_is_resumed_without_those_who_saw_it(
    seeing: Stage, chart: Path
) -> None:
    seeing.plan = TWO
    assert seeing.inside("ask", "What?", "-f", chart, "--max-calls", "1").code == 6
    looked = len(seeing.asked("alpha"))
    done = seeing.ok("ask", "--resume", "last", "--workers", "beta")
    assert (len(seeing.asked("alpha")), done.out.strip()) == (looked, "beta answers")


@pytest.mark.parametrize(("keep", "code"), [("auto", 0), ("always", 3)])
def test_bytes_that_cannot_be_stored_are_told_or_refused(
    seeing: Stage, chart: Path, keep: str, code: int
) -> None:
    env = {"CONDUCTOR_LLM_TRACES_KEEP": keep}
    seeing.traces.parent.mkdir(parents=True)
    (seeing.traces.parent / "attachments").write_text("in the way")
    seeing.ends(
        code, "ask", "What?", "-f", chart, env=env, told="the attached files cannot be stored"
    )
    assert len(seeing.asked("alpha")) == (code == 0)
    assert len(list(seeing.traces.glob("*.jsonl"))) == (code == 0)


PAGE = """<!DOCTYPE html><html><head><title>T</title><style>p {}</style></head><body>
<h1>Terms</h1><script>steal()</script><p>Notice: <b>3 months</b>.</p><img src="a.png"><img \
src="b.png">
<table><tr><th>City</th><th>Fee</th></tr><tr><td>Rome</td><td>7</td></tr></table></body></html>"""


def word_document(path: Path, body: str) -> Path:
    """A Word document with this body, and a picture that is a link to a file of this machine."""
    link = "http://schemas.openxmlformats.org/officeDocument/2006/relationships"
    parts = {
        "[Content_Types].xml": '<Types xmlns="http://schemas.openxmlformats.org/package/2006/content-types"/>',
        "_rels/.rels": f'<Relationships xmlns="http://schemas.openxmlformats.org/package/2006/relationships">'
        f'<Relationship Id="r1" Type="{link}/officeDocument" '
        'Target="word/document.xml"/></Relationships>',
        "word/_rels/document.xml.rels": "<Relationships xmlns="
        '"http://schemas.openxmlformats.org/package/2006/relationships"><Relationship Id="r2" '
        f'Type="{link}/image" '
        'Target="file:///etc/passwd" TargetMode="External"/></Relationships>',
        "word/document.xml": "<w:document xmlns:w="
        f'"http://schemas.openxmlformats.org/wordprocessingml/2006/main"><w:body>{body}</w:body></w:document>',
    }
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, text in parts.items():
            archive.writestr(name, text)
    return path


PICTURE = (
    "<w:p><w:r><w:drawing><wp:inline "
    'xmlns:wp="http://schemas.openxmlformats.org/drawingml/2006/wordprocessingDrawing">'
    '<a:graphic xmlns:a="http://schemas.openxmlformats.org/drawingml/2006/main"><a:graphicData><pic:pic '
    'xmlns:pic="http://schemas.openxmlformats.org/drawingml/2006/picture"><pic:blipFill><a:blip '
    'r:link="r2" '
    'xmlns:r="http://schemas.openxmlformats.org/officeDocument/2006/relationships"/></pic:blipFill></pic:pic>'
    "</a:graphicData></a:graphic></wp:inline></w:drawing></w:r></w:p>"
)


def test_a_page_is_read_as_its_text_and_in_a_tree_as_source(stage: Stage, tmp_path: Path) -> None:
    (tmp_path / "site").mkdir()
    page = tmp_path / "site/terms.html"
    page.write_text(PAGE)
    done = stage.ok("ask", "What is the fee?", "-f", page)
    sent = text_of(sent_to(stage, "alpha"))
    assert "# Terms" in sent
    assert "| Rome | 7 |" in sent
    assert "steal()" not in sent
    assert "terms.html is read as text: about 2" in done.err
    assert "left out: 1 scripts, 2 images" in done.err
    stage.ok("ask", "What does the script do?", "-f", tmp_path / "site")
    assert "steal()" in text_of(sent_to(stage, "alpha"))


def test_a_guess_at_the_encoding_of_a_page_is_told(stage: Stage, tmp_path: Path) -> None:
    page = tmp_path / "old.html"
    page.write_bytes("<p>café".encode("latin-1"))
    done = stage.ok("ask", "What is it?", "-f", page)
    assert "café" in text_of(sent_to(stage, "alpha"))
    assert "it names no encoding, so Windows-1252 is assumed: save it as UTF-8 if not" in done.err


def test_a_word_document_is_read_as_its_text_and_opens_no_file(
    stage: Stage, tmp_path: Path
) -> None:
    pytest.importorskip("mammoth")
    path = word_document(
        tmp_path / "contract.docx", f"<w:p><w:r><w:t>Notice: 3 months.</w:t></w:r></w:p>{PICTURE}"
    )
    done = stage.ok("ask", "How long?", "-f", path)
    sent = text_of(sent_to(stage, "alpha"))
    assert "Notice: 3 months." in sent
    assert "root:" not in sent
    assert "contract.docx is read as text" in done.err


MATH = 'xmlns:m="http://schemas.openxmlformats.org/officeDocument/2006/math"'


def test_equations_headers_and_footers_of_a_word_document_are_read_and_hidden_text_is_not(
    stage: Stage, tmp_path: Path
) -> None:
    pytest.importorskip("mammoth")
    half = "<m:f><m:num><m:r><m:t>1</m:t></m:r></m:num><m:den><m:r><m:t>n</m:t></m:r></m:den></m:f>"
    power = (
        "<m:sSup><m:e><m:r><m:t>x</m:t></m:r></m:e><m:sup><m:r><m:t>2</m:t></m:r></m:sup></m:sSup>"
    )
    body = (
        "<w:p><w:r><w:t>It is </w:t></w:r><m:oMath "
        f"{MATH}>{power}<m:r><m:t>=</m:t></m:r>{half}</m:oMath></w:p>"
        "<w:p><w:r><w:rPr><w:vanish/></w:rPr><w:t>HIDDEN</w:t></w:r>"
        '<w:r><w:rPr><w:vanish w:val="0"/></w:rPr><w:t>seen</w:t></w:r></w:p>'
    )
    path = word_document(tmp_path / "paper.docx", body)
    with zipfile.ZipFile(path, "a") as archive:
        for name, text in (("header1", "ACME"), ("header2", "ACME"), ("footer1", "Draft 7")):
            archive.writestr(
                f"word/{name}.xml",
                '<w:hdr xmlns:w="http://schemas.openxmlformats.org/wordprocessingml/2006/main">'
                f"<w:p><w:r><w:t>{text}</w:t></w:r></w:p></w:hdr>",
            )
    done = stage.ok("ask", "What?", "-f", path)
    sent = text_of(sent_to(stage, "alpha"))
    assert "It is x^(2)=(1)/(n)" in sent
    assert "seen" in sent
    assert "HIDDEN" not in sent
    assert sent.count("[header] ACME") == 1
    assert "[footer] Draft 7" in sent
    assert "left out: 1 hidden texts" in done.err


def test_fields_and_rubies_of_a_word_document_are_read_and_what_has_no_text_is_told(
    stage: Stage, tmp_path: Path
) -> None:
    pytest.importorskip("mammoth")
    drawing = "http://schemas.openxmlformats.org/drawingml/2006"
    word = "<w:r><w:t>{}</w:t></w:r>"
    hidden = "<w:r><w:rPr><w:vanish/></w:rPr><w:t>HIDDEN</w:t></w:r>"
    inner = f'<w:fldSimple w:instr="X">{word.format("tomorrow")}</w:fldSimple>'
    reading = f"<w:rt>{word.format('READING')}</w:rt>"
    body = (
        f'<w:p><w:fldSimple w:instr="DATE">{word.format("today ")}{hidden}{inner}</w:fldSimple>'
        f"<w:r><w:ruby>{reading}<w:rubyBase>{word.format('漢字')}</w:rubyBase></w:ruby></w:r></w:p>"
        '<w:p><w:r><w:commentReference w:id="0"/></w:r><w:r><w:object/></w:r><w:r><w:drawing>'
        f'<c:chart xmlns:c="{drawing}/chart"/><d:relIds xmlns:d="{drawing}/diagram"/>'
        "</w:drawing></w:r></w:p><w:altChunk/>"
    )
    done = stage.ok("ask", "What?", "-f", word_document(tmp_path / "paper.docx", body))
    sent = text_of(sent_to(stage, "alpha"))
    assert "today tomorrow" in sent
    assert "漢字" in sent
    assert "HIDDEN" not in sent
    assert "READING" not in sent
    left_out = done.err.partition("left out: ")[2]
    for kind in ("comments", "embedded objects", "charts", "diagrams", "embedded documents"):
        assert f"1 {kind}" in left_out
    assert "1 hidden texts" in left_out
    assert "1 readings of characters" in left_out


def test_a_very_long_word_document_gives_its_beginning(
    stage: Stage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("mammoth")
    monkeypatch.setattr(
        documents, "DOCUMENT_LIMITS", documents.DOCUMENT_LIMITS._replace(seconds=100)
    )
    # Most are empty, which are read sooner
    paragraphs = "<w:p/>" * 29_000 + "".join(
        f"<w:p><w:r><w:t>Line {number}.</w:t></w:r></w:p>" for number in range(29_000, 40_000)
    )
    document = word_document(tmp_path / "long.docx", paragraphs)
    done = stage.ok("plan", "What?", "--fit", "-f", document)
    assert "Line 29999." in done.out
    assert "Line 30000." not in done.out
    assert "left out: the end, because it is very long" in done.err


def test_documents_of_a_directory_together_have_bounded_time(
    stage: Stage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Small files may become gigabytes of elements, and a directory may have hundreds of them."""
    pytest.importorskip("mammoth")
    monkeypatch.setattr(attach, "TREE_SECONDS", 2.0)
    directory = tmp_path / "place"
    directory.mkdir()
    for number in range(40):
        word_document(
            directory / f"{number}.docx", "<w:p/>" * 2_000_000 if number < 2 else "<w:p/>"
        )
    (directory / "note.txt").write_text("INSIDE")
    begin = time.monotonic()
    done = stage.ok("ask", "How long?", "-f", directory)
    assert time.monotonic() - begin < 20
    assert "unread documents (" in done.err
    assert "INSIDE" in text_of(sent_to(stage, "alpha"))


def test_too_many_pdfs_of_a_directory_end_before_all_are_read(
    seeing: Stage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(attach, "MAX_ATTACHMENTS", 2)
    for number in range(5):
        (tmp_path / f"{number}.pdf").write_bytes(pdf(f"Words {number}"))
    seeing.costs_nothing(
        2, "ask", "What?", "-f", tmp_path, told="3 images and PDFs are attached; the limit is 2"
    )


@pytest.mark.parametrize(
    "body", ["<w:p>" * 3000, "", "<w:p/>" * 2_000_000], ids=["broken", "empty", "bomb"]
)
def test_a_word_document_that_cannot_be_read_is_an_error(
    stage: Stage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, body: str
) -> None:
    """A small file may become gigabytes of elements, which take long."""
    pytest.importorskip("mammoth")
    monkeypatch.setattr(documents, "DOCUMENT_LIMITS", documents.DOCUMENT_LIMITS._replace(seconds=3))
    stage.costs_nothing(
        2,
        "ask",
        "How long?",
        "-f",
        word_document(tmp_path / "contract.docx", body),
        told="cannot be read",
    )


LARGE = "".join(f"line {number} of the change\n" for number in range(12_000))


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """A directory that is longer than the prompt of a worker whose context is unknown."""
    directory = tmp_path / "src"
    (directory / "deep").mkdir(parents=True)
    (directory / "large.txt").write_text(LARGE)
    (directory / "deep" / "needle.py").write_text("def needle():\n    return 42\n")
    return directory


def calls_tool(name: str, arguments: dict[str, Any], then: str) -> Script:
    """A model that calls a tool, and answers with `then` and the result of the call."""

    async def script(request: SeenRequest, wire: Wire) -> None:
        last = request.json["messages"][-1]
        await wire.head()
        if last["role"] == "tool":
            frames = [delta(f"{then} {last['content']}"), delta(finish="stop")]
        else:
            function = {"name": name, "arguments": json.dumps(arguments)}
            call = {"index": 0, "id": "c1", "type": "function", "function": function}
            frames = [delta(tool_calls=[call]), delta(finish="tool_calls")]
        await wire.frames(*frames, usage(), "[DONE]")

    return script


def test_a_directory_that_is_too_long_is_looked_up(stage: Stage, repository: Path) -> None:
    """The calls are shown, and are in the trace."""
    stage.configure(workers=("alpha",))
    stage.models["alpha"] = calls_tool("search_text", {"pattern": "needle"}, "It says:")
    done = stage.ok("ask", "Where is needle?", "-f", repository, "--progress", "plain")
    assert "deep/needle.py:1: def needle():" in done.out
    assert "alpha calls attached.search_text" in done.err
    first = stage.asked("alpha")[0].json
    assert "line 77 of the change" not in str(first["messages"])
    assert "needle.py 2: needle" in str(first["messages"])
    shown = stage.ok("trace", "show", "last").out
    assert "attached.search_text" in shown


@pytest.mark.parametrize("how", [("--set", "attachments.tools=false"), ("--tools", "none")])
def test_without_these_tools_it_is_refused_and_nobody_is_asked(
    stage: Stage, repository: Path, how: tuple[str, ...]
) -> None:
    stage.configure(workers=("alpha",))
    if how[0] == "--set":
        stage.ok("config", "set", "attachments.tools", "false")
        how = ()
    messages = ("more than any worker reads: alpha 32,768 (assumed)", "--fit", "--set context=N")
    stage.ends(2, "ask", "Where?", "-f", repository, *how, told=messages)
    assert stage.posts == []


@pytest.mark.parametrize("how", [(), ("-q",), ("--progress", "plain"), ("--progress", "none")])
def test_fit_shortens_and_says_so_also_quietly(
    stage: Stage, repository: Path, how: tuple[str, ...]
) -> None:
    stage.configure(workers=("alpha",))
    done = stage.ok("ask", "Where?", "--fit", "-f", repository, *how)
    words = " ".join(done.err.split())
    assert words.count("alpha was sent only a part of") == 1
    assert f"of {len(LARGE):,} characters)" in words
    assert "def needle()" in str(stage.asked("alpha")[0].json)


def test_a_change_on_stdin_that_no_worker_reads_whole_is_refused(stage: Stage) -> None:
    """So a review in a hook cannot pass what nobody has read."""
    message = "the question has about"
    stage.fails(2, "-q", "ask", "-", given=LARGE, told=message)
    assert stage.posts == []
    stage.configure(workers={"alpha": "context = 200000"})
    stage.ok("-q", "ask", "-", given=LARGE)
    assert "line 6000 of the change" in str(stage.asked("alpha")[0].json)


def test_results_of_a_notebook_that_have_no_text_are_told(stage: Stage) -> None:
    table = {"output_type": "display_data", "data": {"text/html": "<table></table>"}}
    widget = {"output_type": "display_data", "data": {"application/vnd.plotly.v1+json": {}}}
    value = {"output_type": "execute_result", "data": {"text/html": "<b>1</b>", "text/plain": "1"}}
    cell = {"cell_type": "code", "source": ["show()"], "outputs": [table, widget, value]}
    notebook = stage.home / "tables.ipynb"
    notebook.write_text(json.dumps({"cells": [cell]}))
    done = stage.ok("-q", "ask", "-f", notebook, "What is shown?")
    notice = "tables.ipynb: 2 results as HTML or another format of the notebook left out"
    assert notice in " ".join(done.err.split())


def test_pictures_of_a_notebook_are_left_out_with_their_number(stage: Stage) -> None:
    picture = {"output_type": "display_data", "data": {"image/png": "iVBORw0=", "text/plain": "x"}}
    printed = {"output_type": "stream", "text": ["done"]}
    cell = {"cell_type": "code", "source": ["plot()"], "outputs": [picture, printed, picture]}
    notebook = stage.home / "plots.ipynb"
    notebook.write_text(json.dumps({"cells": [cell]}))
    done = stage.ok("ask", "-f", notebook, "What is shown?")
    assert "plots.ipynb: 2 pictures of the notebook left out" in " ".join(done.err.split())
    assert "jupyter nbconvert --to markdown" in " ".join(done.err.split())


def test_results_that_only_name_an_object_are_read_in_another_format(stage: Stage) -> None:
    """As `display(Markdown(…))` leaves them; those that are HTML alone are told."""
    bare = "<IPython.core.display.Markdown object>"
    words = {"text/plain": bare, "text/markdown": ["**42** ", "hills"]}
    formula = {"text/plain": ["<IPython.core.display.Math object>"], "text/latex": "$x^2$"}
    page = {"text/plain": "<folium.folium.Map at 0x7f3a10>", "text/html": "<b>map</b>"}
    alone = {"text/plain": "<list_iterator at 0x7f3a10>"}
    outputs = [
        {"output_type": "display_data", "data": data} for data in (words, formula, page, alone)
    ]
    cell = {"cell_type": "code", "source": "show()", "outputs": outputs}
    notebook = stage.home / "shown.ipynb"
    notebook.write_text(json.dumps({"cells": [cell]}))
    done = stage.ok("ask", "-f", notebook, "What is shown?")
    sent = str(stage.asked("alpha")[0].json)
    assert "**42** hills" in sent
    assert "$x^2$" in sent
    assert "<list_iterator at 0x7f3a10>" in sent
    assert "IPython" not in sent
    assert "folium" not in sent
    assert "1 result as HTML or another format" in " ".join(done.err.split())


def test_errors_in_a_notebook_have_their_names(stage: Stage) -> None:
    """Also those without a message, such as a failed assertion."""
    outputs = [
        {"output_type": "error", "ename": "KeyError", "evalue": "'hill'", "traceback": ["…"]},
        {"output_type": "error", "ename": "AssertionError", "evalue": "", "traceback": ["…"]},
    ]
    cell = {"cell_type": "code", "source": "count()", "outputs": outputs}
    notebook = stage.home / "broken.ipynb"
    notebook.write_text(json.dumps({"cells": [cell]}))
    stage.ok("ask", "-f", notebook, "What failed?")
    text = stage.asked("alpha")[0].json["messages"][-1]["content"]
    assert "result:\nKeyError: 'hill'\n\nresult:\nAssertionError\n" in text


def test_pictures_inside_the_texts_of_a_notebook_are_told(stage: Stage) -> None:
    """As they are when somebody drops one into a cell."""
    cell = {
        "cell_type": "markdown",
        "source": "![plan](attachment:plan.png)",
        "attachments": {"plan.png": {"image/png": "iVBORw0="}},
    }
    notebook = stage.home / "dropped.ipynb"
    notebook.write_text(json.dumps({"cells": [cell]}))
    done = stage.ok("-q", "ask", "-f", notebook, "What is shown?")
    assert "dropped.ipynb: 1 picture of the notebook left out" in " ".join(done.err.split())


def test_nothing_is_left_out_of_a_notebook_that_is_sent_as_it_is(stage: Stage) -> None:
    """One whose cells cannot be read is sent as text, with its pictures in letters."""
    shown = {"output_type": "display_data", "data": {"image/png": "iVBORw0="}}
    cells = [{"cell_type": "code", "source": "plot()", "outputs": [shown]}, {"cell_type": "new"}]
    notebook = stage.home / "later.ipynb"
    notebook.write_text(json.dumps({"cells": cells}))
    done = stage.ok("ask", "-f", notebook, "What is shown?")
    assert "iVBORw0=" in str(stage.asked("alpha")[0].json)
    assert "left out" not in done.err


@pytest.mark.parametrize(("name", "kind"), [("logo.png", "PNG image"), ("a.pdf", "PDF document")])
def test_a_text_with_the_name_of_another_type_is_told(stage: Stage, name: str, kind: str) -> None:
    """Such as what Git LFS leaves in the place of a picture."""
    (stage.home / name).write_text("version https://git-lfs.github.com/spec/v1\nsize 12345\n")
    done = stage.ok("-q", "ask", "-f", name, "What is it?", cwd=stage.home)
    assert f"{name} is no {kind}, and is attached as text" in " ".join(done.err.split())


def test_pages_of_a_pdf_without_text_are_told(stage: Stage) -> None:
    """A worker that is sent the text alone knows nothing of scanned pages; empty ones lack nothing."""
    text = stream(b"BT /F1 24 Tf 72 700 Td (Words) Tj ET")
    drawing = stream(b"q 0 0 m 10 10 l S Q")
    (stage.home / "mixed.pdf").write_bytes(pdf_of([text, drawing, stream(b"q Q"), drawing]))
    (stage.home / "words.pdf").write_bytes(pdf_of([text, stream(b"")]))
    done = stage.ok("-q", "ask", "-f", "mixed.pdf", "words.pdf", "What?", cwd=stage.home)
    told = " ".join(done.err.split())
    assert "mixed.pdf: 2 of 4 pages without text, as in scans (2, 4); only workers" in told
    assert "words.pdf" not in told
