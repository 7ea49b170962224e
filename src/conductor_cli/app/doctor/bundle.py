"""The zip for a bug report: the results of `doctor`, versions, settings, llama.cpp's log, and a run if one is named.

No key may be in it. So before anything is written, this process reads every key that it can know of, from the
environment, the key store and the headers of workers, and all texts are redacted by them.
"""

from __future__ import annotations

import io
import json
import os
import platform
import re
import sys
import zipfile
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, requires, version
from pathlib import Path
from typing import Any, Final
from urllib.parse import unquote, urlsplit

from conductor_cli import __version__
from conductor_cli.app.checks import Check
from conductor_cli.app.keys import open_key_store
from conductor_cli.config import Settings
from conductor_cli.core.errors import ConductorError, UsageError
from conductor_cli.core.redact import REDACTED
from conductor_cli.core.serialization import dump
from conductor_cli.models.known_secrets import KNOWN_SECRETS
from conductor_cli.models.llama.bindings import recent_log
from conductor_cli.store.trace_store import TraceStore

CONTENTS: Final = {
    "README.txt": "this text",
    "doctor.json": "the results of conductor doctor, as it printed them",
    "versions.json": "versions of conductor, Python, the system, and the libraries that conductor needs",
    "settings.json": "every setting and where it comes from; the workers, without the values of their headers",
    "environment.txt": "the names of variables that conductor or its libraries read, without their values",
    "llama.log": "the last lines that llama.cpp logged while doctor ran",
    "trace.jsonl": "one run that was named: its question, its prompts, its answers",
}
"""The files, and what each holds."""

_SECRET_NAME: Final = re.compile(r"key(?!ring)|secret|token|passw|credential|auth", re.IGNORECASE)
"""In the name of a variable: its value may be a key."""

_RELEVANT_NAME: Final = re.compile(
    r"CONDUCTOR_|_CONDUCTOR_|HF_|HUGGING|OLLAMA_|LITELLM_|LLAMA_|GGML_|OMP_|.*_PROXY$|.*_API_KEY$"
)
_URL: Final = re.compile(r"[a-z][a-z0-9+.-]*://[^\s\"'<>]+", re.IGNORECASE)
_PACKAGE: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")


@dataclass(frozen=True, slots=True, kw_only=True)
class Bundle:
    """A bundle that can be written: where to, and the stored run that goes into it, both empty for none."""

    path: Path
    run: str = ""
    trace: str = ""

    def write(self, settings: Settings, checks: Sequence[Check]) -> tuple[str, ...]:
        """Write the zip, readable by its owner only; return the names of the files in it. Raises `UsageError`."""
        learn_secrets(settings)
        variables = sorted(name for name in settings.environ if _RELEVANT_NAME.match(name))
        texts = {
            "doctor.json": _to_json([check.data() for check in checks]),
            "versions.json": _to_json(_versions()),
            "settings.json": _to_json(_settings(settings)),
            "environment.txt": "".join(f"{name} is set\n" for name in variables),
            "llama.log": "".join(recent_log()) or "llama.cpp logged nothing\n",
        }
        texts = {name: _redact(text) for name, text in texts.items()}
        if self.run:
            # A trace keeps its paths and URLs: the user has asked for it, and a notice says to read it.
            texts["trace.jsonl"] = KNOWN_SECRETS.redact(self.trace)
        texts = {"README.txt": _readme(texts), **texts}
        data = io.BytesIO()
        with zipfile.ZipFile(data, "w", zipfile.ZIP_DEFLATED) as archive:
            for name, text in texts.items():
                archive.writestr(name, text.encode("utf-8", "backslashreplace"))
        _write_new_file(self.path, data.getvalue())
        return tuple(texts)


def open_bundle(path: Path, run: str | None, settings: Settings) -> Bundle:
    """A bundle for `path`, checked as far as possible before the checks run. Raises `UsageError`."""
    path = path.expanduser()
    if path.exists() or path.is_symlink():
        raise _already_exists(path)
    if not path.absolute().parent.is_dir():
        raise UsageError(f"there is no directory {path.absolute().parent}", hint="name a file in one that exists")
    if run is None:
        return Bundle(path=path)
    store = TraceStore(settings.paths.traces)
    found = store.find(run)
    try:
        return Bundle(path=path, run=found, trace=store.path(found).read_text(encoding="utf-8", errors="replace"))
    except OSError as error:
        raise UsageError(f"cannot read {store.path(found)}: {error.strerror}", hint="check its permissions") from None


