"""From a client's request to a job: which model it names, what is asked, and under which limits.

Clients send small requests on their own: titles, tags, commit messages, compaction. Such a request
needs no plan. Each is recognised by the words that its client begins it with, and by a sign of the
client itself where a program of somebody else could use the same words for its main question. A
request that is not recognised is planned as any other, so a client that changes its words only
costs more.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from dataclasses import replace
from decimal import Decimal
from functools import partial
from typing import Any, Final, Literal, cast

from conductor_cli.app.attach import Attacher
from conductor_cli.app.driver import Job
from conductor_cli.app.rehearsal import DEMO_ANSWER, demo_question, is_rehearsal_run
from conductor_cli.app.worker_selection import keep_policy_of, offered_workers, resolve_pool
from conductor_cli.app.worker_tools import keep_tools_of, pool_with_tools
from conductor_cli.config.project import narrow
from conductor_cli.config.settings import Settings, find_setting
from conductor_cli.core.chat import text_size
from conductor_cli.core.errors import ConfigError, UsageError
from conductor_cli.core.events import Mode
from conductor_cli.core.formatting import format_list
from conductor_cli.core.plan import SELF, Plan, Step
from conductor_cli.core.question import File
from conductor_cli.core.terminal_text import one_line
from conductor_cli.core.trace import Trace
from conductor_cli.server.api.request import ClientRequest, RequestError
from conductor_cli.server.client_keys import ClientKey
from conductor_cli.server.http.access import Principal
from conductor_cli.server.runs.conversation import (
    ParsedRequest,
    Workers,
    continue_response,
    read_conversation,
)
from conductor_cli.server.runs.run_registry import AnsweredAtOnce
from conductor_cli.server.runs.run_starter import RunStarter
from conductor_cli.state.interfaces import USER, Spender
from conductor_cli.state.opening import open_state
from conductor_cli.system.threads import LARGE, run_in_thread_if_large

UtilityPurpose = Literal[
    "title", "tags", "follow_ups", "search_queries", "commit_message", "compaction"
]
"""What a utility request is for: clients make it by themselves."""

_CODEX_TITLE: Final = "Generate a concise, single-line task title"
_CLAUDE_TITLE: Final = "Generate a concise, sentence-case title"
_CLAUDE_COMPACTION: Final = (
    "Your task is to create a detailed summary of the conversation so far",
    "Your task is to create a detailed summary of the RECENT portion of the conversation",
)
_OPENCODE_TITLE: Final = "You are a title generator. You output ONLY a thread title"
_OPENCODE_COMPACTION: Final = (
    "You are a helpful AI assistant tasked with summarizing conversations",
    "You are an anchored context summarization",
    "You are a context summarization agent",
)
_OPEN_WEBUI_TASKS: Final[Mapping[str, UtilityPurpose]] = {
    "Generate a concise, 3-5 word title": "title",
    "Generate 1-3 broad tags": "tags",
    "Suggest 3-5 relevant follow-up questions": "follow_ups",
    "Analyze the chat history to determine the necessity of generating search queries": "search_queries",
}
_AIDER_TASKS: Final[Mapping[str, UtilityPurpose]] = {
    "You are an expert software engineer that generates concise, one-line Git commit messages": "commit_message",
    "*Briefly* summarize this partial conversation about programming": "compaction",
}
"""What the clients begin their requests with."""


def classify_utility_request(
    request: ClientRequest, headers: Mapping[str, str]
) -> UtilityPurpose | None:
    """Return what a utility request is for; None for a question of the user.

    Header names are in lower case.
    """
    system = next(
        (message.content.lstrip() for message in request.messages if message.role == "system"), ""
    )
    asked = next(
        (message.content for message in reversed(request.messages) if message.role == "user"), None
    )
    if asked is None:
        return None
    # The text of the user, where nothing else has been said; empty for a conversation.
    talk = [message.content for message in request.messages if message.role != "system"]
    only = talk[0] if len(talk) == 1 else ""
    calls_nothing = not request.tools or request.tool_choice == "none"
    properties = (request.schema or {}).get("properties")
    # Whether the answer is to be an object with a title and nothing else.
    asks_for_title = isinstance(properties, Mapping) and set(properties) == {"title"}
    agent = headers.get("user-agent", "")
    # Codex
    try:
        said = json.loads(headers.get("x-codex-turn-metadata", "null")[:10_000])
    except (ValueError, RecursionError):
        said = None
    if isinstance(said, dict) and said.get("request_kind") == "compaction":
        return "compaction"
    is_codex = "x-codex-turn-metadata" in headers or agent.startswith("codex")
    if is_codex and asks_for_title and asked.startswith(_CODEX_TITLE):
        return "title"
    if "x-claude-code-session-id" in headers or agent.startswith("claude-cli/"):
        if any(line.startswith(_CLAUDE_COMPACTION) for line in asked[:2000].splitlines()):
            return "compaction"
        is_told = any(line.startswith(_CLAUDE_TITLE) for line in system[:2000].splitlines())
        if (asks_for_title or is_told) and calls_nothing:
            return "title"
    if not calls_nothing:
        return None
    if system.startswith(_OPENCODE_TITLE):
        return "title"
    if ("x-session-id" in headers or "opencode/" in agent) and system.startswith(
        _OPENCODE_COMPACTION
    ):
        return "compaction"
    # Open WebUI. Its questions about files begin with `### Task:` too; they go on otherwise, and
    # have no history.
    head, _, task = only.strip().partition("\n")
    if (
        head.strip() == "### Task:"
        and "\n<chat_history>\n" in task
        and task.endswith("</chat_history>")
    ):
        for words, kind in _OPEN_WEBUI_TASKS.items():
            if task.startswith(words):
                return kind
    brief = " ".join(system[:300].split()) if only else ""
    return next((kind for words, kind in _AIDER_TASKS.items() if brief.startswith(words)), None)


MODELS: Final[dict[str, Mode | None]] = {
    "conductor": None,
    "conductor-mini": "mini",
    "conductor-ultra": "ultra",
}
"""The models that are always there, with their modes; None leaves the mode to the settings and to
the effort.
"""

EFFORTS: Final[dict[str, Mode]] = {
    "none": "mini",
    "minimal": "mini",
    "low": "mini",
    "high": "ultra",
    "xhigh": "ultra",
    "max": "ultra",
}
"""The mode for an effort, where the name of the model leaves it open. Any other word changes
nothing.
"""


def model_names(settings: Settings) -> tuple[str, ...]:
    """The names that may be asked for.

    A server that was started with a pool of its own offers no others.
    """
    if "conductor.pool" in settings.given:
        return tuple(MODELS)
    return tuple(dict.fromkeys((*MODELS, *(pool.name for pool in settings.pools))))


def find_served_model(name: str, effort: str, settings: Settings) -> tuple[Mode, str]:
    """The mode and the named pool that a client asks for by a model's name and an effort, which may
    be any word.

    The pool is empty for the workers of the settings. Raises `RequestError`.
    """
    names = model_names(settings)
    if name not in names:
        message = f"there is no model {one_line(name)[:80]!r}; the models are: {', '.join(names)}"
        raise RequestError(404, "model_not_found", message, param="model")
    fixed = MODELS.get(name)
    default = cast("Mode", settings["conductor.mode"])
    if fixed is None and "conductor.mode" not in settings.given:
        default = EFFORTS.get(effort.strip().lower(), default)
    return fixed or default, "" if name in MODELS else name


def list_served_models(settings: Settings, *, anthropic: bool = False) -> dict[str, Any]:
    """The models of a server, as OpenAI lists them, or as Anthropic does."""
    names = model_names(settings)
    if not anthropic:
        # 1 January 2026: clients want a date
        data = [
            {"id": name, "object": "model", "created": 1_767_225_600, "owned_by": "conductor"}
            for name in names
        ]
        return {"object": "list", "data": data}
    fixed = {"type": "model", "created_at": "2026-01-01T00:00:00Z", "lifecycle": "active"}
    entries = [{"id": name, "display_name": name, **fixed} for name in names]
    return {"data": entries, "has_more": False, "first_id": names[0], "last_id": names[-1]}


SUBTASKS: Final[Mapping[UtilityPurpose, str]] = {
    "title": "Write a title of the conversation.",
    "tags": "Write tags of the conversation.",
    "follow_ups": "Suggest questions that may follow.",
    "search_queries": "Write search queries.",
    "commit_message": "Write the message of a commit.",
    "compaction": "Summarize the conversation.",
}
"""The subtask that a trace shows for a utility request. The worker is sent the client's own
words.
"""


async def build_job(
    starter: RunStarter,
    request: ClientRequest,
    run: str,
    key: ClientKey | None = None,
    purpose: UtilityPurpose | None = None,
) -> Job:
    """Return the job that a request asks for, as the run `run`.

    Raises `RequestError` or `ConductorError`.

    A utility request, for a `purpose`, is not planned: the cheapest worker does it alone. Where no
    worker has a price, the planner only chooses the worker. With `serve.background` off it is a
    request like any other.
    """
    settings = starter.settings()
    mode, named = find_served_model(request.model, request.effort, settings)
    purpose = purpose if settings["serve.background"] else None
    settings = _client_settings(
        starter, key, named, {"conductor.mode": mode if purpose is None else "mini"}
    )
    if request.max_cost is not None:
        try:
            settings = lowered(settings, {"limits.cost": request.max_cost}, "the request")
        except ConfigError:
            message = "conductor.max_cost must be an amount of US dollars above 0"
            raise RequestError(400, "invalid_value", message, param="conductor.max_cost") from None
    attachments = open_state(settings.paths).attachments()
    principal = Principal(key=key)
    asked = await _read_asked(starter, request, Attacher(attachments, settings), principal)
    if purpose is not None and asked.plan is None and not settings.rehearsal:
        available, _ = await resolve_pool(settings, None, starter.options.workers)
        priced = [
            (each.price.input + each.price.output, each.name)
            for each in available
            if each.price is not None
        ]
        if priced:
            asked = replace(
                asked, plan=Plan(steps=(Step(worker=min(priced)[1], subtask=SUBTASKS[purpose]),))
            )
    only = starter.options.workers
    if request.hosted:
        # Only workers that have a tool server named after each of these kinds may answer.
        pool, _ = await resolve_pool(settings, None, only)
        pool, _ = pool_with_tools(settings, pool, {}, asking=False)
        only = tuple(
            each.name
            for each in pool
            if set(request.hosted) <= set(each.tools) and not settings.rehearsal
        )
        if not only:
            kinds = format_list(sorted(request.hosted))
            why = (
                f"this server cannot run {kinds}, and no worker has tools of that name: "
                f"conductor tools add {kinds}"
            )
            raise RequestError(400, "unsupported_tool", why, param="tools")
        asked = replace(asked, plan=None)
    return Job(
        settings=settings,
        store=starter.store_of(settings),
        question=asked.question,
        plan=asked.plan,
        only=only,
        id=run,
        attachments=attachments,
        streams=request.stream and not holds_text(request),
        origin=principal.origin,
        reviews=asked.plan is None,  # a review would be the step that answers
        spender=_spender(key),
    )


async def build_rerun(starter: RunStarter, again: Trace, run: str, client: Principal) -> Job:
    """Return the job that does the steps of a stored run that `reset_from_step` has left to do, as
    the run `run`.

    Its rules and tools hold, and limits and pool of the client's key. Raises `ConductorError` or
    `RequestError`.
    """
    talk = again.question.conversation
    if talk is not None and talk.tools:  # nobody here can make their calls
        raise UsageError(
            f"run {again.run} used tools of its client", hint="let the client ask again"
        )
    again.pool.subset([record.step.worker for record in again.steps if record.step.worker != SELF])
    settings = _client_settings(
        starter, client.key, "", {"conductor.mode": again.mode, "limits.recursion": 0}
    )
    only = starter.options.workers
    # Else a run keeps its own workers, whatever the pool is today
    if settings["conductor.pool"] and not only:
        only = tuple(each.name for each in offered_workers(settings))
    settings, _ = keep_policy_of(settings, again)
    settings = replace(settings, rehearsal=settings.rehearsal or is_rehearsal_run(again))
    return Job(
        settings=keep_tools_of(settings, again),
        store=starter.store_of(settings),
        question=again.question,
        only=only,
        resume=again,
        id=run,
        origin=client.origin,
        spender=_spender(client.key),
    )


def _client_settings(
    starter: RunStarter, key: ClientKey | None, pool: str, chosen: dict[str, Any]
) -> Settings:
    """Return the settings for a client that asks for `pool`, with its key's pool and limit.

    Raises `RequestError`.
    """
    settings = starter.settings()
    own = key.pool if key is not None else ""
    served = settings["conductor.pool"] if "conductor.pool" in settings.given else ""
    if own and any(other not in {"", own} for other in (pool, served)):
        raise RequestError(
            403, "pool_not_allowed", f"this key may only use the pool {own}", param="model"
        )
    settings = starter.settings(chosen | ({"conductor.pool": own or pool} if own or pool else {}))
    if key is not None and key.max_cost is not None:
        settings = lowered(settings, {"limits.cost": key.max_cost}, f"the key {key.name}")
    return settings


def _spender(key: ClientKey | None) -> Spender:
    return USER if key is None else Spender(name=key.name, cost=key.max_cost_day)


async def build_demo_job(
    starter: RunStarter,
    request: ClientRequest,
    run: str,
    key: ClientKey | None = None,
    purpose: UtilityPurpose | None = None,
) -> Job:
    """Return the job of a question that the demo models know, without what a coding client adds to
    it.

    So each client can be tried without a key. Raises `AnsweredAtOnce` for any other question, else
    as `build_job`.
    """
    if purpose is not None:
        raise AnsweredAtOnce(
            json.dumps({"title": "demo"}) if request.schema is not None else "demo"
        )
    job = await build_job(
        starter, replace(request, effort="", tools=(), tool_choice="auto"), run, key
    )
    question = demo_question(job.question)
    if question is None:
        raise AnsweredAtOnce(DEMO_ANSWER)
    return replace(job, question=question, plan=None)


async def _read_asked(
    starter: RunStarter, request: ClientRequest, attacher: Attacher, client: Principal
) -> ParsedRequest:
    """Return the question of a request, or the conversation that goes on, with its files.

    Raises `RequestError`.
    """
    store = open_state(attacher.settings.paths).traces

    def read_trace(run: str) -> Trace | None:
        """The trace of a run of the same client."""
        try:
            trace = store.ended(run, pieces=False)
        except UsageError:
            return None
        return trace if trace.run == run and client.asked_for(trace) else None

    files: dict[str, File] = {}
    if request.previous:
        earlier = await asyncio.to_thread(read_trace, request.previous)
        if earlier is None:
            text = (
                "there is no response that this one could continue: it was deleted, or never stored"
            )
            raise RequestError(
                400, "previous_response_not_found", text, param="previous_response_id"
            )
        request = continue_response(request, earlier, starter.call_ids)
        files = {
            file.attachment.sha256: file
            for file in earlier.question.files
            if file.attachment is not None
        }
    for data in request.blobs.values():
        await asyncio.to_thread(attacher.attachments.add, data)
    for attachment in {
        each.sha256: each for message in request.messages for each in message.attachments
    }.values():
        if (sha256 := attachment.sha256) not in files:
            try:  # a PDF is read by a process of its own, which takes a moment
                files[sha256] = await asyncio.to_thread(
                    attacher.take, request.blobs[sha256], attachment.name
                )
            except UsageError as error:
                raise RequestError(400, "invalid_file", error.message) from None
    workers: Workers = {}
    if files or any(message.tool_calls for message in request.messages):
        pool, _ = await resolve_pool(attacher.settings, None, starter.options.workers)
        workers = {worker.name: worker.accepts or () for worker in pool}
    read = partial(read_conversation, request, files, workers, read_trace, starter.call_ids)
    # Never on the loop: it may read a trace
    return await run_in_thread_if_large(LARGE + text_size(request.messages), read)


def holds_text(request: ClientRequest) -> bool:
    """Return whether the answer is sent only when it is complete, because it is checked first."""
    return request.schema is not None or request.json_only


def lowered(settings: Settings, limits: Mapping[str, Any], origin: str) -> Settings:
    """The settings with limits that only count where they are lower."""
    values = dict(settings.values)
    origins = dict(settings.origins)
    for name, value in limits.items():
        item = find_setting(name)
        exact = Decimal(str(value)) if item.type == "money" else value
        narrow(values, origins, item, item.check(exact), origin)
    return replace(settings, values=values, origins=origins)
