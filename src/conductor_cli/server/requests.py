"""From a client's request to work: which model it names, what is asked, and under which limits.

Recognises the small requests that clients send on their own: titles, tags, commit messages, compaction. Pure.

Such a request needs no plan. Each is recognised by the words that its client begins it with, and by a sign of the
client itself where a program of somebody else could use the same words for its main question. A request that is not
recognised is planned as any other, so a client that changes its words only costs more.

The models that a server offers: what each name means for planning, and which workers it may use. Pure.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from typing import Any, Final, Literal, cast

from conductor_cli.app.attach import Attacher
from conductor_cli.app.rehearsal import rehearsal_pool
from conductor_cli.app.worker_selection import resolve_pool
from conductor_cli.config import Settings, find_setting
from conductor_cli.config.project import narrow
from conductor_cli.core.errors import ConfigError, UsageError
from conductor_cli.core.events import Mode
from conductor_cli.core.plan import Plan, Step
from conductor_cli.core.question import File
from conductor_cli.core.terminal_text import one_line
from conductor_cli.core.trace import Trace
from conductor_cli.server.access import client_origin
from conductor_cli.server.api.request import ClientRequest, RequestError
from conductor_cli.server.client_keys import ClientKey
from conductor_cli.server.conversation import Asked, continue_response, read_conversation
from conductor_cli.server.runs import Runs, Work
from conductor_cli.state.attachments import Attachments
from conductor_cli.state.spending import USER, Spender
from conductor_cli.state.trace_store import TraceStore

Background = Literal["title", "tags", "follow_ups", "search_queries", "commit_message", "compaction"]
"""What a request is for."""

Headers = Mapping[str, str]
"""By their names in lower case."""

_CODEX_TITLE: Final = "Generate a concise, single-line task title"
_CLAUDE_TITLE: Final = "Generate a concise, sentence-case title"
_CLAUDE_COMPACTION: Final = (
    "Your task is to create a detailed summary of the conversation so far",
    "Your task is to create a detailed summary of the RECENT portion of the conversation",
)
_OPENCODE_TITLE: Final = "You are a title generator. You output ONLY a thread title"
_OPENCODE_COMPACTION: Final = (
    "You are a helpful AI assistant tasked with summarizing conversations", "You are an anchored context summarization",
    "You are a context summarization agent",
)  # fmt: skip
_OPEN_WEBUI_TASKS: Final[Mapping[str, Background]] = {
    "Generate a concise, 3-5 word title": "title",
    "Generate 1-3 broad tags": "tags",
    "Suggest 3-5 relevant follow-up questions": "follow_ups",
    "Analyze the chat history to determine the necessity of generating search queries": "search_queries",
}
_AIDER_TASKS: Final[Mapping[str, Background]] = {
    "You are an expert software engineer that generates concise, one-line Git commit messages": "commit_message",
    "*Briefly* summarize this partial conversation about programming": "compaction",
}
"""What the clients begin their requests with."""


def recognise(request: ClientRequest, headers: Headers) -> Background | None:
    """What a background request is for; None for a question of the user."""
    if not any(message.role == "user" for message in request.messages):
        return None
    return (
        _codex(request, headers)
        or _claude_code(request, headers)
        or _opencode(request, headers)
        or _open_webui(request)
        or _aider(request)
    )


# Each client


def _codex(request: ClientRequest, headers: Headers) -> Background | None:
    try:
        said = json.loads(headers.get("x-codex-turn-metadata", "null")[:10_000])
    except (ValueError, RecursionError):
        said = None
    if isinstance(said, dict) and said.get("request_kind") == "compaction":
        return "compaction"
    is_codex = "x-codex-turn-metadata" in headers or headers.get("user-agent", "").startswith("codex")
    asks = _asks_for_title(request) and _last_text(request).startswith(_CODEX_TITLE)
    return "title" if is_codex and asks else None


def _claude_code(request: ClientRequest, headers: Headers) -> Background | None:
    if "x-claude-code-session-id" not in headers and not headers.get("user-agent", "").startswith("claude-cli/"):
        return None
    if any(line.startswith(_CLAUDE_COMPACTION) for line in _last_text(request)[:2000].splitlines()):
        return "compaction"
    is_told = any(line.startswith(_CLAUDE_TITLE) for line in _system_text(request)[:2000].splitlines())
    return "title" if (_asks_for_title(request) or is_told) and _calls_nothing(request) else None


def _opencode(request: ClientRequest, headers: Headers) -> Background | None:
    system = _system_text(request)
    if not _calls_nothing(request):
        return None
    if system.startswith(_OPENCODE_TITLE):
        return "title"
    is_opencode = "x-session-id" in headers or "opencode/" in headers.get("user-agent", "")
    return "compaction" if is_opencode and system.startswith(_OPENCODE_COMPACTION) else None


def _open_webui(request: ClientRequest) -> Background | None:
    """Its questions about files begin with `### Task:` too; they go on otherwise, and have no history."""
    text = _only_text(request).strip()
    if not text.endswith("</chat_history>") or not _calls_nothing(request):
        return None
    head, _, task = text.partition("\n")
    if head.strip() != "### Task:" or "\n<chat_history>\n" not in task:
        return None
    return next((kind for words, kind in _OPEN_WEBUI_TASKS.items() if task.startswith(words)), None)


def _aider(request: ClientRequest) -> Background | None:
    if not _only_text(request) or not _calls_nothing(request):
        return None
    system = " ".join(_system_text(request)[:300].split())
    return next((kind for words, kind in _AIDER_TASKS.items() if system.startswith(words)), None)


# The request


def _calls_nothing(request: ClientRequest) -> bool:
    return not request.tools or request.tool_choice == "none"


def _asks_for_title(request: ClientRequest) -> bool:
    """Whether the answer is to be an object with a title and nothing else."""
    properties = (request.schema or {}).get("properties")
    return isinstance(properties, Mapping) and set(properties) == {"title"}


def _system_text(request: ClientRequest) -> str:
    return next((message.content.lstrip() for message in request.messages if message.role == "system"), "")


def _last_text(request: ClientRequest) -> str:
    """The newest text of the user."""
    return next((message.content for message in reversed(request.messages) if message.role == "user"), "")


def _only_text(request: ClientRequest) -> str:
    """The text of the user, where nothing else has been said; empty for a conversation."""
    talk = [message.content for message in request.messages if message.role != "system"]
    return talk[0] if len(talk) == 1 else ""


MODELS: Final[dict[str, Mode | None]] = {"conductor": None, "conductor-mini": "mini", "conductor-ultra": "ultra"}
"""The models that are always there, with their modes; None leaves the mode to the settings and to the effort."""

EFFORTS: Final[dict[str, Mode]] = {
    "none": "mini", "minimal": "mini", "low": "mini", "high": "ultra", "xhigh": "ultra", "max": "ultra",
}  # fmt: skip
"""The mode for an effort, where the name of the model leaves it open. Any other word changes nothing."""


@dataclass(frozen=True, slots=True)
class ServedModel:
    """What a name means: a mode, and a named pool; empty for the workers of the settings."""

    name: str
    mode: Mode
    pool: str = ""

    @property
    def settings(self) -> dict[str, str]:
        """The same as settings by name."""
        return {"conductor.mode": self.mode} | ({"conductor.pool": self.pool} if self.pool else {})


def guess_settings(name: str) -> dict[str, str]:
    """The settings that a model's name alone says, so that they need not be read twice: reading takes a while."""
    mode = MODELS.get(name)
    return {"conductor.mode": mode} if mode else {}


