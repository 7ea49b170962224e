"""From a client's request to a job: which model it names, what is asked, and under which limits.

Clients send small requests on their own: titles, tags, commit messages, compaction. Such a request
needs no plan. Each is recognised by the words that its client begins it with, and by a sign of the
client itself where a program of somebody else could use the same words for its main question. A
request that is not recognised is planned as any other, so a client that changes its words only
costs more.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from decimal import Decimal
from functools import partial
from typing import Any, Final, TypeVar, cast

from conductor_cli.app.attach import Attacher
from conductor_cli.app.documents import limits_within
from conductor_cli.app.rehearsal import DEMO_ANSWER, demo_question, is_rehearsal_run
from conductor_cli.app.web_tools import KINDS as WEB_KINDS
from conductor_cli.app.web_tools import NAME as WEB_TOOLS
from conductor_cli.app.web_tools import SETTING as WEB_SETTING
from conductor_cli.app.web_tools import configured_web
from conductor_cli.app.worker_selection import (
    build_guard,
    keep_policy_of,
    offered_workers,
    resolve_pool,
)
from conductor_cli.app.worker_tools import keep_tools_of, pool_with_tools
from conductor_cli.config.project import narrow
from conductor_cli.config.settings import Settings, find_setting
from conductor_cli.core.chat import Attachment, Message, text_size
from conductor_cli.core.data_policy import DataPolicy
from conductor_cli.core.errors import ConfigError, UsageError
from conductor_cli.core.events import Mode
from conductor_cli.core.formatting import format_list
from conductor_cli.core.mappings import names_of
from conductor_cli.core.plan import SELF, Plan, Step
from conductor_cli.core.question import File, Question, quoted_file
from conductor_cli.core.terminal_text import one_line
from conductor_cli.core.tools import tool_selector
from conductor_cli.core.trace import Trace
from conductor_cli.models.discovery import OWN_MODELS
from conductor_cli.run import RunSpec
from conductor_cli.server.api.request import ClientRequest, RequestError, UtilityPurpose
from conductor_cli.server.client_keys import ClientKey
from conductor_cli.server.http.access import Principal
from conductor_cli.server.runs.conversation import (
    ParsedRequest,
    Workers,
    continue_response,
    read_conversation,
)
from conductor_cli.server.runs.run_registry import AnsweredAtOnce
from conductor_cli.server.runs.run_starter import RunStarter, ServedJob
from conductor_cli.server.runs.stored_runs import first_event
from conductor_cli.state.interfaces import USER, Spender, Traces
from conductor_cli.state.opening import open_state
from conductor_cli.system.threads import (
    DOCUMENT_WORK,
    LARGE_SIZE,
    LARGE_WORK,
    run_in_thread_if_large,
)

DOCUMENTS_SECONDS: Final = 30.0
"""For all PDFs of a request, which are read by processes of their own."""

T = TypeVar("T")

_CODEX_TITLE: Final = "Generate a concise, single-line task title"
_CLAUDE_TITLE: Final = "Generate a concise, sentence-case title"
_CLAUDE_COMPACTION: Final = (
    "Your task is to create a detailed summary of the conversation so far",
    "Your task is to create a detailed summary of the RECENT portion of the conversation",
)
_CLAUDE_SAFETY_CHECK: Final = "You are a security monitor for autonomous AI coding agents."
_OPENCODE_TITLE: Final = "You are a title generator. You output ONLY a thread title"
_OPENCODE_COMPACTION: Final = (
    "You are a helpful AI assistant tasked with summarizing conversations",
    "You are an anchored context summarization",
    "You are a context summarization agent",
)
_OPEN_WEBUI_ANSWERS: Final[Mapping[str, UtilityPurpose]] = {
    "title": "title",
    "tags": "tags",
    "follow_ups": "follow_ups",
    "queries": "search_queries",
}
"""The field of the JSON object that each task of Open WebUI asks for."""

_OPEN_WEBUI_FIELD: Final = re.compile(r"\{\s*\"(\w{1,20})\"\s*:")
_AIDER_TASKS: Final[Mapping[str, UtilityPurpose]] = {
    (
        "You are an expert software engineer that generates concise, one-line Git commit messages"
    ): "commit_message",
    "*Briefly* summarize this partial conversation about programming": "compaction",
}
"""What the clients begin their requests with."""


def classify_utility_request(
    request: ClientRequest, headers: Mapping[str, str]
) -> UtilityPurpose | None:
    """Return what a utility request is for; None for a question of the user.

    Header names are in lower case.
    """
    if request.purpose is not None:
        return request.purpose
    question = _newest_text_of_user(request.messages)
    if question is None:
        return None
    system = _first_system_text(request.messages)
    wants_title = _wants_title(request.schema)
    calls_nothing = not request.tools or request.tool_choice == "none"
    agent = headers.get("user-agent", "")
    if _is_codex_compaction(headers):
        return "compaction"
    is_codex = "x-codex-turn-metadata" in headers or agent.startswith("codex")
    if is_codex and wants_title and question.startswith(_CODEX_TITLE):
        return "title"
    if "x-claude-code-session-id" in headers or agent.startswith("claude-cli/"):
        if _has_line(question, _CLAUDE_COMPACTION):
            return "compaction"
        if calls_nothing and (wants_title or _has_line(system, (_CLAUDE_TITLE,))):
            return "title"
        if calls_nothing and _has_line(system, (_CLAUDE_SAFETY_CHECK,)):
            return "safety_check"
    if not calls_nothing:
        return None
    if system.startswith(_OPENCODE_TITLE):
        return "title"
    is_opencode = "x-session-id" in headers or "opencode/" in agent
    if is_opencode and system.startswith(_OPENCODE_COMPACTION):
        return "compaction"
    texts = [message.content for message in request.messages if message.role != "system"]
    if len(texts) != 1 or not texts[0]:
        return None  # the others send nothing but the task
    return _open_webui_purpose(texts[0]) or _aider_purpose(system)


def _newest_text_of_user(messages: Sequence[Message]) -> str | None:
    for message in reversed(messages):
        if message.role == "user":
            return message.content
    return None


def _first_system_text(messages: Sequence[Message]) -> str:
    for message in messages:
        if message.role == "system":
            return message.content.lstrip()
    return ""


def _wants_title(schema: Mapping[str, Any] | None) -> bool:
    """Return whether the answer is to be an object with a title and nothing else."""
    properties = (schema or {}).get("properties")
    return isinstance(properties, Mapping) and set(properties) == {"title"}


def _has_line(text: str, beginnings: tuple[str, ...]) -> bool:
    """Return whether one of the first lines of a text begins so."""
    return any(line.startswith(beginnings) for line in text[:2000].splitlines())


def _is_codex_compaction(headers: Mapping[str, str]) -> bool:
    try:
        metadata = json.loads(headers.get("x-codex-turn-metadata", "null")[:10_000])
    except (ValueError, RecursionError):
        return False
    return isinstance(metadata, dict) and metadata.get("request_kind") == "compaction"


def _open_webui_purpose(text: str) -> UtilityPurpose | None:
    """Return what a task of Open WebUI is for, by the object that it asks for: its words change.

    Its questions about files begin with `### Task:` too; they go on otherwise, and have no history.
    """
    head, _, task = text.strip().partition("\n")
    if head.strip() != "### Task:":
        return None
    if "\n<chat_history>\n" not in task or not task.endswith("</chat_history>"):
        return None
    instructions = task.partition("\n<chat_history>\n")[0]
    field = _OPEN_WEBUI_FIELD.search(instructions)
    return None if field is None else _OPEN_WEBUI_ANSWERS.get(field[1])


def _aider_purpose(system: str) -> UtilityPurpose | None:
    normal = " ".join(system[:300].split())
    for beginning, purpose in _AIDER_TASKS.items():
        if normal.startswith(beginning):
            return purpose
    return None


MODELS: Final[dict[str, Mode | None]] = {
    "conductor": None,
    "conductor-mini": "mini",
    "conductor-ultra": "ultra",
}
"""The models that are always there, with their modes.

