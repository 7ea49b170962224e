"""The question whether workers may read the AGENTS.md of a project, and the answer that is kept."""

from __future__ import annotations

from conductor_cli.app import memory as project_memory
from conductor_cli.cli.confirmation import can_ask, confirm
from conductor_cli.cli.output import print_notice
from conductor_cli.cli.session import Session
from conductor_cli.core.errors import UsageError
from conductor_cli.core.formatting import format_count
from conductor_cli.core.terminal_text import reveal

ASK_AGAIN = "conductor ask --memory shows it on a terminal and asks"


def memory_context(session: Session, wanted: bool | None) -> tuple[str, ...]:
    """Return what workers read of the project's memory; nothing without the user's consent.

    `wanted` is what `--memory` or `--no-memory` says; None for neither. Raises `UsageError` where
    it is wanted and cannot be had.
    """
    # The demo models read nothing but the question.
    if wanted is False or session.settings.rehearsal:
        return ()
    memory = project_memory.find_memory(session.settings, session.tell)
    if memory is None:
        if wanted:
            names = ", ".join(project_memory.NAMES)
            hint = f"it would be one of {names}; conductor config show {project_memory.SWITCH}"
            raise UsageError("no project memory can be read here", hint=hint)
        return ()
    consent = project_memory.consent_to(memory, session.settings)
    may_ask = consent in {"unasked", "changed"} or (wanted and consent == "no")
    if may_ask and can_ask():
        consent = "yes" if _ask_consent(session, memory) else "no"
    elif wanted and consent != "yes":
        raise UsageError(f"{memory.names} was not shown to you yet", hint=ASK_AGAIN)
    elif consent == "changed":
        print_notice(f"{memory.names} changed since you agreed to it, and is not read; {ASK_AGAIN}")
    if consent != "yes":
        return ()
    session.tell(project_memory.describe_memory(memory))
    return memory.context()


def _ask_consent(session: Session, memory: project_memory.Memory) -> bool:
    """Show a memory, ask whether workers may read it, keep the answer, and return it."""
    print_notice(reveal(project_memory.shown_text(memory.files)))
    print_notice("")
    lines = format_count(memory.lines, "line")
    agreed = confirm(
        f"Let workers read {memory.names} of this project ({lines}, all shown above) "
        "as context, until it changes?",
        default=False,
    )
    project_memory.store_consent(memory, session.settings, agreed=agreed)
    if not agreed:
        print_notice(f"it is not read in {memory.directory}; to be asked again: --memory")
    return agreed
