"""Whether everything works, for `conductor doctor`.

Checks of this machine, and checks that call models.

The report in JSON can go into a bug report: the checks and the settings, without secrets. Before
anything is printed, this process learns every key in the environment and in the headers of workers.
Keys in the key store need no such step: one that was not read cannot be in a text, and one that was
read is known.

Models are called by default: a check that calls nobody only proves that files exist.
"""

from __future__ import annotations

import asyncio
import errno
import platform
import re
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import aclosing, suppress
from dataclasses import replace
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Any, Final
from urllib.parse import unquote, urlsplit

from conductor_cli import __version__
from conductor_cli.app.check_results import CheckResult
from conductor_cli.app.keys import key_state, open_key_store
from conductor_cli.app.opening import OpeningRequest, find_lost_calls, open_orchestra
from conductor_cli.app.planner_resolution import (
    configured_profile,
    describe_planning_model,
    has_no_model,
    open_model_store,
    planner_manifest,
    read_guided,
    resolve_planner,
)
from conductor_cli.app.worker_selection import discovered_workers, offered_workers, policy_objection
from conductor_cli.app.workers import run_worker_test
from conductor_cli.config.schema import PREFIX
from conductor_cli.config.settings import Settings, settings_json
from conductor_cli.config.tables import plain_secrets
from conductor_cli.core.errors import (
    ConductorError,
    ConductorUnusable,
    Failure,
    KeyMissing,
    ModelError,
)
from conductor_cli.core.events import PlanRejected, StepPlanned
from conductor_cli.core.formatting import format_count, format_duration, format_size
from conductor_cli.core.mappings import names_of
from conductor_cli.core.plan import SELF, Plan
from conductor_cli.core.pool import Limits, Worker
from conductor_cli.core.question import Question
from conductor_cli.core.redact import REDACTED
from conductor_cli.core.serialization import dump
from conductor_cli.models.catalog import api_key_of, open_model
from conductor_cli.models.command.process import OWN_NETWORK_HINT, shares_network
from conductor_cli.models.command.programs import PROGRAMS, describe_program
from conductor_cli.models.key_hints import missing_key_hint
from conductor_cli.models.llama.bindings import can_use_gpu, is_installed, load_bindings
from conductor_cli.models.llama.gguf import read_model_info
from conductor_cli.models.presets import PRESETS
from conductor_cli.models.router import SUFFIX, RouterFile, read_planner
from conductor_cli.models.weights.huggingface import cache_directory
from conductor_cli.models.weights.packaged_adapter import source_of
from conductor_cli.models.weights.registry import file_memory, listed_model, load_registry
from conductor_cli.models.weights.verify import (
    check_model_of,
    describe_hash_source,
    find_problems,
)
from conductor_cli.run import RunSpec, start_run
from conductor_cli.state.key_store import KeyringError, KeyStore, keyring_timeout, probe_keyring
from conductor_cli.system import disk
from conductor_cli.system.hardware import find_gpus, idle_cores, physical_cores, read_memory
from conductor_cli.system.known_secrets import KNOWN_SECRETS

# Bytes of free disk below which prompt states of 100 MB each may soon not fit
ROOM_FOR_STATES: Final = 1 << 30
# Bytes of free disk below which traces and settings may soon not fit
ROOM_FOR_TRACES: Final = 1 << 28

BUILD_FLAGS: Final = {"cuda": "GGML_CUDA", "metal": "GGML_METAL", "rocm": "GGML_HIP"}
"""What llama.cpp must be built with for each kind of GPU."""


def versions(settings: Settings) -> Iterator[CheckResult]:
    """Yield the versions of this program, of Python and of the system."""
    del settings
    text = (
        f"{__version__}, Python {platform.python_version()}, {platform.system()} "
        f"{platform.machine()}"
    ).rstrip()
    yield CheckResult(name="conductor", text=text)


