"""Workers and pools in words, for `workers show` and `pools show`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from conductor_cli.app.keys import key_state, open_key_store
from conductor_cli.app.policy_filter import policy_objection
from conductor_cli.cli.output import print_json, print_table, print_text
from conductor_cli.config.pools import pool_members
from conductor_cli.core.pool import Card, Worker
from conductor_cli.core.serialization import dump

if TYPE_CHECKING:
    from conductor_cli.config import ConfiguredWorker, NamedPool, Settings
    from conductor_cli.models.builtin_pools import ShippedPool, ShippedWorker


def rows_of(item: ConfiguredWorker, key: str, price: str, settings: Settings) -> list[list[str]]:
    """What there is to say of a worker, a row for each thing; its key and its price in words."""
    from conductor_cli.models.presets import model_of, recipient_of

    worker = item.worker
    pools = ", ".join(pool.name for pool in settings.pools if worker.name in pool.workers)
    why = policy_objection(settings, worker)
    rows = {
        "kind": worker.kind, "model": model_of(worker) or "-", "about": worker.about or "-",
        "settings": settings_text(worker.public().options) or "-", "at once": str(worker.parallel),
        "read by": recipient_of(worker), "tags": ", ".join(worker.tags) or "-", "pools": pools or "-",
        "price": price, "good at": card_text(worker.card), "key": key,
        "enabled": "no" if not item.enabled else f"yes, but {why}" if why else "yes", "from": item.source,
    }  # fmt: skip
    return [[name, value] for name, value in rows.items()]


def settings_text(options: Mapping[str, Any]) -> str:
    """A worker's settings in one line: `max_tokens 4096, temperature 0.2`."""
    return ", ".join(f"{name} {value}" for name, value in options.items() if value is not None)


def card_text(card: Card) -> str:
    """A card in one line, with where it is from, and that it was not measured where it was not."""
    if not card.strengths:
        return "not known; conductor workers calibrate measures it"
    best = sorted(card.strengths.items(), key=lambda item: -item[1])
    shares = ", ".join(f"{tag} {share:.2f}" for tag, share in best)
    how = "measured" if card.measured else "not measured"
    return f"{shares} ({how}: {card.source})" if card.source else f"{shares} ({how})"


def model_text(worker: Worker) -> str:
    """`kind/model`."""
    return f"{worker.kind}/{worker.model}" if worker.model else worker.kind


def show_named(pool: NamedPool, settings: Settings, *, json: bool) -> None:
    """The workers of a pool, in its order. Raises `ConfigError` for a name that no worker has."""
    safe = open_key_store(settings)
    found = pool_members(pool, settings.workers)
    states = [key_state(item.worker, settings.environ, safe) for item in found]
    if json:
        workers = [
            {**dump(item.worker.public()), "enabled": item.enabled, "key": state}
            for item, state in zip(found, states, strict=True)
        ]
        print_json({"name": pool.name, "about": pool.about, "source": pool.source, "workers": workers})
        return
    rows = [
        [item.worker.name, model_text(item.worker), "yes" if item.enabled else "no", state,
         settings_text(item.worker.public().options) or "-"]
        for item, state in zip(found, states, strict=True)
    ]  # fmt: skip
    print_table(("NAME", "MODEL", "ENABLED", "KEY", "SETTINGS"), rows)


def show_shipped(pool: ShippedPool, settings: Settings, *, json: bool) -> None:
    """What `pools add` would add: each worker, whether it is the published model, and where its line is from."""
    from conductor_cli.models.presets import as_of

    safe = open_key_store(settings)
    states = [key_state(worker.worker, settings.environ, safe) for worker in pool.workers]
    if json:
        data = {
            "name": pool.name, "about": pool.about, "source": pool.source, "as_of": as_of(),
            "workers": [_data(worker, state) for worker, state in zip(pool.workers, states, strict=True)],
        }  # fmt: skip
        print_json(data)
        return
    print_text(f"{pool.name}: {pool.about}. {pool.source}; model ids as of {as_of()}. Not added yet.")
    for worker, state in zip(pool.workers, states, strict=True):
        print_text(f"\n{worker.name}: {model_text(worker.worker)}, {settings_text(worker.worker.options)}")
        print_text(
            f"    {'stands in for ' + worker.replaces if worker.replaces else 'the published model'}; key: {state}"
        )
        print_text(f"    source: {worker.source}")
        print_text(f"    good at: {card_text(_carded(worker).card)}")


def _carded(worker: ShippedWorker) -> Worker:
    from dataclasses import replace

    from conductor_cli.models.builtin_cards import builtin_card

    return replace(worker.worker, card=builtin_card(worker.worker))


def _data(worker: ShippedWorker, key: str) -> dict[str, Any]:
    return {
        "name": worker.name, **worker.table, "replaces": worker.replaces or None, "published": not worker.replaces,
        "source": worker.source, "card": dump(_carded(worker).card), "key": key,
    }  # fmt: skip
