"""From a worker to its model. Adapters are imported when they are needed.

A kind of worker is a row here and one in `worker_options`; a provider is a table in `presets.toml`,
a program one in `command/programs.toml`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from conductor_cli.core.errors import ConfigError, KeyMissing
from conductor_cli.core.pool import Worker
from conductor_cli.core.redact import Secrets, secrets_in
from conductor_cli.models.addresses import (
    api_at,
    at_url,
    base_url_of,
    is_own_address,
    is_quoted,
    urls_of,
    with_scheme,
)
from conductor_cli.models.base import Model, ScriptedModel
from conductor_cli.models.command.programs import PROGRAMS
from conductor_cli.models.key_hints import missing_key_hint
from conductor_cli.models.presets import OPENAI_APIS, PRESETS
from conductor_cli.models.router import SUFFIX, Router
from conductor_cli.models.structured_output import is_cloud_model
from conductor_cli.models.worker_options import OptionError, check_options, model_of, unknown_kind

if TYPE_CHECKING:
    from conductor_cli.models.chat_api_model import ChatApiModel

StoredKeys = Callable[[str, str], str | None]
"""The key that is stored for a kind of worker at an address, or None.

It may ask the system's keyring, so it is called only if no variable has the key. Raises
`KeyMissing` for a key that cannot be read, `ConfigError` if the list of keys cannot be read.
"""

_SECRET_VARIABLE: Final = re.compile(
    r"(?:^|_)(?:API_?KEY|ACCESS_KEY|SECRET|TOKEN|PASSWORD)(?:_|$)", re.IGNORECASE
)


NO_KEY: Final = "no-key-is-needed"  # what litellm sends as a key to a server that may need none


def no_stored_key(_kind: str, _base_url: str) -> None:
    """Return no key, for a place where none is stored."""


def open_model(
    worker: Worker,
    *,
    environ: Mapping[str, str],
    stored: StoredKeys = no_stored_key,
    secrets: Secrets | None = None,
) -> Model:
    """Return the model of a worker; nothing is connected to or loaded yet.

    `stored` gives the key if no variable has it. The model redacts `secrets` from what it answers,
    and what is secret of this worker is added to them. Raises `ConfigError` for invalid settings of
    the worker, `KeyMissing` if its key is not found, `ModelError` if its program or its file is
    not.
    """
    check_options(worker)
    if worker.kind == "llama":
        return _llama(worker)
    if worker.kind == "scripted":
        return _scripted(worker)
    if secrets is None:
        secrets = Secrets()
    if worker.kind in PROGRAMS:
        from conductor_cli.models.command.adapter import ProgramModel

        secrets.add(*_secrets_passed_on(worker, environ))
        return ProgramModel(worker, environ=environ, secrets=secrets)
    if worker.kind not in PRESETS:
        raise unknown_kind(worker)
    if worker.kind == "litellm" and not base_url_of(worker):
        _check_litellm_address(worker, environ)
    secrets.add(*secrets_around(worker, environ))
    key = api_key_of(worker, environ, stored)
    secrets.add(key)
    if PRESETS[worker.kind].adapter == "litellm":
        return _litellm(worker, key, secrets)
    models = [_at_server(at_url(worker, url), key, secrets) for url in urls_of(worker)]
    if len(models) == 1:
        return models[0]
    from conductor_cli.models.several_servers import SeveralServers

    return SeveralServers(models)


def _llama(worker: Worker) -> Model:
    """Return a model of a file, or the router that the file holds."""
    from conductor_cli.models.llama.adapter import Llama
    from conductor_cli.models.llama.loading import LlamaOptions

    if not worker.model:
        raise OptionError(
            worker, "model", "names no file", 'for example: model = "/models/some.gguf"'
        )
    path = Path(worker.model).expanduser()
    if path.suffix == SUFFIX:
        return Router(path)
    return Llama(path, LlamaOptions(**_loading_options(worker)))


def _loading_options(worker: Worker) -> dict[str, Any]:
    """Return the settings that say how a file is loaded; the others are sent with each request."""
    options: dict[str, Any] = {}
    for name, value in worker.options.items():
        if value is None or name in ("temperature", "max_tokens"):
            continue
        options[name] = value
        if name in ("adapter", "cache"):
            options[name] = Path(value).expanduser()
    return options


def _scripted(worker: Worker) -> ScriptedModel:
    """Return a model for tests and benchmarks.

    No user is offered it, and `about` has to say what it is.
    """
    script = worker.options.get("script")
    if not isinstance(script, (list, tuple)) or "scripted" not in worker.about:
        raise ConfigError(
            f"worker {worker.name!r}: the kind 'scripted' is for tests", hint="use another kind"
        )
    return ScriptedModel([list(script)])


def _secrets_passed_on(worker: Worker, environ: Mapping[str, str]) -> list[str]:
    """Return the values of variables that a program gets, as far as these are secret."""
    names = list(map(str, worker.options.get("env") or ()))
    return [environ.get(name, "").strip() for name in names if _SECRET_VARIABLE.search(name)]


def _check_litellm_address(worker: Worker, environ: Mapping[str, str]) -> None:
    """Raise `OptionError` for a variable that would send the worker's texts to another address.

    Policies check the worker's own one.
    """
    provider = "openai"
    if "/" in worker.model:
        provider = worker.model.partition("/")[0]
    for end in ("_BASE_URL", "_API_BASE"):
        name = provider.upper().replace("-", "_") + end
        if environ.get(name, "").strip():
            message = f"{name} would send its questions to another address"
            hint = "set that address as the worker's base_url, or unset the variable"
            raise OptionError(worker, "base_url", message, hint)


def api_key_of(
    worker: Worker, environ: Mapping[str, str], stored: StoredKeys = no_stored_key
) -> str:
    """Return the key that a worker sends, empty if it needs none. Raises `KeyMissing`.

    A worker that names a variable takes the key from there only. A provider's own variable is read
    for the provider's own address only; a stored key is for one address too, and comes last.
    """
    key_env = str(worker.options.get("key_env") or "")
    variables: Sequence[str] = ()
    if key_env:
        variables = (key_env,)
    elif is_own_address(worker):
        variables = PRESETS[worker.kind].keys
    for name in variables:
        key = environ.get(name, "").strip()
        if not key:
            continue
        if is_quoted(key):
            hint = f"set {name} again without them; docker run --env-file keeps them"
            raise KeyMissing(
                f"the key in {name} is in quotes", hint=f"{hint}; then: conductor doctor"
            )
        if not key.isascii() or not key.isprintable() or " " in key:
            message = f"the key in {name} has invalid characters"
            raise KeyMissing(message, hint=f"set {name} again; then: conductor doctor")
        return key
    if not key_env:
        stored_key = stored(worker.kind, base_url_of(worker))
        if stored_key:
            return stored_key
    if not variables:
        return ""
    message = f"worker {worker.name!r} needs a key: {' or '.join(variables)} is not set"
    raise KeyMissing(message, hint=f"{missing_key_hint(worker)}; then: conductor doctor")


def secrets_around(worker: Worker, environ: Mapping[str, str]) -> list[str]:
    """Return what besides its key a server may get of a worker and echo.

    These are headers, and variables that litellm reads.
    """
    headers = worker.options.get("headers", {})
    values = secrets_in({str(name): str(value) for name, value in headers.items()})
    if worker.kind == "litellm":
        # litellm reads the variables of its many providers itself: all that may be a key is treated
        # as one.
        names = [name for name in environ if _SECRET_VARIABLE.search(name)]
        values += [environ[name].strip() for name in names]
    # A server may echo the token without the word before it, as in `Bearer TOKEN`.
    return [*values, *(value.rpartition(" ")[2] for value in values)]


def _at_server(worker: Worker, key: str, secrets: Secrets) -> ChatApiModel:
    from conductor_cli.models.chat_api_model import ChatApiModel

    base_url = base_url_of(worker)
    model = model_of(worker)
    preset = PRESETS[worker.kind]
    if not base_url.startswith(("http://", "https://")):
        hint = 'for example: base_url = "http://127.0.0.1:8080/v1"'
        completed = with_scheme(base_url)
        if completed:
            hint = f"did you mean {completed}?"
        raise OptionError(
            worker, "base_url", "needs base_url, a URL that begins with http:// or https://", hint
        )
    schemas = preset.schemas and preset.form != "ask" and not is_cloud_model(model)
    api = api_at(worker.kind, base_url)
    if not is_own_address(worker):
        has_openai_api = api in OPENAI_APIS
        if has_openai_api:
            api = "chat-completions"  # which all other servers with OpenAI's API speak
        # Its word on its cost is not trusted.
        preset = replace(preset, max_tokens_field="max_tokens", cost="unknown")
        if has_openai_api and not preset.local:
            preset = replace(preset, form="ask")  # which server this is has to be found out
    api = str(worker.options.get("api") or api)
    preset = replace(preset, api=api, schemas=schemas)
    if api != "chat-completions":  # only that has fields for a grammar
        preset = replace(preset, form="response_format")
    return ChatApiModel(
        model, base_url, key=key, options=worker.options, preset=preset, secrets=secrets
    )


def _litellm(worker: Worker, key: str, secrets: Secrets) -> Model:
    from conductor_cli.models.litellm import LiteLLM, preload_litellm

    if len(urls_of(worker)) > 1:
        raise OptionError(worker, "base_url", "litellm takes one address", "leave out the others")
    if worker.options.get("ca_file"):
        hint = "set SSL_CERT_FILE in the environment instead"
        raise OptionError(worker, "ca_file", "litellm does not support ca_file", hint)
    model = model_of(worker)
    if not model:
        raise OptionError(worker, "model", "names no model", 'for example: model = "bedrock/…"')
    if not key and worker.kind != "litellm" and not is_own_address(worker):
        # Such a server may need none. Without one litellm would refuse, or send it the key of the
        # provider's variable.
        key = NO_KEY
    prefix = f"{worker.kind}/"
    if worker.kind != "litellm" and not model.startswith(prefix):
        model = prefix + model
    preload_litellm()  # the import is slow, so it runs while the plan is made
    # The provider's own address is passed too: without one, litellm uses an address that a variable
    # may name.
    return LiteLLM(
        model,
        key=key,
        base_url=base_url_of(worker),
        options=worker.options,
        secrets=secrets,
    )
