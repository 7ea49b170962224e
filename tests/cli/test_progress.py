"""The progress display: the plain lines, and what the bar leaves out on a narrow terminal."""

from __future__ import annotations

import pytest

from conductor_cli.cli.progress import ProgressLines, crop_label


class Clock:
    """A clock that tests set."""

    now = 100.0

    def __call__(self) -> float:
        return self.now


def lines(capsys: pytest.CaptureFixture[str]) -> list[str]:
    return capsys.readouterr().err.splitlines()


def test_a_task_is_shown_when_it_begins_and_every_few_seconds(capsys: pytest.CaptureFixture[str]) -> None:
    clock = Clock()
    display = ProgressLines("bytes", clock)
    for seconds, done in ((0, 0), (1, 1_000_000), (5, 5_000_000), (6, 6_000_000), (7, 10_000_000)):
        clock.now = 100 + seconds
        display.update("downloading a.gguf", done, 10_000_000)
    assert lines(capsys) == ["downloading a.gguf, 0 bytes of 10.0 MB", "downloading a.gguf, 5.00 MB of 10.0 MB"]


def test_runs_are_counted_to_the_last_one(capsys: pytest.CaptureFixture[str]) -> None:
    clock = Clock()
    display = ProgressLines("runs", clock)
    display.update("", 0, 1200)
    clock.now += 1
    display.update("", 600, 1200, "2 failed, $0.12")
    display.update("", 1200, 1200, "2 failed, $0.24")
    assert lines(capsys) == ["0 of 1,200 runs", "1,200 of 1,200 runs, 2 failed, $0.24"]


def test_a_label_is_one_safe_line(capsys: pytest.CaptureFixture[str]) -> None:
    ProgressLines("bytes").update("one\ntwo\x1b[2J", 0)
    assert len(lines(capsys)) == 1


@pytest.mark.parametrize(
    ("width", "shown"),
    [(80, "checking model-00001-of-00002.gguf"), (70, "checking …00001-of-00002.gguf"), (20, "checking …02.gguf")],
)
def test_a_long_file_name_keeps_its_end(width: int, shown: str) -> None:
    assert crop_label("checking model-00001-of-00002.gguf", width) == shown
