"""The examples of docs/harnesses.md, each run as it stands, in this process.

A shell would load each harness again.
"""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import Final

import httpx
import pytest
from click.testing import CliRunner

from tests.cli.stage import Stage
from tests.server.plain_api import serving

PAGE: Final = Path(__file__).resolve().parents[2] / "docs" / "harnesses.md"
EXAMPLES: Final = dict(
    re.findall(
        r"^## ([^\n]+)\n(?:(?!^## ).)*?^```\w+\n(.*?)^```$",
        PAGE.read_text("utf-8"),
        re.MULTILINE | re.DOTALL,
    )
)

# The harnesses have warnings of their own.
pytestmark = pytest.mark.filterwarnings("ignore")


def test_the_page_has_these_examples() -> None:
    assert list(EXAMPLES) == ["Inspect", "llm", "lm-evaluation-harness"]
    assert all(len(code.splitlines()) <= 7 for code in EXAMPLES.values())


def test_the_example_of_inspect_scores_an_answer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Inspect finds the provider by its entry point, and scores the answer as right."""
    main = pytest.importorskip("inspect_ai._cli.main").inspect
    monkeypatch.chdir(tmp_path)
    code = re.fullmatch(
        r"cat > (\S+) <<'END'\n(.*)\nEND\n(inspect .*)\n", EXAMPLES["Inspect"], re.DOTALL
    )
    assert code is not None
    file, text, command = code.groups()
    Path(file).write_text(text)
    done = CliRunner().invoke(main, shlex.split(command)[1:])
    assert done.exit_code == 0, done.output
    logs = pytest.importorskip("inspect_ai.log")
    log = logs.read_eval_log(logs.list_eval_logs(str(tmp_path / "logs"))[0])
    assert log.results.scores[0].metrics["accuracy"].value == 1.0


def test_the_server_answers_what_lm_evaluation_harness_sends(stage: Stage) -> None:
    (path,) = re.findall(
        r"base_url=http://127.0.0.1:8080(\S+?),", EXAMPLES["lm-evaluation-harness"]
    )
    messages = [{"role": "user", "content": "How many?", "type": "text"}]
    body = {
        "model": "conductor",
        "messages": messages,
        "max_tokens": 64,
        "temperature": 0,
        "stop": ["END"],
        "seed": 1234,
    }
    with serving() as server:
        answer = httpx.post(f"{server.url}{path}", json=body).json()
    assert answer["choices"][0]["message"]["content"] == "alpha answers"
    sent = stage.asked("alpha")[0].json
    assert (sent["temperature"], sent["stop"]) == (0, ["END"])
