# mypy: ignore-errors
"""What SDKs make of a server, in the virtual environment that has them.

`sdks.py URL KEY PLACE` prints JSON, in a line.

It imports nothing of ours, and is run by `scripts.clients` alone.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Mapping
from typing import Any, Final

URL, KEY, PLACE = sys.argv[1:]
ANSWER: Final = "All is well at the harbour."
ASKED: Final[Any] = [{"role": "user", "content": "Is all well?"}]


def _openai() -> dict[str, Callable[[], object]]:
    from openai import AuthenticationError, OpenAI

    client = OpenAI(base_url=f"{URL}/v1", api_key=KEY)
    wrong = OpenAI(base_url=f"{URL}/v1", api_key="wrong")

    def chat() -> object:
        return (
            client.chat.completions.create(model="conductor", messages=ASKED)
            .choices[0]
            .message.content
            == ANSWER
        )

    def chat_stream() -> object:
        pieces = client.chat.completions.create(model="conductor", messages=ASKED, stream=True)
        return (
            "".join(piece.choices[0].delta.content or "" for piece in pieces if piece.choices)
            == ANSWER
        )

    def responses_stream() -> object:
        with client.responses.stream(model="conductor", input="Is all well?") as stream:
            return stream.get_final_response().output_text == ANSWER

    return {
        "chat": chat,
        "chat stream": chat_stream,
        "responses": lambda: (
            client.responses.create(model="conductor", input="Is all well?").output_text == ANSWER
        ),
        "resp. stream": responses_stream,
        "model (B13)": lambda: client.models.retrieve("conductor").id == "conductor",
        "wrong key": lambda: _raises(
            AuthenticationError, lambda: wrong.responses.create(model="conductor", input="x")
        ),
    }


def _anthropic() -> dict[str, Callable[[], object]]:
    from anthropic import Anthropic, AuthenticationError, BadRequestError

    client = Anthropic(base_url=URL, api_key=KEY)
    wrong = Anthropic(base_url=URL, api_key="wrong")

    def ask(**options: Any) -> Any:
        return client.messages.create(model="conductor", messages=ASKED, max_tokens=1000, **options)

    def stream() -> object:
        with client.messages.stream(model="conductor", messages=ASKED, max_tokens=1000) as events:
            return events.get_final_text() == ANSWER

    search: Any = [{"type": "web_search_20250305", "name": "web_search"}]
    choice: Any = {"type": "tool", "name": "web_search"}
    return {
        "messages": lambda: ask().content[-1].text == ANSWER,
        "stream": stream,
        "count": lambda: (
            client.messages.count_tokens(model="conductor", messages=ASKED).input_tokens > 0
        ),
        "search (B5)": lambda: _raises(
            BadRequestError, lambda: ask(tools=search, tool_choice=choice)
        ),
        "wrong key (B7)": lambda: _raises(
            AuthenticationError,
            lambda: wrong.messages.create(model="conductor", messages=ASKED, max_tokens=9),
        ),
    }


def _pydantic_ai() -> dict[str, Callable[[], object]]:
    from pydantic_ai import Agent
    from pydantic_ai.models.openai import OpenAIChatModel
    from pydantic_ai.providers.openai import OpenAIProvider

    agent = Agent(
        OpenAIChatModel("conductor", provider=OpenAIProvider(base_url=f"{URL}/v1", api_key=KEY))
    )
    return {"answers": lambda: agent.run_sync("Is all well?").output == ANSWER}


def _langchain() -> dict[str, Callable[[], object]]:
    from langchain_openai import ChatOpenAI

    model = ChatOpenAI(model="conductor", base_url=f"{URL}/v1", api_key=KEY, stream_usage=True)
    return {
        "answers": lambda: model.invoke("Is all well?").content == ANSWER,
        "stream": lambda: (
            "".join(str(piece.content) for piece in model.stream("Is all well?")) == ANSWER
        ),
    }


def _litellm() -> dict[str, Callable[[], object]]:
    import litellm

    def ask() -> object:
        reply = litellm.completion(
            "openai/conductor", messages=ASKED, base_url=f"{URL}/v1", api_key=KEY
        )
        return reply.choices[0].message.content == ANSWER

    return {"answers": ask}


def _raises(kind: type[Exception], act: Callable[[], object]) -> str:
    began = time.monotonic()
    try:
        act()
    except kind:
        took = time.monotonic() - began
        return f"{took:.1f} s" if took < 10 else f"FAILED: after {took:.0f} s"
    return "FAILED: it was answered"


SDKS: Final[Mapping[str, Mapping[str, Callable[[], dict[str, Callable[[], object]]]]]] = {
    "sdks": {
        "openai": _openai,
        "anthropic": _anthropic,
        "pydantic-ai": _pydantic_ai,
        "langchain": _langchain,
    },
    "litellm": {"litellm": _litellm},
}


def _check(act: Callable[[], object]) -> str:
    try:
        result = act()
    except Exception as error:  # noqa: BLE001 - whatever an SDK raises
        return f"FAILED: {type(error).__name__}: {' '.join(str(error).split())[:200]}"
    if isinstance(result, str):
        return result
    if result:
        return "ok"
    return "FAILED: another answer"


def _check_all(checks: Mapping[str, Callable[[], object]]) -> dict[str, str]:
    return {name: _check(act) for name, act in checks.items()}


print(json.dumps({name: _check_all(make()) for name, make in SDKS[PLACE].items()}))
