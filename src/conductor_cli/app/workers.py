"""Workers: listing them with keys and prices, adding, changing, removing and testing them."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import aclosing, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

from conductor_cli.app.check_results import CheckResult
from conductor_cli.app.keys import key_state, open_key_store
from conductor_cli.app.worker_selection import discovered_workers, policy_objection
from conductor_cli.config.files import own_section
from conductor_cli.config.settings import AppPaths, ConfiguredWorker, Settings
from conductor_cli.config.tables import changed_table, find_pool, update_table, validate_worker
from conductor_cli.core.chat import MediaKind, Message, Request
from conductor_cli.core.errors import (
    ConductorError,
    ConfigError,
    Failure,
    KeyMissing,
    ModelError,
    PolicyError,
    UsageError,
    suggest,
)
from conductor_cli.core.formatting import format_duration, format_money
from conductor_cli.core.mappings import by_name, without_none
from conductor_cli.core.pool import Pool, Worker
from conductor_cli.core.serialization import dump
from conductor_cli.core.usage import Price
from conductor_cli.models.addresses import base_url_of
from conductor_cli.models.base import Model
from conductor_cli.models.catalog import StoredKeys, api_key_of, open_model
from conductor_cli.models.discovery import (
    ListedModel,
    list_models,
    served_context,
    worker_name,
)
from conductor_cli.models.key_hints import with_key_hint
from conductor_cli.models.presets import PRESETS
from conductor_cli.models.prices import load_prices, table_name, with_abilities, with_prices
from conductor_cli.models.recipients import THIS_MACHINE, costs_nothing
from conductor_cli.models.worker_options import model_of
from conductor_cli.system.event_loop import run_async
from conductor_cli.system.known_secrets import KNOWN_SECRETS

UNKNOWN_PRICE: Final = "unknown"


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerRow:
    """What is known of one worker.

    `objection` says why the policy forbids it; `key` never is the key itself.
    """

    configured: ConfiguredWorker
    key: str
    objection: str
    pools: tuple[str, ...]
    price: Price | None
    price_source: str
    accepts: tuple[MediaKind, ...]  # The kinds of attachments that it can read

    @property
    def worker(self) -> Worker:
        return self.configured.worker

    def to_json(self) -> dict[str, Any]:
        return {
            **dump(self.worker.public()),
            "price": dump(self.price),
            "price_from": self.price_source,
            "accepts": list(self.accepts),
            "pools": list(self.pools),
            "enabled": self.configured.enabled,
            "forbidden": self.objection or None,
            "source": self.configured.source,
            "key": self.key,
        }


def worker_rows(settings: Settings) -> list[WorkerRow]:
    """Return the workers of the settings, or those found on this machine if the settings have none.

    The price table and the list of stored keys are read once for all of them.
    """
    configured = settings.workers or discovered_workers(settings)
    store = open_key_store(settings)
    completed = with_abilities(with_prices([item.worker for item in configured])[0])

    def source_of(given: Worker, price: Price | None) -> str:
        """Return where a price is from, in words; `given` is the worker as the settings have it."""
        if given.price is not None:
            if costs_nothing(given) and given.price.is_free:
                return THIS_MACHINE
            return "the settings"
        if price is not None:
            if price.longer:
                return f"{load_prices().about}; more for long prompts"
            return load_prices().about
        return UNKNOWN_PRICE

    rows = []
    for item, worker in zip(configured, completed, strict=True):
        row = WorkerRow(
            configured=item,
            key=key_state(item.worker, settings.environ, store),
            objection=policy_objection(settings, item.worker),
            pools=tuple(pool.name for pool in settings.pools if item.worker.name in pool.workers),
            price=worker.price,
            price_source=source_of(item.worker, worker.price),
            accepts=worker.accepts or (),
        )
        rows.append(row)
    return rows


def describe_price(price: Price) -> str:
    """Return `free`, or `$1.25 in and $10.00 out per million tokens`."""
    if price.is_free:
        return "free"
    return f"{format_money(price.input)} in and {format_money(price.output)} out per million tokens"


LIST_SECONDS: Final = 20.0


def list_offered_models(settings: Settings, source: str) -> list[ListedModel]:
    """Return the models that a provider, a worker of the settings or the server of a URL offers.

    Raises `UsageError` for another name, `PolicyError`, `KeyMissing`, or `ModelError` where nothing
    is listed.
    """
    named = []
    for item in settings.workers:
        if source in (item.worker.name, base_url_of(item.worker)):
            named.append(item.worker)
    if named:
        worker = named[0]
    elif source.startswith(("http://", "https://")):
        worker = Worker(
            name="server", kind="openai-compatible", options={"base_url": source.rstrip("/")}
        )
    else:
        worker = Worker(name=source, kind=source)
    if worker.kind not in PRESETS or not base_url_of(worker):
        providers = [name for name, preset in PRESETS.items() if preset.base_url]
        hint = suggest(
            source, providers, f"a provider ({', '.join(providers)}), a worker, or a URL"
        )
        raise UsageError(f"{source!r:.60} is no place that lists models", hint=hint)
    if objection := policy_objection(settings, worker):
        raise PolicyError(objection)
    key = api_key_of(worker, settings.environ, open_key_store(settings))
    KNOWN_SECRETS.add(key)
    return run_async(list_models(worker, key, seconds=LIST_SECONDS))


MAX_STEM: Final = 36  # Characters of a name before its number: it has at most 40


def model_address(worker: Worker) -> tuple[str, str, str]:
    """Return what two workers that ask the same model have in common."""
    base_url = ""
    if worker.kind == "openai-compatible":
        base_url = base_url_of(worker)
    return (worker.kind, model_of(worker), base_url)


def free_name(name: str, names: Collection[str]) -> str:
    """Return a name that is not among `names`: this one, or this one with a number."""
    number = 2
    candidate = name
    while candidate in names:
        candidate = f"{name[:MAX_STEM]}-{number}"
        number += 1
    return candidate


def name_after_model(settings: Settings, worker: Worker) -> str:
    """Return a worker's name by its model: that of the same model here, else a free one."""
    for item in settings.workers:
        if model_address(item.worker) == model_address(worker):
            return item.worker.name
    names = settings.worker_names
    return free_name(worker_name(worker.model), names)


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerChange:
    """The settings of a worker that were changed, and those that are gone with its earlier kind."""

    changed: tuple[str, ...]
    gone: tuple[str, ...] = ()