None leaves the mode to the settings and to the effort.
"""

EFFORTS: Final[dict[str, Mode]] = {
    "none": "mini",
    "minimal": "mini",
    "low": "mini",
    "high": "ultra",
    "xhigh": "ultra",
    "max": "ultra",
}
"""The mode for an effort, where the name of the model leaves it open.

Any other word changes nothing.
"""


def model_names(settings: Settings) -> tuple[str, ...]:
    """Return the names that may be asked for.

    A server that was started with a pool of its own offers no others.
    """
    if "conductor.pool" in settings.given:
        return tuple(MODELS)
    return tuple(dict.fromkeys((*MODELS, *names_of(settings.pools))))


def find_served_model(name: str, effort: str, settings: Settings) -> tuple[Mode, str]:
    """Return the mode and the named pool that a client asks for by a model's name and an effort.

    The effort may be any word. The pool is empty for the workers of the settings. Raises
    `RequestError`.
    """
    names = model_names(settings)
    if name not in names:
        message = f"there is no model {one_line(name)[:80]!r}; the models are: {', '.join(names)}"
        raise RequestError(404, "model_not_found", message, param="model")
    pool = "" if name in MODELS else name
    mode = MODELS.get(name)
    if mode is not None:
        return mode, pool
    default = cast("Mode", settings["conductor.mode"])
    if "conductor.mode" in settings.given:
        return default, pool
    return EFFORTS.get(effort.strip().lower(), default), pool


def list_served_models(settings: Settings, *, anthropic: bool = False) -> dict[str, Any]:
    """Return the models of a server, as OpenAI lists them, or as Anthropic does."""
    names = model_names(settings)
    # Clients want a date: it is 1 January 2026 for all models.
    if anthropic:
        fixed = {"type": "model", "created_at": "2026-01-01T00:00:00Z", "lifecycle": "active"}
        models = [{"id": name, "display_name": name, **fixed} for name in names]
        return {"data": models, "has_more": False, "first_id": names[0], "last_id": names[-1]}
    about = {"object": "model", "created": 1_767_225_600, "owned_by": OWN_MODELS}
    return {"object": "list", "data": [{"id": name, **about} for name in names]}


SUBTASKS: Final[Mapping[UtilityPurpose, str]] = {
    "title": "Write a title of the conversation.",
    "tags": "Write tags of the conversation.",
    "follow_ups": "Suggest questions that may follow.",
    "search_queries": "Write search queries.",
    "commit_message": "Write the message of a commit.",
    "compaction": "Summarize the conversation.",
}
"""The subtask that a trace shows for a utility request.

