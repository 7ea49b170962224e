"""From a worker to its model: the one place to add a kind. Adapters are imported when they are needed."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

from conductor_cli.core.errors import ConfigError, KeyMissing
from conductor_cli.core.pool import Worker
from conductor_cli.models.base import Model
from conductor_cli.models.known_secrets import KNOWN_SECRETS
from conductor_cli.models.presets import PRESETS, Preset, base_url_of, is_own_address, model_of
from conductor_cli.models.sampling_options import find_invalid_option
from conductor_cli.models.structured_output import is_cloud_model

StoredKeys = Callable[[str, str], str | None]
"""The key that is stored for a kind of worker at an address, or None.

It may ask the system's keyring, so it is called only if no variable has the key. Raises `KeyMissing` for a key that
cannot be read, `ConfigError` if the list of keys cannot be read.
"""

REMOTE_OPTIONS: Final[dict[str, tuple[type, ...]]] = {
    "base_url": (str,),
    "key_env": (str,),
    "temperature": (int, float),
    "max_tokens": (int,),
    "top_p": (int, float),
    "reasoning_effort": (str,),
    "thinking_budget": (int,),
    "headers": (Mapping,),
    "ca_file": (str,),
    "context": (int,),
}
"""The options of a worker at a provider, and their types."""

LOCAL_OPTIONS: Final[dict[str, tuple[type, ...]]] = {
    "context": (int,),
    "threads": (int,),
    "gpu_layers": (int, str),
    "seed": (int,),
    "repack": (bool,),
    "mmap": (bool,),
    "adapter": (str,),
    "cache": (str,),
    "temperature": (int, float),
    "max_tokens": (int,),
}
"""The options of a worker in a GGUF file, and their types."""

_CALLED: Final[dict[type, str]] = {
    str: "text in quotes", int: "a whole number", float: "a number", bool: "true or false", Mapping: "a table",
}  # fmt: skip


_SECRET_VARIABLE: Final = re.compile(r"(?:^|_)(?:API_?KEY|ACCESS_KEY|SECRET|TOKEN|PASSWORD)(?:_|$)", re.IGNORECASE)
_SECRET_HEADER: Final = re.compile(r"auth|token|key|secret|password|cookie|credential", re.IGNORECASE)


def kinds() -> tuple[str, ...]:
    """The kinds of worker that a user may name."""
    return (*PRESETS, "llama")


def no_stored_key(_kind: str, _base_url: str) -> None:
    """No key is stored."""


def open_model(worker: Worker, *, environ: Mapping[str, str], stored: StoredKeys = no_stored_key) -> Model:
    """The model of a worker. Nothing is connected to or loaded yet; `stored` gives the key if no variable has it.

    Raises `ConfigError` for invalid settings of the worker, `KeyMissing` if its key is not found.
    """
    if worker.kind in PRESETS:
        check_options(worker)
        _check_litellm_address(worker, environ)
        _hide_headers(worker)
        preset, key = PRESETS[worker.kind], api_key_of(worker, environ, stored)
        return _litellm(worker, key) if preset.adapter == "litellm" else _openai(worker, preset, key)
    opener = _OTHERS.get(worker.kind)
    if opener is None:
        raise _unknown_kind(worker)
    return opener(worker)


def api_key_of(worker: Worker, environ: Mapping[str, str], stored: StoredKeys = no_stored_key) -> str:
    """The key that a worker sends, empty if it needs none. From now on it is redacted from all output.

    A worker that names a variable takes the key from there only. A provider's own variable is read for the provider's
    own address only; a stored key is for one address too, and comes last.
    """
    named = str(worker.options.get("key_env") or "")
    if worker.kind == "litellm":
        # litellm reads the variables of its many providers itself: all that may be a key is treated as one.
        KNOWN_SECRETS.add(*(value.strip() for name, value in environ.items() if _SECRET_VARIABLE.search(name)))
    own = PRESETS[worker.kind].keys if is_own_address(worker) else ()
    for name in (named,) if named else own:
        if key := environ.get(name, "").strip():
            KNOWN_SECRETS.add(key)
            if not key.isascii() or not key.isprintable() or " " in key:
                message = f"the key in {name} has invalid characters"
                raise KeyMissing(message, hint=f"set {name} again; then: conductor doctor")
            return key
    if not named and (key := stored(worker.kind, base_url_of(worker)) or ""):
        return key
    if not named and not own:
        return ""
    names = named or " or ".join(own)
    store = "" if named else f", or conductor keys set {worker.kind}"
    raise KeyMissing(
        f"worker {worker.name!r} needs a key: {names} is not set{'' if named else ', and no key is stored'}",
        hint=f"export {names.partition(' ')[0]}=…{store}; then: conductor doctor",
    )


def _hide_headers(worker: Worker) -> None:
    """Treat a worker's own headers as keys if their name says so: a server may echo what it is sent."""
    headers = {str(name): str(value) for name, value in worker.options.get("headers", {}).items()}
    secret = [value for name, value in headers.items() if _SECRET_HEADER.search(name)]
    # A server may echo the token without the word before it, as in `Bearer TOKEN`.
    KNOWN_SECRETS.add(*secret, *(value.rpartition(" ")[2] for value in secret))


