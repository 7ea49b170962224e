"""Templates of questions: TOML files of the user, of the project, and those that ship.

A template has a question with `$name` placeholders, and may have a system text, workers, limits, a
JSON Schema and the steps of a plan. It chooses among the user's workers and lowers limits; it
cannot add a worker or raise a limit. One of the project was written by somebody else, so it is used
only once its text was shown.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from decimal import Decimal
from functools import cached_property
from hashlib import sha256
from pathlib import Path
from typing import Any, Final

from conductor_cli.config.files import Source, read_toml
from conductor_cli.config.project import SWITCH, project_places
from conductor_cli.config.settings import Settings
from conductor_cli.core.errors import UsageError, suggest
from conductor_cli.core.formatting import format_money, format_names
from conductor_cli.core.mappings import names_of, without_empty
from conductor_cli.core.plan import REVIEW, SELF, Plan, Step, to_written_name
from conductor_cli.core.plan_file import changed_limits
from conductor_cli.core.pool import Worker
from conductor_cli.core.serialization import DecodeError, load
from conductor_cli.core.trace import Trace
from conductor_cli.models.prices import with_prices
from conductor_cli.models.recipients import is_local
from conductor_cli.models.worker_options import model_of
from conductor_cli.programs.schema_check import unwritable_number
from conductor_cli.state.opening import open_state
from conductor_cli.system.disk import make_private_directory, write_atomically

SHIPPED: Final = Path(__file__).parents[1] / "recipes"
SHIPPED_ORIGIN: Final = "shipped"  # Whose templates these are
NAME: Final = re.compile(r"[A-Za-z0-9][\w-]{0,39}")
PLACEHOLDER: Final = re.compile(r"\$(\$|[a-z][a-z0-9_]*)")
LOCAL: Final = "local"  # What a template calls a worker whose texts stay on this machine
QUESTION: Final = "question"  # The placeholder of the words on the command line
SKELETON: Final = 'question = """\n$question\n"""\n# what else it may have: docs/templates.md\n'


@dataclass(frozen=True, slots=True, kw_only=True)
class Template:
    """What a template's file says.

    `limits` by the names of `Limits`, `params` with their values unless others come. `files_only`
    holds selectors as `policy.files_only` does, and applies besides it.
    """

    about: str = ""
    question: str = ""
    system: str = ""
    workers: tuple[str, ...] = ()
    params: Mapping[str, str] = field(default_factory=dict)
    limits: Mapping[str, Any] = field(default_factory=dict)
    files_only: tuple[str, ...] = ()
    schema: Mapping[str, Any] | None = None
    steps: tuple[Step, ...] = ()

    @property
    def plan(self) -> Plan | None:
        """The plan, None where the planner writes it."""
        if not self.steps:
            return None
        return Plan(steps=self.steps)


@dataclass(frozen=True, kw_only=True)
class TemplateFile:
    """A template where it is, which is read once. `origin` is `yours`, `project` or `shipped`."""

    name: str
    origin: str
    path: Path

    @cached_property
    def source(self) -> Source:
        """The file. Raises `ConfigError`."""
        return read_toml(self.path, required=True)

    @property
    def hash(self) -> str:
        """The SHA-256 of its text. Raises `ConfigError`."""
        return sha256(self.source.text.encode()).hexdigest()

    def read(self) -> Template:
        """Return what it says. Raises `UsageError` or `ConfigError`."""
        if not self.source.values:
            hint = f"remove it, or write one into it: conductor template edit {self.name}"
            raise UsageError(f"{self.path} is empty, so it asks nothing", hint=hint)
        unknown = set(self.source.values) - set(names_of(fields(Template)))
        try:
            if unknown:
                raise DecodeError(f"unknown {', '.join(sorted(unknown))}")
            template = load(Template, dict(self.source.values))
            if fault := unwritable_number(template.schema):  # TOML has `inf`
                raise DecodeError(f"schema: {fault}")
        except DecodeError as error:
            raise UsageError(
                f"{self.path}: {error}", hint=f"conductor template edit {self.name}"
            ) from None
        return template


TOKENS_FOR_A_DOLLAR: Final = 400_000
"""Those that a limit on tokens has in place of a dollar: as the limits that `setup` proposes."""


def enforceable_limits(
    template: Template, name: str, workers: Sequence[Worker]
) -> tuple[Mapping[str, Any], str]:
    """Return the limits of a template that came with this package, and what to tell of them.

    One on money cannot be enforced for workers without a price, so it is one on tokens for them.
    """
    cost = template.limits.get("cost")
    unpriced = [worker.name for worker in with_prices(workers)[0] if worker.price is None]
    if cost is None or not unpriced:
        return template.limits, ""
    limits = dict(template.limits)
    del limits["cost"]
    tokens = int(Decimal(str(cost)) * TOKENS_FOR_A_DOLLAR)
    limits["tokens"] = min(tokens, limits.get("tokens") or tokens)
    notice = (
        f"the template {name} limits a run to {format_money(Decimal(str(cost)))}, which needs "
        f"prices, and there is none of {format_names(unpriced)}: the limit is "
        f"{limits['tokens']:,} tokens instead; to set a price: conductor workers set "
        f"{unpriced[0]} price=IN,OUT"
    )
    return limits, notice


def own_path(settings: Settings, name: str) -> Path:
    """Return where the user's template of this name is.

    Raises `UsageError` for a name that cannot be used.
    """
    if not NAME.fullmatch(name):
        raise UsageError(
            f"{name!r:.60} is no name for a template", hint="use letters, digits, - and _"
        )
    return settings.paths.config / "templates" / f"{name}.toml"


def find_templates(settings: Settings) -> dict[str, TemplateFile]:
    """Return all templates by name.

    Those of the user come before those of the project, and these before the shipped.

    So a project cannot take the place of one that the user wrote.
    """
    directories = [("yours", settings.paths.config / "templates")]
    if settings[SWITCH]:
        for settings_file in reversed(project_places()):
            directory = settings_file.parent / ".conductor" / "templates"
            directories.append(("project", directory))
    directories.append((SHIPPED_ORIGIN, SHIPPED))
    files: dict[str, TemplateFile] = {}
    for origin, directory in directories:
        for path in sorted(directory.glob("*.toml")):
            if NAME.fullmatch(path.stem) and path.is_file():  # a pipe would be waited for
                files.setdefault(path.stem, TemplateFile(name=path.stem, origin=origin, path=path))
    return dict(sorted(files.items()))


def find_template(settings: Settings, name: str) -> TemplateFile:
    """Return the template of this name. Raises `UsageError`."""
    files = find_templates(settings)
    if name not in files:
        hint = suggest(name, files, "conductor template list shows them")
        raise UsageError(f"there is no template {name!r:.60}", hint=hint)
    return files[name]


def is_unseen(file: TemplateFile, settings: Settings) -> bool:
    """Return whether somebody else wrote this text and the user was not shown it yet.

    Raises `ConfigError`.
    """
    return (
        file.origin == "project"
        and file.hash not in open_state(settings.paths).seen_templates.read()
    )


def note_seen(file: TemplateFile, settings: Settings) -> None:
    """Remember that the user was shown this text. Raises `ConfigError`."""
    if is_unseen(file, settings):
        open_state(settings.paths).seen_templates.set(file.hash, str(file.path))


def fill_template(template: Template, name: str, given: Mapping[str, str], words: str) -> Template:
    """Return a template with values in place of `$name`, and `words` for `$question`.

    `$$` is a dollar sign.

    Where its question has no `$question`, the words replace it. Raises `UsageError` where a value
    is missing, or has no place.
    """
    if words and QUESTION not in PLACEHOLDER.findall(template.question):
        template = replace(template, question=f"${QUESTION}")
    values = {**template.params, **given}
    if words:
        values[QUESTION] = words
    used = set[str]()

    def value_of(placeholder: re.Match[str]) -> str:
        name = placeholder[1]
        if name == "$":
            return "$"
        used.add(name)
        return values.get(name, placeholder[0])

    def fill(text: str) -> str:
        return PLACEHOLDER.sub(value_of, text)

    steps = []
    for step in template.steps:
        steps.append(replace(step, worker=fill(step.worker), subtask=fill(step.subtask)))
    filled = replace(
        template,
        question=fill(template.question).strip(),
        system=fill(template.system),
        workers=tuple(map(fill, template.workers)),
        steps=tuple(steps),
    )
    if missing := sorted(used - set(values)):
        hint = f"-p {missing[0]}=…"
        if missing == [QUESTION]:
            hint = f'conductor ask -t {name} "…"'
        words_for = {QUESTION: "a question"}
        needed = ", ".join(words_for.get(param, param) for param in missing)
        raise UsageError(f"the template {name} needs {needed}", hint=hint)
    if extra := sorted(set(given) - used):
        raise UsageError(
            f"the template {name} has no ${extra[0]:.40}", hint=f"conductor template show {name}"
        )
    return filled


def stand_ins(
    template: Template, given: Mapping[str, str], workers: Sequence[Worker]
) -> dict[str, str]:
    """Return a worker of the user for each placeholder of a worker whose own value names none.

    A value that was `given` stays. A worker of that name's provider or tag comes first, then those
    that no other placeholder has. In the place of `local` only a worker on this machine stands, so
    where there is none, that placeholder is missing here.
    """
    names = set(names_of(workers))
    chosen = dict[str, str]()  # By the name that the template has
    stand_in_values = dict[str, str]()
    for text in dict.fromkeys((*template.workers, *(step.worker for step in template.steps))):
        name = text.removeprefix("$")
        wanted = template.params.get(name, "")
        is_named = wanted in {*names, SELF, REVIEW, ""}
        is_open = text.startswith("$") and name not in given and not is_named
        if not is_open:
            continue
        if wanted not in chosen:
            worker = _stand_in(wanted, workers, {*chosen.values(), *template.params.values()})
            if worker is None:
                continue
            chosen[wanted] = worker.name
        stand_in_values[name] = chosen[wanted]
    return stand_in_values


def _stand_in(wanted: str, workers: Sequence[Worker], avoided: Collection[str]) -> Worker | None:
    """Return the worker that is most like the `wanted` one, rather one that is not taken."""
    if wanted == LOCAL:
        workers = [worker for worker in workers if is_local(worker)]

    def likeness(worker: Worker) -> tuple[bool, bool]:
        words = f"{worker.name} {worker.kind} {model_of(worker)}".lower()
        is_like = wanted.lower() in words or wanted in worker.tags
        return is_like, worker.name not in avoided

    return max(workers, key=likeness, default=None)


def save_template(path: Path, text: str) -> None:
    """Write a template of the user. Raises `UsageError`."""
    try:
        make_private_directory(path.parent)
        write_atomically(path, text, mode=0o600)
    except OSError as error:
        raise UsageError(
            f"{path} cannot be written: {error.strerror}", hint="check the disk"
        ) from None


def template_of_run(trace: Trace) -> str:
    """Return the text of a template that asks what a run asked, by the plan that it had."""
    import tomli_w  # only where something is written

    def keep(text: str) -> str:
        return re.sub(r"\$(?=[$a-z])", "$$", text)

    question = trace.question
    steps = []
    if isinstance(trace.plan, Plan):
        for step in trace.plan.steps:
            worker = to_written_name(step.worker, trace.pool.names)
            access = list(step.access)
            steps.append({"worker": worker, "subtask": keep(step.subtask), "access": access})
    files_only: list[str] = []
    if trace.policy.files_only:  # that of a template comes last; the others are settings
        files_only = list(trace.policy.files_only[-1])
    fields = {
        "about": f"from run {trace.run}",
        "question": keep(question.text),
        "system": keep(question.system),
        "limits": changed_limits(trace.limits),
        "files_only": files_only,
        "schema": question.schema,
        "steps": steps,
    }
    return tomli_w.dumps(without_empty(fields), multiline_strings=True)
