"""The public surface as plain facts.

What is offered, which may only grow, and what is demanded, which may only shrink.

`docs/surface.json` has the facts of the code as it is. `docs/surface/VERSION.json` has those of a
version, frozen when it was made, with the fields that its JSON outputs had.
"""

from __future__ import annotations

import inspect
import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass
from datetime import date, timedelta
from pathlib import Path
from typing import Any, Final, get_args, get_type_hints

from packaging.version import Version

import conductor_cli
from conductor_cli.cli.options import DEPRECATED, RENAMED_OPTIONS, Deprecation
from conductor_cli.config.schema import RENAMED, SETTINGS, SETTINGS_BY_NAME, variable_of
from conductor_cli.config.tables import WORKER_FIELDS
from conductor_cli.core.errors import EXIT_CODES
from conductor_cli.models.worker_options import LOCAL_OPTIONS, REMOTE_OPTIONS
from scripts.reference.commands import TEXTS, Command, Parameter
from scripts.reference.topics import Part, topics

FROZEN: Final = "docs/surface"
"""Where the surface of each version is, in the checkout."""

NOTICE: Final = timedelta(days=183)
"""How long something works on after it was deprecated: six months."""


_DEMAND_OF_COMMAND: Final = re.compile(r"(conductor\b.*?) (?:argument \d+|-\S+) is given")


@dataclass(frozen=True, slots=True, kw_only=True)
class Surface:
    """The facts of one version. `deprecated` are offers that go, by the name they begin with."""

    version: str
    offers: frozenset[str]
    demands: frozenset[str]
    deprecated: Mapping[str, Deprecation]

    def text(self) -> str:
        """The file: a fact a line, so that a change is read in a diff."""
        content = {
            "version": self.version,
            "deprecated": {
                name: {"since": entry.since, "day": entry.day, "instead": entry.instead}
                for name, entry in sorted(self.deprecated.items())
            },
            "demands": sorted(self.demands),
            "offers": sorted(self.offers),
        }
        return json.dumps(content, ensure_ascii=False, indent=1) + "\n"


def parse_surface(text: str) -> Surface:
    """The surface in the text of a file."""
    content = json.loads(text)
    return Surface(
        version=content["version"],
        offers=frozenset(content["offers"]),
        demands=frozenset(content["demands"]),
        deprecated={name: Deprecation(**entry) for name, entry in content["deprecated"].items()},
    )


def current_surface(root: Command, version: str, outputs: Iterable[str] = ()) -> Surface:
    """The surface of the code as it is.

    `outputs` are facts about JSON that commands have printed.
    """
    facts = [*_command_facts(root), *_setting_facts(), *_topic_facts(), *_python_facts()]
    codes = {f"exit code {code}: {kind}" for kind, code in EXIT_CODES.items()}
    return Surface(
        version=version,
        offers=frozenset({fact for is_offer, fact in facts if is_offer} | codes | {*outputs}),
        demands=frozenset(fact for is_offer, fact in facts if not is_offer),
        deprecated=DEPRECATED,
    )


def broken_promises(released: Surface, now: Surface, day: date) -> list[str]:
    """What `released` promises and `now`, which is made on this `day`, does not keep.

    What was deprecated may go with another major version, six months after that.
    """
    is_major = _major(now.version) > _major(released.version)
    gone = sorted(released.offers - now.offers)
    may_go = [
        name
        for name, entry in released.deprecated.items()
        if is_major and day - date.fromisoformat(entry.day) >= NOTICE
    ]
    broken = [
        f"no longer: {fact}"
        for fact in gone
        if not any(fact == name or fact.startswith(f"{name} ") for name in may_go)
    ]
    for fact in sorted(now.demands - released.demands):
        command = _DEMAND_OF_COMMAND.fullmatch(fact)
        is_new = command is not None and command[1] not in released.offers
        if not is_new:  # whoever uses a new command knows what it needs
            broken.append(f"newly demanded: {fact}")
    return broken


def newest_frozen(directory: Path) -> Surface:
    """The surface of the newest version whose facts were frozen in the checkout `directory`."""
    frozen = [
        parse_surface(path.read_text("utf-8")) for path in (directory / FROZEN).glob("*.json")
    ]
    return max(frozen, key=lambda surface: Version(surface.version))


