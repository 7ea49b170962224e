"""From a client's request to work: which model it names, what is asked, and under which limits."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from decimal import Decimal
from typing import Any

from conductor_cli.app.attach import Attacher
from conductor_cli.config import Settings, find_setting
from conductor_cli.config.project import narrow
from conductor_cli.core.chat import Message, Tool
from conductor_cli.core.errors import UsageError
from conductor_cli.core.question import Conversation, File, Question, Turn
from conductor_cli.models.daily_spend import USER, Spender
from conductor_cli.server.api.request import ClientRequest, RequestError
from conductor_cli.server.client_keys import ClientKey
from conductor_cli.server.origins import client_origin
from conductor_cli.server.runs import Runs, Work
from conductor_cli.server.served_models import ServedModel, find_model
from conductor_cli.store.attachments import Attachments
from conductor_cli.store.trace_store import TraceStore


async def read_work(runs: Runs, request: ClientRequest, run: str, client: ClientKey | None = None) -> Work:
    """The work that a request asks for, as the run `run`. Raises `RequestError` or `ConductorError`."""
    now = runs.settings()
    model = find_model(request.model, request.effort, now)
    pool = _pool_for(client, model, now)
    settings = runs.settings(model.settings | ({"conductor.pool": pool} if pool else {}))
    asked = {} if request.max_cost is None else {"limits.cost": request.max_cost}
    if client is not None and client.max_cost is not None:
        settings = lowered(settings, {"limits.cost": client.max_cost}, f"the key {client.name}")
    settings = lowered(settings, asked, "the request")
    attachments = Attachments(settings.paths.attachments)
    files = await _attach(request, Attacher(attachments, settings))
    return Work(
        settings=settings, store=TraceStore(settings.paths.traces), question=read_question(request, files),
        only=runs.options.workers, rehearsal=runs.options.rehearsal, id=run, attachments=attachments,
        streams=request.stream and not holds_text(request),
        origin=client_origin(client),
        spender=USER if client is None else Spender(name=client.name, cost=client.max_cost_day),
    )  # fmt: skip


def _pool_for(client: ClientKey | None, model: ServedModel, settings: Settings) -> str:
    """The named pool of a request, empty for that of the settings. Raises `RequestError`.

    A key's pool can only narrow: it opens neither another pool that the client names, nor one beside the server's.
    """
    own = client.pool if client is not None else ""
    served = settings["conductor.pool"] if "conductor.pool" in settings.given else ""
    if own and any(other not in {"", own} for other in (model.pool, served)):
        raise RequestError(403, "pool_not_allowed", f"this key may only use the pool {own}", param="model")
    return own or model.pool


def holds_text(request: ClientRequest) -> bool:
    """Whether the answer is sent only when it is complete, because it is checked first."""
    return request.schema is not None or request.json_only


def lowered(settings: Settings, limits: Mapping[str, Any], origin: str) -> Settings:
    """The settings with limits that only count where they are lower."""
    values, origins = dict(settings.values), dict(settings.origins)
    for name, value in limits.items():
        item = find_setting(name)
        exact = Decimal(str(value)) if item.type == "money" else value
        narrow(values, origins, item, item.check(exact), origin)
    return replace(settings, values=values, origins=origins)


async def _attach(request: ClientRequest, attacher: Attacher) -> tuple[File, ...]:
    """The files that the messages carry, each once. Raises `RequestError`."""
    carried = {each.sha256: each for message in request.messages for each in message.attachments}
    files = []
    for data in request.blobs.values():
        attacher.attachments.add(data)
    for sha256, attachment in carried.items():
        try:
            # A PDF is read by a process of its own, which takes a moment.
            files.append(await asyncio.to_thread(attacher.take, request.blobs[sha256], attachment.name))
        except UsageError as error:
            raise RequestError(400, "invalid_file", error.message) from None
    return tuple(files)


def read_question(request: ClientRequest, files: Sequence[File] = ()) -> Question:
    """The question of a conversation: its last text of the user, with what came before. Raises `RequestError`."""
    talk = [message for message in request.messages if message.role != "system"]
    asked = [index for index, message in enumerate(talk) if message.role == "user"]
    if not asked:
        raise RequestError(400, "no_user_message", "the messages hold no message of the user", param="messages")
    only = request.tool_choice.name if isinstance(request.tool_choice, Tool) else ""
    conversation = Conversation(
        messages=tuple(talk), tools=request.tools,
        tool_choice="required" if isinstance(request.tool_choice, Tool) else request.tool_choice, only_tool=only,
        parallel_tool_calls=request.parallel_tool_calls, max_tokens=request.max_tokens,
        temperature=request.temperature, stop=request.stop,
    )  # fmt: skip
    return Question(
        text=talk[asked[-1]].content,
        system="\n\n".join(message.content for message in request.messages if message.role == "system"),
        history=tuple(_turns(talk[: asked[-1]])),
        files=tuple(files),
        schema=request.schema or ({"type": "object"} if request.json_only else None),
        conversation=conversation,
    )


def _turns(talk: Sequence[Message]) -> Iterator[Turn]:
    """The texts of a conversation as questions, each with all that was answered to it."""
    question, answers = "", list[str]()
    for message in talk:
        if message.role == "user":
            if question or answers:
                yield Turn(question=question, answer="\n\n".join(answers))
            question, answers = message.content, []
        elif message.role == "assistant" and message.content:
            answers.append(message.content)
    if question or answers:
        yield Turn(question=question, answer="\n\n".join(answers))
