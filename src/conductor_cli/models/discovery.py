"""Finds workers by keys in the environment and model servers on this machine, and checks the keys.

What is found is never merged into configured workers: a question would go to a provider that the
user never named.
"""

from __future__ import annotations

import asyncio
import json
import re
import time
from collections.abc import Collection, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from decimal import Decimal, InvalidOperation
from typing import Any, Final, Literal
from urllib.parse import urlsplit

from conductor_cli.core.bounded_parsing import parse_whole_number
from conductor_cli.core.errors import ModelError
from conductor_cli.core.pool import Worker
from conductor_cli.core.redact import Secrets, secrets_in
from conductor_cli.core.usage import FREE, MILLION, Price
from conductor_cli.models.addresses import api_at, http_url, urls_of
from conductor_cli.models.api_errors import ApiError
from conductor_cli.models.base import table_of, tables_in, text_of
from conductor_cli.models.chat_apis import CHAT_APIS
from conductor_cli.models.chat_body import JsonBody
from conductor_cli.models.http import HttpClient, preload_http
from conductor_cli.models.presets import PRESETS
from conductor_cli.models.prices import load_prices, table_name
from conductor_cli.models.recipients import costs_nothing
from conductor_cli.models.structured_output import is_local_chat_model

SECONDS: Final = 0.3  # how long a server on this machine may take to answer
OWN_MODELS: Final = "conductor"  # Who owns the models that `conductor serve` lists
MAX_MODELS: Final = 3  # how many models of one local server become workers
LOCAL: Final[dict[str, str]] = {"ollama": "/api/tags", "llama-server": "/v1/models"}
"""Where each local server lists its models. vLLM is not tried: its usual port is that of many web
servers.
"""


async def discover(environ: Mapping[str, str], stored: Collection[str] = ()) -> tuple[Worker, ...]:
    """Return the workers that were found, those of providers first.

    A provider has a key in the environment or in `stored`. Of two with the same name the first is
    taken. Never raises and takes no longer than `SECONDS` and a little.
    """
    origins = [_origin(kind, environ) for kind in LOCAL]
    lists = await asyncio.gather(*map(_listed, origins, LOCAL.values()))
    workers = list(workers_with_keys(environ, stored))
    for kind, origin, listed in zip(LOCAL, origins, lists, strict=True):
        workers += workers_of_server(kind, listed, base_url=f"{origin}/v1")
    unique: dict[str, Worker] = {}
    for worker in workers:
        unique.setdefault(worker.name, worker)
    return tuple(unique.values())


def workers_with_keys(
    environ: Mapping[str, str], stored: Collection[str] = ()
) -> tuple[Worker, ...]:
    """Return a worker for each provider that has a key. Pure.

    The key is in the environment, or stored for the provider's own address.
    """
    workers = []
    for kind, preset in PRESETS.items():
        is_in_environment = any(environ.get(name, "").strip() for name in preset.keys)
        has_key = is_in_environment or kind in stored
        if has_key and preset.model:
            workers.append(Worker(name=kind, kind=kind, model=preset.model))
    return tuple(workers)


def workers_of_server(kind: str, listed: object, *, base_url: str) -> tuple[Worker, ...]:
    """Return the workers for the models that a local server lists, which is not trusted. Pure."""
    options: dict[str, Any] = {}
    if base_url != PRESETS[kind].base_url:
        options["base_url"] = base_url
    answer = table_of(listed)
    if "models" in answer:  # an answer of Ollama
        listed_names = [item.get("name") for item in tables_in(answer["models"])]
    else:  # one of OpenAI's API
        rows = tables_in(answer.get("data"))
        # A server of conductor would have a run of conductor as the worker of another.
        listed_names = [row.get("id") for row in rows if row.get("owned_by") != OWN_MODELS]
    names = dict.fromkeys(filter(_is_chat_model, map(text_of, listed_names)))
    worker = Worker(name="", kind=kind, options=options, parallel=1, price=FREE)
    workers = []
    for name in list(names)[:MAX_MODELS]:
        workers.append(replace(worker, name=worker_name(name), model=name))
    return tuple(workers)


