"""Who reads what a worker is sent, and whose account pays for it. Pure."""

from __future__ import annotations

from functools import lru_cache
from typing import Final
from urllib.parse import urlsplit

from conductor_cli.core.policy import LOCAL, UNKNOWN_PROVIDER, Recipient
from conductor_cli.core.pool import Worker
from conductor_cli.models.addresses import at_url, base_url_of, is_loopback, urls_of
from conductor_cli.models.command.programs import PROGRAMS, recipient_of_program
from conductor_cli.models.presets import PRESETS
from conductor_cli.models.structured_output import is_cloud_model

THIS_MACHINE: Final = "this machine"
"""The recipient of what a local worker is sent."""


def is_local(worker: Worker) -> bool:
    """Return whether a worker's questions stay on this machine."""
    if worker.kind == "llama":
        return True
    if worker.kind in PROGRAMS:
        return recipient_of_program(worker) == LOCAL
    if is_cloud_model(worker.model):
        return False
    preset = PRESETS.get(worker.kind)
    if preset is None or preset.adapter != "http":
        return False
    return all(is_loopback(url) for url in urls_of(worker))


def costs_nothing(worker: Worker) -> bool:
    """Return whether a call is known to cost nothing.

    That is so for a model file, and for a model server of this machine.
    """
    if worker.kind == "llama":
        return True
    preset = PRESETS.get(worker.kind)
    return preset is not None and preset.local and is_local(worker)


def recipient_of(worker: Worker) -> str:
    """Return who reads what a worker is sent.

    That is this machine, a known provider, or the host of another address. It is `UNKNOWN_PROVIDER`
    where litellm finds the provider by the name of the model alone, and for a program that may send
    it to anybody.
    """
    if worker.kind in PROGRAMS:
        recipient = recipient_of_program(worker)
        return THIS_MACHINE if recipient == LOCAL else recipient
    return _recipient_at(worker.kind, worker.model, base_url_of(worker))


@lru_cache(maxsize=1024)  # each call asks this several times of the same few workers
def _recipient_at(kind: str, model: str, base_url: str) -> str:
    """Return who reads what a model is sent: no more of a worker than this decides it."""
    worker = Worker(name="", kind=kind, model=model, options={"base_url": base_url})
    if is_local(worker):
        return THIS_MACHINE
    urls = urls_of(worker)
    if len(urls) > 1:
        recipients = [recipient_of(at_url(worker, url)) for url in urls]
        return ", ".join(dict.fromkeys(recipients))
    url = base_url_of(worker)
    if is_loopback(url) and is_cloud_model(worker.model):
        return "ollama"
    if worker.kind == "litellm" and not url:
        provider, slash, _ = worker.model.partition("/")
        return provider if slash else UNKNOWN_PROVIDER
    try:
        host = (urlsplit(url).hostname or "").rstrip(".")
    except ValueError:  # not a URL; opening the worker reports it
        return url or worker.kind
    return _owner_of(host) or worker.kind


def _owner_of(host: str) -> str:
    """Return the provider whose address has this host or a parent domain of it, else the host."""
    for kind, preset in PRESETS.items():
        domain = urlsplit(preset.base_url).hostname
        if domain and not preset.local and f".{host}".endswith(f".{domain}"):
            return kind
    return host


def is_at_provider(worker: Worker, name: str) -> bool:
    """Return whether a worker is at the provider of this name.

    A recipient, a host, a kind of worker, or `local`.
    """
    facts = recipient_facts(worker)
    names = {facts.provider.lower(), facts.kind.lower()}
    if worker.kind in PRESETS:
        names.add(urlsplit(base_url_of(worker)).hostname or "")
    if facts.local:
        names.add(LOCAL.lower())
    return bool(name) and name.lower() in names


def provider_name(worker: Worker) -> str:
    """Return who serves a remote worker.

    That is the recipient, and of several servers on this machine the address.
    """
    recipient = recipient_of(worker)
    if recipient != THIS_MACHINE:
        return recipient
    return urlsplit(base_url_of(worker)).netloc or recipient


def account_of(worker: Worker) -> tuple[str, ...]:
    """Return the address and the key that a remote worker shares with others.

    A program and a model file have none.
    """
    if worker.kind not in PRESETS:
        return ()
    address = base_url_of(worker) or recipient_of(worker)
    # Without a key of its own, a worker has the one of its kind for this address.
    key = str(worker.options.get("key_env") or worker.kind)
    return (address, key)


def recipient_facts(worker: Worker) -> Recipient:
    """Return a worker as policies know it."""
    recipient = recipient_of(worker)
    urls = urls_of(worker)
    parts: tuple[Recipient, ...] = ()
    if len(urls) > 1:
        parts = tuple(recipient_facts(at_url(worker, url)) for url in urls)
    return Recipient(
        name=worker.name,
        provider=recipient,
        kind=worker.kind,
        local=recipient == THIS_MACHINE,
        tags=worker.tags,
        parts=parts,
    )
