"""Coding clients over a server of their own, pointed at it by flags and environment, never by a file of the user.

What a client is told must win over its own settings and over the environment: else it would send the user's texts to
another server, without a word.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from threading import Thread
from types import FrameType
from typing import TYPE_CHECKING, Final

from conductor_cli.core.errors import ConfigError, UsageError
from conductor_cli.server.client_keys import make_key

if TYPE_CHECKING:
    from conductor_cli.config import Settings
    from conductor_cli.core.pool import Worker
    from conductor_cli.server.options import ServerOptions

MODEL: Final = "conductor"
SMALL_MODEL: Final = "conductor-mini"

KEY_VARIABLE: Final = "CONDUCTOR_LLM_LAUNCH_KEY"
"""The variable from which Codex reads the key: other users can read the arguments of a program."""

STOP_SECONDS: Final = 10.0
"""How long the server has to store the ends of runs when its client has ended."""

_MINUTES_30: Final = "1800000"
"""In milliseconds: how long a client may hear nothing new while several workers think."""

_FORWARDED: Final = tuple(getattr(signal, name) for name in ("SIGTERM", "SIGHUP") if hasattr(signal, name))


@dataclass(frozen=True, slots=True, kw_only=True)
class Launch:
    """How a client is started: its arguments before the user's own, and its environment (None: without it).

    `settings` are the JSON of a file that only the user can read, whose path is the last of these arguments.
    """

    arguments: tuple[str, ...] = ()
    environ: Mapping[str, str | None]
    settings: Mapping[str, object] | None = None


def _codex(url: str, key: str) -> Launch:
    # https://developers.openai.com/codex/config-reference
    provider = (
        f'{{name="conductor",base_url="{url}/v1",wire_api="responses",env_key="{KEY_VARIABLE}",'
        f"stream_idle_timeout_ms={_MINUTES_30}}}"
    )
    values = (f'model="{MODEL}"', 'model_provider="conductor"', f"model_providers.conductor={provider}")
    return Launch(arguments=tuple(word for value in values for word in ("-c", value)), environ={KEY_VARIABLE: key})


def _claude(url: str, key: str) -> Launch:
    # https://docs.claude.com/en/docs/claude-code/settings#environment-variables
    environ = {
        "ANTHROPIC_BASE_URL": url,
        "ANTHROPIC_AUTH_TOKEN": key,
        # Sub-agents ask for models by these names.
        "ANTHROPIC_DEFAULT_OPUS_MODEL": MODEL,
        "ANTHROPIC_DEFAULT_SONNET_MODEL": MODEL,
        "ANTHROPIC_DEFAULT_HAIKU_MODEL": SMALL_MODEL,
        "ANTHROPIC_SMALL_FAST_MODEL": SMALL_MODEL,
        "CLAUDE_CODE_ATTRIBUTION_HEADER": "0",  # it differs by task, so that nothing of the prompt could be reused
        "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
        "CLAUDE_STREAM_IDLE_TIMEOUT_MS": _MINUTES_30,
        **dict.fromkeys(("CLAUDE_CODE_USE_BEDROCK", "CLAUDE_CODE_USE_VERTEX", "CLAUDE_CODE_USE_FOUNDRY"), "0"),
    }
    # The variables in a file of settings win over those of the environment, so they are told as both.
    return Launch(
        arguments=("--model", MODEL, "--settings"),
        environ={**environ, "ANTHROPIC_API_KEY": None},  # it would be sent too, and belongs to somebody else
        settings={"env": environ},
    )


def _opencode(url: str, key: str) -> Launch:
    # https://opencode.ai/docs/config
    about = {
        "limit": {"context": 128_000, "output": 32_000},
        "attachment": True,
        # Without these it leaves images out by itself; where no worker accepts them, the server says so.
        "modalities": {"input": ["text", "image", "pdf"], "output": ["text"]},
    }
    provider = {
        "npm": "@ai-sdk/openai-compatible",
        "name": "conductor",
        "options": {"baseURL": f"{url}/v1", "apiKey": key},
        "models": {MODEL: about, SMALL_MODEL: about},
    }
    config = {
        "provider": {"conductor": provider},
        # Those of the user could leave this one out.
        "enabled_providers": ["conductor"],
        "disabled_providers": [],
        "model": f"conductor/{MODEL}",
        "small_model": f"conductor/{SMALL_MODEL}",
    }
    return Launch(environ={"OPENCODE_CONFIG_CONTENT": json.dumps(config)})


def _aider(url: str, key: str) -> Launch:
    # https://aider.chat/docs/config/options.html
    arguments = (
        "--model", f"openai/{MODEL}", "--weak-model", f"openai/{SMALL_MODEL}", "--openai-api-base", f"{url}/v1",
        # It reads a file .env of the project into its environment, but not over these.
        "--set-env", f"OPENAI_BASE_URL={url}/v1", "--set-env", f"OPENAI_API_BASE={url}/v1", "--no-show-model-warnings",
    )  # fmt: skip
    addresses = dict.fromkeys(("OPENAI_BASE_URL", "OPENAI_API_BASE"), f"{url}/v1")
    return Launch(arguments=arguments, environ={**addresses, "AIDER_OPENAI_API_KEY": key, "OPENAI_API_KEY": key})


@dataclass(frozen=True, slots=True, kw_only=True)
class Client:
    """A program that speaks to a server of models, and the command that installs it.

    `launch` says how it is pointed at the server at a URL, with a key. Its own options come first, so that the user's
    win.
    """

    program: str
    install: str
    launch: Callable[[str, str], Launch]


CLIENTS: Final = {
    client.program: client
    for client in (
        Client(program="codex", install="npm install -g @openai/codex", launch=_codex),
        Client(program="opencode", install="npm install -g opencode-ai", launch=_opencode),
        Client(program="claude", install="npm install -g @anthropic-ai/claude-code", launch=_claude),
        Client(program="aider", install="uv tool install aider-chat", launch=_aider),
    )
}
"""What can be launched, by name."""


def find_client(name: str) -> tuple[Client, str]:
    """A client and the path of its program. Raises `UsageError` and `ConfigError`."""
    client = CLIENTS.get(name)
    if client is None:
        raise UsageError(
            f"{name[:60]!r} cannot be launched",
            hint=f"there are: {', '.join(CLIENTS)}; for another client: conductor serve",
        )
    path = shutil.which(client.program)
    if path is None:
        raise ConfigError(f"{client.program} is not installed, or not in PATH", hint=client.install)
    return client, path


async def check_ready(options: ServerOptions) -> None:
    """Return if a run can be planned and a worker answers; a client would only try again and again.

    Models at an address are asked for one word. Raises `ConductorError` with the reason.
    """
    from conductor_cli.app.conductor_factory import open_conductor  # `serve` starts without them
    from conductor_cli.core.plan import SELF
    from conductor_cli.models.command.programs import PROGRAMS

    settings = options.settings()
    opened = await open_conductor(settings, only=options.workers)
    try:
        absent = opened.conductor.unavailable
        workers = [worker for worker in opened.conductor.pool if worker.name not in absent]
        if not workers:
            name, why = next(iter(absent.items()))
            raise ConfigError(f"no worker can be asked: {name}: {why.message}", hint=why.hint)
        planners = [] if opened.planner is None else [opened.planner]
        for what, models in (("the planner does not answer", planners), ("no worker answers", workers)):
            # Weights and programs of this machine were found; to load or start them here would take long.
            if models and all(model.kind not in {"llama", SELF, *PROGRAMS} for model in models):
                await _await_answer(what, models, settings)
    finally:
        await opened.close()


async def _await_answer(what: str, models: Sequence[Worker], settings: Settings) -> None:
    """Return when one of the models answers. Raises `ConfigError`, which says `what` and why, where none does."""
    from conductor_cli.app.keys import open_key_store
    from conductor_cli.app.workers import run_worker_test

    stored = open_key_store(settings)
    asked = [asyncio.create_task(run_worker_test(model, settings.environ, stored)) for model in models]
    failed = []
    try:
        for done in asyncio.as_completed(asked):
            tested = await done
            if tested.state != "failed":
                return
            failed.append(tested)
    finally:
        for task in asked:
            task.cancel()
    raise ConfigError(
        f"{what}: {'; '.join(tested.text for tested in failed)}", hint=failed[0].hint or "see: conductor doctor"
    )


@contextmanager
def own_server(options: ServerOptions) -> Iterator[tuple[str, str]]:
    """A server in a thread, at a free port of this machine; gives its URL and the only new key. Raises `ConfigError`.

    The key is in memory only. The client owns the terminal, so nothing is logged to it.
    """
    from conductor_cli.server.process import LOOPBACK, HttpServer, access_rules, listen_at, make_registry

    if not logging.getLogger().handlers:
        logging.getLogger().addHandler(logging.NullHandler())
    key, text = make_key("launch")
    access = access_rules(options.settings(), LOOPBACK, key)
    server = HttpServer(lambda: make_registry(options), access, opened := listen_at(LOOPBACK, 0))
    thread = Thread(target=server.run, name="server", daemon=True)
    thread.start()
    try:
        yield f"http://{LOOPBACK}:{opened.getsockname()[1]}", text
    finally:
        server.stop()
        server.stop()  # nobody reads what still runs
        thread.join(STOP_SECONDS)


def run_client(path: str, launch: Launch, arguments: Sequence[str]) -> int:
    """Run a client on this terminal until it ends; returns its exit code. Signals are its own business."""
    environ = {**os.environ, **{name: value for name, value in launch.environ.items() if value is not None}}
    for name in [name for name, value in launch.environ.items() if value is None]:
        environ.pop(name, None)
    with ExitStack() as stack:
        own = launch.arguments
        if launch.settings is not None:
            file = stack.enter_context(tempfile.NamedTemporaryFile("w", prefix="conductor-", suffix=".json"))
            json.dump(launch.settings, file)
            file.flush()
            own = (*own, file.name)
        try:
            process = subprocess.Popen([path, *own, *arguments], env=environ)  # noqa: S603 - what the user named
        except OSError as error:
            raise ConfigError(f"{path} cannot be started: {error.strerror}", hint="install it again") from None
        with _signals_for(process):
            code = process.wait()
    return 128 - code if code < 0 else code


@contextmanager
def _signals_for(process: subprocess.Popen[bytes]) -> Iterator[None]:
    """Let the client decide what a signal means: the terminal sends it Ctrl-C itself, the others are passed on."""

    def pass_on(number: int, _: FrameType | None) -> None:
        if process.poll() is None:
            process.send_signal(number)

    before = {number: signal.signal(number, pass_on) for number in _FORWARDED}
    before[signal.SIGINT] = signal.signal(signal.SIGINT, lambda *_: None)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
