"""Completion for fish: one line a thing to offer, each with the command it belongs to."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from scripts.reference.commands import Command, Parameter

FRAME = """# Completion of `conductor` for fish. Generated from the commands: see CONTRIBUTING.md.

# Whether the command on the line is the one named; option values are no commands.
function __conductor_at
    set -l words (commandline -opc)
    set -l path ''
    set -l skip no
    for word in $words[2..-1]
        if test $skip = yes
            set skip no
            string match -q -- '-*' $word; or continue
        end
        switch "$path $word"
            case {commands}
                set path "$path $word"
            case {valued}
                set skip yes
        end
    end
    test "$path" = "$argv[1]"
end

# The names that a command of the program prints.
function __conductor_names
    set -l words (commandline -opc)
    command $words[1] $argv 2>/dev/null
end

# Names that are parted by commas: those before the last one stay, and are not offered again.
function __conductor_after
    set -l head (string match -r -- '^(?:--[^=]*=)?(.*,)?' (commandline -ct))[2]
    set -l taken (string split , -- "$head")
    for name in $argv
        contains -- $name $taken; or printf '%s\n' "$head$name"
    end
end

complete -c conductor -f
{lines}
complete -c conductor-llm -w conductor
"""


def script(root: Command) -> str:
    """The whole file."""
    every = list(root.walk())
    valued = (f"{c.path} {name}" for c in every for o in c.accepted if o.takes_value for name in o.names)
    return FRAME.format(
        commands=_words(c.path for c in every if c.words),
        valued=_words(valued),
        lines="\n".join(line for command in every for line in _lines(command)),
    )


def _words(texts: Iterable[str]) -> str:
    return " ".join(_quoted(text) for text in texts)


def _lines(command: Command) -> Iterator[str]:
    here = f'complete -c conductor -n "__conductor_at {_quoted(command.path)}"'
    for child in command.commands:
        yield f"{here} -a {child.words[-1]} -d {_quoted(child.summary)}"
    for option in command.accepted:
        yield f"{here} {' '.join(_named(name) for name in option.names)}{_value(option)} -d {_quoted(option.help)}"
    if names := command.open_ended:
        words = " ".join(f"-s {name[1:]}" if len(name) == 2 else name[2:] for name in names)
        yield f'complete -c conductor -n "__conductor_at {_quoted(command.path)}; and __fish_contains_opt {words}" -F'
    for argument in command.arguments:
        if argument.kind != "text" or argument.asked or argument.choices:
            yield f"{here}{_value(argument).removeprefix(' -r').removeprefix(' -x')}"


def _named(name: str) -> str:
    if name.startswith("--"):
        return f"-l {name[2:]}"
    return f"-s {name[1:]}" if len(name) == 2 else f"-o {name[1:]}"


def _value(parameter: Parameter) -> str:
    """What a value may be: one of some words, a path, or anything."""
    if parameter.may_stand_alone:
        return ""
    asked = f"(__conductor_names {parameter.asked})" if parameter.asked else ""
    offers = " ".join(filter(None, (*parameter.choices, asked)))
    offers = f"(__conductor_after {offers})" if offers and parameter.listed else offers
    directories = " -x -a '(__fish_complete_directories)'"
    paths = {"file": " -r -F", "directory": directories, "text": " -x", "choice": " -x"}.get(parameter.kind, "")
    order = " -k" if asked else ""  # runs come newest first
    return f"{paths}{order} -a {_quoted(offers)}" if offers else paths


def _quoted(text: str) -> str:
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"
