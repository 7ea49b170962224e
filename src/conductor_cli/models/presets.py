"""What ships with this tool: the one table of providers, and capability cards.

Providers are in `presets.toml` beside this file. Model names age: a newer one, and a price for it,
is set in the configuration. Cards are in `cards.toml`: they were not measured here, and each names
its source. A worker's own card and a measured one are used before them.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache, lru_cache
from ipaddress import ip_address
from pathlib import Path
from typing import Any, Final, Literal
from urllib.parse import SplitResult, urlsplit

from conductor_cli.core.errors import Failure
from conductor_cli.core.policy import LOCAL, UNKNOWN_PROVIDER, Party
from conductor_cli.core.pool import Card, Worker
from conductor_cli.models.base import ALL_FEATURES, Features
from conductor_cli.models.command.programs import PROGRAMS, recipient_of_program
from conductor_cli.models.structured_output import Form, is_cloud_model

_THINKING_OPTIONS: Final = {"reasoning_effort", "thinking_budget"}
"""How hard a model thinks: a card that was measured with one setting says nothing about another."""

ThinkingField = Literal["", "thinking", "openrouter"]
"""The ways in which APIs are told how many tokens a model may think; empty if there is none."""


CostSource = Literal["stated", "unknown"]
"""Whether a call costs what the provider states with it, or is computed from the worker's price."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Preset:
    """What is known about a provider.

    `keys` are the variables that may hold its key; the first that is set is used. `api` is a key of
    `CHAT_APIS`. `model` is asked for by a worker that names none, empty if only the user can know;
    `planner` is a cheap one that is proposed to plan. `prices` is the prefix of its models in
    litellm's price table. `form` is the field by which it takes a grammar or a schema, `schemas`
    whether it is known to enforce schemas, `budget` how it is told the tokens that a model may
    think, `features` what its server takes besides text from a model that can.
    """

    base_url: str = ""
    keys: tuple[str, ...] = ()
    adapter: Literal["http", "litellm"] = "http"
    api: str = "chat-completions"
    model: str = ""
    planner: str = ""
    local: bool = False
    about: str = ""
    prices: str = ""
    cost: CostSource = "unknown"
    max_tokens_field: str = "max_tokens"
    form: Form = "response_format"
    schemas: bool = False
    budget: ThinkingField = ""
    features: Features = ALL_FEATURES


OPENAI_APIS: Final = ("chat-completions", "responses")
"""The APIs of OpenAI, one of which a worker at any server with OpenAI's API may choose."""

# A server with OpenAI's API about which nothing is known before it is asked
UNKNOWN_SERVER: Final = Preset(form="ask")
SHIPPED: Final[Mapping[str, Any]] = tomllib.loads(
    Path(__file__).with_name("presets.toml").read_text("utf-8")
)
"""The content of `presets.toml`: `as_of` and `providers`."""


PRESETS: Final[Mapping[str, Preset]] = {
    kind: Preset(
        **values
        | {
            "keys": tuple(values.get("keys", ())),
            "features": frozenset(values.get("features", ALL_FEATURES)),
        }
    )
    for kind, values in SHIPPED["providers"].items()
}
"""Every kind of worker that is a remote model, by name."""


def base_url_of(worker: Worker) -> str:
    """Return the address that a worker's questions are sent to, empty if litellm chooses it."""
    return str(
        worker.options.get("base_url") or PRESETS.get(worker.kind, Preset()).base_url
    ).rstrip("/")


def http_url(text: str) -> SplitResult | None:
    """Return the parts of an address that HTTP can reach; None for any other text."""
    try:
        parts = urlsplit(text)
        fits = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        return None
    return parts if fits else None


def urls_of(worker: Worker) -> list[str]:
    """Return each address that a worker's questions may be sent to.

    Several servers may have the same model.
    """
    return [url.strip().rstrip("/") for url in base_url_of(worker).split(",")]


def holds_password(urls: str) -> bool:
    """Return whether an address, or one of several, has a password in it."""
    return any("@" in url.partition("://")[2].partition("/")[0] for url in urls.split(","))


def at_url(worker: Worker, url: str) -> Worker:
    """Return the worker as it is at one of its addresses."""
    return replace(worker, options={**worker.options, "base_url": url})


