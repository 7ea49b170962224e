"""`conductor workers test --features`: what a worker takes besides text is seen, not believed."""

from __future__ import annotations

import io
import struct
import tomllib
import zlib
from collections.abc import Mapping

import pypdf
import pytest

from conductor_cli.app.worker_probes import IMAGE, PDF
from tests.cli.stage import Stage, explained, refuses, says
from tests.cli.test_pools import own
from tests.servers import Script, SeenStep, Speaker, Wire


def feature(seen: SeenStep) -> str:
    """What a request asks about."""
    body = seen.json
    content = body["messages"][0]["content"]
    kinds = [part["type"] for part in content] if isinstance(content, list) else []
    return "image" if "image_url" in kinds else "pdf" if "file" in kinds else "tools" if "tools" in body else ""


def model(**answers: Script) -> Script:
    """A model that answers plain questions, and others as it is told."""

    async def script(seen: SeenStep, wire: Wire) -> None:
        await answers.get(feature(seen), says("ready"))(seen, wire)

    return script


async def calls(seen: SeenStep, wire: Wire) -> None:
    speaker = Speaker(seen, wire)
    await speaker.begin()
    await speaker.call("store_number", '{"number": ', "2914}")
    await speaker.end()


def found(stage: Stage, *more: str) -> Mapping[str, tuple[str, str]]:
    """What is said of alpha's features, and why."""
    done = stage.inside("workers", "test", "alpha", "--features", "--json", *more)
    return {name: (test["takes"], test["why"]) for name, test in done.json[0]["features"].items()}


def test_what_a_model_reads_is_shown_by_what_only_the_file_says(stage: Stage) -> None:
    stage.models["alpha"] = model(image=says("It is 4,", "817."), pdf=says("6035"), tools=calls)
    done = stage.inside("workers", "test", "alpha", "--features")
    assert done.code == 0
    assert done.out.startswith("ok       alpha: image: yes; pdf: yes; tools: yes (")
    assert [feature(seen) for seen in stage.asked("alpha")] == ["", "image", "pdf", "tools"]
    assert not stage.own.exists()


def test_a_model_that_only_pretends_to_read_is_found_out(stage: Stage) -> None:
    stage.models["alpha"] = model(
        image=says("A lovely picture of 12."),
        pdf=refuses(400, "file parts are not supported"),
        tools=says("Stored 2914."),
    )
    image, pdf, tools = found(stage).values()
    assert image == ("no", "it answered 'A lovely picture of 12.'")
    assert pdf[0] == "no"
    assert "file parts are not supported" in pdf[1]
    assert tools == ("no", "it did not call the tool")


@pytest.mark.parametrize(
    ("answer", "takes"),
    [
        (refuses(500, "image input is not supported - hint: provide the mmproj"), "no"),
        (refuses(404, "No endpoints found that can do this"), "no"),
        (refuses(429, "Slow down"), "unknown"),
        (refuses(503, "Try later"), "unknown"),
        (says("Let me", finish="length"), "unknown"),
    ],
)
def test_a_server_that_fails_for_another_reason_proves_nothing(stage: Stage, answer: Script, takes: str) -> None:
    stage.models["alpha"] = model(image=answer)
    assert found(stage)["image"][0] == takes


def test_a_worker_that_does_not_answer_is_asked_nothing_more(stage: Stage) -> None:
    stage.models["alpha"] = refuses(401)
    row = stage.inside("workers", "test", "alpha", "--features", "--json").json[0]
    assert (row["state"], "features" in row, len(stage.asked("alpha"))) == ("failed", False, 1)


def test_what_was_seen_is_stored_only_on_demand(stage: Stage) -> None:
    own(stage, "alpha", "beta")
    stage.models["alpha"] = model(image=says("4817"), pdf=refuses(400), tools=calls)
    stage.models["beta"] = model(image=refuses(429), pdf=says("6035"))
    before = stage.own.read_text()
    stage.inside("workers", "test", "--features")
    assert stage.own.read_text() == before
    done = stage.inside("workers", "test", "--features", "--save")
    workers = tomllib.loads(stage.own.read_text())["workers"]
    assert (workers["alpha"]["accepts"], "accepts" in workers["beta"]) == (["image"], False)
    assert "stored for alpha: accepts image" in done.err
    assert "nothing is stored for beta" in done.err
    row = next(row for row in stage.inside("workers", "list", "--json").json if row["name"] == "alpha")
    assert row["accepts"] == ["image"]


def test_a_worker_of_a_file_that_the_user_writes_is_not_changed(stage: Stage) -> None:
    stage.models["alpha"] = model(image=says("4817"), pdf=says("6035"))
    done = stage.inside("workers", "test", "alpha", "--features", "--save")
    assert "nothing is stored for alpha" in done.err
    assert "which conductor does not change" in done.err
    assert not stage.own.exists()


def test_saving_needs_something_to_save(stage: Stage) -> None:
    done = stage.inside("workers", "test", "--save")
    assert (done.code, stage.asked("alpha")) == (2, [])
    explained(done)


def test_the_files_are_valid() -> None:
    """The PDF is read without a complaint, and the image has the pixels that its header says."""
    page = pypdf.PdfReader(io.BytesIO(PDF), strict=True).pages[0]
    assert page.extract_text() == "The number is 6035."
    width, height = struct.unpack(">II", IMAGE[16:24])
    start = IMAGE.index(b"IDAT") + 4
    (length,) = struct.unpack(">I", IMAGE[start - 8 : start - 4])
    assert len(zlib.decompress(IMAGE[start : start + length])) == height * (width // 8 + 1)
