"""Coding clients over a server of their own.

They are pointed at it by flags and environment, never by a file of the user.

What a client is told must win over its own settings and over the environment: else it would send
the user's texts to another server, without a word.

Claude Code's settings and a project's `.env` for aider win over the environment, so the address is
told wherever a client looks for one. Claude Code gets a file of settings for one start, which only
the user can read, because arguments are public.
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
from collections.abc import Callable, Coroutine, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from threading import Thread
from types import FrameType
from typing import TYPE_CHECKING, Any, Final

from conductor_cli.core.errors import ConfigError, UsageError
from conductor_cli.core.mappings import without_none
from conductor_cli.core.pool import Worker
from conductor_cli.core.profile import WorkerProfile
from conductor_cli.core.reading import context_of, is_context_known
from conductor_cli.server.client_keys import make_key
from conductor_cli.system.known_secrets import KNOWN_SECRETS

if TYPE_CHECKING:
    from conductor_cli.app.check_results import CheckResult
    from conductor_cli.server.options import ServerOptions

MODEL: Final = "conductor"
SMALL_MODEL: Final = "conductor-mini"

KEY_VARIABLE: Final = "CONDUCTOR_LLM_LAUNCH_KEY"
"""The variable from which Codex reads the key: other users can read the arguments of a program."""

# In milliseconds: how long a client may hear nothing new while several workers think
_MINUTES_30: Final = "1800000"

CONTEXT_TOKENS: Final = 128_000
"""What a client is told of the context where that of no worker is known.

So it shortens its conversation in time. Claude Code takes a model that it does not know for one of
a million tokens.
"""
USABLE_CONTEXT: Final = 32_000
"""Tokens of context below which a worker cannot take part in the work of a coding client, whose own
prompts and tools are nearly as long.
"""
SHORTENED_SHARE: Final = 0.8  # The share of the context at which Codex shortens its conversation
OUTPUT_TOKENS: Final = 32_000

_CLAUDE_PROVIDERS: Final = (
    "CLAUDE_CODE_USE_ANTHROPIC_AWS",
    "CLAUDE_CODE_USE_ANTHROPIC_GOOGLE_CLOUD",
    "CLAUDE_CODE_USE_BEDROCK",
    "CLAUDE_CODE_USE_FOUNDRY",
    "CLAUDE_CODE_USE_GATEWAY",
    "CLAUDE_CODE_USE_MANTLE",
    "CLAUDE_CODE_USE_VERTEX",
)
"""The variables by which Claude Code is sent to the server of a provider, whatever its address."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Launch:
    """How a client is started: its arguments before the user's own, and its environment.

    A variable that is None is taken out of it.

    `settings` are the JSON of a file that only the user can read, whose path is the last of these
    arguments.
    """

    arguments: tuple[str, ...] = ()
    environ: Mapping[str, str | None]
    settings: Mapping[str, object] | None = None


MakeLaunch = Callable[[str, str, int], Launch]


def _codex(url: str, key: str, context: int) -> Launch:
    # https://developers.openai.com/codex/config-reference
    provider = (
        f'{{name="conductor",base_url="{url}/v1",wire_api="responses",env_key="{KEY_VARIABLE}",'
        f"stream_idle_timeout_ms={_MINUTES_30}}}"
    )
    values = (
        f'model="{MODEL}"',
        'model_provider="conductor"',
        f"model_providers.conductor={provider}",
        f"model_context_window={context}",
        f"model_auto_compact_token_limit={int(context * SHORTENED_SHARE)}",
    )
    arguments = list[str]()
    for value in values:
        arguments += ["-c", value]
    return Launch(arguments=tuple(arguments), environ={KEY_VARIABLE: key})


def _claude(url: str, key: str, context: int) -> Launch:
    # https://docs.claude.com/en/docs/claude-code/settings#environment-variables
    environ = {
        "ANTHROPIC_BASE_URL": url,
        "ANTHROPIC_AUTH_TOKEN": key,
        # Sub-agents ask for models by these names.
        "ANTHROPIC_DEFAULT_FABLE_MODEL": MODEL,
        "ANTHROPIC_DEFAULT_OPUS_MODEL": MODEL,
        "ANTHROPIC_DEFAULT_SONNET_MODEL": MODEL,
        "ANTHROPIC_DEFAULT_HAIKU_MODEL": SMALL_MODEL,
        "ANTHROPIC_SMALL_FAST_MODEL": SMALL_MODEL,
        # Its auto mode has a model check each call of a tool: one worker does, without a plan.
        "CLAUDE_CODE_AUTO_MODE_MODEL": SMALL_MODEL,
        # It differs by task, so that nothing of the prompt could be reused
        "CLAUDE_CODE_ATTRIBUTION_HEADER": "0",
        "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
        "CLAUDE_CODE_MAX_CONTEXT_TOKENS": str(context),
        "CLAUDE_STREAM_IDLE_TIMEOUT_MS": _MINUTES_30,
        # A socket would be connected to in place of the address.
        "ANTHROPIC_UNIX_SOCKET": "",
        **dict.fromkeys(_CLAUDE_PROVIDERS, "0"),
    }
    # The variables in a file of settings win over those of the environment, so they are told as
    # both.
    return Launch(
        arguments=("--model", MODEL, "--settings"),
        # It would be sent, too, and belongs to somebody else
        environ={**environ, "ANTHROPIC_API_KEY": None},
        settings={"env": environ},
    )