def model_of(worker: Worker) -> str:
    """Return the model that a worker asks for: its own, else its provider's first.

    Empty if its server chooses.
    """
    if worker.model or worker.kind not in PRESETS:
        return worker.model
    preset = PRESETS[worker.kind]
    # Only servers with OpenAI's API choose a model themselves.
    chooses = preset.adapter == "http" and preset.api in OPENAI_APIS
    return preset.model if not chooses or is_own_address(worker) else ""


def api_at(kind: str, base_url: str) -> str:
    """Return the key of `CHAT_APIS` by which a kind of worker is asked at an address.

    Below `/openai` Google speaks chat completions, at every other address its own API.
    """
    api = PRESETS[kind].api
    return "gemini-chat" if api == "gemini" and base_url.rstrip("/").endswith("/openai") else api


def is_own_address(worker: Worker) -> bool:
    """Return whether a worker uses its provider's own address, the only one that the provider's key
    is sent to.
    """
    return base_url_of(worker) == PRESETS[worker.kind].base_url.rstrip("/")


def key_hint(worker: Worker) -> str:
    """Return what to do when a worker's key was refused.

    Empty where only its provider's own documents say it.
    """
    if name := str(worker.options.get("key_env") or ""):
        return f"set {name} to a valid key"
    if worker.kind not in PRESETS or not base_url_of(worker):
        return ""
    if not is_own_address(worker):
        return f"conductor keys set {worker.kind} --base-url {base_url_of(worker)}"
    variables = PRESETS[worker.kind].keys
    also = f", or correct {variables[0]} if it is set" if variables else ""
    return f"conductor keys set {worker.kind}{also}"


def missing_key_hint(worker: Worker) -> str:
    """Return what to do where a worker's key is nowhere.

    Set its variable or, unless the worker names one, store it.
    """
    if name := str(worker.options.get("key_env") or ""):
        return f"export {name}=…"
    return f"export {PRESETS[worker.kind].keys[0]}=…, or conductor keys set {worker.kind}"


def with_key_hint(worker: Worker, failure: Failure) -> Failure:
    """The failure of a call of `worker`.

    Where its key was refused, with what to do, the same wherever it is shown.
    """
    hint = key_hint(worker) if failure.reason == "auth" else ""
    return replace(failure, hint=hint) if hint else failure


def is_local(worker: Worker) -> bool:
    """Return whether a worker's questions stay on this machine."""
    if worker.kind == "llama":
        return True
    if worker.kind in PROGRAMS:
        return recipient_of_program(worker) == LOCAL
    if is_cloud_model(worker.model):
        return False
    preset = PRESETS.get(worker.kind)
    return (
        preset is not None and preset.adapter == "http" and all(map(is_loopback, urls_of(worker)))
    )


THIS_MACHINE: Final = "this machine"  # who reads what a local worker is sent


def recipient_of(worker: Worker) -> str:
    """Return who reads what a worker is sent.

    This machine, a known provider, or the host of another address.

    `UNKNOWN_PROVIDER` where litellm finds the provider by the name of the model alone, and for a
    program that may send it to anybody.
    """
    if is_local(worker):
        return THIS_MACHINE
    if len(urls := urls_of(worker)) > 1:
        return ", ".join(dict.fromkeys(recipient_of(at_url(worker, url)) for url in urls))
    if worker.kind in PROGRAMS:
        return recipient_of_program(worker)
    url = base_url_of(worker)
    if is_loopback(url) and is_cloud_model(worker.model):
        return "ollama"
    if worker.kind == "litellm" and not url:
        return worker.model.partition("/")[0] if "/" in worker.model else UNKNOWN_PROVIDER
    try:
        host = (urlsplit(url).hostname or "").rstrip(".")
    except ValueError:  # not a URL; opening the worker reports it
        return url or worker.kind
    # The owner of an address is the provider with its host or a parent domain of it, else the host.
    own = {
        kind: urlsplit(preset.base_url).hostname
        for kind, preset in PRESETS.items()
        if not preset.local
    }
    owner = next(
        (kind for kind, known in own.items() if known and f".{host}".endswith(f".{known}")), host
    )
    return owner or worker.kind


def is_at_provider(worker: Worker, name: str) -> bool:
    """Return whether a worker is at the provider of this name.

    A recipient, a host, a kind of worker, or `local`.
    """
    party = party_of(worker)
    host = urlsplit(base_url_of(worker)).hostname if worker.kind in PRESETS else None
    known = (party.recipient, party.kind, host or "", LOCAL if party.local else "")
    return name.lower() in [each.lower() for each in known if each]


