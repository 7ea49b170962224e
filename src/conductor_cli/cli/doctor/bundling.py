"""The zip for a bug report: what `doctor` found, versions, settings, llama.cpp's log; a run where it is named.

Before anything is written this process reads every key that it can know of, so that none can be in what it writes:
those of the environment and of the store, and the headers of workers.
"""

from __future__ import annotations

import io
import json
import os
import re
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import unquote, urlsplit

from conductor_cli.core.errors import ConductorError, UsageError
from conductor_cli.core.redact import REDACTED
from conductor_cli.models.known_secrets import KNOWN_SECRETS

if TYPE_CHECKING:
    from conductor_cli.app.checks import Check
    from conductor_cli.config import Settings

CONTENTS: Final = {
    "README.txt": "this text",
    "doctor.json": "what conductor doctor found, as it showed it",
    "versions.json": "of conductor, Python, the system, and the libraries that conductor needs",
    "settings.json": "every setting and where it comes from; the workers, without the values of their headers",
    "environment.txt": "the names of variables that conductor or its libraries read, without their values",
    "llama.log": "the last lines that llama.cpp wrote while doctor ran",
    "trace.jsonl": "one run that was asked for by name: its question, its prompts, its answers",
}
"""The files, and what each holds."""

_SECRET: Final = re.compile(r"key(?!ring)|secret|token|passw|credential|auth", re.IGNORECASE)
"""In the name of a variable: its value may be a key."""

_READ: Final = re.compile(
    r"CONDUCTOR_|_CONDUCTOR_|HF_|HUGGING|OLLAMA_|LITELLM_|LLAMA_|GGML_|OMP_|.*_PROXY$|.*_API_KEY$"
)
_URL: Final = re.compile(r"[a-z][a-z0-9+.-]*://[^\s\"'<>]+", re.IGNORECASE)
_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")


@dataclass(frozen=True, slots=True, kw_only=True)
class Pack:
    """A bundle that is to be written: where to, and the run that goes with it, if any."""

    path: Path
    run: str
    trace: str
    settings: Settings

    def write(self, checks: Sequence[Check]) -> list[str]:
        """Write the zip, readable by its owner only; what to say of it. Raises `UsageError`."""
        learn(self.settings)
        texts = {name: _redacted(text) for name, text in self._texts(checks).items()}
        if self.run:
            texts["trace.jsonl"] = KNOWN_SECRETS.redact(self.trace)  # as its writer wrote it, down to the paths
        texts = {"README.txt": _readme(texts), **texts}
        data = _zipped(texts)
        _write(self.path, data)
        lines = [f"wrote {self.path}, {len(data):,} bytes: {', '.join(texts)}"]
        if self.run:
            lines.append(f"run {self.run} is in it, with its question and answers: read it before you send it")
        return lines

    def _texts(self, checks: Sequence[Check]) -> dict[str, str]:
        environ = self.settings.environ
        return {
            "doctor.json": _dumped([check.data() for check in checks]),
            "versions.json": _dumped(_versions()),
            "settings.json": _dumped(_settings(self.settings)),
            "environment.txt": "".join(f"{name} is set\n" for name in sorted(environ) if _READ.match(name)),
            "llama.log": _log(),
        }


def prepared(path: Path, run: str | None, settings: Settings) -> Pack:
    """A bundle, as far as can be told before the checks whether it can be written. Raises `UsageError`."""
    from conductor_cli.store.trace_store import TraceStore

    path = path.expanduser()
    if path.exists() or path.is_symlink():
        raise _taken(path)
    if not path.absolute().parent.is_dir():
        raise UsageError(f"there is no directory {path.absolute().parent}", hint="name a file in one that is there")
    if run is None:
        return Pack(path=path, run="", trace="", settings=settings)
    store = TraceStore(settings.paths.traces)
    found = store.find(run)
    try:
        trace = store.path(found).read_text(encoding="utf-8", errors="replace")
    except OSError as error:
        raise UsageError(f"{store.path(found)} cannot be read: {error.strerror}", hint="mend its rights") from None
    return Pack(path=path, run=found, trace=trace, settings=settings)


