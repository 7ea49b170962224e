"""`-f` with what is no file: URLs, pull requests, issues, differences, the clipboard, plug-ins."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from conductor_cli.app.attach import Attacher
from conductor_cli.app.github import repository_of
from conductor_cli.config.settings import load_settings
from conductor_cli.core.errors import UsageError
from conductor_cli.state.opening import open_state
from tests.cli.stage import Stage, need
from tests.servers import Loopback, SeenRequest, Wire, loopback

HTML = "<html><body><h1>Title</h1><script>x()</script><p>Hello from the web</p></body></html>"


@pytest.fixture
def asking(stage: Stage) -> Stage:
    stage.configure(workers=("alpha",))
    return stage


def last_prompt(stage: Stage) -> str:
    """What the worker read last."""
    return str(stage.asked("alpha")[-1].json["messages"][-1]["content"])


@pytest.fixture
def site() -> Iterator[Loopback]:
    async def script(request: SeenRequest, wire: Wire) -> None:
        match request.path.partition("?")[0]:
            case "/page":
                await wire.head(kind="text/html; charset=utf-8")
                await wire.send(HTML)
            case "/notes.txt":
                await wire.head(kind="text/plain")
                await wire.send("plain notes")
            case "/japanese":
                await wire.head(kind="text/html; charset=shift_jis")
                await wire.send("<p>日本".encode("shift-jis"))
            case "/latin.txt":
                await wire.head(kind="text/plain")
                await wire.send(b"caf\xe9")
            case "/big":
                await wire.head(kind="text/plain")
                for _ in range(17):
                    await wire.send(b"a" * (1 << 20))
            case _:
                await wire.head(404, "text/plain")

    with loopback(script) as server:
        yield server


def test_a_page_of_a_named_host_is_attached_as_its_text(asking: Stage, site: Loopback) -> None:
    asking.ok("config", "set", "web.private_hosts", "127.0.0.1")
    url = f"{site.url}/page?key=hidden{'x' * 300}"
    done = asking.ok("ask", "Sum it up", "-f", url)
    assert "Hello from the web" in last_prompt(asking)
    assert "x()" not in last_prompt(asking)
    assert f"{site.url}/page is read as text: about " in done.err
    assert "left out: 1 scripts" in done.err
    assert "hidden" not in last_prompt(asking)


def test_a_text_at_a_url_is_attached_as_it_is(asking: Stage, site: Loopback) -> None:
    asking.ok("config", "set", "web.private_hosts", "127.0.0.1")
    asking.ok("plan", "Sum it up", "-f", f"{site.url}/notes.txt")
    done = asking.ok("ask", "-f", f"{site.url}/notes.txt", "Sum it up")
    assert f"{site.url}/notes.txt is attached: 11 characters, about 3 tokens" in done.err
    assert "plain notes" in last_prompt(asking)


def test_a_page_is_read_in_the_encoding_that_its_server_names(
    asking: Stage, site: Loopback
) -> None:
    asking.ok("config", "set", "web.private_hosts", "127.0.0.1")
    asking.ok("ask", "Sum it up", "-f", f"{site.url}/japanese")
    assert "日本" in last_prompt(asking)
    message = "… | iconv -f CP1252 -t UTF-8 | conductor …"
    asking.costs_nothing(2, "ask", "Hi", "-f", f"{site.url}/latin.txt", told=message)


def test_a_private_address_is_refused_before_anything_is_sent(
    asking: Stage, site: Loopback
) -> None:
    asking.costs_nothing(
        2, "ask", "Hi", "-f", f"{site.url}/page", told=("no public address", "web.private_hosts")
    )
    assert site.connections == 0


def test_a_policy_limits_the_domains_that_are_read(asking: Stage, site: Loopback) -> None:
    asking.ok("config", "set", "web.private_hosts", "127.0.0.1")
    asking.ok("config", "set", "policy.web_domains", "example.com")
    asking.costs_nothing(2, "ask", "Hi", "-f", f"{site.url}/page", told="policy")
    assert site.connections == 0


def test_a_projects_file_can_narrow_the_domains_only(
    asking: Stage, site: Loopback, tmp_path: Path
) -> None:
    asking.ok("config", "set", "web.private_hosts", "127.0.0.1")
    project = tmp_path / ".conductor.toml"
    project.write_text('[policy]\nweb_domains = ["example.com"]\n')
    asking.fails(2, "ask", "Hi", "-f", f"{site.url}/page", cwd=tmp_path, told="policy")
    project.write_text('[web]\nprivate_hosts = ["127.0.0.1"]\n')
    asking.fails(3, "ask", "Hi", cwd=tmp_path, told="can only narrow")


def test_a_page_that_is_too_long_is_refused_as_a_file_is(asking: Stage, site: Loopback) -> None:
    asking.ok("config", "set", "web.private_hosts", "127.0.0.1")
    asking.costs_nothing(2, "ask", "Hi", "-f", f"{site.url}/big", told="more than the limit")


def test_a_file_with_the_name_of_a_source_is_the_file(asking: Stage, tmp_path: Path) -> None:
    (tmp_path / "diff:a..b").write_text("I am a file")
    asking.ok("ask", "What?", "-f", "diff:a..b", cwd=tmp_path)
    assert "I am a file" in last_prompt(asking)


def test_the_python_api_reads_no_sources(home: Path) -> None:
    """What a program passes on may be a stranger's name of a file."""
    settings = load_settings(os.environ, {}, None)
    attacher = Attacher(open_state(settings.paths).attachments(), settings)
    for name in ("https://example.com/a", "diff:HEAD~1..HEAD", "pr:a/b#1"):
        with pytest.raises(UsageError):
            attacher.attach_all(name)


