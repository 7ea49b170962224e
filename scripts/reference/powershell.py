"""Completion for PowerShell (5.1 and newer): one block with fixed tables; only names are asked for."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable, Iterator

from scripts.reference.commands import Command, Parameter

FRAME = """# Completion of `conductor` for PowerShell. Generated from the commands: see CONTRIBUTING.md.

Register-ArgumentCompleter -Native -CommandName @('conductor', 'conductor-llm') -ScriptBlock {{
    param($wordToComplete, $commandAst, $cursorPosition)

    # the commands below a command
    $commands = @{{
{commands}
    }}
    # the options of a command
    $options = @{{
{options}
    }}
    # what an option's value may be, or an argument of a command
    $values = @{{
{values}
    }}

    # which command stands on the line: option values are no commands
    $path = ''
    $at = ''
    foreach ($element in ($commandAst.CommandElements | Select-Object -Skip 1)) {{
        if ($element.Extent.EndOffset -ge $cursorPosition) {{ break }}
        $word = $element.ToString()
        $isValue = $at -and $word -notlike '-*'
        $at = ''
        if ($isValue) {{ continue }}
        if ($commands.ContainsKey($path) -and $commands[$path].Contains($word)) {{
            $path = "$path $word"
        }} elseif ($values.ContainsKey("$path $word")) {{
            $at = "$path $word"
        }}
    }}

    $typed = $wordToComplete
    $before = ''
    if ($typed -match '^(--[^=]+)=(.*)$' -and $values.ContainsKey("$path $($Matches[1])")) {{
        $at = "$path $($Matches[1])"
        $before = "$($Matches[1])="
        $typed = $Matches[2]
    }}

    $found = [ordered]@{{}}
    $paths = ''
    if ($typed -like '-*') {{
        if ($options.ContainsKey($path)) {{ $found = $options[$path] }}
    }} elseif (-not $at -and $commands.ContainsKey($path)) {{
        $found = $commands[$path]
    }} else {{
        if (-not $at) {{ $at = "$path " }}
        if ($values.ContainsKey($at)) {{
            $value = $values[$at]
            $paths = $value.paths
            # names that are parted by commas: those before the last one stay, and are not offered again
            $named = @()
            if ($value.several) {{
                $length = [Math]::Min($commandAst.Extent.Text.Length, $cursorPosition - $commandAst.Extent.StartOffset)
                $named = @(($commandAst.Extent.Text.Substring(0, $length) -split '[ =]')[-1] -split ',')
                $named = @($named | Select-Object -SkipLast 1)
                # the typed word is the last name alone, or all of them
                if ($typed -match '^(.*,)([^,]*)$') {{
                    $before += $Matches[1]
                    $typed = $Matches[2]
                }}
            }}
            foreach ($word in ($value.words -split ' ')) {{ if ($word) {{ $found[$word] = $word }} }}
            if ($value.asked) {{
                $asked = $value.asked -split ' '
                $program = $commandAst.GetCommandName()
                foreach ($word in (& $program @asked 2>$null)) {{ $found[$word] = $word }}
            }}
            foreach ($word in $named) {{ $found.Remove($word) }}
        }}
    }}

    # not `$found.Keys`: there is a command of that name
    foreach ($entry in $found.GetEnumerator()) {{
        $word = $entry.Key
        if ($word.StartsWith($typed, [System.StringComparison]::Ordinal)) {{
            [System.Management.Automation.CompletionResult]::new("$before$word", $word, 'ParameterValue', $entry.Value)
        }}
    }}
    if ($paths) {{
        foreach ($each in [System.Management.Automation.CompletionCompleters]::CompleteFilename($typed)) {{
            if ($paths -eq 'file' -or $each.ResultType -eq 'ProviderContainer') {{
                $text = "$before$($each.CompletionText)"
                [System.Management.Automation.CompletionResult]::new($text, $each.ListItemText, $each.ResultType, $text)
            }}
        }}
    }}
}}
"""


def script(root: Command) -> str:
    """The whole file. Its tables are told apart by the words of a command, each after a space, as `Command.path`."""
    every = list(root.walk())
    return FRAME.format(
        commands="\n".join(_words(c.path, ((s.words[-1], s.summary) for s in c.commands)) for c in every if c.commands),
        options="\n".join(
            _words(c.path, ((n, o.help) for o in c.accepted for n in o.names)) for c in every if c.accepted
        ),
        values="\n".join(line for command in every for line in _values(command)),
    )


def _words(path: str, entries: Iterable[tuple[str, str]]) -> str:
    """One command's words with their explanations, in order. An empty explanation is an error in PowerShell."""
    lines = [f"            {_quoted(word)} = {_quoted(text or word)}" for word, text in entries]
    return "\n".join((f"        {_quoted(path)} = [ordered]@{{", *lines, "        }"))


def _values(command: Command) -> Iterator[str]:
    for option in command.accepted:
        if option.takes_value:
            for name in option.names:
                yield _value(f"{command.path} {name}", [option])
    if command.arguments and not command.commands:
        yield _value(f"{command.path} ", command.arguments)


def _value(place: str, parameters: Iterable[Parameter]) -> str:
    """What may stand at a place; where nothing is known of it, PowerShell itself goes on to offer files."""
    words = " ".join(word for each in parameters for word in each.choices)
    asked = next((each.asked for each in parameters if each.asked), "")
    paths = next((each.kind for each in parameters if each.kind in {"file", "directory"}), "")
    several = "$true" if any(each.listed for each in parameters) else "$false"
    offers = f"words = {_quoted(words)}; asked = {_quoted(asked)}; paths = {_quoted(paths)}; several = {several}"
    return f"        {_quoted(place)} = @{{ {offers} }}"


def _quoted(text: str) -> str:
    """Text between single quotes, in ASCII: PowerShell 5.1 reads a file in the system's own encoding."""
    plain = unicodedata.normalize("NFKD", text.translate({0x2018: "'", 0x2019: "'"}))
    return "'" + plain.encode("ascii", "ignore").decode().replace("'", "''") + "'"