def _is_chat_model(name: str) -> bool:
    """Return whether a name that a server lists can be that of a model which answers questions."""
    return 0 < len(name) <= 200 and name.isprintable() and is_local_chat_model(name)


async def _listed(url: str, path: str) -> object:
    """Return what a server lists; None if none answers. A closed port is noticed first."""
    parts = urlsplit(url)
    server = HttpClient(url)
    try:
        async with asyncio.timeout(SECONDS):
            _, writer = await asyncio.open_connection(parts.hostname, parts.port)
        writer.close()
        await asyncio.to_thread(preload_http)
        return await server.list_json(path, seconds=SECONDS)
    except (OSError, TimeoutError, ModelError):
        return None
    finally:
        await server.close()


def _origin(kind: str, environ: Mapping[str, str]) -> str:
    """Return the address of a local server.

    OLLAMA_HOST may give Ollama another port of this machine.
    """
    if kind == "ollama":
        port = parse_whole_number(environ.get("OLLAMA_HOST", "").rpartition(":")[2].rstrip("/"))
        if port is not None and 0 < port < 65536:
            return f"http://127.0.0.1:{port}"
    return PRESETS[kind].base_url.removesuffix("/v1")


def ollama_address(environ: Mapping[str, str]) -> str:
    """Return the address of OpenAI's API of the Ollama that OLLAMA_HOST names.

    Empty where it names the usual one, or nothing that can be understood. Pure.

    As Ollama itself reads it: the scheme, the port and the host may each be left out, and an
    address that a server listens on everywhere is this machine.
    """
    value = environ.get("OLLAMA_HOST", "").strip().strip("\"'")
    scheme, separator, rest = value.partition("://")
    if not separator:
        scheme = "http"
        rest = value
    if rest.startswith(":"):
        rest = f"127.0.0.1{rest}"
    parts = http_url(f"{scheme}://{rest.rstrip('/')}")
    is_address = parts is not None and not (parts.username or parts.query or " " in rest)
    if parts is None or not is_address:
        return ""
    host = parts.hostname or ""
    if host in ("0.0.0.0", "::", "localhost"):  # noqa: S104 - nothing listens here
        host = "127.0.0.1"
    usual_port = 11434
    if separator:
        usual_port = {"http": 80, "https": 443}[parts.scheme]
    host = f"[{host}]" if ":" in host else host
    url = f"{parts.scheme}://{host}:{parts.port or usual_port}{parts.path.rstrip('/')}/v1"
    return "" if url == PRESETS["ollama"].base_url else url


def worker_name(name: str) -> str:
    """Return a worker's name made from its model's.

    It has no path, ending and characters that a name may not have.
    """
    short = name.replace("\\", "/").rstrip("/").rpartition("/")[2]
    short = short.removesuffix(".gguf").removesuffix(":latest")
    # A worker's name has at most 40 characters in the settings, where the user may copy this one
    # to.
    allowed = re.sub(r"[^A-Za-z0-9._-]", "-", short)
    return allowed.strip(".-_")[:40] or "local"


KeyState = Literal["good", "wrong", "unreachable", "failed", "unreadable"]
"""What a provider says of a key.

`failed` is an answer that does not say that the key is wrong: the account may lack credit, the key
a permission. `unreadable` says that the keyring does not give it, so its provider was not asked.
"""

PATHS: Final[Mapping[str, str]] = {
    "anthropic": "/v1/models",
    "openrouter": "/key",  # its list of models needs no key
}
"""The path to ask, after the providers' references (November 2026); `/models` for all others."""