def store_worker(
    settings: Settings,
    name: str,
    given: Mapping[str, Any],
    unset: Sequence[str],
    *,
    words: Sequence[str] = (),
) -> WorkerChange | None:
    """Add a worker, or change one that was added.

    `given` settings are merged, those in `unset` removed.

    `words` are a program with its arguments or, for a known program, more arguments.

    The worker is checked as far as that is possible without asking anybody, before anything is
    written. Returns None for a new worker; of one that existed, what was changed. Raises
    `UsageError`, and `ConfigError` when the file cannot be written.
    """
    from conductor_cli.models.weights.verify import check_model_of  # for workers that are a file

    check_changeable(settings, "workers", name)
    before = own_section(settings.paths, "workers").get(name, {})
    changes = _changes_of_table(before, given, words)
    for option in unset:
        key = option.replace("-", "_")
        if key not in before:
            raise UsageError(
                f"worker {name!r} has no setting {option!r:.60} of its own",
                hint=suggest(key, before),
            )
        changes[key] = None
    try:
        worker = validate_worker(settings.paths, name, changes)
        with suppress(KeyMissing):  # the key may come later
            open_model(worker, environ=settings.environ)
        check_model_of(worker)
    except ConductorError as error:
        raise UsageError(error.message, hint=error.hint) from None
    is_other_model = any(key in changes and changes[key] != before.get(key) for key in _SERVED)
    if "context" not in changes and (is_other_model or "context" not in before):
        context = ask_for_context(settings, worker)
        if context is not None or "context" in before:  # that was of another model
            changes["context"] = context
    update_table(settings.paths, "workers", name, changes)
    if not before:
        return None
    after = own_section(settings.paths, "workers")[name]
    return WorkerChange(
        changed=tuple(key for key, value in changes.items() if before.get(key) != value),
        gone=tuple(key for key in before if key not in after and key not in changes),
    )


def _changes_of_table(
    before: Mapping[str, Any], given: Mapping[str, Any], words: Sequence[str]
) -> dict[str, Any]:
    """Return what changes in the table of a worker; a setting that goes is None."""
    changes = without_none(given)
    kind = given.get("kind") or before.get("kind")
    if "enabled" in before:  # whoever adds a worker wants to use it
        changes["enabled"] = None
    if given.get("model") and "llama" in (given.get("kind"), before.get("kind")):
        changes["model"] = str(Path(given["model"]).expanduser().absolute())
    if words:
        option = "command" if kind == "command" else "args"
        changes[option] = list(words)
    return changes