def learn_secrets(settings: Settings) -> None:
    """Register every key that can be known of: those in variables, headers, URLs, and the key store."""
    for name, value in settings.environ.items():
        if _SECRET_NAME.search(name):
            KNOWN_SECRETS.add(value.strip())
        for url in _URL.findall(value):
            with suppress(ValueError):  # not a URL after all
                KNOWN_SECRETS.add(unquote(urlsplit(url).password or ""))
    for item in settings.workers:
        headers = item.worker.options.get("headers")
        for value in headers.values() if isinstance(headers, Mapping) else ():
            KNOWN_SECRETS.add(str(value).strip(), *str(value).split())
        KNOWN_SECRETS.add(settings.environ.get(str(item.worker.options.get("key_env") or ""), "").strip())
    stored = open_key_store(settings)
    # If the keyring fails, its check reports that. A key that cannot be read now cannot have been read before either.
    with suppress(ConductorError):
        stored.read(*stored.entries())


def _redact(text: str) -> str:
    """`text` without keys, without user, password and query of a URL, and without the name of the home directory."""

    def strip(found: re.Match[str]) -> str:
        try:
            parts = urlsplit(found[0])
        except ValueError:
            return REDACTED
        plain = parts._replace(netloc=parts.netloc.rpartition("@")[2], query="", fragment="").geturl()
        return plain + (f"?{REDACTED}" if parts.query else "") + (f"#{parts.fragment}" if parts.fragment else "")

    text = _URL.sub(strip, KNOWN_SECRETS.redact(text))
    home = str(Path.home())
    return text.replace(home, "~") if len(home) > 1 else text


def _to_json(data: Any) -> str:  # noqa: ANN401 - any JSON value
    return json.dumps(KNOWN_SECRETS.redact_data(data), ensure_ascii=False, indent=1) + "\n"


def _versions() -> dict[str, Any]:
    lines: list[str] = []
    with suppress(PackageNotFoundError):  # a checkout that is not installed
        lines = requires("conductor-llm") or []
    names = sorted({match[0] for line in lines if (match := _PACKAGE.match(line)) and "extra ==" not in line})
    libraries: dict[str, str | None] = dict.fromkeys(names)
    for name in names:
        with suppress(PackageNotFoundError):
            libraries[name] = version(name)
    return {
        "conductor": __version__, "python": sys.version, "system": platform.platform(), "machine": platform.machine(),
        "encoding": sys.stdout.encoding, "libraries": libraries,
    }  # fmt: skip


def _settings(settings: Settings) -> dict[str, Any]:
    values = {name: {"value": dump(value), "from": settings.origins[name]} for name, value in settings.values.items()}
    workers = [
        {**dump(item.worker.public()), "enabled": item.enabled, "source": item.source} for item in settings.workers
    ]
    return {"settings": values, "workers": workers}


def _readme(texts: Mapping[str, str]) -> str:
    lines = ["Written by conductor doctor --bundle for a bug report. It is all text: read it before you send it.", ""]
    lines += [f"{name:17}{CONTENTS[name]}" for name in ("README.txt", *texts)]
    lines += [
        "",
        f"Keys that conductor knows, from the environment, its key store or a header, are replaced by {REDACTED}.",
        "A key that it does not know, such as one that was typed into a question, is not replaced.",
    ]
    return "\n".join(lines) + "\n"


def _write_new_file(path: Path, data: bytes) -> None:
    """Write a file that must not exist yet, so that nothing is overwritten and no link is followed."""
    made = False
    try:
        with open(path, "xb", opener=lambda name, flags: os.open(name, flags, 0o600)) as file:
            made = True
            file.write(data)
    except FileExistsError:
        raise _already_exists(path) from None
    except OSError as error:
        if made:  # half a zip is of no use
            path.unlink(missing_ok=True)
        hint = "name a file in a directory that you can write to"
        raise UsageError(f"cannot write {path}: {error.strerror}", hint=hint) from None


def _already_exists(path: Path) -> UsageError:
    return UsageError(f"{path} already exists", hint="name another file: nothing is overwritten")
