# mypy: ignore-errors
"""What the newest SDKs for Python make of a server: their documented examples.

`sdk_checks.py URL` prints a JSON object, the result of each check. It imports nothing of ours, and
is run by `scripts.conformance` alone, in the virtual environment that has the SDKs.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from functools import partial
from typing import Any, Final

from pydantic import BaseModel

URL: Final = sys.argv[1]
QUESTION: Final = "What is the weather in Rome?"
ANSWER: Final = "It hails in Rome."
PARAMETERS: Final = {
    "type": "object",
    "properties": {"city": {"type": "string"}},
    "required": ["city"],
    "additionalProperties": False,
}


class Weather(BaseModel):
    """What a structured answer is parsed into."""

    city: str


def openai_checks() -> dict[str, Callable[[], bool]]:
    """The checks of OpenAI's SDK."""
    from openai import OpenAI

    client = OpenAI(base_url=f"{URL}/v1", api_key="x", max_retries=0)
    checks = {
        "openai: parse (Chat)": _parsed_chat,
        "openai: parse (Responses)": _parsed_response,
        "openai: tool loop": _tool_loop,
        "openai: custom tool": _custom_tool,
        "openai: background with metadata": _background,
        "openai: store false": _not_stored,
        "openai: previous_response_id": _continued,
        "openai: compact": _compacted,
        "openai: input_tokens": _counted,
        "openai: stream": _streamed,
    }
    return {name: partial(check, client) for name, check in checks.items()}


def _parsed_chat(client: Any) -> bool:
    done = client.chat.completions.parse(
        model="conductor",
        messages=[{"role": "user", "content": QUESTION}],
        response_format=Weather,
    )
    return done.choices[0].message.parsed == Weather(city="Rome")


def _parsed_response(client: Any) -> bool:
    done = client.responses.parse(model="conductor", input=QUESTION, text_format=Weather)
    return done.output_parsed == Weather(city="Rome")


def _tool_loop(client: Any) -> bool:
    tool: Any = {"type": "function", "name": "weather", "parameters": PARAMETERS}
    items: list[Any] = [{"role": "user", "content": QUESTION}]
    first = client.responses.create(model="conductor", input=items, tools=[tool])
    items += first.output
    for item in first.output:
        if item.type == "function_call":
            result = {"type": "function_call_output", "call_id": item.call_id, "output": "hail"}
            items.append(result)
    done = client.responses.create(model="conductor", input=items, tools=[tool])
    return done.output_text == ANSWER


def _custom_tool(client: Any) -> bool:
    tool: Any = {"type": "custom", "name": "weather", "description": "Asks for the weather."}
    done = client.responses.create(model="conductor", input=QUESTION, tools=[tool])
    return [item.type for item in done.output][-1] == "custom_tool_call"


def _background(client: Any) -> bool:
    fields: Any = {"metadata": {"job": "7"}, "background": True}
    job = client.responses.create(model="conductor", input=QUESTION, **fields)
    while job.status in {"queued", "in_progress"}:
        job = client.responses.retrieve(job.id)
    return job.output_text == ANSWER and job.metadata == {"job": "7"}


def _not_stored(client: Any) -> bool:
    from openai import NotFoundError

    done = client.responses.create(model="conductor", input=QUESTION, store=False)
    try:
        client.responses.retrieve(done.id)
    except NotFoundError:
        return done.store is False
    return False


def _continued(client: Any) -> bool:
    first = client.responses.create(model="conductor", input=QUESTION)
    done = client.responses.create(
        model="conductor", input="And now?", previous_response_id=first.id
    )
    return done.previous_response_id == first.id


def _compacted(client: Any) -> bool:
    done = client.responses.compact(model="conductor", input=QUESTION)
    return done.output[-1].type == "compaction"


def _counted(client: Any) -> bool:
    return client.responses.input_tokens.count(model="conductor", input=QUESTION).input_tokens > 0


def _streamed(client: Any) -> bool:
    with client.responses.stream(model="conductor", input=QUESTION) as stream:
        return stream.get_final_response().output_text == ANSWER


def anthropic_checks() -> dict[str, Callable[[], bool]]:
    """The checks of Anthropic's SDK."""
    from anthropic import Anthropic, beta_tool

    client = Anthropic(base_url=URL, api_key="x", max_retries=0)
    fields: Any = {"model": "conductor", "max_tokens": 200}
    fields["messages"] = [{"role": "user", "content": QUESTION}]

    @beta_tool
    def weather(city: str) -> str:
        """Tell the weather of a city."""
        return f"hail in {city}"

    def tool_runner() -> bool:
        """Threads are on by default: the question must not be lost after the first call."""
        last = None
        for message in client.beta.messages.tool_runner(**fields, tools=[weather]):
            last = message
        return last is not None and last.content[-1].text == ANSWER

    def parsed() -> bool:
        done = client.messages.parse(**fields, output_format=Weather)
        return done.parsed_output == Weather(city="Rome")

    def bash() -> bool:
        tool: Any = {"type": "bash_20250124", "name": "bash"}
        done = client.messages.create(**fields, tools=[tool])
        return done.stop_reason == "tool_use" and done.content[-1].name == "bash"

    def streamed() -> bool:
        with client.messages.stream(**fields) as stream:
            return stream.get_final_text() == ANSWER

    def counted() -> bool:
        talk = fields["messages"]
        return client.messages.count_tokens(model="conductor", messages=talk).input_tokens > 0

    return {
        "anthropic: tool runner with threads": tool_runner,
        "anthropic: parse": parsed,
        "anthropic: bash tool": bash,
        "anthropic: stream": streamed,
        "anthropic: count_tokens": counted,
    }


def _result(check: Callable[[], bool]) -> str:
    try:
        return "ok" if check() else "another answer"
    except Exception as error:  # noqa: BLE001 - whatever an SDK raises is its result
        return f"{type(error).__name__}: {' '.join(str(error).split())[:200]}"


if __name__ == "__main__":
    checks = openai_checks() | anthropic_checks()
    print(json.dumps({name: _result(check) for name, check in checks.items()}))
