"""conductor as a model of the real Inspect.

It runs over the demo models, and over a provider server on this machine.
"""

from __future__ import annotations

import asyncio
import base64
import gc
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest

from conductor_cli.app.rehearsal import held_out_cases
from conductor_cli.evals.cases import is_correct
from conductor_cli.evals.outcomes import Evaluation
from conductor_cli.server.api.request import RequestError
from conductor_cli.state.trace_store import TraceStore
from tests.cli.stage import TWO, Stage, refuses, says, stalls
from tests.media_files import png
from tests.server.plain_api import until
from tests.server.test_tool_turns import asks, by_turns
from tests.servers import SeenRequest, Wire

inspect_ai = pytest.importorskip("inspect_ai")

from inspect_ai.dataset import Sample  # noqa: E402 - after the line that skips
from inspect_ai.model import (  # noqa: E402
    ChatMessageUser,
    ContentAudio,
    ContentImage,
    ContentText,
    GenerateConfig,
    get_model,
)
from inspect_ai.scorer import Score, Scorer, Target, accuracy, match, scorer  # noqa: E402
from inspect_ai.solver import TaskState, generate, use_tools  # noqa: E402
from inspect_ai.tool import Tool, tool  # noqa: E402

# Inspect has warnings of its own.
pytestmark = pytest.mark.filterwarnings("ignore")


@pytest.fixture(scope="module", autouse=True)
def _collect_what_inspect_left() -> Iterator[None]:
    """Its streams are not closed, and would fail the test during which they are collected."""
    yield
    gc.collect()


CASES: Final = {case.id: case for case in held_out_cases(2, 0)}


@scorer(metrics=[accuracy()])
def by_case() -> Scorer:
    async def score(state: TaskState, target: Target) -> Score:
        return Score(
            value="C" if is_correct(state.output.completion, CASES[str(state.sample_id)]) else "I"
        )

    return score


@tool
def edit() -> Tool:
    async def execute(file: str) -> str:
        """Edit a file.

        Args:
            file: The file.

        """
        return f"edited {file}"

    return execute


def evaluate(tmp_path: Path, task: Any, **options: Any) -> Any:
    """The log of one evaluation."""
    (log,) = inspect_ai.eval(
        task,
        model="conductor/auto",
        display="none",
        log_dir=str(tmp_path),
        log_level="critical",
        **options,
    )
    return log


def test_inspect_and_conductor_eval_agree_on_each_case(stage: Stage, tmp_path: Path) -> None:
    samples = [
        Sample(id=case.id, input=case.question, target=case.answer) for case in CASES.values()
    ]
    log = evaluate(
        tmp_path, inspect_ai.Task(samples, scorer=by_case()), model_args={"rehearsal": True}
    )
    assert log.status == "success", log.error
    right = {str(sample.id): sample.scores["by_case"].value == "C" for sample in log.samples}
    done = stage.inside(
        "eval", "rehearsal", "--n", str(len(CASES)), "--systems", "conductor", "--json"
    )
    (directory,) = (stage.home / "state/conductor-llm/evals").iterdir()
    assert right == {outcome.case: outcome.right for outcome in Evaluation(directory).outcomes()}
    assert log.results.scores[0].metrics["accuracy"].value == done.json["systems"][0]["accuracy"]
    for sample in log.samples:
        trace = TraceStore(stage.traces).trace(sample.output.metadata["conductor"]["run"])
        # The demo may decline
        answer = trace.answer if trace.error is None else trace.error.message
        assert (trace.question.text, answer) == (sample.input, sample.output.completion)
        assert sample.output.usage.total_tokens == trace.usage.tokens


def test_inspect_calls_its_tools_and_the_worker_goes_on(stage: Stage, tmp_path: Path) -> None:
    stage.models["alpha"] = by_turns(asks("a.txt"), says("It is done."))
    task = inspect_ai.Task([Sample(input="Rename it.")], solver=[use_tools(edit()), generate()])
    log = evaluate(tmp_path, task)
    assert log.status == "success", log.error
    (sample,) = log.samples
    assert sample.output.completion == "It is done."
    assert [message.role for message in sample.messages] == [
        "user",
        "assistant",
        "tool",
        "assistant",
    ]
    assert sample.messages[2].text == "edited a.txt"
    assert [len(stage.asked(name)) for name in ("planner", "alpha")] == [1, 2]
    assert stage.asked("alpha")[1].json["messages"][-1]["content"] == "edited a.txt"