def llama_build(settings: Settings) -> Iterator[CheckResult]:
    """Yield the installed llama.cpp: its version, and whether it uses the GPU of this machine.

    A missing llama.cpp is only a warning, because a model that needs it fails in its own check.
    """
    try:
        lib = load_bindings()
    except ModelError as error:
        if is_installed():
            raise ConductorUnusable(error.message, hint=error.hint) from None
        yield CheckResult(name="llama.cpp", state="warning", text=error.message, hint=error.hint)
        return
    text = f"llama-cpp-python {lib.__version__}"
    name = "llama.cpp"
    gpus = find_gpus(settings.environ)
    named = ", ".join(names_of(gpus))
    if can_use_gpu(lib):
        yield CheckResult(name=name, text=f"{text}, uses {named or 'a GPU'}")
    elif not gpus:
        yield CheckResult(name=name, text=f"{text}, runs models on the CPU{_threads(settings)}")
    else:
        # llama.cpp is compiled for one kind of GPU; a build for the CPU works, at a fraction of the
        # speed.
        build = f"--no-cache-dir --no-binary llama-cpp-python llama-cpp-python=={lib.__version__}"
        hint = (
            f'CMAKE_ARGS="-D{BUILD_FLAGS[gpus[0].kind]}=on" pip install --force-reinstall '
            f"--no-deps {build}"
        )
        yield CheckResult(
            name=name, state="warning", text=f"{text}, does not use {named}", hint=hint
        )


def _threads(settings: Settings) -> str:
    """Return how many cores a model would get now, where they are fewer than there are."""
    cores = physical_cores()
    idle = idle_cores()
    if settings["planner.threads"] or idle == cores:
        return ""
    why = f"now with {idle} of {cores} cores, because other programs are busy"
    return f", {why}; conductor config set planner.threads {cores} uses them all"


def memory(settings: Settings) -> Iterator[CheckResult]:
    """Yield the RAM of this machine, and what the planner needs of it."""
    ram = read_memory()
    if not ram.total:
        return
    text = f"{format_size(ram.total)}, {format_size(ram.available)} free"
    need = _memory_needed(settings)
    if need:
        text = f"{text}; the planner needs {format_size(need)}"
    if need <= ram.available:
        yield CheckResult(name="memory", text=text)
        return
    fitting = []
    for model in load_registry(settings.environ):
        if not model.base and 0 < model.memory <= ram.available:
            fitting.append(model)
    best = max(fitting, key=lambda model: model.memory, default=None)
    hint = "close other programs"
    if best is not None:
        hint = f"close other programs, or: conductor model pull {best.name}"
    yield CheckResult(name="memory", state="warning", text=text, hint=hint)


def _memory_needed(settings: Settings) -> int:
    """Bytes of RAM that the chosen local model takes.

    0 if there is none, or if that is not known.
    """
    try:
        planner = resolve_planner(settings)
        # On a GPU the weights are not in this memory, or only some of them.
        if planner.kind != "llama" or can_use_gpu(load_bindings()):
            return 0
        path = Path(planner.model)
        return file_memory(path, read_model_info(path).size, settings["planner.context"])
    except ConductorError:
        return 0


def keyring(settings: Settings) -> Iterator[CheckResult]:
    """Check whether the system's keyring keeps what it is given.

    Without one, only the keys that are in it are lost.
    """
    try:
        backend = probe_keyring(settings.environ)
    except KeyringError as error:
        entries = open_key_store(settings).entries()
        inside = [name for name, entry in entries.items() if entry.where == "keyring"]
        if inside:
            message = f"{error.message}; the keys of {', '.join(inside)} are stored in it"
            raise KeyMissing(message, hint=error.hint) from None
        yield CheckResult(name="keyring", state="warning", text=error.message, hint=error.hint)
        return
    yield CheckResult(name="keyring", text=f"{backend}: an item was written, read and removed")