_SERVED: Final = ("kind", "model", "base_url")
"""Settings of a worker that say which model of which server it is."""

CONTEXT_SECONDS: Final = 3.0  # For what a server says of the context of a model


def ask_for_context(settings: Settings, worker: Worker) -> int | None:
    """Return the context of a worker's model, in tokens, as its own server says it.

    None where it does not, where the table of models knows it, and where nothing may be asked.
    """
    has_server = worker.kind in PRESETS and bool(base_url_of(worker))
    if not has_server or table_name(worker) or policy_objection(settings, worker):
        return None
    try:
        key = api_key_of(worker, settings.environ, open_key_store(settings))
    except KeyMissing:
        return None
    KNOWN_SECRETS.add(key)
    return run_async(served_context(worker, key, seconds=CONTEXT_SECONDS))


def store_pool(settings: Settings, name: str, members: Sequence[str]) -> None:
    """Make a pool of these workers, or change one that was made; none removes it.

    It is checked before anything is written. Raises `UsageError`, and `ConfigError` for a pool in a
    file of the user.
    """
    pools = by_name(settings.pools)
    source = ""
    if name in pools:
        source = pools[name].source
    if source and source != str(settings.paths.own_file):
        message = f"the pool {name!r} is in {source}, which conductor does not change"
        raise ConfigError(message, hint="edit the file yourself")
    if not members:
        find_pool(settings.pools, name)
        if settings["conductor.pool"] == name:
            hint = "conductor config set conductor.pool default"
            raise UsageError(f"the pool {name!r} is in use", hint=hint)
        update_table(settings.paths, "pools", name, None)
        return
    workers = settings.worker_names
    for member in members:
        if member not in workers:
            hint = suggest(member, workers, "conductor workers add NAME")
            raise UsageError(f"no worker is named {member!r:.60}", hint=hint)
    if len(set(members)) < len(members):
        raise UsageError(f"the pool {name!r:.60} names a worker twice", hint="name each once")
    try:
        changed_table(settings.paths, "pools", name, {"workers": list(members)})
    except ConfigError as error:
        raise UsageError(error.message, hint=error.hint) from None
    update_table(settings.paths, "pools", name, {"workers": list(members)})


TABLE_NOUNS: Final = {"workers": "worker", "tools": "tool server"}
"""What a table of each section is called."""


def check_changeable(settings: Settings, section: str, name: str) -> None:
    """Raise `ConfigError` for a table in a file that the user writes, which takes precedence."""
    source = _table_sources(settings, section).get(name, "")
    if source and source != str(settings.paths.own_file):
        noun = TABLE_NOUNS[section]
        message = f"{noun} {name!r} is in {source}, which conductor does not change"
        raise ConfigError(message, hint="edit the file yourself")


def _table_sources(settings: Settings, section: str) -> dict[str, str]:
    if section == "workers":
        return {item.worker.name: item.source for item in settings.workers}
    return {item.name: item.source for item in settings.tool_servers}


def remove_tables(
    paths: AppPaths, section: str, names: Sequence[str], load: Callable[[], Settings]
) -> None:
    """Remove workers or tools that were added and that nothing needs.

    Raises `UsageError` and `ConfigError`.

    What is removed may be why the settings cannot be loaded.
    """
    tables = own_section(paths, section)
    for name in names:
        if name not in tables:
            settings = load()
            check_changeable(settings, section, name)
            hint = suggest(name, _table_sources(settings, section))
            raise UsageError(f"no {TABLE_NOUNS[section]} is named {name!r:.60}", hint=hint)
    needs = {}
    if section == "tools":
        for worker, values in own_section(paths, "workers").items():
            needs[worker] = values.get("tools")
    else:
        for pool, values in own_section(paths, "pools").items():
            needs[pool] = values.get("workers")
        with suppress(ConfigError):
            for named in load().pools:
                needs[named.name] = list(named.workers)
    for table, listed in needs.items():
        for name in names:
            if isinstance(listed, list) and name in listed:
                if section == "tools":
                    hint = f"conductor workers add {table} --set tools="
                    raise UsageError(f"worker {table!r} has the tools {name!r}", hint=hint)
                raise UsageError(
                    f"worker {name!r} is in pool {table!r}",
                    hint=f"take it out of [pools.{table}] first",
                )
    for name in names:
        update_table(paths, section, name, None)


