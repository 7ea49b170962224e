"""conductor as a model of the real `llm`, over a provider server on this machine."""

from __future__ import annotations

import json
from base64 import b64encode

import pytest

from conductor_cli.state.trace_store import TraceStore
from tests.cli.stage import Stage, refuses, says, stalls
from tests.media_files import png
from tests.server.test_tool_turns import asks, by_turns
from tests.test_imports import PLUGINS, imports

llm = pytest.importorskip("llm")

# llm has warnings of its own.
pytestmark = pytest.mark.filterwarnings("ignore")


def edit(file: str) -> str:
    """Edit a file."""
    return f"edited {file}"


def test_a_chain_calls_tools_and_the_worker_goes_on(stage: Stage) -> None:
    stage.models["alpha"] = by_turns(asks("a.txt"), says("It is done."))
    assert llm.get_model("conductor").chain("Rename it.", tools=[edit]).text() == "I edit. It is done."
    assert [len(stage.asked(name)) for name in ("planner", "alpha")] == [1, 2]
    assert stage.asked("alpha")[1].json["messages"][-1]["content"] == "edited a.txt"


def test_a_conversation_system_text_and_options_are_sent(stage: Stage) -> None:
    conversation = llm.get_model("conductor").conversation()
    assert conversation.prompt("One?", system="Be brief.").text() == "alpha answers"
    assert conversation.prompt("Two?", temperature=0.5, max_tokens=50).text() == "alpha answers"
    sent = stage.asked("alpha")[1].json
    told = [(message["role"], message["content"]) for message in sent["messages"] if message["role"] != "system"]
    assert told == [("user", "One?"), ("assistant", "alpha answers"), ("user", "Two?")]
    assert "Be brief." in json.dumps(stage.asked("alpha")[0].json["messages"])
    assert sent["temperature"] == 0.5


def test_an_attachment_and_a_schema_are_sent(stage: Stage) -> None:
    stage.configure(workers=["beta"])
    stage.config.write_text(stage.config.read_text() + stage.worker("alpha", 'accepts = ["image"]\n'))
    stage.models["alpha"] = says('{"n": 1}')
    schema = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
    picture = png()
    attached = llm.Attachment(type="image/png", content=picture)
    answer = llm.get_model("conductor").prompt("How many?", attachments=[attached], schema=schema)
    assert json.loads(answer.text()) == {"n": 1}
    assert b64encode(picture).decode() in json.dumps(stage.asked("alpha")[0].json)


def test_leaving_a_stream_stops_the_run(stage: Stage) -> None:
    stage.models["alpha"] = stalls("never ")
    assert next(iter(llm.get_model("conductor").prompt("How many?"))) == "never "
    assert stage.asked("alpha")[0].closed.wait(5)


def test_a_failure_is_an_error_of_llm(stage: Stage) -> None:
    stage.models["alpha"] = stage.models["beta"] = refuses(401)
    with pytest.raises(llm.ModelError, match="alpha"):
        llm.get_model("conductor").prompt("How many?").text()
    assert len(TraceStore(stage.traces).runs()) == 1


def test_llm_starts_without_loading_conductor() -> None:
    at_start = [name for name, inside in imports(PLUGINS / "llm.py") if not inside]
    assert "llm" in at_start
    assert "conductor_cli" not in at_start