def directories(settings: Settings) -> Iterator[CheckResult]:
    """Check whether each directory can be written to, and how much room it has."""
    paths = settings.paths
    download = ROOM_FOR_STATES
    if has_no_model(settings):
        download = load_registry(settings.environ)[0].size
    downloads = cache_directory()
    yield _check_directory("settings", paths.config, ROOM_FOR_TRACES, f"{PREFIX}CONFIG_DIR")
    yield _check_directory("data", paths.data, ROOM_FOR_TRACES, f"{PREFIX}DATA_DIR")
    yield _check_directory("traces", paths.traces, ROOM_FOR_TRACES, f"{PREFIX}STATE_DIR")
    yield _check_directory("prefixes", paths.prefixes, ROOM_FOR_STATES, f"{PREFIX}CACHE_DIR")
    yield _check_directory("downloads", downloads, download, "HF_HOME")


def _check_directory(name: str, directory: Path, wanted: int, variable: str) -> CheckResult:
    # A directory that does not exist yet is judged by the one in which it would be made; doctor
    # makes none.
    try:
        free = disk.free_bytes(directory)
        disk.try_writing(directory)
    except OSError as error:
        hint = f"use another directory: {variable}=DIR"
        if error.errno in disk.DISK_FULL_ERRORS:
            hint = f"free some space, or {hint}"
        elif error.errno in (errno.EACCES, errno.EPERM):
            existing = disk.nearest_existing(directory)
            hint = (
                f"check who owns it: ls -ld {existing}; then, for example: chmod u+rwx {existing}"
            )
        return CheckResult(
            name=name, state="failed", text=f"{directory}: {error.strerror}", hint=hint, code=3
        )
    text = f"{directory}, {format_size(free)} free"
    if free >= wanted:
        return CheckResult(name=name, text=text)
    return CheckResult(
        name=name,
        state="warning",
        text=text,
        hint=f"free some space: {format_size(wanted)} may be needed",
    )


def model_store(settings: Settings) -> Iterator[CheckResult]:
    """Find the models of the store that are damaged; an error of the registry ends it."""
    load_registry(settings.environ)
    for item in find_problems(open_model_store(settings), settings.environ):
        yield CheckResult(
            name=f"model {item.name}", state="warning", text=item.problem, hint=item.hint
        )


def planner(settings: Settings) -> Iterator[CheckResult]:
    """Yield the model that plans: whether it exists, is whole, and how its checksum is known.

    It is not called.
    """
    try:
        chosen = resolve_planner(settings)
        text = (
            describe_planning_model(chosen, open_model_store(settings)) + read_guided(settings).name
        )
        path = Path(chosen.model)
        check_model_of(chosen)
        if (
            chosen.kind == "llama"
            and path.suffix == SUFFIX
            and isinstance(router := read_planner(path), RouterFile)
        ):
            text = f"{text}, a router over {', '.join(router.workers)}"
        elif chosen.kind == "llama":
            manifest = planner_manifest(settings)
            check = "never checked"
            if manifest:
                check = describe_hash_source(manifest)
            text = f"{text}, {format_size(read_model_info(path).size)}, SHA-256 {check}"
            text += _describe_adapter(chosen, settings)
        elif chosen.kind in PRESETS:
            api_key_of(chosen, settings.environ, open_key_store(settings))
    except (ModelError, ConductorUnusable) as error:
        hint = (
            f"{error.hint}\nchoose another: conductor model use NAME | FILE | URL | provider/model"
        ).strip()
        raise ConductorUnusable(error.message, hint=hint) from None
    yield CheckResult(name="planner", text=text)
    yield from _check_packaged(settings)


def _describe_adapter(chosen: Worker, settings: Settings) -> str:
    """Return that the planner's adapter, which was checked, fits its base; empty without one."""
    if not chosen.options.get("adapter"):
        return ""
    profile = configured_profile(settings).name
    return f", its adapter fits {Path(chosen.model).name}, profile {profile}"