PULL = {
    "title": "Fix the cache",
    "state": "open",
    "body": "It was stale.",
    "user": {"login": "ann"},
    "created_at": "2026-11-01T10:00:00Z",
}
COMMENTS = [{"body": "Looks right", "user": {"login": "bob"}, "created_at": "2026-11-02T10:00:00Z"}]
FILES = [
    {"filename": "cache.py", "status": "modified", "patch": "@@ -1 +1 @@\n-old\n+new"},
    {"filename": ".env", "status": "modified", "patch": "@@ -1 +1 @@\n-TOKEN=1\n+TOKEN=2"},
    {"filename": "logo.png", "status": "added"},
]


@pytest.fixture
def github(asking: Stage) -> Iterator[Loopback]:
    answers: dict[str, Any] = {
        "/repos/o/r/pulls/7": PULL,
        "/repos/o/r/issues/7/comments": COMMENTS,
        "/repos/o/r/pulls/7/reviews": [
            {
                "body": "Please test it",
                "state": "CHANGES_REQUESTED",
                "user": None,
                "submitted_at": "2026-11-03",
            }
        ],
        "/repos/o/r/pulls/7/comments": [],
        "/repos/o/r/pulls/7/files": FILES,
        "/repos/o/r/issues/8": PULL | {"title": "It is stale"},
        "/repos/o/r/issues/5": "no object",
        "/repos/o/r/issues/6": PULL,
        "/repos/o/r/issues/6/comments": {"message": "no list"},
        "/repos/o/r/issues/4": PULL,
        "/repos/o/r/issues/4/comments": ["no object"],
        "/repos/o/r/issues/8/comments": [COMMENTS[0] | {"body": f"c{n}"} for n in range(150)],
    }

    async def script(request: SeenRequest, wire: Wire) -> None:
        path, _, query = request.path.partition("?")
        if path == "/repos/old/r/issues/8":
            await wire.json({}, 301, location="/repositories/1/issues/8")
            return
        if path not in answers:
            await wire.json({"message": "Not Found"}, 404)
            return
        value = answers[path]
        if isinstance(value, list):
            page = int(query.rpartition("page=")[2])
            value = value[(page - 1) * 100 : page * 100]
        await wire.json(value)

    with loopback(script) as server:
        asking.ok("config", "set", "web.github_url", server.url)
        yield server