def model_names(settings: Settings) -> tuple[str, ...]:
    """The names that may be asked for. A server that was started with a pool of its own offers no others."""
    if "conductor.pool" in settings.given:
        return tuple(MODELS)
    return tuple(dict.fromkeys((*MODELS, *(pool.name for pool in settings.pools))))


def find_model(name: str, effort: str, settings: Settings) -> ServedModel:
    """What a client asks for by a model's name and an effort, which may be any word. Raises `RequestError`."""
    names = model_names(settings)
    if name not in names:
        message = f"there is no model {one_line(name)[:80]!r}; the models are: {', '.join(names)}"
        raise RequestError(404, "model_not_found", message, param="model")
    fixed = MODELS.get(name)
    default = cast("Mode", settings["conductor.mode"])
    if fixed is None and "conductor.mode" not in settings.given:
        default = EFFORTS.get(effort.strip().lower(), default)
    return ServedModel(name=name, mode=fixed or default, pool="" if name in MODELS else name)


SUBTASKS: Final[Mapping[Background, str]] = {
    "title": "Write a title of the conversation.",
    "tags": "Write tags of the conversation.",
    "follow_ups": "Suggest questions that may follow.",
    "search_queries": "Write search queries.",
    "commit_message": "Write the message of a commit.",
    "compaction": "Summarize the conversation.",
}
"""The subtask that a trace shows for a background request. The worker is sent the client's own words."""


