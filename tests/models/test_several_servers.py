"""One model behind several servers."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from conductor_cli.core.errors import ModelError
from conductor_cli.core.policy import Policy
from conductor_cli.core.pool import Worker
from conductor_cli.models import several_servers
from conductor_cli.models.catalog import open_model
from conductor_cli.models.recipients import recipient_facts
from conductor_cli.models.several_servers import SeveralServers
from tests.models.kit import answering, text
from tests.models.test_structured import FIELDS, GRAMMAR, owned
from tests.servers import Loopback, Script, SeenRequest, Wire, delta, loopback, saying, usage

busy = answering({"error": {"message": "no room"}}, 503)
refuses = answering({"error": {"message": "no such thing", "type": "invalid_request_error"}}, 404)


async def breaks_off(request: SeenRequest, wire: Wire) -> None:
    await wire.head()
    await wire.frames(delta("Half "))
    wire.cut()


def answers(word: str) -> Script:
    return owned("vllm", saying(delta(word), delta(finish="stop"), usage()))


@pytest.fixture
def two(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Loopback]]:
    monkeypatch.setattr(several_servers, "LOOK_SECONDS", 0.05)
    with ExitStack() as stack:
        yield [stack.enter_context(loopback(answers(word))) for word in ("one", "two")]


async def ask(model: SeveralServers) -> str:
    return text([chunk async for chunk in model.stream(GRAMMAR)])


def opened(*servers: Loopback) -> SeveralServers:
    urls = ",".join(f"{server.url}/v1" for server in servers)
    worker = Worker(name="w", kind="openai-compatible", model="m", options={"base_url": urls})
    model = open_model(worker, environ={})
    assert isinstance(model, SeveralServers)
    return model


def test_calls_go_to_the_server_with_the_fewest_and_each_in_its_own_form(
    two: list[Loopback],
) -> None:
    two[0].script = owned("sglang", saying(delta("one"), delta(finish="stop"), usage()))

    async def many() -> list[str]:
        model = opened(*two)
        answers = list(await asyncio.gather(*(ask(model) for _ in range(8))))
        await model.close()
        return answers

    assert sorted(asyncio.run(many())) == ["one"] * 4 + ["two"] * 4
    assert [sum(request.method == "POST" for request in server.requests) for server in two] == [
        4,
        4,
    ]
    sent = [
        next((name for name in FIELDS if name in server.requests[-1].json), None) for server in two
    ]
    assert sent == ["ebnf", "structured_outputs"]


@pytest.mark.parametrize("fault", [busy, None], ids=["no room", "not there"])
def test_a_server_that_fails_is_left_out_until_it_answers(
    two: list[Loopback], fault: Script | None
) -> None:
    async def while_away_and_back() -> list[str]:
        model = opened(*two)
        replies = list[str]()
        if fault is None:
            two[0].close()
        else:
            two[0].script = fault
        replies += [await ask(model) for _ in range(3)]
        request_count = len(two[0].requests)
        replies.append(await ask(model))
        assert sum(request.method == "POST" for request in two[0].requests[request_count:]) == 0
        if fault is not None:
            two[0].script = answers("back")
            async with asyncio.timeout(60):
                while await ask(model) != "back":
                    pass
        await model.close()
        return replies

    assert asyncio.run(while_away_and_back()) == ["two"] * 4


@pytest.mark.parametrize(
    ("faults", "reason"),
    [((breaks_off, None), "broken"), ((refuses, None), "missing"), ((busy, busy), "overloaded")],
)
def test_an_answer_that_has_begun_a_refusal_and_the_last_failure_are_told(
    two: list[Loopback], faults: tuple[Script | None, Script | None], reason: str
) -> None:
    """None is asked for again where another server would answer the same.

    Nor where there is no other.
    """
    for server, fault in zip(two, faults, strict=True):
        server.script = fault or server.script

    async def once() -> None:
        model = opened(*two)
        try:
            await ask(model)
        finally:
            await model.close()

    with pytest.raises(ModelError) as caught:
        asyncio.run(once())
    assert caught.value.reason == reason


@pytest.mark.parametrize(
    ("policy", "allowed"),
    [
        (Policy(), True),
        (Policy(local_only=True), False),
        (Policy(deny=("provider:b.example",)), False),
        (Policy(allow=(("provider:a.example",),)), False),
        (Policy(allow=(("provider:a.example", "provider:b.example"),)), True),
    ],
)
def test_a_rule_has_to_allow_each_address(policy: Policy, allowed: bool) -> None:
    urls = "http://a.example/v1,http://b.example/v1"
    party = recipient_facts(Worker(name="w", kind="openai-compatible", options={"base_url": urls}))
    assert party.provider == "a.example, b.example"
    assert (not policy.denial_reason(party)) == allowed
    assert Policy(files_only=policy.allow).allows_files(party) == (not policy.allow or allowed)


def test_a_reply_without_a_word_counts_and_no_other_server_is_asked(two: list[Loopback]) -> None:
    """It may have thought for long. Another call is for the run to make, which reserves it."""
    two[0].script = owned("vllm", saying(delta(finish="stop"), usage(50, 4000)))

    async def once() -> tuple[ModelError, str]:
        model = opened(*two)
        with pytest.raises(ModelError) as failed:
            await ask(model)
        after = await ask(model)
        await model.close()
        return failed.value, after

    error, after = asyncio.run(once())
    assert error.reason == "empty_answer"
    assert error.usage is not None
    assert error.usage.tokens_out == 4000
    assert [sum(request.method == "POST" for request in server.requests) for server in two] == [
        1,
        1,
    ]
    assert after == "two"
