"""Completion for bash (3.2 and newer): one function with fixed tables; only names are asked for."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from scripts.reference.commands import Command, Parameter

FRAME = r"""# Completion of `conductor` for bash. Generated from the commands: see CONTRIBUTING.md.

_conductor() {{
    local IFS=$' \t\n' path='' words='' asked='' files='' many='' head='' left='' cur prev i
    cur=${{COMP_WORDS[COMP_CWORD]}}
    prev=${{COMP_WORDS[COMP_CWORD - 1]}}
    # bash makes `--option=value` three words
    if [[ $cur == '=' ]]; then
        cur=''
    elif [[ $prev == '=' ]]; then
        prev=${{COMP_WORDS[COMP_CWORD - 2]}}
    fi

    # which command stands on the line: option values are no commands
    for ((i = 1; i < COMP_CWORD; i++)); do
        case "$path ${{COMP_WORDS[i]}}" in
{commands}
                path+=" ${{COMP_WORDS[i]}}" ;;
{valued}
                [[ ${{COMP_WORDS[i + 1]}} == -* ]] || ((i++))
                [[ ${{COMP_WORDS[i]}} != '=' ]] || ((i++)) ;;
        esac
    done

    [[ $cur != -* ]] || prev=''
    case "$path $prev" in
{values}
        *)
            case "$path" in
{places}
            esac ;;
    esac

    if [[ -n $asked ]]; then
        words+=" $("${{1:-conductor}}" $asked 2>/dev/null)"
        compopt -o nosort 2>/dev/null
    fi
    # names that are parted by commas: those before the last one stay, and are not offered again
    if [[ -n $many && $cur == *,* ]]; then
        head="${{cur%,*}},"
        for i in $words; do [[ ",$head" == *",$i,"* ]] || left+=" $i"; done
        words=$left
    fi
    COMPREPLY=($(compgen -P "$head" -W "$words" -- "${{cur#"$head"}}"))
    if [[ -n $files ]]; then
        IFS=$'\n'
        compopt -o filenames 2>/dev/null
        COMPREPLY+=($(compgen "$files" -- "$cur"))
    fi
}}

complete -F _conductor conductor conductor-llm
"""


def script(root: Command) -> str:
    """The whole file."""
    every = list(root.walk())
    valued = [f"{c.path} {name}" for c in every for o in c.accepted if o.takes_value for name in o.names]
    return FRAME.format(
        commands=_pattern((c.path for c in every if c.words), 12),
        valued=_pattern(valued, 12),
        values="\n".join(_values(every)),
        places="\n".join(line for command in every for line in _places(command)),
    )


def _pattern(texts: Iterable[str], indent: int) -> str:
    return " " * indent + "|".join(f"'{text}'" for text in texts) + ")"


def _values(every: list[Command]) -> Iterator[str]:
    """What may stand after an option; options with the same values together."""
    named: dict[str, list[str]] = {}
    for command in every:
        for option in command.accepted:
            if option.takes_value:
                named.setdefault(_offer(option), []).extend(f"{command.path} {name}" for name in option.names)
    for offer, options in named.items():
        yield _pattern(options, 8)
        yield f"            {offer} ;;"


def _offer(parameter: Parameter) -> str:
    """What a value may be; nothing is offered for free text."""
    words = f"words='{' '.join(parameter.choices)}'" if parameter.choices else ""
    asked = f"asked='{parameter.asked}'" if parameter.asked else ""
    files = {"file": "files='-f'", "directory": "files='-d'"}.get(parameter.kind, "")
    many = "many=yes" if parameter.listed else ""
    return "; ".join(filter(None, (words, asked, files, many))) or ":"


def _places(command: Command) -> Iterator[str]:
    """What may stand next when no option waits for its value: options after a dash, else commands or arguments."""
    options = " ".join(name for option in command.accepted for name in option.names)
    given = "|".join(f"*' {name} '*" for name in command.open_ended)
    files = [f"""case " ${{COMP_WORDS[*]:0:COMP_CWORD}} " in {given}) files='-f' ;; esac"""] if given else []
    offers = [offer for argument in command.arguments if (offer := _offer(argument)) != ":"]
    if command.commands:
        offers = [f"words='{' '.join(c.words[-1] for c in command.commands)}'"]
    yield _pattern([command.path], 16)
    offer = "; ".join(offers + files) or ":"
    yield f"                    if [[ $cur == -* ]]; then words='{options}'; else {offer}; fi ;;"