async def read_work(
    runs: Runs, request: ClientRequest, run: str, client: ClientKey | None = None, purpose: Background | None = None
) -> Work:  # fmt: skip
    """The work that a request asks for, as the run `run`. Raises `RequestError` or `ConductorError`.

    A background request, for a `purpose`, is not planned: the cheapest worker does it alone. Where no worker has a
    price, the planner only chooses the worker. With `serve.background` off it is a request like any other.
    """
    settings = runs.settings(guess_settings(request.model))
    model = find_model(request.model, request.effort, settings)
    purpose = purpose if settings["serve.background"] else None
    if purpose is not None:
        model = replace(model, mode="mini")
    pool = _pool_for(client, model, settings)
    chosen = model.settings | ({"conductor.pool": pool} if pool else {})
    if any(settings[name] != value for name, value in chosen.items()):
        settings = runs.settings(chosen)
    if client is not None and client.max_cost is not None:
        settings = lowered(settings, {"limits.cost": client.max_cost}, f"the key {client.name}")
    if request.max_cost is not None:
        try:
            settings = lowered(settings, {"limits.cost": request.max_cost}, "the request")
        except ConfigError:
            message = "conductor.max_cost must be an amount of US dollars above 0"
            raise RequestError(400, "invalid_value", message, param="conductor.max_cost") from None
    attachments = Attachments(settings.paths.attachments)
    what = await _read_asked(runs, request, Attacher(attachments, settings), client_origin(client))
    if purpose is not None and what.plan is None and not runs.options.rehearsal:
        what = replace(what, plan=await _cheapest_alone(settings, runs.options.workers, purpose))
    if what.plan is not None:  # a review would be the step that answers
        settings = lowered(settings, {"limits.recursion": 0}, "the conversation")
    return Work(
        settings=settings, store=TraceStore(settings.paths.traces), question=what.question, plan=what.plan,
        only=runs.options.workers, rehearsal=runs.options.rehearsal, id=run, attachments=attachments,
        streams=request.stream and not holds_text(request),
        origin=client_origin(client),
        spender=USER if client is None else Spender(name=client.name, cost=client.max_cost_day),
    )  # fmt: skip


async def _read_asked(runs: Runs, request: ClientRequest, attacher: Attacher, origin: str) -> Asked:
    """What is run for a request. Raises `RequestError` or `ConductorError`."""
    store = TraceStore(attacher.settings.paths.traces)

    def read_trace(run: str) -> Trace | None:
        """The trace of a run of the same client."""
        try:
            trace = store.ended(run, pieces=False)
        except UsageError:
            return None
        return trace if (trace.run, trace.origin) == (run, origin) else None

    files: dict[str, File] = {}
    if request.previous:
        earlier = await asyncio.to_thread(read_trace, request.previous)
        if earlier is None:
            text = "there is no response that this one could continue: it was deleted, or never stored"
            raise RequestError(400, "previous_response_not_found", text, param="previous_response_id")
        request = continue_response(request, earlier, runs.call_ids)
        files = {file.attachment.sha256: file for file in earlier.question.files if file.attachment is not None}
    files |= await _attach(request, attacher, known=files)
    if not files and not any(message.tool_calls for message in request.messages):
        return read_conversation(request, files, {}, read_trace, runs.call_ids)
    pool = rehearsal_pool() if runs.options.rehearsal else None
    if pool is None:
        pool, _ = await resolve_pool(attacher.settings, None, runs.options.workers)
    workers = {worker.name: worker.accepts or () for worker in pool}
    return await asyncio.to_thread(read_conversation, request, files, workers, read_trace, runs.call_ids)


async def _cheapest_alone(settings: Settings, only: Sequence[str], purpose: Background) -> Plan | None:
    """A plan of one step on the worker with the lowest price; None where no worker has a price."""
    pool, _ = await resolve_pool(settings, None, only)
    priced = [(worker.price.input + worker.price.output, worker.name) for worker in pool if worker.price is not None]
    if not priced:
        return None
    return Plan(steps=(Step(worker=min(priced)[1], subtask=SUBTASKS[purpose]),))


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


async def _attach(request: ClientRequest, attacher: Attacher, known: Collection[str]) -> dict[str, File]:
    """The files that the messages carry, by their SHA-256, without those that are `known`. Raises `RequestError`."""
    carried = {each.sha256: each for message in request.messages for each in message.attachments}
    files = {}
    for data in request.blobs.values():
        attacher.attachments.add(data)
    for sha256, attachment in carried.items():
        if sha256 in known:
            continue
        try:
            # A PDF is read by a process of its own, which takes a moment.
            files[sha256] = await asyncio.to_thread(attacher.take, request.blobs[sha256], attachment.name)
        except UsageError as error:
            raise RequestError(400, "invalid_file", error.message) from None
    return files