The worker is sent the client's own words.
"""


async def build_job(
    starter: RunStarter,
    request: ClientRequest,
    run: str,
    key: ClientKey | None = None,
    purpose: UtilityPurpose | None = None,
) -> ServedJob:
    """Return the job that a request asks for, as the run `run`.

    Raises `RequestError` or `ConductorError`.

    A utility request, for a `purpose`, is not planned: the cheapest worker does it alone. Where no
    worker has a price, and for a safety check, the planner only chooses the worker. With
    `serve.background` off it is a request like any other.
    """
    settings = starter.settings()
    if not settings["serve.background"]:
        purpose = None
    mode, pool = find_served_model(request.model, request.effort, settings)
    if purpose is not None:
        mode = "mini"
    settings = _client_settings(starter, key, pool, {"conductor.mode": mode})
    settings = _with_request_limit(settings, request.max_cost)
    attachments = open_state(settings.paths).attachments()
    principal = Principal(key=key)
    remarks = list[str]()
    attacher = Attacher(attachments, settings, remarks.append)
    parsed = await _parse_conversation(starter, request, attacher, principal)
    plan = parsed.plan
    if plan is None and purpose is not None and not settings.rehearsal:
        plan = await _utility_plan(starter, settings, purpose, parsed.question)
    only = starter.options.workers
    if request.hosted:
        only = await _workers_for_hosted(settings, request.hosted, only)
        plan = None
    streams = request.stream and not holds_text(request)
    spec = RunSpec(
        question=parsed.question,
        plan=plan,
        id=run,
        streams_answer=streams,
        streams_nested=streams,
        origin=principal.origin,
        reviews=plan is None,  # a review would be the step that answers
        notices=tuple(remarks),
    )
    return ServedJob(
        spec=spec,
        settings=settings,
        store=starter.store_of(settings),
        only=only,
        attachments=attachments,
        spender=_spender(key),
    )


def _with_request_limit(settings: Settings, max_cost: Decimal | None) -> Settings:
    """Return the settings with the limit that a request has for itself. Raises `RequestError`."""
    if max_cost is None:
        return settings
    try:
        return lowered(settings, {"limits.cost": max_cost}, "the request")
    except ConfigError:
        message = "conductor.max_cost must be an amount of US dollars above 0"
        raise RequestError(400, "invalid_value", message, param="conductor.max_cost") from None


async def _utility_plan(
    starter: RunStarter, settings: Settings, purpose: UtilityPurpose, question: Question
) -> Plan | None:
    """Return the plan that the cheapest worker which may see all of a request does it alone.

    None where no such worker has a price, and for a safety check: who is cheapest may not be good
    enough to judge what is dangerous.
    """
    if purpose == "safety_check":
        return None
    available, _ = await resolve_pool(settings, None, starter.options.workers)
    guard = build_guard(settings, available, None)
    policy = DataPolicy(guard, available.names, question, needs_files=True)
    prices = list[tuple[Decimal, str]]()
    for worker in available:
        if worker.price is not None and worker.name in policy.allowed:
            prices.append((worker.price.input + worker.price.output, worker.name))
    if not prices:
        return None
    _, cheapest = min(prices)
    return Plan(steps=(Step(worker=cheapest, subtask=SUBTASKS[purpose]),))


async def _workers_for_hosted(
    settings: Settings, kinds: Sequence[str], only: Sequence[str]
) -> tuple[str, ...]:
    """Return the workers that may answer where a client wants tools that a provider would run.

    They are those that may call tools of each of these kinds. Raises `RequestError` where there is
    none.
    """
    pool, _ = await resolve_pool(settings, None, only)
    pool, _ = pool_with_tools(settings, pool, {}, asking=False)
    guard = build_guard(settings, pool, None)
    kinds_of: dict[str, Collection[str]] = {}
    if configured_web(settings) is not None:
        kinds_of[WEB_TOOLS] = WEB_KINDS
    names = list[str]()
    for worker in pool:
        callable_tools = set[str]()
        for server in worker.tools:
            if not guard.denial_reason(tool_selector(server)):
                callable_tools.update(kinds_of.get(server, {server}))
        if set(kinds) <= callable_tools and not settings.rehearsal:
            names.append(worker.name)
    if not names:
        listed = format_list(sorted(kinds))
        ways = f"conductor tools add {listed}"
        if set(kinds) <= WEB_KINDS:
            ways += f", or conductor config set {WEB_SETTING} brave"
        message = (
            f"this server cannot run {listed}, and no worker has tools of that name that it may "
            f"call: {ways}"
        )
        raise RequestError(400, "unsupported_tool", message, param="tools")
    return tuple(names)


async def build_rerun(starter: RunStarter, again: Trace, run: str, client: Principal) -> ServedJob:
    """Return the job, as the run `run`, that does what `reset_from_step` has left to do.

    The stored run's rules and tools hold, and limits and pool of the client's key. Raises
    `ConductorError` or `RequestError`.
    """
    talk = again.question.conversation
    if talk is not None and talk.tools:  # nobody here can make their calls
        message = f"run {again.run} used tools of its client"
        raise UsageError(message, hint="let the client ask again")
    again.pool.subset([record.step.worker for record in again.steps if record.step.worker != SELF])
    starter.settings()  # so that their files are looked at
    settings = _client_settings(
        starter, client.key, "", {"conductor.mode": again.mode, "limits.review": 0}
    )
    only = starter.options.workers
    # Otherwise a run keeps its own workers, whatever the pool is today
    if settings["conductor.pool"] and not only:
        only = tuple(names_of(offered_workers(settings)))
    settings, _ = keep_policy_of(settings, again)
    settings = replace(settings, rehearsal=settings.rehearsal or is_rehearsal_run(again))
    return ServedJob(
        spec=RunSpec(question=again.question, resume=again, id=run, origin=client.origin),
        settings=keep_tools_of(settings, again),
        store=starter.store_of(settings),
        only=only,
        spender=_spender(client.key),
    )


def _client_settings(
    starter: RunStarter, key: ClientKey | None, pool: str, chosen: dict[str, Any]
) -> Settings:
    """Return the settings for a client that asks for `pool`, with its key's pool and limit.

    Their files were looked at just before. Raises `RequestError`.
    """
    keys_pool = key.pool if key is not None else ""
    if keys_pool:
        settings = starter.settings(looks=False)
        servers_pool = ""
        if "conductor.pool" in settings.given:
            servers_pool = settings["conductor.pool"]
        is_foreign = pool not in ("", keys_pool) or servers_pool not in ("", keys_pool)
        if is_foreign:
            message = f"this key may only use the pool {keys_pool}"
            raise RequestError(403, "pool_not_allowed", message, param="model")
        pool = keys_pool
    if pool:
        chosen = {**chosen, "conductor.pool": pool}
    settings = starter.settings(chosen, looks=False)
    if key is not None and key.max_cost is not None:
        settings = lowered(settings, {"limits.cost": key.max_cost}, f"the key {key.name}")
    return settings


def _spender(key: ClientKey | None) -> Spender:
    if key is None:
        return USER
    return Spender(name=key.name, cost=key.max_cost_day)


async def build_demo_job(
    starter: RunStarter,
    request: ClientRequest,
    run: str,
    key: ClientKey | None = None,
    purpose: UtilityPurpose | None = None,
) -> ServedJob:
    """Return the job of a question that the demo models know.

    What a coding client adds to the question is left out, so each client can be tried without a
    key. Raises `AnsweredAtOnce` for any other question, else as `build_job`.
    """
    if purpose is not None:
        if request.schema is not None:
            raise AnsweredAtOnce(json.dumps({"title": "demo"}))
        raise AnsweredAtOnce("demo")
    job = await build_job(
        starter, replace(request, effort="", tools=(), tool_choice="auto"), run, key
    )
    question = demo_question(job.spec.question)
    if question is None:
        raise AnsweredAtOnce(DEMO_ANSWER)
    return replace(job, spec=replace(job.spec, question=question, plan=None))


async def _parse_conversation(
    starter: RunStarter, request: ClientRequest, attacher: Attacher, client: Principal
) -> ParsedRequest:
    """Return the question of a request, or the conversation that goes on, with its files.

    Raises `RequestError`.
    """
    store = open_state(attacher.settings.paths).traces

    def read_trace(run: str) -> Trace | None:
        """Return the trace of a run of the same client."""
        try:
            trace = store.ended(run, pieces=False)
        except UsageError:
            return None
        if trace.run == run and client.asked_for(trace):
            return trace
        return None

    files: dict[str, File] = {}
    if request.previous:
        earlier = await LARGE_WORK.run(partial(read_trace, request.previous))
        if earlier is None:
            has_begun = partial(_has_begun, store, request.previous, client)
            raise _no_response_before(has_begun=await LARGE_WORK.run(has_begun))
        if not _may_be_continued(earlier, request):
            raise _no_response_before(has_begun=False)
        request = continue_response(request, earlier, starter.call_ids)
        request = _with_earlier_files(request, earlier, files)
    await _attach_files(request, attacher, files)
    workers: Workers = {}
    if files or any(message.tool_calls for message in request.messages):
        pool, _ = await resolve_pool(attacher.settings, None, starter.options.workers)
        workers = {worker.name: worker.accepts or () for worker in pool}
    read = partial(read_conversation, request, files, workers, read_trace, starter.call_ids)
    size = text_size(request.messages)
    if workers:
        size += LARGE_SIZE  # Never on the loop: it may read a trace, where a worker made calls
    return await run_in_thread_if_large(size, read)


def _no_response_before(*, has_begun: bool) -> RequestError:
    """Return the error for a response that cannot be continued, although it may have begun."""
    message = "there is no response that this one could continue: it was deleted, or never stored"
    if has_begun:
        message = "the response before has no end: it goes on, or its server is gone"
    return RequestError(400, "previous_response_not_found", message, param="previous_response_id")


def _with_earlier_files(
    request: ClientRequest, earlier: Trace, files: dict[str, File]
) -> ClientRequest:
    """Return the request with the text files of an earlier run; add its others to `files`."""
    texts = dict(request.texts)
    for file in earlier.question.files:
        if file.attachment is not None:
            files[file.attachment.sha256] = file
        else:
            texts[quoted_file(file)] = file
    return replace(request, texts=texts)


def _has_begun(store: Traces, run: str, client: Principal) -> bool:
    """Return whether there is a run that a client asked for, and may read."""
    first = first_event(store, run)
    if first is None or first.run != run or not client.asked_for(first):
        return False
    talk = first.question.conversation
    return talk is None or talk.echo.get("store") is not False


def _may_be_continued(earlier: Trace, request: ClientRequest) -> bool:
    """Return whether a client wanted this run kept, or goes on with it on the same connection."""
    talk = earlier.question.conversation
    is_kept = talk is None or talk.echo.get("store") is not False
    return is_kept or request.goes_on_at_once


async def _attach_files(request: ClientRequest, attacher: Attacher, files: dict[str, File]) -> None:
    """Read the files of a request that `files` has not, and add them. Raises `RequestError`."""
    for content in request.blobs.values():
        await DOCUMENT_WORK.run(partial(attacher.attachments.add, content))
    sent = dict[str, Attachment]()
    for message in request.messages:
        for attachment in message.attachments:
            sent[attachment.sha256] = attachment
    seconds = DOCUMENTS_SECONDS
    for sha256, attachment in sent.items():
        if sha256 in files:
            continue
        limits = limits_within(seconds)
        take = partial(attacher.take, request.blobs[sha256], attachment.name, limits=limits)
        try:
            file, taken_seconds = await DOCUMENT_WORK.run(partial(_timed, take))
        except UsageError as error:
            raise RequestError(400, "invalid_file", error.message) from None
        seconds -= taken_seconds
        files[sha256] = _with_detail(file, attachment)


def _with_detail(file: File, sent: Attachment) -> File:
    """Return a file whose image is looked at as its client asked for the last time."""
    if file.attachment is None:
        return file
    return replace(file, attachment=replace(file.attachment, detail=sent.detail))


def _timed(work: Callable[[], T]) -> tuple[T, float]:
    """Return what `work` returns, and the seconds that it took."""
    begin = time.monotonic()
    result = work()
    return result, time.monotonic() - begin


def holds_text(request: ClientRequest) -> bool:
    """Return whether the answer is sent only when it is complete, because it is checked first."""
    return request.schema is not None or request.json_only


def lowered(settings: Settings, limits: Mapping[str, Any], origin: str) -> Settings:
    """Return the settings with limits that only count where they are lower."""
    values = dict(settings.values)
    origins = dict(settings.origins)
    for name, value in limits.items():
        item = find_setting(name)
        exact = value
        if item.type == "money":
            exact = Decimal(str(value))
        narrow(values, origins, item, item.check(exact), origin)
    return replace(settings, values=values, origins=origins)