def _check_packaged(settings: Settings) -> Iterator[CheckResult]:
    """Find what keeps a planner of this package from being what was measured; else silent."""
    manifest = planner_manifest(settings)
    if manifest is None or not manifest.is_packaged:
        return
    name = f"planner {manifest.name}"
    profile = configured_profile(settings).name
    if profile != manifest.profile:
        text = f"it was trained for the profile {manifest.profile}, and conductor.profile names "
        text += profile
        hint = "conductor config set conductor.profile default"
        yield CheckResult(name=name, state="warning", text=text, hint=hint)
    model = listed_model(manifest.name, settings.environ)
    if model is None:
        text = "this build has no adapter of this name; the stored one goes on planning"
        hint = f"conductor model rm {manifest.name} removes it"
        yield CheckResult(name=name, state="warning", text=text, hint=hint)
    elif model.is_packaged and manifest.source != source_of(model):
        text = "this build has another adapter of this name than the one that is stored"
        hint = f"conductor model pull {manifest.name}"
        yield CheckResult(name=name, state="warning", text=text, hint=hint)


def spending(settings: Settings) -> Iterator[CheckResult]:
    """Check whether the record of today's spending has all calls that today's traces have.

    Silent where it has.
    """
    with suppress(OSError):  # the check of directories says why
        if lost := find_lost_calls(settings):
            hint = "set lower limits for the rest of the day"
            yield CheckResult(name="spending", state="warning", text=lost, hint=hint)


def tool_headers(settings: Settings) -> Iterator[CheckResult]:
    """Find the headers of tool servers that have their secret in a file; silent where none has."""
    for item in settings.tool_servers:
        for header in plain_secrets(item.table.headers):
            hint = (
                "remove it there, then store it in the keyring: conductor tools add "
                f"{item.name} --header {header}"
            )
            text = f"the secret of the header {header} stands in {item.source}"
            yield CheckResult(name=f"tools {item.name}", state="warning", text=text, hint=hint)


_SECRET_NAME: Final = re.compile(r"key(?!ring)|secret|token|passw|credential|auth", re.IGNORECASE)
"""In the name of a variable: its value may be a key."""

_URL: Final = re.compile(r"[a-z][a-z0-9+.-]*://[^\s\"'<>]+", re.IGNORECASE)


def make_report(settings: Settings, checks: Sequence[CheckResult]) -> dict[str, Any]:
    """Return checks, every setting with its origin, and the workers, as JSON without secrets."""
    for name, value in settings.environ.items():
        if _SECRET_NAME.search(name):
            KNOWN_SECRETS.add(value.strip())
        for url in _URL.findall(value):
            with suppress(ValueError):  # not a URL after all
                KNOWN_SECRETS.add(unquote(urlsplit(url).password or ""))
    for item in settings.workers:
        headers = item.worker.options.get("headers")
        if isinstance(headers, Mapping):
            for value in headers.values():
                KNOWN_SECRETS.add(str(value).strip(), *str(value).split())
        KNOWN_SECRETS.add(
            settings.environ.get(str(item.worker.options.get("key_env") or ""), "").strip()
        )
    workers = []
    for item in settings.workers:
        workers.append({**dump(item.worker.public()), "enabled": item.enabled, "from": item.source})
    report = {
        "ok": not any(check.code for check in checks),
        "checks": [check.to_json() for check in checks],
        "settings": settings_json(settings),
        "workers": workers,
    }
    return {name: _strip(value) for name, value in KNOWN_SECRETS.redact_data(report).items()}


def _strip(value: Any) -> Any:  # noqa: ANN401 - any JSON value
    """Return the value without user, password and query of its URLs."""
    if isinstance(value, dict):
        return {name: _strip(item) for name, item in value.items()}
    if isinstance(value, list):
        return [_strip(item) for item in value]

    def strip_url(url: re.Match[str]) -> str:
        try:
            parts = urlsplit(url[0])
        except ValueError:
            return REDACTED
        query = ""
        if parts.query:
            query = REDACTED
        return parts._replace(netloc=parts.netloc.rpartition("@")[2], query=query).geturl()

    if not isinstance(value, str):
        return value
    return _URL.sub(strip_url, value)