def learn(settings: Settings) -> None:
    """Read every key that can be known of, so that none leaves: variables, headers, addresses, the store."""
    from conductor_cli.app.key_status import stored_keys

    KNOWN_SECRETS.add(*_in_variables(settings.environ))
    for item in settings.workers:
        headers = item.worker.options.get("headers")
        for value in headers.values() if isinstance(headers, Mapping) else ():
            KNOWN_SECRETS.add(str(value).strip(), *str(value).split())
        named = settings.environ.get(str(item.worker.options.get("key_env") or ""), "")
        KNOWN_SECRETS.add(named.strip())
    safe = stored_keys(settings)
    try:
        safe.read(*safe.entries())
    except ConductorError:
        return  # told by the check of the keyring; what cannot be read here was not read for anything else either


def _in_variables(environ: Mapping[str, str]) -> Iterator[str]:
    for name, value in environ.items():
        if _SECRET.search(name):
            yield value.strip()
        for url in _URL.findall(value):
            yield _password(url)


def _password(url: str) -> str:
    try:
        return unquote(urlsplit(url).password or "")
    except ValueError:
        return ""


def _redacted(text: str) -> str:
    """Without keys, without what an address carries beside its place, and without the name of the user's home."""
    text = _URL.sub(lambda found: _place(found[0]), KNOWN_SECRETS.redact(text))
    home = str(Path.home())
    return text.replace(home, "~") if len(home) > 1 else text


def _place(url: str) -> str:
    """An address without user, password and query."""
    try:
        parts = urlsplit(url)
    except ValueError:
        return REDACTED
    plain = parts._replace(netloc=parts.netloc.rpartition("@")[2], query="", fragment="").geturl()
    return plain + (f"?{REDACTED}" if parts.query else "") + (f"#{parts.fragment}" if parts.fragment else "")


def _dumped(data: Any) -> str:  # noqa: ANN401 - any JSON value
    return json.dumps(KNOWN_SECRETS.redact_data(data), ensure_ascii=False, indent=1) + "\n"


def _versions() -> dict[str, Any]:
    import platform
    import sys
    from importlib.metadata import PackageNotFoundError, requires, version

    from conductor_cli import __version__

    found: dict[str, str | None] = {}
    try:
        lines = requires("conductor-llm") or []
    except PackageNotFoundError:
        lines = []
    for name in sorted({match[0] for line in lines if (match := _NAME.match(line)) and "extra ==" not in line}):
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            found[name] = None
    system = {"system": platform.platform(), "machine": platform.machine(), "encoding": sys.stdout.encoding}
    return {"conductor": __version__, "python": sys.version, **system, "libraries": found}


def _settings(settings: Settings) -> dict[str, Any]:
    from conductor_cli.core.serialization import dump

    values = {name: {"value": dump(value), "from": settings.origins[name]} for name, value in settings.values.items()}
    workers = [
        {**dump(item.worker.public()), "enabled": item.enabled, "source": item.source} for item in settings.workers
    ]
    return {"settings": values, "workers": workers}


def _log() -> str:
    from conductor_cli.models.llama.bindings import recent_log

    return "".join(recent_log()) or "llama.cpp wrote nothing\n"


def _readme(texts: Mapping[str, str]) -> str:
    lines = ["What conductor doctor --bundle wrote, for a bug report. It is text: read it before you send it.", ""]
    lines += [f"{name:17}{CONTENTS[name]}" for name in ("README.txt", *texts)]
    lines += [
        "",
        f"Where a key stood that conductor knows, from the environment, its store or a header, stands {REDACTED}.",
        "A key that it does not know, such as one that was typed into a question, is not looked for.",
    ]
    return "\n".join(lines) + "\n"


def _zipped(texts: Mapping[str, str]) -> bytes:
    data = io.BytesIO()
    with zipfile.ZipFile(data, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, text in texts.items():
            archive.writestr(name, text.encode("utf-8", "backslashreplace"))
    return data.getvalue()


def _write(path: Path, data: bytes) -> None:
    try:
        file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except FileExistsError:
        raise _taken(path) from None
    except OSError as error:
        raise _unwritable(path, error) from None
    try:
        with os.fdopen(file, "wb") as opened:
            opened.write(data)
    except OSError as error:
        path.unlink(missing_ok=True)
        raise _unwritable(path, error) from None


def _taken(path: Path) -> UsageError:
    return UsageError(f"{path} is there already, and nothing is overwritten", hint="name another file")


def _unwritable(path: Path, error: OSError) -> UsageError:
    return UsageError(f"{path} cannot be written: {error.strerror}", hint="name a file in a directory that is yours")
