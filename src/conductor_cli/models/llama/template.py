"""A model's chat template: a Jinja program that comes with the model file, so it may be hostile.

Jinja's sandbox keeps a template away from Python's internals and from files. It does not stop a template from looping
for ever or from building a text of many gigabytes, and inside one process nothing does: a single comparison or
multiplication can run for hours in C. So a template runs in a child process whose time and memory the system limits.
That takes about a tenth of a second, so `TRUSTED` templates, which people have read, run in this process.

Either way a template never sees a message, only short marks instead of the contents (see `prompt`).
"""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from conductor_cli.models.llama.tool_format import ToolFormat, format_of

CHATML: Final = (
    "{% for message in messages %}<|im_start|>{{ message.role }}\n{{ message.content }}<|im_end|>\n{% endfor %}"
    "<|im_start|>assistant\n"
)
"""The template for a model that has none."""

CONTENTS_ONLY: Final = "{% for message in messages %}{{ message.content }}{% endfor %}"
"""The template of models that were trained on prompts without roles, such as the rehearsal's."""

TRUSTED: Final = frozenset({
    hashlib.sha256(CHATML.encode()).hexdigest(),
    hashlib.sha256(CONTENTS_ONLY.encode()).hexdigest(),
    "cd8e9439f0570856fd70470bf8889ebd8b5d1107207f67a5efb46e342330527f",  # Qwen2.5-Instruct, all sizes
})  # fmt: skip
"""The SHA-256 of templates that run in this process."""

SANDBOX: Final = Path(__file__).with_name("template_sandbox.py")

CPU_SECONDS: Final = 2
"""How much processor time the child may use; a slow machine needs half a second to start it."""

WALL_SECONDS: Final = 10.0
"""When the parent ends the child: on a busy machine, or where the system has no limits (Windows)."""

NEEDED: Final = frozenset({"PATH", "SYSTEMROOT", "LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH"})
"""The variables that the child gets, besides Python's own."""

REMEMBERED: Final = 64
"""How many results a template keeps. What it writes depends on the roles alone, so they recur."""


class ChatTemplateError(Exception):
    """Why a template cannot be used, or what it says against these messages.

    `stopped` means that it had to be stopped: it will not do better with other messages.
    """

    def __init__(self, message: str, *, stopped: bool = False) -> None:
        super().__init__(message)
        self.stopped = stopped


class ChatTemplate:
    """The template of the model named `owner`. `variables` are texts that it may use, such as `bos_token`."""

    def __init__(self, owner: str, source: str, variables: Mapping[str, str]) -> None:
        self.owner = owner
        self._source, self._variables = source, dict(variables)
        self._trusted = hashlib.sha256(source.encode("utf-8", "replace")).hexdigest() in TRUSTED
        self._results: dict[str, str | ChatTemplateError] = {}

    @property
    def tool_format(self) -> ToolFormat | None:
        """How the model writes tool calls; None if its template has no place for tools."""
        return format_of(self._source)

    def render(self, messages: Sequence[Mapping[str, Any]], **more: object) -> str:
        """The text for `messages`, up to where the model's turn begins. Raises `ChatTemplateError`."""
        variables = {"messages": list(messages), "add_generation_prompt": True, "tools": None} | self._variables | more
        key = json.dumps(variables)
        result = self._results.get(key)
        if result is None:
            result = self._try(variables)
            if len(self._results) >= REMEMBERED:
                self._results.clear()
            # A refusal is kept too: a template without a system turn would be asked again for every prompt. One that
            # was stopped may have been so by a busy machine, and gets another chance.
            if isinstance(result, str) or not result.stopped:
                self._results[key] = result
        if isinstance(result, ChatTemplateError):
            raise result
        return result

    def _try(self, variables: Mapping[str, Any]) -> str | ChatTemplateError:
        try:
            if self._trusted:
                from conductor_cli.models.llama.template_sandbox import render  # Jinja is slow to import

                return render(self._source, variables)
            return _render_in_child(self._source, variables)
        except ValueError as error:
            return ChatTemplateError(str(error))
        except TimeoutError:
            return ChatTemplateError("it took too much time or memory, and was stopped", stopped=True)


def _render_in_child(source: str, variables: Mapping[str, Any]) -> str:
    """What a template writes, in a child process. Raises `ValueError`, or `TimeoutError` when it is stopped."""
    # -P: a file named jinja2.py in the working directory must not be imported. -B: not even bytecode is written.
    command = [sys.executable, "-P", "-B", str(SANDBOX)]
    # No keys: if a template ever escaped from Jinja's sandbox, it should find nothing of worth.
    environ = {name: value for name, value in os.environ.items() if name in NEEDED or name.startswith("PYTHON")}
    job = json.dumps({"source": source, "variables": variables, "cpu_seconds": CPU_SECONDS}).encode()
    try:
        # A new session: Ctrl-C stops the run, which ends cleanly, and must not kill this child before that.
        done = subprocess.run(  # noqa: S603 - our own program
            command, input=job, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, timeout=WALL_SECONDS,
            start_new_session=True, env=environ, check=False,
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        raise TimeoutError from None
    except OSError as error:
        raise ValueError(f"no process could be started for it: {error.strerror}") from error
    if done.returncode != 0:
        raise TimeoutError
    result = json.loads(done.stdout)
    if "error" in result:
        raise ValueError(result["error"])
    return str(result["text"])