MachineCheck = Callable[[Settings], Iterable[CheckResult]]

TIMEOUT: Final = 20.0
"""Seconds that a check of this machine may take, on top of what its keyring may: a network disk can
hang.
"""

CHECKS: Final[tuple[MachineCheck, ...]] = (
    versions,
    llama_build,
    memory,
    keyring,
    tool_headers,
    directories,
    spending,
    model_store,
    planner,
)


def check_machine(
    settings: Settings, checks: Sequence[MachineCheck] = CHECKS
) -> Iterator[CheckResult]:
    """Everything that can be checked without calling a model, as it becomes known, in this order.

    Each check has a thread, which is abandoned if it does not end in time.
    """
    queues = [_start(check, settings) for check in checks]
    try:
        timeout = TIMEOUT + keyring_timeout(settings.environ)
    except ConductorError:
        timeout = TIMEOUT  # the check of the keyring reports this error
    for check, queue in zip(checks, queues, strict=True):
        try:
            yield from queue.get(timeout=timeout)
        except Empty:
            message = f"did not end within {format_duration(timeout)}"
            error = ConductorError(message, hint="a network disk or a driver may hang")
            yield CheckResult.failed(_name(check), error)


def _start(check: MachineCheck, settings: Settings) -> SimpleQueue[list[CheckResult]]:
    queue: SimpleQueue[list[CheckResult]] = SimpleQueue()

    def work() -> None:
        try:
            queue.put(list(check(settings)))
        except ConductorError as error:
            queue.put([CheckResult.failed(_name(check), error)])
        except Exception as error:  # noqa: BLE001 - one check that breaks must not hide the others
            bug = ConductorError(
                f"this is a bug in conductor: {type(error).__name__}: {error}", hint="report it"
            )
            queue.put([CheckResult.failed(_name(check), bug)])

    # A daemon: a thread that hangs in a system call cannot be ended, and must not keep the program
    # from ending.
    threading.Thread(target=work, daemon=True).start()
    return queue


def _name(check: MachineCheck) -> str:
    return check.__name__.replace("_", " ")


Report = Callable[[CheckResult], None]  # Takes each result as soon as there is one

Start = Callable[[str], None]  # Takes the name of each check when it begins

# What the conductor plans
QUESTION: Final = "Which is the capital of France, and how many letters has its name?"

PLANNING_TIMEOUT: Final = 300.0
"""Seconds for loading the conductor and planning: without a GPU a large one reads its prompt for
over a minute.
"""


def workers_to_check(settings: Settings, *, offline: bool) -> list[Worker]:
    """Return the workers that a run would use.

    The configured ones or, without any, those that are found.
    """
    if not settings.workers:
        return [item.worker for item in discovered_workers(settings, offline=offline)]
    return list(offered_workers(settings))


async def check_workers(
    settings: Settings, workers: Sequence[Worker], start: Start, report: Report, *, offline: bool
) -> None:
    """Call every worker once.

    With `offline` none is called, and the checks say whether their keys exist.
    """
    stored = open_key_store(settings)

    async def check(worker: Worker) -> None:
        start(f"worker {worker.name}")
        report(await _check_worker(worker, settings, stored, offline=offline))

    async def check_local() -> None:
        # One after the other: each loads its weights, and two at once may not fit the memory.
        for worker in workers:
            if worker.kind == "llama":
                await check(worker)

    async with asyncio.TaskGroup() as group:
        group.create_task(check_local())
        for worker in workers:
            if worker.kind not in ("llama", SELF):
                group.create_task(check(worker))
    if not workers:
        text = "none configured and no key found"
        if offline:
            text += "; local model servers were not asked"
        hint = "conductor setup, or: conductor workers add NAME --kind openai --model MODEL"
        report(CheckResult(name="workers", state="warning", text=text, hint=hint))


