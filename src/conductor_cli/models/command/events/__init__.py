"""The JSON events of known agents, one reader for each; a preset in `programs.toml` names it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from conductor_cli.models.command.events.base import EventReader
from conductor_cli.models.command.events.claude_code import ClaudeCode
from conductor_cli.models.command.events.codex import Codex
from conductor_cli.models.command.events.gemini_cli import GeminiCli
from conductor_cli.models.command.events.opencode import Opencode

READERS: Final[Mapping[str, Callable[[], EventReader]]] = {
    "claude-code": ClaudeCode,
    "codex": Codex,
    "gemini-cli": GeminiCli,
    "opencode": Opencode,
}