def test_a_run_without_an_answer_is_a_wrong_sample_and_the_others_go_on(
    stage: Stage, tmp_path: Path
) -> None:
    async def only_the_second(request: SeenRequest, wire: Wire) -> None:
        await says("SIRAP" if "Question 2" in json.dumps(request.json) else "")(request, wire)

    stage.models |= {"alpha": only_the_second, "beta": only_the_second}
    samples = [Sample(input=f"Question {number}", target="SIRAP") for number in (1, 2)]
    log = evaluate(tmp_path, inspect_ai.Task(samples, scorer=match()))
    assert log.status == "success", log.error
    first, second = log.samples
    assert (first.output.completion, second.output.completion) == ("", "SIRAP")
    assert first.output.error
    assert [sample.scores["match"].value for sample in log.samples] == ["I", "C"]


def test_a_refused_key_is_an_error_of_the_sample(stage: Stage) -> None:
    stage.models |= {"alpha": refuses(401), "beta": refuses(401)}
    with pytest.raises(RequestError, match="key"):
        asyncio.run(get_model("conductor/auto", memoize=False).generate("How many?"))


def test_a_cancelled_sample_cancels_its_workers(stage: Stage) -> None:
    stage.plan = TWO
    stage.models["alpha"] = stalls("never ")

    async def give_up() -> None:
        asking = asyncio.create_task(
            get_model("conductor/auto", memoize=False).generate("How many?")
        )
        await asyncio.to_thread(until, lambda: stage.asked("alpha"))
        asking.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asking

    asyncio.run(give_up())
    (run,) = (store := TraceStore(stage.traces)).runs()
    assert (error := store.trace(run).error) is not None
    assert error.kind == "cancelled"
    assert stage.asked("alpha")[0].closed.wait(30)


def test_the_options_of_a_task_reach_the_worker(stage: Stage) -> None:
    config = GenerateConfig(max_tokens=50, temperature=0.5, stop_seqs=["END"])
    output = asyncio.run(
        get_model("conductor/auto", memoize=False).generate("How many?", config=config)
    )
    sent = stage.asked("alpha")[0].json
    assert (sent["temperature"], sent["stop"]) == (0.5, ["END"])
    assert 50 in (sent.get("max_tokens"), sent.get("max_completion_tokens"))
    assert (output.completion, output.stop_reason) == ("alpha answers", "stop")


def test_how_tokens_are_drawn_reaches_the_worker_and_what_has_no_effect_is_named(
    stage: Stage,
) -> None:
    """`verbosity` and a budget of thinking had no effect, and no output said so."""
    drawn = {"top_p": 0.5, "top_k": 3, "frequency_penalty": 0.25, "presence_penalty": -1.0}
    config = GenerateConfig(**drawn, logit_bias={50: -100}, verbosity="low", reasoning_tokens=99)
    model = get_model("conductor/auto", memoize=False)
    output = asyncio.run(model.generate("How many?", config=config))
    sent = stage.asked("alpha")[0].json
    assert {name: sent[name] for name in drawn} == drawn
    assert sent["logit_bias"] == {"50": -100}
    assert output.metadata is not None
    assert output.metadata["conductor"]["ignored"] == ["reasoning_tokens", "verbosity"]


def test_the_detail_of_an_image_reaches_the_worker(stage: Stage) -> None:
    stage.configure(workers={"alpha": 'accepts = ["image"]'})
    url = "data:image/png;base64," + base64.b64encode(png()).decode()
    seen = ChatMessageUser(
        content=[ContentText(text="How many?"), ContentImage(image=url, detail="high")]
    )
    asyncio.run(get_model("conductor/mini", memoize=False).generate([seen]))
    content = stage.asked("alpha")[0].json["messages"][-1]["content"]
    assert [part["image_url"]["detail"] for part in content if part["type"] == "image_url"] == [
        "high"
    ]


def test_what_cannot_be_asked_is_an_error_that_says_why(stage: Stage) -> None:
    with pytest.raises(
        RequestError, match="there is no model 'nobody'; the models are: conductor, "
    ):
        asyncio.run(get_model("conductor/nobody", memoize=False).generate("How many?"))
    heard = ChatMessageUser(
        content=[ContentAudio(audio="data:audio/wav;base64,AA==", format="wav")]
    )
    with pytest.raises(Exception, match="audio, which no worker can be sent"):
        asyncio.run(get_model("conductor/auto", memoize=False).generate([heard]))
    assert not stage.asked("planner")