_WRONG_KEY: Final = re.compile(
    r"(?:invalid|incorrect|expired|malformed).{0,20}(?:key|token)"
    r"|(?:key|token).{0,20}(?:not valid|invalid|expired)",
    re.IGNORECASE,
)
"""How Gemini and xAI, which answer 400 to a wrong key, say that it is the key."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyVerdict:
    """What a provider said about a key, and what to do."""

    state: KeyState
    seconds: float = 0.0
    message: str = ""
    hint: str = ""


async def check_key(
    provider: str, base_url: str, key: str, *, seconds: float, ca_file: str = ""
) -> KeyVerdict:
    """Send a key to its provider. Every failure is part of the result."""
    api = "chat-completions"
    if provider in PRESETS:
        api = api_at(provider, base_url)
    headers = CHAT_APIS[api].headers(key)
    server = HttpClient(base_url, headers=headers, secrets=Secrets(key), ca_file=ca_file)
    began = time.monotonic()
    try:
        await server.list_json(PATHS.get(provider, "/models"), seconds=seconds)
    except ModelError as error:
        state = key_state_of(error)
        spent = time.monotonic() - began
        return KeyVerdict(state=state, seconds=spent, message=error.message, hint=error.hint)
    finally:
        await server.close()
    return KeyVerdict(state="good", seconds=time.monotonic() - began)


def key_state_of(error: ModelError) -> KeyState:
    """Return what a failed request says about the key. Pure."""
    if isinstance(error, ApiError):
        text = f"{error.reported.message} {' '.join(error.reported.codes)}"
        says_wrong = error.status in (400, 403) and _WRONG_KEY.search(text) is not None
        if says_wrong or error.status == 401:
            return "wrong"
    if error.reason in ("connect", "timeout", "overloaded", "broken"):
        return "unreachable"
    return "failed"


LISTS: Final[Mapping[str, str]] = {
    "anthropic": "/v1/models?limit=1000",
    "gemini": "/models?pageSize=1000",
}
"""The path at which all models of an API are listed on one page; `/models` for all others."""

_CONTEXTS: Final = (
    "context_length",
    "context_window",
    "max_context_length",
    "max_model_len",
    "inputTokenLimit",
)
"""What servers call the tokens that a model reads: OpenRouter, Groq, Mistral, vLLM, Google."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ListedModel:
    """A model that a server offers, the tokens that it reads, and its price.

    None for what is not known.
    """

    name: str
    context: int | None = None
    price: Price | None = None


async def list_models(worker: Worker, key: str, *, seconds: float) -> list[ListedModel]:
    """Return the chat models at a worker's address, by name. Raises `ModelError`.

    What a server says of a model comes first, then litellm's table. The list is not trusted.
    """
    base_url = urls_of(worker)[0]
    api = api_at(worker.kind, base_url)
    ca_file = str(worker.options.get("ca_file") or "")
    headers = {**CHAT_APIS[api].headers(key), **worker.options.get("headers", {})}
    secrets = Secrets(key, *secrets_in(headers))
    server = HttpClient(base_url, headers=headers, secrets=secrets, ca_file=ca_file)
    try:
        listed = await server.list_json(LISTS.get(api, "/models"), seconds=seconds)
    finally:
        await server.close()
    models = dict[str, ListedModel]()
    for item in tables_in(listed.get("data") or listed.get("models")):
        name = (text_of(item.get("id")) or text_of(item.get("name"))).removeprefix("models/")
        # Google says of each model what it can be asked for.
        methods = item.get("supportedGenerationMethods")
        answers = not isinstance(methods, list) or "generateContent" in methods
        if answers and _is_chat_model(name):
            models[name] = _listed_model(replace(worker, model=name), item)
    return sorted(models.values(), key=lambda model: model.name)