def test_all_pages_of_a_list_are_read_also_where_a_server_has_shorter_ones(
    asking: Stage,
) -> None:
    """GitHub says by its links whether a page follows, and other servers have fewer on a page."""

    async def script(request: SeenRequest, wire: Wire) -> None:
        path, _, query = request.path.partition("?")
        if path == "/repos/o/r/issues/8":
            await wire.json(PULL)
            return
        page = int(query.rpartition("page=")[2])
        links = f'<{path}?page=1>; rel="first"'
        if page < 3:
            links += f', <{path}?page={page + 1}>; rel="next"'
        listed = [COMMENTS[0] | {"body": f"comment {page} of {number}"} for number in range(50)]
        await wire.json(listed, link=links)

    with loopback(script) as server:
        asking.ok("config", "set", "web.github_url", server.url)
        done = asking.ok("ask", "What is wrong?", "-f", "issue:o/r#8")
    assert "150 comments" in done.err
    assert "comment 3 of 49" in last_prompt(asking)
    assert len(server.requests) == 4


def test_half_a_character_in_a_comment_is_no_bug(asking: Stage) -> None:
    async def script(request: SeenRequest, wire: Wire) -> None:
        is_list = "?" in request.path
        await wire.json([] if is_list else PULL | {"body": "Half \ud83d of it"})

    with loopback(script) as server:
        asking.ok("config", "set", "web.github_url", server.url)
        asking.ok("ask", "What is wrong?", "-f", "issue:o/r#8")
    assert "Half ? of it" in last_prompt(asking)


def test_a_pull_request_is_attached_with_its_comments_and_changes(
    asking: Stage, github: Loopback
) -> None:
    done = asking.ok("ask", "Review it", "-f", "pr:o/r#7", env={"GITHUB_TOKEN": "t" * 40})
    prompt = last_prompt(asking)
    for text in ("# Fix the cache", "It was stale.", "Looks right", "changes requested", "+new"):
        assert text in prompt
    assert "TOKEN=2" not in prompt
    assert "3 changed files; left out: 1 likely secret (.env)" in done.err
    assert "logo.png" in done.err
    # The token in the variable is for github.com, and goes to no other address.
    assert all("authorization" not in request.headers for request in github.requests)


def test_a_number_is_of_the_repository_that_one_works_in(
    asking: Stage, github: Loopback, tmp_path: Path
) -> None:
    asking.costs_nothing(2, "ask", "Hi", "-f", "pr:7", cwd=tmp_path, told="pr:OWNER/REPO#7")
    subprocess.run(["git", "init", "-q"], cwd=tmp_path, check=True)
    asking.costs_nothing(2, "ask", "Hi", "-f", "pr:7", cwd=tmp_path, told="no remote upstream or")
    remote = ["git", "remote", "add", "origin", f"{github.url}/o/r.git"]
    subprocess.run(remote, cwd=tmp_path, check=True)
    done = asking.ok("ask", "Review it", "-f", "pr:#7", cwd=tmp_path)
    assert "pr:7 is o/r#7, by the remote origin" in done.err
    assert "# Fix the cache" in last_prompt(asking)
    other = ["git", "remote", "add", "upstream", "git@github.com:o/r.git"]
    subprocess.run(other, cwd=tmp_path, check=True)
    asking.costs_nothing(2, "ask", "Hi", "-f", "pr:7", cwd=tmp_path, told="is at another place")


def test_the_address_of_a_pull_request_may_be_given(asking: Stage, github: Loopback) -> None:
    asking.ok("ask", "Review it", "-f", f"pr:{github.url}/o/r/pull/7/files")
    assert "# Fix the cache" in last_prompt(asking)
    elsewhere = "pr:https://example.com/o/r/pull/7"
    asking.costs_nothing(2, "ask", "Hi", "-f", elsewhere, told="is not pr:OWNER/REPO#N")


@pytest.mark.parametrize(
    ("remote", "repository"),
    [
        ("https://github.com/o/r.git", "o/r"),
        ("https://me:secret@github.com/o/r", "o/r"),
        ("git@github.com:o/r.git", "o/r"),
        ("ssh://git@github.com:22/o/r.name", "o/r.name"),
        ("https://github.com.evil.example/o/r", ""),
        ("https://gitlab.com/o/r", ""),
        ("/srv/git/o/r.git", ""),
        ("https://github.com/o", ""),
    ],
)
def test_a_remote_is_of_github_or_not(remote: str, repository: str) -> None:
    assert repository_of(remote, "https://api.github.com") == repository