def provider_name(worker: Worker) -> str:
    """Return who serves a remote worker.

    The recipient, and of several servers on this machine the address.
    """
    recipient = recipient_of(worker)
    return (
        urlsplit(base_url_of(worker)).netloc or recipient
        if recipient == THIS_MACHINE
        else recipient
    )


def account_of(worker: Worker) -> tuple[str, ...]:
    """Return the address and the key that a remote worker shares with others.

    Empty for a program or a model file.
    """
    if worker.kind not in PRESETS:
        return ()
    # Without a key of its own, a worker has the one of its kind for this address.
    return (
        base_url_of(worker) or recipient_of(worker),
        str(worker.options.get("key_env") or worker.kind),
    )


def party_of(worker: Worker) -> Party:
    """Return a worker as policies know it."""
    recipient = recipient_of(worker)
    urls = urls_of(worker)
    return Party(
        name=worker.name,
        recipient=recipient,
        kind=worker.kind,
        local=recipient == THIS_MACHINE,
        tags=worker.tags,
        parts=tuple(party_of(at_url(worker, url)) for url in urls) if len(urls) > 1 else (),
    )


def costs_nothing(worker: Worker) -> bool:
    """Return whether a call is known to cost nothing.

    A model file, or a model server of this machine.
    """
    preset = PRESETS.get(worker.kind)
    return worker.kind == "llama" or (preset is not None and preset.local and is_local(worker))


_ADDRESS: Final = re.compile(
    # This machine, or a number
    r"(?P<number>localhost|\d+(?:\.\d+){3}|\[[0-9a-f:]+\])(?::\d+)?(?:/\S*)?"
    # A name with a port, or with a path such as /v1
    r"|[\w.-]+:\d{2,5}(?:/\S*)?|[\w-]+(?:\.[\w-]+)+/v\d\S*",
    re.IGNORECASE,
)


def with_scheme(text: str) -> str:
    """The URL that somebody means who left out `http://`, such as `127.0.0.1:8080/v1`.

    Empty for anything else.
    """
    found = _ADDRESS.fullmatch(text)
    if found is None:
        return ""
    # Servers in one's own network seldom have a certificate.
    return f"http://{text}" if found["number"] else f"https://{text}"


@lru_cache(maxsize=1024)  # each call asks this of the same few addresses
def is_loopback(url: str) -> bool:
    """Return whether an address is on this machine."""
    try:
        host = urlsplit(url).hostname or ""
        return host == "localhost" or ip_address(host).is_loopback
    except ValueError:  # the name of another host, or not a URL
        return False


def table_name(worker: Worker) -> str:
    """Return the name of a worker's model in litellm's table of models, empty if it has no row of
    its own.
    """
    if worker.kind == "openrouter" and is_own_address(worker):
        return f"openrouter/{model_of(worker)}"
    return price_name(worker)


def price_name(worker: Worker) -> str:
    """Return the name of a worker's model in litellm's price table, empty if it has no row of its
    own.

    An address other than the provider's own has prices of its own.
    """
    preset = PRESETS.get(worker.kind)
    if preset is None or worker.kind in ("openai-compatible", "openrouter") or preset.local:
        return ""
    return preset.prices + model_of(worker) if is_own_address(worker) else ""


def builtin_card(worker: Worker) -> Card:
    """Return the card of a worker's model, empty if there is none.

    At another address a name may be any model's.
    """
    if worker.kind in PROGRAMS:
        program = PROGRAMS[worker.kind]
        return Card(words=program.words, source=program.about) if program.words else Card()
    if worker.kind not in PRESETS or not is_own_address(worker):
        return Card()
    name = price_name(worker) or f"{worker.kind}/{model_of(worker)}"
    options = {
        name: worker.options[name]
        for name in _THINKING_OPTIONS
        if worker.options.get(name) is not None
    }
    for line in _shipped_cards():
        if name not in line["models"]:
            continue
        measured_with = {name: line[name] for name in _THINKING_OPTIONS if name in line}
        # A `default` card also holds for a worker that sets none of these options.
        if options == measured_with or (not options and "default" in line):
            return Card(
                strengths=line.get("strengths", {}),
                words=line.get("words", ""),
                source=line["source"],
            )
    return Card()


@cache
def _shipped_cards() -> tuple[Mapping[str, Any], ...]:
    return tuple(tomllib.loads(Path(__file__).with_name("cards.toml").read_text("utf-8"))["cards"])