# Tests of workers, for `workers test` and `doctor`: one small question each

TEST_SECONDS: Final = 60.0  # How long a worker under test may take
BUSY_SECONDS: Final = 1.0  # Before a server that is busy is asked again, if it does not say
MAX_BUSY_SECONDS: Final = 5.0
ANSWER_TOKENS: Final = 16  # Tokens of the answer: the least that all providers accept


def workers_to_test(settings: Settings, names: Sequence[str]) -> list[Worker]:
    """Return the named workers, or all that are enabled.

    Raises `UsageError` for an unknown name, `PolicyError` for none.
    """
    configured = settings.workers or discovered_workers(settings)
    members = []
    for item in configured:
        if item.enabled or item.worker.name in names:
            members.append(item.worker)
    pool = Pool(workers=tuple(members))
    if names:
        pool = pool.subset(names)
    workers = list(pool.without_self())
    if not workers:
        hint = "find some: conductor setup, or add one: conductor workers add NAME --kind KIND"
        raise PolicyError("there is no worker to test", hint=hint)
    return workers


def run_worker_tests(
    settings: Settings, workers: Sequence[Worker], report: Callable[[CheckResult], None]
) -> list[CheckResult]:
    """Test the workers at the same time; each result goes to `report` as soon as it is known."""
    stored = open_key_store(settings)

    async def run_all() -> list[CheckResult]:
        async def run_one(worker: Worker) -> CheckResult:
            result = await run_worker_test(worker, settings.environ, stored)
            report(result)
            return result

        return await asyncio.gather(*map(run_one, workers))

    return run_async(run_all())


async def _first_words_of_two_tries(model: Model, request: Request) -> str:
    """Return the first words of a reply.

    A server that is busy, or fails by itself, is asked once more, as in a run.
    """
    try:
        return await _first_words(model, request)
    except ModelError as error:
        if error.reason not in {"rate", "overloaded"} or not error.retryable:
            raise
        await asyncio.sleep(min(error.retry_after or BUSY_SECONDS, MAX_BUSY_SECONDS))
    return await _first_words(model, request)


async def _first_words(model: Model, request: Request) -> str:
    """Return the beginning of a reply; empty where it has no text."""
    async with aclosing(model.stream(request)) as chunks:
        async for chunk in chunks:
            if chunk.text or chunk.thinking:
                return " ".join(chunk.text.split())[:40] or "(thinking)"
    return ""


async def run_worker_test(
    worker: Worker, environ: Mapping[str, str], stored: StoredKeys
) -> CheckResult:
    """Ask for one word, with the worker's own settings.

    Any token will do, and the first one ends the test.
    """
    started = time.monotonic()
    text = f"(no text within {ANSWER_TOKENS} tokens)"
    failure = None
    option = worker.options.get
    thinking = option("thinking_budget")
    # A bound below the thinking budget would be refused, so the budget is added to it; without one,
    # as many tokens as litellm allows for the highest effort, because a provider that does not
    # stream its thinking would have no bound.
    if not thinking:
        thinks = option("reasoning_effort") not in (None, "none")
        thinking = 16_384 if thinks else 0
    question = Message(role="user", content="Reply with the one word: ready")
    request = Request(
        messages=(question,), max_tokens=ANSWER_TOKENS + thinking, temperature=option("temperature")
    )
    try:
        model = open_model(worker, environ=environ, stored=stored, secrets=KNOWN_SECRETS)
        try:
            async with asyncio.timeout(TEST_SECONDS):
                text = await _first_words_of_two_tries(model, request) or text
        finally:
            await model.close()
    except ConductorError as error:
        text = ""
        failure = with_key_hint(worker, error.failure)
    except TimeoutError:
        text = ""
        failure = Failure(
            kind="unreachable", message=f"no answer within {format_duration(TEST_SECONDS)}"
        )
    seconds = time.monotonic() - started
    fields = {"text": text, "error": dump(failure)}
    if failure is not None:
        return replace(CheckResult.failed(worker.name, failure, seconds=seconds), fields=fields)
    return CheckResult(name=worker.name, text=text, seconds=seconds, fields=fields)