async def _check_worker(
    worker: Worker, settings: Settings, stored: KeyStore, *, offline: bool
) -> CheckResult:
    name = f"worker {worker.name}"
    try:
        check_model_of(worker)
        key = key_state(worker, settings.environ, stored)
        text = f"{worker.kind} {worker.model}".strip() + f", key {key}"
        if worker.kind in PROGRAMS:
            text = f"{worker.kind}: {describe_program(worker)}"
            # Is it installed, and its sandbox? Nothing is started
            open_model(worker, environ=settings.environ)
            if shares_network(worker, settings.environ):
                text += f" of this machine, its abstract UNIX sockets included ({OWN_NETWORK_HINT})"
        if key == "missing":
            raise KeyMissing(text, hint=missing_key_hint(worker))
        objection = policy_objection(settings, worker)
        if objection or offline:
            text += ", not called"
            if objection:
                text += f": {objection}"
            return CheckResult(name=name, text=text)
        tested = await run_worker_test(worker, settings.environ, stored)
    except ConductorError as error:
        return CheckResult.failed(name, error)
    if tested.state == "failed":
        hint = (
            f"{tested.hint}\nleave it out: conductor config set policy.deny {worker.name}".strip()
        )
        return replace(tested, name=name, text=f"{text}, {tested.text}", hint=hint, fields={})
    return CheckResult(name=name, text=f"{text}, answered", seconds=tested.seconds)


async def check_planning(settings: Settings) -> CheckResult:
    """Return whether the conductor plans a fixed question. The plan is not run."""
    need = _memory_needed(settings)
    total = read_memory().total
    if 0 < total < need:
        shortage = f"the model needs {format_size(need)}, and this machine has {format_size(total)}"
        hint = "use a smaller model: conductor model list, then conductor model pull NAME --use"
        return CheckResult(
            name="planning", state="warning", text=f"not tried: {shortage}", hint=hint
        )
    try:
        # The limits of a run are not what is checked here; the limits of a day hold all the same.
        async with asyncio.timeout(PLANNING_TIMEOUT):
            opened = await open_orchestra(OpeningRequest(settings=settings, asking=False))
            try:
                started = time.monotonic()
                spec = RunSpec(question=Question(text=QUESTION), plan_only=True, limits=Limits())
                run = start_run(opened.orchestra, spec)
                async with aclosing(aiter(run)) as updates:
                    events = [event async for event, _ in updates]
            finally:
                await opened.close()
            trace = run.trace
            seconds = time.monotonic() - started
    except ConductorError as error:
        return _planning_failed(error.failure)
    except TimeoutError:
        message = f"no plan within {format_duration(PLANNING_TIMEOUT)}"
        return _planning_failed(Failure(kind="conductor", message=message))
    if trace.error is not None or not isinstance(trace.plan, Plan):
        return _planning_failed(
            trace.error or Failure(kind="conductor", message="the model wrote no plan")
        )
    starts = [event.at for event in events if isinstance(event, StepPlanned)]
    first = starts[0] if starts else 0.0
    steps = format_count(len(trace.plan.steps), "step")
    text = f"planned {steps}, the first step after {format_duration(first)}"
    if any(isinstance(event, PlanRejected) for event in events):
        hint = "try another profile: conductor config set planner.profile prompted-json"
        text = f"{text}; its first reply was not a valid plan"
        return CheckResult(name="planning", state="warning", text=text, hint=hint, seconds=seconds)
    return CheckResult(name="planning", text=text, seconds=seconds)


def _planning_failed(failure: Failure) -> CheckResult:
    """No plan: the planner's fault, unless a rule, a setting or a limit forbids it."""
    if failure.kind not in {"policy", "config", "limit"}:
        failure = replace(failure, kind="conductor")
    hint = (
        failure.hint
        or "choose another model: conductor model use NAME | FILE.gguf | URL | provider/model"
    )
    return CheckResult.failed("planning", replace(failure, hint=hint))
