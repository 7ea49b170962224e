"""What Typer finds wrong with a command line, in our words: what was expected, and what was probably meant."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, Any, Final

from conductor_cli.core.errors import UsageError
from conductor_cli.core.suggest import nearest

if TYPE_CHECKING:
    from typer.exceptions import TyperException

_EXPECTED: Final[Mapping[str, str]] = {
    r"Input should be a valid integer.*": "takes a whole number",
    r"Input should be a (?:valid|finite) number.*": "takes a number",
    r"Input should be greater than or equal to (\S+)": "must be at least {}",
    r"Input should be greater than (\S+)": "must be more than {}",
    r"Input should be less than or equal to (\S+)": "must be at most {}",
    r"Input should be less than (\S+)": "must be less than {}",
}
"""What Pydantic, which reads values for Typer, says of one, and what we say."""

_CHOICE: Final = re.compile(r"'(?P<given>.*)' is not one of (?P<known>'.*')", re.DOTALL)

_COMMANDS: Final[Mapping[str, tuple[str, ...]]] = {
    "rm": ("remove", "delete", "del", "uninstall", "unset"),
    "list": ("ls", "all"),
    "show": ("info", "view", "inspect", "cat"),
    "add": ("new", "create", "set"),
    "set": ("add", "store", "login", "save"),
    "test": ("check", "ping", "verify"),
    "pull": ("download", "install", "get"),
    "use": ("select", "choose", "switch", "set"),
    "chat": ("repl", "shell", "talk"),
    "ask": ("prompt", "query"),
    "setup": ("init", "install", "configure", "login", "auth"),
    "config": ("settings", "set"),
    "trace": ("history", "log", "logs", "runs"),
    "completions": ("completion",),
    "--help": ("help",),
    "--version": ("version",),
}
"""Words of other tools for commands of this one. Which command is meant depends on the group, in this order."""

_VALUES: Final[Mapping[str, tuple[str, ...]]] = {
    "powershell": ("pwsh", "ps1"),
    "markdown": ("md",),
    "answer": ("md", "markdown", "text", "txt", "plain"),
    "jsonl": ("ndjson", "events"),
    "none": ("off", "no", "quiet"),
    "never": ("off", "no"),
    "always": ("on", "yes"),
}
"""Other words for values. An answer is Markdown as it comes."""

_OPTIONS: Final[Mapping[str, tuple[str, str]]] = {
    "--model": ("--conductor", "--conductor NAME is the model that plans; --workers A,B are those that answer"),
    "--keep-local": ("--local-only", "did you mean --local-only?"),
    "--local": ("--local-only", "did you mean --local-only?"),
    "--offline": ("--local-only", "did you mean --local-only?"),
    "--files-only": ("--local-only", "it is a setting: conductor config set policy.files_only A,B"),
    "--api-key": ("", "a key is stored, and not given on a command line: conductor keys set PROVIDER"),
    "--key": ("", "a key is stored, and not given on a command line: conductor keys set PROVIDER"),
    "--output": ("--format", "the answer goes to standard output: conductor ask … > FILE"),
}
"""Options of other tools: the option that a command must have for the hint to fit, and the hint."""


LONGEST_COMMAND: Final = 20
"""Characters of a word that is repeated as an unknown command."""


def explain_typer_error(error: TyperException) -> UsageError:
    """The error as one of ours. It holds nothing of a value that may be a key."""
    context = getattr(error, "ctx", None)
    see = f"see: {context.command_path if context is not None else 'conductor'} --help"
    message, hint = _explain(error, context)
    return UsageError(message, hint=hint if "--help" in hint else f"{hint}\n{see}".strip())


def _explain(error: TyperException, context: Any) -> tuple[str, str]:  # noqa: ANN401 - Typer's own class of contexts
    said = error.format_message().replace("Value error, ", "").replace("argument(s)", "argument").rstrip(".")
    option = getattr(error, "option_name", "")
    if option and type(error).__name__ == "NoSuchOption":
        return f"there is no option {option}", _suggest_option(option, context)
    if found := re.match(r"No such command '(.*?)'", said, re.DOTALL):
        # A key that was typed in the wrong place must not be repeated.
        shown = repr(found[1]) if len(found[1]) <= LONGEST_COMMAND and "=" not in found[1] else "of that name"
        return f"there is no command {shown}", _suggest_command(found[1], context)
    parameter = getattr(error, "param", None)
    if parameter is None or type(error).__name__ != "BadParameter":
        return said[:1].lower() + said[1:], ""
    shown, wrong = max(parameter.opts, key=len), error.message.removeprefix("Value error, ").rstrip(".")
    if found := _CHOICE.fullmatch(wrong):
        known = re.findall(r"'([^']*)'", found["known"])
        meant = _synonym(found["given"], _VALUES, known) or nearest(found["given"], known)
        return f"{shown} takes {_any_of(known)}, not {found['given']!r:.40}", f"did you mean {meant}?" if meant else ""
    for pattern, words in _EXPECTED.items():
        if found := re.fullmatch(pattern, wrong, re.DOTALL):
            return f"{shown} {words.format(*found.groups())}", ""
    return said[:1].lower() + said[1:], ""


def _suggest_option(name: str, context: Any) -> str:  # noqa: ANN401
    """What was probably meant by an option that a command does not have."""
    parameters = context.command.params if context is not None else ()
    known = {each for parameter in parameters for each in parameter.opts if each.startswith("--")}
    needs, hint = _OPTIONS.get(name, ("", ""))
    if hint and (not needs or needs in known):
        return hint
    near = nearest(name, sorted(known))
    return f"did you mean {near}?" if near else ""


def _suggest_command(name: str, context: Any) -> str:  # noqa: ANN401
    """What was probably meant by a command that a group does not have."""
    if context is None:
        return ""
    path, known = context.command_path, context.command.list_commands(context)
    options = ("--help",) if context.parent is not None else ("--help", "--version")
    meant = _synonym(name, _COMMANDS, (*known, *options)) or nearest(name, known)
    return f"did you mean {path} {meant}?" if meant else f"known: {', '.join(known)}"


def _synonym(name: str, table: Mapping[str, tuple[str, ...]], known: Collection[str]) -> str:
    """The first of the `known` words for which other tools say `name`; empty for none."""
    return next((word for word, others in table.items() if name.lower() in others and word in known), "")


def _any_of(words: list[str]) -> str:
    return f"{', '.join(words[:-1])} or {words[-1]}" if len(words) > 1 else words[0]