def test_a_key_that_is_stored_for_the_address_is_sent_to_it(
    asking: Stage, github: Loopback
) -> None:
    asking.ok(
        *("keys", "set", "github", "--base-url", github.url, "--insecure-storage"),
        given="k" * 40,
    )
    asking.ok("ask", "Why?", "-f", "issue:o/r#8")
    assert {request.headers["authorization"] for request in github.requests} == {
        "Bearer " + "k" * 40
    }
    assert "# It is stale" in last_prompt(asking)
    assert "c149" in last_prompt(asking)


def test_an_issue_that_does_not_exist_is_an_error(asking: Stage, github: Loopback) -> None:
    asking.costs_nothing(
        2, "ask", "Why?", "-f", "issue:o/r#9", told=("(404)", "conductor keys set github")
    )
    asking.costs_nothing(2, "ask", "Why?", "-f", "issue:o/r", told="issue:OWNER/REPO#N")
    asking.costs_nothing(2, "ask", "Why?", "-f", "issue:../..#1", told="issue:OWNER/REPO#N")


@pytest.mark.parametrize(
    ("reference", "message"),
    [
        ("o/r#4", "gave another answer for /repos/o/r/issues/4/comments than GitHub does"),
        ("o/r#5", "gave another answer for /repos/o/r/issues/5 than GitHub does"),
        ("o/r#6", "gave another answer for /repos/o/r/issues/6/comments than GitHub does"),
        ("old/r#8", "says that old/r/issues/8 has moved"),
    ],
)
def test_an_issue_that_cannot_be_read_whole_is_an_error(
    asking: Stage, github: Loopback, reference: str, message: str
) -> None:
    asking.costs_nothing(2, "ask", "Why?", "-f", f"issue:{reference}", told=message)


def test_a_change_that_a_repository_calls_binary_is_told(asking: Stage, tmp_path: Path) -> None:
    """Its .gitattributes may hide from a review what it changes."""
    git = git_in(tmp_path)
    git("init", "-q", "-b", "main")
    (tmp_path / ".gitattributes").write_text("*.py -diff\n")
    for text in ("old = 1\n", "new = 1\n"):
        (tmp_path / "a.py").write_text(text)
        (tmp_path / "b.txt").write_text(text)
        git("add", ".")
        git("commit", "-qm", text)
    notice = "2 changed files; without their text, as binary files: a.py"
    asking.ok("ask", "Review it", "-f", "diff:HEAD~1..HEAD", cwd=tmp_path, told=notice)
    assert "+new = 1" in last_prompt(asking)


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """A repository with two commits, whose settings name programs that must not run."""
    git = git_in(tmp_path)
    git("init", "-q", "-b", "main")
    (tmp_path / "a.py").write_text("old = 1\n")
    (tmp_path / ".gitattributes").write_text("* diff=evil\n")
    git("add", ".")
    git("commit", "-qm", "first")
    (tmp_path / "a.py").write_text("new = 1\ndiff --git a/x b/x\n")
    (tmp_path / ".env").write_text("TOKEN=very-secret\n")
    (tmp_path / "key.txt").write_text("-----BEGIN RSA PRIVATE KEY-----\nabc\n")
    git("add", "-f", ".")
    git("commit", "-qm", "second")
    for name in ("diff.external", "diff.evil.textconv", "diff.evil.command", "core.fsmonitor"):
        git("config", name, f"touch {tmp_path / 'it-ran'}; cat")
    return tmp_path


def git_in(directory: Path) -> Callable[..., None]:
    program = need("git")
    identity = {"NAME": "a", "EMAIL": "a@example.com"}
    environ = dict(os.environ)
    for name, value in identity.items():
        environ |= {f"GIT_AUTHOR_{name}": value, f"GIT_COMMITTER_{name}": value}

    def git(*arguments: str) -> None:
        subprocess.run([program, *arguments], cwd=directory, check=True, env=environ)

    return git


def test_a_difference_is_attached_without_secrets_and_runs_no_program(
    asking: Stage, repository: Path
) -> None:
    done = asking.ok("ask", "Review it", "-f", "diff:HEAD~1..HEAD", cwd=repository)
    assert "+new = 1" in last_prompt(asking)
    assert "very-secret" not in last_prompt(asking)
    assert "RSA PRIVATE" not in last_prompt(asking)
    assert "1 changed file; left out: 2 likely secrets (.env, key.txt)" in done.err
    assert not (repository / "it-ran").exists()