def _check_litellm_address(worker: Worker, environ: Mapping[str, str]) -> None:
    """Refuse a variable that would make litellm send a worker's texts to another address than policies check."""
    if worker.kind != "litellm" or base_url_of(worker):
        return
    provider = worker.model.partition("/")[0] if "/" in worker.model else "openai"
    for end in ("_BASE_URL", "_API_BASE"):
        name = provider.upper().replace("-", "_") + end
        if environ.get(name, "").strip():
            raise ConfigError(
                f"worker {worker.name!r}: {name} would send its questions to another address",
                hint="set that address as the worker's base_url, or unset the variable",
            )


def _openai(worker: Worker, preset: Preset, key: str) -> Model:
    from conductor_cli.models.openai import OpenAI, ServerQuirks

    base_url = base_url_of(worker)
    if not base_url.startswith(("http://", "https://")):
        raise ConfigError(
            f"worker {worker.name!r} needs base_url, a URL that begins with http:// or https://",
            hint='for example: base_url = "http://127.0.0.1:8080/v1"',
        )
    own = is_own_address(worker)
    model = model_of(worker)
    form = preset.form if own or preset.local else "ask"
    quirks = ServerQuirks(
        max_tokens_field=preset.max_tokens_field if own else "max_tokens",
        cost=preset.cost if own else "unknown",  # another server's word on its cost is not trusted
        form=form,
        schemas=preset.schemas and form == preset.form and not is_cloud_model(model),
        budget=preset.budget,
    )
    return OpenAI(model, base_url, key=key, options=worker.options, quirks=quirks)


def _litellm(worker: Worker, key: str) -> Model:
    from conductor_cli.models.litellm import LiteLLM, preload

    if worker.options.get("ca_file"):
        raise ConfigError(
            f"worker {worker.name!r}: litellm does not support ca_file",
            hint="set SSL_CERT_FILE in the environment instead",
        )
    model = model_of(worker)
    if not model:
        raise ConfigError(f"worker {worker.name!r} names no model", hint='for example: model = "bedrock/…"')
    prefix = "" if worker.kind == "litellm" or model.startswith(f"{worker.kind}/") else f"{worker.kind}/"
    preload()  # the import is slow, so it runs while the plan is made
    # The provider's own address is passed too: without one, litellm uses an address that a variable may name.
    return LiteLLM(prefix + model, key=key, base_url=base_url_of(worker), options=worker.options)


def _llama(worker: Worker) -> Model:
    from conductor_cli.models.llama import Llama, LlamaOptions

    _check_types_of(worker, LOCAL_OPTIONS)
    if not worker.model:
        raise ConfigError(f"worker {worker.name!r} names no file", hint='for example: model = "/models/some.gguf"')
    of_requests = ("temperature", "max_tokens")  # sent with each request; the others say how the file is loaded
    given: dict[str, Any] = {
        name: Path(value).expanduser() if name in ("adapter", "cache") else value
        for name, value in worker.options.items() if value is not None and name not in of_requests
    }  # fmt: skip
    return Llama(Path(worker.model).expanduser(), LlamaOptions(**given))


def _scripted(worker: Worker) -> Model:
    """For tests and benchmarks: no user is offered it, and `about` has to say what it is."""
    from conductor_cli.models.scripted import ScriptedModel

    script = worker.options.get("script")
    if not isinstance(script, (list, tuple)) or "scripted" not in worker.about:
        raise ConfigError(
            f"worker {worker.name!r}: the kind 'scripted' is for tests", hint=f"known kinds: {', '.join(kinds())}"
        )
    return ScriptedModel([list(script)])


_OTHERS: Final[dict[str, Callable[[Worker], Model]]] = {"llama": _llama, "scripted": _scripted}


def check_options(worker: Worker) -> None:
    """Check that a worker's kind and options are known and fit together. Raises `ConfigError`."""
    check_types(worker)
    if worker.kind in PRESETS and (fault := find_invalid_option(worker)):
        raise ConfigError(f"worker {worker.name!r}: {fault[1]}", hint=fault[2])


def check_types(worker: Worker) -> None:
    """Check that a worker's kind exists and has its options, each of the right type. Raises `ConfigError`."""
    if worker.kind in PRESETS:
        _check_types_of(worker, REMOTE_OPTIONS)
    elif worker.kind == "llama":
        _check_types_of(worker, LOCAL_OPTIONS)
    elif worker.kind != "self" and worker.kind not in _OTHERS:
        raise _unknown_kind(worker)


def _unknown_kind(worker: Worker) -> ConfigError:
    return ConfigError(
        f"worker {worker.name!r} has the unknown kind {worker.kind!r}", hint=f"known: {', '.join(kinds())}"
    )


def _check_types_of(worker: Worker, known: Mapping[str, tuple[type, ...]]) -> None:
    for name, value in worker.options.items():
        if name not in known:
            raise ConfigError(
                f"worker {worker.name!r}: the kind {worker.kind!r} has no option {name!r}",
                hint=f"known: {', '.join(known)}",
            )
        if value is None:
            continue
        if not isinstance(value, known[name]) or (isinstance(value, bool) and bool not in known[name]):
            raise ConfigError(
                f"worker {worker.name!r}: {name} is {value!r:.60}; expected {_CALLED[known[name][-1]]}",
                hint="conductor config path names the files",
            )