def freeze(surface: Surface, directory: Path) -> Path:
    """Write the surface of a version.

    Raises `FileExistsError` for one that was released: it is promised.
    """
    path = directory / FROZEN / f"{surface.version}.json"
    if path.exists() and not is_prerelease(surface.version):
        raise FileExistsError(
            f"{path} is what {surface.version} promises; a new version gets a new number"
        )
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(surface.text(), encoding="utf-8")
    return path


def is_prerelease(version: str) -> bool:
    """Whether this is a version such as 1.0.0.dev0 or 1.0.0rc1, which promises nothing yet."""
    return not version.replace(".", "").isdecimal()


def _major(version: str) -> int:
    return int(version.partition(".")[0])


Fact = tuple[bool, str]
"""Whether it is offered, else demanded; and the fact."""


def _command_facts(root: Command) -> Iterator[Fact]:
    for command in root.walk():
        name = " ".join(("conductor", *command.words))
        yield True, name
        for option in command.options:
            for spelling in (*option.names, *_earlier_names(option)):
                yield from _parameter_facts(f"{name} {spelling}", option)
        for position, argument in enumerate(command.arguments, 1):
            subject = f"{name} argument {position}"
            yield from _parameter_facts(subject, argument)
            if argument.required:
                yield False, f"{subject} is given"


def _earlier_names(option: Parameter) -> list[str]:
    """Return the names that an option had before, which it still has."""
    return [old_name for old_name, new_name in RENAMED_OPTIONS.items() if new_name in option.names]


def _parameter_facts(name: str, parameter: Parameter) -> Iterator[Fact]:
    yield True, name
    kind = "a value" if parameter.kind not in ("flag", "choice") else parameter.kind
    if kind != "choice":
        yield True, f"{name} takes {'no value' if kind == 'flag' else kind}"
    for choice in parameter.choices:
        yield True, f"{name} takes {choice}"
    if parameter.many:
        yield True, f"{name} may be repeated"
    if parameter.required and parameter.names:
        yield False, f"{name} is given"


def _setting_facts() -> Iterator[Fact]:
    for setting in SETTINGS:
        yield from _one_setting(setting.name, setting)
        yield True, f"variable {setting.variable}"
    for old_name, new_name in RENAMED.items():
        yield from _one_setting(old_name, SETTINGS_BY_NAME[new_name])
        yield True, f"variable {variable_of(old_name)}"
    for name in TEXTS["config"]["variables"]:
        yield True, f"variable CONDUCTOR_LLM_{name}"
    for key in {*WORKER_FIELDS, *REMOTE_OPTIONS, *LOCAL_OPTIONS}:
        yield True, f"setting workers.NAME.{key}"


def _one_setting(name: str, setting: Any) -> Iterator[Fact]:
    yield True, f"setting {name}"
    kind = setting.type
    if not setting.choices:
        yield True, f"setting {name} takes {kind}"
    for choice in setting.choices:
        yield True, f"setting {name} takes {choice}"


def _topic_facts() -> Iterator[Fact]:
    """Events and the objects in them, as docs/events.md lists them."""
    [events] = [topic for topic in topics() if topic.name == "events"]
    for chapter in events.chapters:
        for part in chapter.parts:
            yield from _part_facts(part)


def _part_facts(part: Part) -> Iterator[Fact]:
    yield True, f"event {part.title}"
    for key, value in part.rows:
        kind = value.removesuffix("; optional")
        words = kind.removeprefix("one of ").split(", ") if kind.startswith("one of ") else [kind]
        for word in words:
            yield True, f"event {part.title} has {key}: {word}"


def _python_facts() -> Iterator[Fact]:
    for name in conductor_cli.__all__:
        public = getattr(conductor_cli, name)
        yield True, f"python {name}"
        if inspect.isclass(public):
            yield from _class_facts(name, public)
        elif inspect.isroutine(public):
            yield from _call_facts(f"python {name}", public)


PYTHON_PAGE: Final = Path(__file__).resolve().parents[2] / "docs/python.md"

