"""`conductor template`: save, list, show and edit templates of questions; a template for `ask`."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import Annotated, Any, Literal

import typer  # noqa: TC002 - Typer reads the annotations

from conductor_cli.app import templates
from conductor_cli.app.worker_selection import (
    discovered_workers,
    offered_workers,
    policy_objection,
)
from conductor_cli.cli import options as opt
from conductor_cli.cli.confirmation import can_ask, confirm
from conductor_cli.cli.keypress import TERMINAL
from conductor_cli.cli.output import print_json, print_line, print_table
from conductor_cli.cli.session import Session, read_text_file
from conductor_cli.config.settings import Settings
from conductor_cli.core.errors import ConductorError, UsageError
from conductor_cli.core.formatting import format_count
from conductor_cli.core.mappings import names_of
from conductor_cli.core.plan import REVIEW, SELF, from_written_name
from conductor_cli.core.pool import Worker
from conductor_cli.state.opening import open_state
from conductor_cli.system.terminal_tables import Column

Action = Literal["list", "show", "save", "edit"]


def template_command(
    context: typer.Context,
    action: Annotated[Action, opt.argument(None, "What to do.")],
    name: Annotated[str | None, opt.argument("NAME", "The template's name.")] = None,
    run: Annotated[str, opt.argument("RUN", "The run of which save makes a template.")] = "last",
    json: opt.Json = False,
) -> None:
    """Save, list, show and edit templates.

    Question, system text, workers, limits, schema and plan in one file.

    conductor ask -t NAME asks by one. They are yours, those of the project (.conductor/templates),
    and those that ship.
    """
    settings = opt.stored_settings(context)
    if action == "list":
        _list_templates(settings, json=json)
        return
    if name is None:
        raise UsageError(
            f"template {action} needs a name",
            hint="conductor template list shows those that there are",
        )
    match action:
        case "show":
            file = templates.find_template(settings, name)
            print_line(file.source.text.rstrip("\n"))
            templates.note_seen(file, settings)
        case "save":
            _save_template(settings, name, run)
        case "edit":
            _edit_template(settings, name)


def _list_templates(settings: Settings, *, json: bool) -> None:
    rows = []
    for file in templates.find_templates(settings).values():
        try:
            about = file.read().about
        except ConductorError as error:
            about = error.message
        rows.append([file.name, file.origin, about])
    if json:
        print_json([dict(zip(("name", "origin", "about"), row, strict=True)) for row in rows])
    else:
        print_table((Column("NAME"), Column("FROM", drop=1), "ABOUT"), rows)


def _save_template(settings: Settings, name: str, run: str) -> None:
    path = templates.own_path(settings, name)
    if path.exists():
        hint = f"conductor template edit {name}"
        raise UsageError(f"there is a template {name} already", hint=hint)
    trace = open_state(settings.paths).traces.ended(run)
    templates.save_template(path, templates.template_of_run(trace))
    print_line(f"saved {path}; to change it: conductor template edit {name}")


def _edit_template(settings: Settings, name: str) -> None:
    from conductor_cli.cli.approval import edit_text

    path = templates.own_path(settings, name)
    file = templates.find_templates(settings).get(name)
    before = templates.SKELETON
    if file is not None:
        before = read_text_file(file.path)  # it may be no TOML yet
    try:
        with open(TERMINAL, "r+b", buffering=0) as terminal:  # noqa: PTH123 - a path of the system
            text = edit_text(before, terminal.fileno(), lambda: False, path.name)
    except OSError:
        raise UsageError("editing needs a terminal", hint=f"write {path} yourself") from None
    if text == before:
        print_line("nothing was changed")
        return
    templates.save_template(path, text)
    # It is kept, and the user is told what is wrong.
    templates.TemplateFile(name=name, origin="yours", path=path).read()
    print_line(f'saved {path}; to use it: conductor ask -t {name} "…"')


def open_template(
    session: Session, name: str, params: Sequence[str], words: str, only: Sequence[str]
) -> templates.Template:
    """Return a template with its values, and narrow limits and policy of the session by it.

    `only` are the workers that the command line names. Raises `UsageError`, also where the project
    brought the template and the user does not agree to its text, or where a value that names the
    worker of a step is no worker of the user.
    """
    file = templates.find_template(session.settings, name)
    values = _values_of(params)
    _agree_to_text(file, session)
    template = file.read()
    if template.files_only:
        session.narrow_readers(template.files_only, str(file.path))
    if session.settings.rehearsal:
        _lower_limits(session, file, template.limits)
        return _with_reviews(templates.fill_template(template, name, values, words), ())
    workers = _usable_workers(session.settings, only)
    limits = template.limits
    # Whoever limits money wants that kept, and is told that it cannot be
    if file.origin == templates.SHIPPED_ORIGIN and session.settings["limits.cost"] is None:
        limits, notice = templates.enforceable_limits(template, name, workers)
        if notice:
            session.tell(notice)
    _lower_limits(session, file, limits)
    stand_ins = templates.stand_ins(template, values, workers)
    filled = templates.fill_template(template, name, {**stand_ins, **values}, words)
    names = names_of(workers)
    filled = _with_reviews(filled, names)
    usable = [*names, SELF]
    for step, given in zip(filled.steps, template.steps, strict=True):
        if step.worker not in usable and given.worker.startswith("$"):
            workers_of_user = ", ".join((*names, REVIEW))
            hint = f"name one of yours: -p {given.worker[1:]}=NAME; known: {workers_of_user}"
            raise UsageError(
                f"the template gives a step to {step.worker!r:.60}, which is no worker", hint=hint
            )
    if stand_ins:
        session.tell(_describe_stand_ins(name, stand_ins))
    return filled


def _values_of(params: Sequence[str]) -> dict[str, str]:
    """Return the values of `--param NAME=VALUE`. Raises `UsageError`."""
    values = dict[str, str]()
    for text in params:
        key, equals, value = text.partition("=")
        if not equals:
            raise UsageError(
                f"--param takes NAME=VALUE, not {text!r:.40}", hint="for example: -p lang=rust"
            )
        opt.add_assignment(values, key, value, f"--param {key}")
    return values


def _describe_stand_ins(name: str, stand_ins: Mapping[str, str]) -> str:
    """Return which workers of the user take the place of those that a template names."""
    chosen = ", ".join(f"{key} = {worker}" for key, worker in stand_ins.items())
    key = next(iter(stand_ins))
    return (
        f"the template {name} names workers that you do not have, so it takes yours: {chosen}; to "
        f"choose: -p {key}=NAME"
    )


def _agree_to_text(file: templates.TemplateFile, session: Session) -> None:
    """Show the text of a project's template before its first use.

    Raises `UsageError` where the user does not agree, or cannot be asked.
    """
    if not templates.is_unseen(file, session.settings):
        return
    agreed = can_ask()
    if agreed:
        print_line(f"{file.path} came with this project:\n\n{file.source.text}")
        lines = format_count(len(file.source.text.splitlines()), "line")
        agreed = confirm(f"Use it from now on ({lines}, all shown above)?", default=False)
    if not agreed:
        raise UsageError(
            f"the template {file.name} came with this project and was not shown to you yet",
            hint=f"conductor template show {file.name} shows it; then it can be used",
        )
    templates.note_seen(file, session.settings)


def _lower_limits(
    session: Session, file: templates.TemplateFile, limits: Mapping[str, Any]
) -> None:
    settings = {f"limits.{key}": value for key, value in limits.items()}
    session.lower_limits(opt.check_flags(settings, str(file.path)), str(file.path))


def _usable_workers(settings: Settings, only: Sequence[str]) -> Sequence[Worker]:
    """Return the workers that a run may ask; all of them where it may ask none."""
    workers = offered_workers(settings) or [item.worker for item in discovered_workers(settings)]
    usable: list[Worker] = []
    for worker in workers:
        is_named = not only or worker.name in only
        if is_named and not policy_objection(settings, worker):
            usable.append(worker)
    return usable or workers


def _with_reviews(template: templates.Template, workers: Collection[str]) -> templates.Template:
    """Return a template whose steps on `review` are done by the planner."""
    steps = []
    for step in template.steps:
        steps.append(replace(step, worker=from_written_name(step.worker, workers)))
    return replace(template, steps=tuple(steps))
