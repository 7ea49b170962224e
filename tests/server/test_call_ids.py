"""The signed ids of tool calls that clients make."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from conductor_cli.config.files import AppPaths
from conductor_cli.server.conversation import CallIds, SignedCall
from conductor_cli.state.home import FileState

IDS = CallIds(b"k" * 32)
CALL = SignedCall(run="20261122-201012-0a1b2c", worker="a worker with a rather long name / of any form: ü", index=63)


def test_an_id_says_which_worker_of_which_run_asked() -> None:
    text = IDS.sign(CALL)
    assert IDS.read(text, ("other", CALL.worker)) == CALL
    assert re.fullmatch(r"[a-zA-Z0-9_-]{1,64}", text)


@pytest.mark.parametrize("place", range(5, 54))
def test_a_changed_id_is_unknown(place: int) -> None:
    text = IDS.sign(CALL)
    changed = text[:place] + ("1" if text[place] != "1" else "2") + text[place + 1 :]
    assert IDS.read(changed, (CALL.worker,)) is None


@pytest.mark.parametrize("text", ["", "call_1", "toolu_01A09q90qw90lq917835lq9", "call_" + "_" * 59, "ü" * 70, "\x00"])
def test_a_foreign_id_is_unknown(text: str) -> None:
    assert IDS.read(text, (CALL.worker,)) is None


def test_an_id_of_another_secret_or_of_a_removed_worker_is_unknown() -> None:
    assert CallIds(b"x" * 32).read(IDS.sign(CALL), (CALL.worker,)) is None
    assert IDS.read(IDS.sign(CALL), ("other",)) is None


def test_the_secret_is_made_once_and_only_its_owner_reads_it(tmp_path: Path) -> None:
    state = FileState(AppPaths(config=tmp_path, state=tmp_path, data=tmp_path, cache=tmp_path))
    secret = state.secret()
    (path,) = (tmp_path / "serve").glob("call-*")
    assert (len(secret), state.secret(), path.stat().st_mode & 0o777) == (32, secret, 0o600)
    path.write_bytes(b"short")
    assert state.secret() not in (secret, b"short")