MADE_BY_OTHERS: Final = ("AsyncConductor", "AsyncRun", "SyncConductor", "SyncRun", "Trace")
"""Classes that no user makes: how they are made is not promised."""

ENGINE: Final = "Conductor"
"""The engine below the API: of it, only what docs/python.md names is promised."""


def _named() -> frozenset[str]:
    """The words of docs/python.md.

    Methods and properties that it does not name are not promised.
    """
    return frozenset(re.findall(r"\w+", PYTHON_PAGE.read_text("utf-8")))


def _class_facts(exported: str, public: type) -> Iterator[Fact]:
    name = f"python {exported}"
    named = _named()
    for base in public.__mro__[1:-1]:
        if base is not public and base.__name__ in ("ConductorError", "Exception"):
            yield True, f"{name} is a {base.__name__}"
    if not issubclass(public, BaseException) and exported not in MADE_BY_OTHERS:
        only = named if exported == ENGINE else None
        yield from _call_facts(name, public, only)
    if is_dataclass(public) and exported != ENGINE:
        hints = get_type_hints(public)
        for field in fields(public):
            if not field.name.startswith("_"):
                yield True, f"{name}.{field.name}: {_type_name(hints[field.name])}"
    for member, value in inspect.getmembers(public):
        if member.startswith("_") or member not in named:
            continue
        if isinstance(value, property):
            yield True, f"{name}.{member}"
        elif inspect.isroutine(value):
            yield True, f"{name}.{member}"
            yield from _call_facts(f"{name}.{member}", value)


def _call_facts(name: str, call: Any, only: frozenset[str] | None = None) -> Iterator[Fact]:
    """What a call takes and needs; of its parameters `only` these, where some are named."""
    position = 0
    for parameter in inspect.signature(call).parameters.values():
        if parameter.name == "self" or (only is not None and parameter.name not in only):
            continue
        if parameter.kind is parameter.VAR_KEYWORD:
            for key in _keywords(call, parameter.name):
                yield True, f"{name} takes {key}"
            continue
        yield True, f"{name} takes {parameter.name}"
        if parameter.kind in (parameter.POSITIONAL_ONLY, parameter.POSITIONAL_OR_KEYWORD):
            position += 1
            yield True, f"{name} takes {parameter.name} in place {position}"
        if parameter.default is parameter.empty and parameter.kind is not parameter.VAR_POSITIONAL:
            yield False, f"{name} needs {parameter.name}"


def _keywords(call: Any, name: str) -> list[str]:
    """The names that a call takes by `**name: Unpack[…]`."""
    hint = get_type_hints(call.__init__ if inspect.isclass(call) else call).get(name)
    table = get_args(hint)[0] if get_args(hint) else None
    return sorted(getattr(table, "__annotations__", ()))


def _type_name(hint: Any) -> str:
    """A type as code writes it, without modules: where a class stands is not promised."""
    if inspect.isclass(hint) and not get_args(hint):
        return hint.__name__
    return re.sub(r"(?:\w+\.)+(\w+)", r"\1", str(hint))


def output_facts(name: str, printed: Sequence[Any]) -> set[str]:
    """What the JSON values that a command printed say of its fields.

    Their paths, and their kinds.
    """
    facts = set[str]()
    for value in printed:
        for path, kind in _json_paths(value):
            facts.add(
                f"output of {name}: {path}"
                if kind == "null"
                else f"output of {name}: {path} is {kind}"
            )
            facts.add(f"output of {name}: {path}")
    return facts


_KINDS: Final = {
    bool: "true or false",
    int: "a number",
    float: "a number",
    str: "text",
    list: "a list",
    dict: "an object",
    type(None): "null",
}


def _json_paths(value: Any, path: str = "$") -> Iterator[tuple[str, str]]:
    """Each path in a JSON value, and the kind of what stands there."""
    yield path, _KINDS[type(value)]
    if isinstance(value, list):
        for item in value:
            yield from _json_paths(item, f"{path}[]")
    elif isinstance(value, dict):
        for key, item in value.items():
            yield from _json_paths(item, f"{path}.{key}")
