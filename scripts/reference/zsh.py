"""Completion for zsh: a function a command, all `_arguments` with fixed tables; only names are asked for."""

from __future__ import annotations

from collections.abc import Iterator

from scripts.reference.commands import Command, Parameter

HEAD = """#compdef conductor conductor-llm
# Completion of `conductor` for zsh. Generated from the commands: see CONTRIBUTING.md.

# The names that a command of the program prints, in its order, and more words: with files, or parted by commas.
_conductor_values() {
  local -a expl conductor_values taken
  local ret=1
  [[ $2 != list ]] || { compset -P '*,' && taken=(${(s:,:)IPREFIX##*=}) }
  conductor_values=(${@[3,-1]})
  [[ -z $1 ]] || conductor_values+=(${(f)"$(_call_program names $service $1 2>/dev/null)"})
  conductor_values=(${conductor_values:|taken})
  (( $#conductor_values )) && _wanted -V values expl value compadd -a conductor_values && ret=0
  [[ $2 != files ]] || { _files && ret=0 }
  return ret
}
"""

TAIL = """
# as a file of $fpath, or read by `source`
if [[ $funcstack[1] == _conductor ]]; then
  _conductor "$@"
else
  compdef _conductor conductor conductor-llm
fi
"""

LEAF = """
{name}() {{
  _arguments -s -S \\
{specs}
}}
"""

GROUP = """
{name}() {{
  local curcontext=$curcontext state line
  typeset -A opt_args
  _arguments -s -S -C \\
{specs} \\
    '1:command:(({commands}))' \\
    '*:: :->rest' && return
  [[ $state == rest ]] || return
  curcontext="${{curcontext%:*}}-$words[1]:"
  case $words[1] in
{cases}
  esac
}}
"""


def script(root: Command) -> str:
    """The whole file."""
    return HEAD + "".join(_function(command) for command in root.walk()) + TAIL


def _name(command: Command) -> str:
    return "_conductor" + "".join(f"_{word}" for word in command.words).replace("-", "_")


def _function(command: Command) -> str:
    specs = " \\\n".join(f"    {spec}" for spec in (*_options(command), *_arguments(command)))
    if not command.commands:
        return LEAF.format(name=_name(command), specs=specs)
    return GROUP.format(
        name=_name(command),
        specs=specs,
        commands=" ".join(f"{c.words[-1]}\\:{_inner(c.summary)}" for c in command.commands),
        cases="\n".join(f"    {c.words[-1]}) {_name(c)} ;;" for c in command.commands),
    )


def _options(command: Command) -> Iterator[str]:
    for option in command.accepted:
        value = f":{_message(option.metavar)}:{_action(option)}" if option.takes_value else ""
        value = f":{value}" if option.may_stand_alone else value
        names = [_marked(name, option) for name in option.names]
        others = "'*'" if option.many else f"'({' '.join(option.names)})'"
        name = names[0] if len(names) == 1 else "{" + ",".join(names) + "}"
        yield f"{others}{name}'[{_explained(option.help)}]{value}'"


def _marked(name: str, option: Parameter) -> str:
    """The name with the mark that says where its value stands: `--name=value`, or `-nvalue`."""
    if not option.takes_value:
        return name
    return f"{name}=" if name.startswith("--") else f"{name}+"


def _arguments(command: Command) -> Iterator[str]:
    given = " + ".join(f"$words[(I){name}]" for name in command.open_ended)
    for place, argument in enumerate(command.arguments, start=1):
        position = "*" if argument.many else str(place) + ("" if argument.required else ":")
        action = "{ (( " + given + " )) && _files }" if given and argument.many else _action(argument)
        yield f"'{position}:{_message(argument.metavar)}:{action}'"


def _action(parameter: Parameter) -> str:
    """What a value may be; for free text only its name is shown."""
    words = " ".join(parameter.choices)
    if parameter.asked or (words and (parameter.kind == "file" or parameter.listed)):
        way = "list" if parameter.listed else "files" if parameter.kind == "file" else "none"
        # the space keeps zsh from adding words of its own
        return f' _conductor_values "{parameter.asked}" {way} {words}'.rstrip()
    if words:
        return f"({words})"
    return {"file": "_files", "directory": "_files -/"}.get(parameter.kind, " ")


def _quoted(text: str) -> str:
    return text.replace("'", "'\\''")


def _explained(text: str) -> str:
    return _quoted(text.replace("\\", "\\\\").replace("[", "\\[").replace("]", "\\]"))


def _message(text: str) -> str:
    return _quoted(text.replace("\\", "\\\\").replace(":", "\\:"))


def _inner(text: str) -> str:
    """A description among the words of a list, where spaces, colons and brackets part things."""
    return _quoted("".join(f"\\{c}" if c in "\\ :()[]\"'`$;&|<>*?~#" else c for c in text))