def _listed_model(worker: Worker, item: Mapping[str, Any]) -> ListedModel:
    name = table_name(worker)
    row = table_of(load_prices().rows.get(name) if name else None)
    stated = [
        *map(item.get, _CONTEXTS),
        table_of(item.get("meta")).get("n_ctx_train"),
        row.get("max_input_tokens"),
    ]
    contexts = []
    for number in stated:
        if type(number) is int and number > 0:
            contexts.append(number)
    price: Price | None = None
    if costs_nothing(worker):
        price = FREE
    else:
        price = _stated_price(item) or (load_prices().find(name) if name else None)
    return ListedModel(name=worker.model, context=contexts[0] if contexts else None, price=price)


def _stated_price(item: Mapping[str, Any]) -> Price | None:
    """Return the price in a list of OpenRouter, which states dollars a token, as texts."""
    pricing = table_of(item.get("pricing"))
    with suppress(InvalidOperation, TypeError, ValueError):
        read = Decimal(str(pricing.get("prompt"))) * MILLION
        written = Decimal(str(pricing.get("completion"))) * MILLION
        if 0 <= read <= MILLION and 0 <= written <= MILLION:
            return Price(input=read, output=written)
    return None


_SERVED_CONTEXTS: Final = tuple(name for name in _CONTEXTS if name != "inputTokenLimit")
"""What a list of models calls the context with which a server runs one of them."""

_NUM_CTX: Final = re.compile(r"^num_ctx\s+(\d{1,9})\s*$", re.MULTILINE)
"""The context in the parameters of a model of Ollama."""


async def served_context(worker: Worker, key: str, *, seconds: float) -> int | None:
    """Return the tokens of context with which a server runs a worker's model.

    vLLM and others say it in their list of models, llama-server in its properties, and Ollama of a
    model that is loaded, or whose parameters set it. None where the server does not say it: for
    what a model was trained is more than many servers give it.
    """
    base_url = urls_of(worker)[0]
    ca_file = str(worker.options.get("ca_file") or "")
    headers = {
        **CHAT_APIS[api_at(worker.kind, base_url)].headers(key),
        **worker.options.get("headers", {}),
    }
    secrets = Secrets(key, *secrets_in(headers))
    root = HttpClient(
        base_url.rstrip("/").removesuffix("/v1"), headers=headers, secrets=secrets, ca_file=ca_file
    )
    try:
        async with asyncio.timeout(seconds):
            if worker.kind == "ollama":
                return await _ollama_context(root, worker.model)
            listed = await root.list_json("/v1/models", seconds=seconds)
            item = _find_listed(listed, worker.model)
            context = _first_number(map(item.get, _SERVED_CONTEXTS))
            if context is None and item.get("owned_by") == "llamacpp":
                properties = await root.list_json("/props", seconds=seconds)
                settings = table_of(properties.get("default_generation_settings"))
                context = _first_number([settings.get("n_ctx")])
            return context
    except (ModelError, TimeoutError, ValueError, RecursionError):
        return None
    finally:
        await root.close()


def _find_listed(listed: Mapping[str, Any], model: str) -> Mapping[str, Any]:
    """Return what a list of models says of one; of the only one where no model is named."""
    items = tables_in(listed.get("data"))
    for item in items:
        if item.get("id") == model:
            return item
    if len(items) == 1 and not model:
        return items[0]
    return {}


async def _ollama_context(root: HttpClient, model: str) -> int | None:
    loaded = await root.list_json("/api/ps", seconds=None)
    for item in tables_in(loaded.get("models")):
        if model in (item.get("name"), item.get("model")):
            return _first_number([item.get("context_length")])
    async with root.open("POST", "/api/show", body=JsonBody({"model": model})) as answer:
        shown = json.loads(await answer.body())
    parameters = _NUM_CTX.search(text_of(table_of(shown).get("parameters")))
    return int(parameters[1]) if parameters is not None else None


def _first_number(values: Iterable[object]) -> int | None:
    """Return the first whole number above 0."""
    for value in values:
        if type(value) is int and value > 0:
            return value
    return None