def _opencode(url: str, key: str, context: int) -> Launch:
    # https://opencode.ai/docs/config
    about = {
        "limit": {"context": context, "output": min(OUTPUT_TOKENS, context // 2)},
        "attachment": True,
        # Without these it leaves images out by itself; where no worker accepts them, the server
        # says so.
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


def _aider(url: str, key: str, context: int) -> Launch:
    # https://aider.chat/docs/config/options.html
    arguments = (
        "--model",
        f"openai/{MODEL}",
        "--weak-model",
        f"openai/{SMALL_MODEL}",
        "--openai-api-base",
        f"{url}/v1",
        # It reads a file .env of the project into its environment, but not over these.
        "--set-env",
        f"OPENAI_BASE_URL={url}/v1",
        "--set-env",
        f"OPENAI_API_BASE={url}/v1",
        "--no-show-model-warnings",
        "--model-metadata-file",
    )
    output = min(OUTPUT_TOKENS, context // 2)
    about = {
        "litellm_provider": "openai",
        "mode": "chat",
        "max_input_tokens": context,
        "max_output_tokens": output,
        "max_tokens": output,
    }
    models = {f"openai/{MODEL}": about, f"openai/{SMALL_MODEL}": about}
    addresses = dict.fromkeys(("OPENAI_BASE_URL", "OPENAI_API_BASE"), f"{url}/v1")
    return Launch(
        arguments=arguments,
        environ={**addresses, "AIDER_OPENAI_API_KEY": key, "OPENAI_API_KEY": key},
        settings=models,
    )


CLIENTS: Final[dict[str, tuple[str, MakeLaunch]]] = {
    "codex": ("npm install -g @openai/codex", _codex),
    "opencode": ("npm install -g opencode-ai", _opencode),
    "claude": ("npm install -g @anthropic-ai/claude-code", _claude),
    "aider": ("uv tool install aider-chat", _aider),
}
"""What can be launched, by the name of its program: the command that installs it, and how it is
pointed at the server at a URL, with a key and a context. Its own options come first, so that the
user's win.
"""


def find_client(name: str) -> tuple[MakeLaunch, str]:
    """Return how a client is pointed at a server, and its program.

    Raises `UsageError` and `ConfigError`.
    """
    if name not in CLIENTS:
        hint = f"there are: {', '.join(CLIENTS)}; for another client: conductor serve"
        raise UsageError(f"{name[:60]!r} cannot be launched", hint=hint)
    install, launch = CLIENTS[name]
    path = shutil.which(name)
    if path is None:
        raise ConfigError(f"{name} is not installed, or not in PATH", hint=install)
    return launch, path


def client_context(workers: Iterable[Worker]) -> int:
    """Return the tokens of context that a client is told.

    They are those of the smallest worker that can take part in its work, so that all of those can
    read a conversation until the client shortens it; of the largest where none can.
    """
    profile = WorkerProfile()
    contexts = [context_of(worker, profile) for worker in workers if is_context_known(worker)]
    usable = [context for context in contexts if context >= USABLE_CONTEXT]
    if usable:
        return min(usable)
    return max(contexts, default=CONTEXT_TOKENS)


def describe_small_context(client: str, context: int) -> str:
    """Return what a user should know of a context that hardly holds a client's own prompts.

    Empty where it holds them.
    """
    if context >= USABLE_CONTEXT:
        return ""
    return (
        f"no worker is known to hold {USABLE_CONTEXT:,} tokens, which the prompts and tools of a "
        f"coding client nearly fill: {client} is told {context:,}, and may say of every question "
        "that it is too long; conductor workers set NAME context=N says what a worker holds"
    )


async def check_limits(options: ServerOptions) -> None:
    """Raise `ConductorError` where a limit on money cannot be counted, or workers cannot be opened.

    Nobody is asked, and without such a limit nothing is opened.
    """
    from conductor_cli.app.opening import (  # `serve` starts without them
        OpeningRequest,
        open_orchestra,
    )

    settings = options.settings()
    if settings.limits.cost is None and settings.day_limits.cost is None:
        return
    opened = await open_orchestra(OpeningRequest(settings=settings, only=options.workers))
    try:
        opened.orchestra.check_limits()
    finally:
        await opened.close()


async def check_ready(options: ServerOptions) -> int:
    """Return the context of the workers if a run can be planned and one of them answers.

    A client would only try again and again. Models at an address are asked for one word. Raises
    `ConductorError` with the reason.
    """
    from conductor_cli.app.keys import open_key_store
    from conductor_cli.app.opening import (  # `serve` starts without them
        OpeningRequest,
        open_orchestra,
    )
    from conductor_cli.app.workers import run_worker_test
    from conductor_cli.core.plan import SELF
    from conductor_cli.models.command.programs import PROGRAMS

    settings = options.settings()
    opened = await open_orchestra(OpeningRequest(settings=settings, only=options.workers))
    try:
        opened.orchestra.check_limits()
        absent = opened.orchestra.team.unavailable
        workers = [worker for worker in opened.orchestra.team.pool if worker.name not in absent]
        if not workers:
            name, why = next(iter(absent.items()))
            raise ConfigError(f"no worker can be asked: {name}: {why.message}", hint=why.hint)
        planners = [] if opened.planner is None else [opened.planner]
        stored = open_key_store(settings)
        for problem, models in (
            ("the planner does not answer", planners),
            ("no worker answers", workers),
        ):
            # Weights and programs of this machine were found; to load or start them here would take
            # long.
            if not models or any(model.kind in {"llama", SELF, *PROGRAMS} for model in models):
                continue
            tests = [run_worker_test(model, settings.environ, stored) for model in models]
            await _require_answer(problem, tests)
        if settings.rehearsal:  # the demo reads the question alone, however long the rest is
            return CONTEXT_TOKENS
        return client_context(workers)
    finally:
        await opened.close()


async def _require_answer(problem: str, tests: Iterable[Coroutine[Any, Any, CheckResult]]) -> None:
    """Wait for the first test that does not fail. Raises `ConfigError` where all fail."""
    running = [asyncio.create_task(test) for test in tests]
    failed = []
    for done in asyncio.as_completed(running):
        result = await done
        if result.state != "failed":
            for task in running:
                task.cancel()
            return
        failed.append(result)
    hint = failed[0].hint or "see: conductor doctor"
    reasons = "; ".join(result.text for result in failed)
    raise ConfigError(f"{problem}: {reasons}", hint=hint)


@contextmanager
def own_server(options: ServerOptions) -> Iterator[tuple[str, str]]:
    """Run a server in a thread, at a free port of this machine; give its URL and its only key.

    Raises `ConfigError`.

    The key is in memory only. The client owns the terminal, so nothing is logged to it.
    """
    from conductor_cli.server.http.process import (
        LOOPBACK,
        HttpServer,
        access_rules,
        listen_at,
        make_registry,
    )

    if not logging.getLogger().handlers:
        logging.getLogger().addHandler(logging.NullHandler())
    key, text = make_key("launch")
    KNOWN_SECRETS.add(text)
    access = access_rules(options.settings(), LOOPBACK, key)
    server = HttpServer(lambda: make_registry(options), access, opened := listen_at(LOOPBACK, 0))
    thread = Thread(target=server.run, name="server", daemon=True)
    thread.start()
    try:
        yield f"http://{LOOPBACK}:{opened.getsockname()[1]}", text
    finally:
        server.stop()
        server.stop()  # nobody reads what still runs
        thread.join(10.0)  # to store the ends of runs


def run_client(path: str, launch: Launch, arguments: Sequence[str]) -> int:
    """Run a client on this terminal until it ends; returns its exit code.

    Signals are its own business.
    """
    variables = {**os.environ, **launch.environ}
    environ = without_none(variables)
    with ExitStack() as stack:
        words = (path, *launch.arguments)
        if launch.settings is not None:
            file = stack.enter_context(
                tempfile.NamedTemporaryFile("w", prefix="conductor-", suffix=".json")
            )
            json.dump(launch.settings, file)
            file.flush()
            words = (*words, file.name)
        try:
            # What the user named
            process = subprocess.Popen([*words, *arguments], env=environ)  # noqa: S603
        except OSError as error:
            raise ConfigError(
                f"{path} cannot be started: {error.strerror}", hint="install it again"
            ) from None

        def pass_on(number: int, _: FrameType | None) -> None:
            if process.poll() is None:
                process.send_signal(number)

        # The terminal sends the client Ctrl-C itself; the other signals are passed on, and it
        # decides what they mean.
        forwarded = [
            getattr(signal, name) for name in ("SIGTERM", "SIGHUP") if hasattr(signal, name)
        ]
        before = {number: signal.signal(number, pass_on) for number in forwarded}
        before[signal.SIGINT] = signal.signal(signal.SIGINT, lambda *_: None)
        try:
            code = process.wait()
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)
    return 128 - code if code < 0 else code