def test_a_difference_from_the_merge_base_has_one_side_only(
    asking: Stage, repository: Path
) -> None:
    git = git_in(repository)
    git("checkout", "-qb", "topic", "HEAD~1")
    (repository / "b.py").write_text("topic = 1\n")
    git("add", "b.py")
    git("commit", "-qm", "topic")
    asking.ok("ask", "Review it", "-f", "diff:main...topic", cwd=repository)
    assert "+topic = 1" in last_prompt(asking)
    assert "new = 1" not in last_prompt(asking)


@pytest.mark.parametrize("why", ["its owner", "its head"])
def test_a_repository_that_git_refuses_is_told_as_that(
    stage: Stage, repository: Path, monkeypatch: pytest.MonkeyPatch, why: str
) -> None:
    """Not as a revision or a remote that it lacks; in a container another user often owns it."""
    if why == "its owner":
        monkeypatch.setenv("GIT_TEST_ASSUME_DIFFERENT_OWNER", "1")
    else:
        (repository / ".git/HEAD").unlink()
    for reference in ("diff:HEAD~1..HEAD", "pr:7"):
        stage.costs_nothing(
            2, "ask", "Hi", "-f", reference, cwd=repository, told="git refuses this repository"
        )
    done = stage.inside("ask", "Hi", "-f", "diff:HEAD~1..HEAD", cwd=repository)
    assert f"safe.directory {repository}" in done.err


@pytest.mark.parametrize(
    ("reference", "message"),
    [
        ("diff:HEAD", "is not diff:REV..REV"),
        ("diff:nowhere..HEAD", "git knows no revision nowhere"),
        ("diff:--output=x..HEAD", "git knows no revision --output=x"),
        ("diff:HEAD..HEAD", "has no change"),
    ],
)
def test_a_difference_that_cannot_be_read_is_an_error(
    asking: Stage, repository: Path, reference: str, message: str
) -> None:
    asking.costs_nothing(2, "ask", "Hi", "-f", reference, cwd=repository, told=message)


def test_outside_of_a_repository_a_difference_is_an_error(asking: Stage, tmp_path: Path) -> None:
    asking.costs_nothing(2, "ask", "Hi", "-f", "diff:a..b", cwd=tmp_path, told="no Git repository")


def test_the_clipboard_is_what_its_program_prints(asking: Stage, tmp_path: Path) -> None:
    program = tmp_path / "xclip"
    program.write_text("#!/bin/sh\nprintf 'copied text'\n")
    program.chmod(0o755)
    path = {"PATH": f"{tmp_path}:/usr/bin:/bin", "WAYLAND_DISPLAY": ""}
    asking.ok("ask", "What is it?", "--clipboard", env=path)
    assert "copied text" in last_prompt(asking)
    program.write_text("#!/bin/sh\nexit 1\n")
    asking.costs_nothing(2, "ask", "Hi", "--clipboard", env=path, told="cannot be read")
    program.unlink()
    asking.costs_nothing(
        2, "ask", "Hi", "--clipboard", env={"PATH": str(tmp_path)}, told="xclip, xsel"
    )


def test_an_installed_package_adds_a_source(
    asking: Stage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`-f ticket:1` calls the function of an entry point; one that fails is named."""
    package = tmp_path / "tickets-1.0.dist-info"
    package.mkdir()
    (package / "METADATA").write_text("Metadata-Version: 2.1\nName: tickets\nVersion: 1.0\n")
    (package / "entry_points.txt").write_text(
        "[conductor_llm.sources]\nticket = tickets_source:read\nhttps = tickets_source:read\n"
    )
    (tmp_path / "tickets_source.py").write_text(
        "def read(reference):\n    return {'1': 'the ticket'}[reference]\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    asking.ok("ask", "What is it?", "-f", "ticket:1")
    assert "the ticket" in last_prompt(asking)
    asking.costs_nothing(2, "ask", "Hi", "-f", "ticket:2", told=("tickets failed", "KeyError"))
