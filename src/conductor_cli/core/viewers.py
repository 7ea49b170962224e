"""Who can see the attachments of a question that have no text, such as images: a plan must ask one of them. Pure.

A step on the conductor itself counts where it sees no earlier answer: its own plan is then held to the same rule.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from conductor_cli.core.chat import MediaKind
from conductor_cli.core.formatting import format_list
from conductor_cli.core.media import describe_media
from conductor_cli.core.plan import SELF, Step
from conductor_cli.core.pool import Pool
from conductor_cli.core.question import Question
from conductor_cli.core.sanitize import one_line

_SINGULARS: Final[Mapping[MediaKind, str]] = {"image": "image", "pdf": "PDF"}
_PLURALS: Final[Mapping[MediaKind, str]] = {"image": "images", "pdf": "PDFs"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Viewers:
    """For each kind of attachment without text that a question has: one file of it, and the workers that can see it.

    `hidden` are those that could if the policy did not hide the file from them.
    """

    files: Mapping[MediaKind, str]
    names: Mapping[MediaKind, tuple[str, ...]]
    hidden: Mapping[MediaKind, tuple[str, ...]]

    def seen_by(self, worker: str) -> frozenset[MediaKind]:
        """The kinds that a worker can see."""
        return frozenset(kind for kind, names in self.names.items() if worker in names)

    def best_of(self, workers: Sequence[str]) -> tuple[str, ...]:
        """Those of these workers that see the most kinds; all of them where there is nothing to see."""
        most = max((len(self.seen_by(worker)) for worker in workers), default=0)
        return tuple(worker for worker in workers if len(self.seen_by(worker)) == most)

    def may_replace(self, worker: str, planned: str) -> bool:
        """Whether a worker sees all that the planned one would."""
        return self.seen_by(planned) <= self.seen_by(worker)

    def unseen(self, steps: Iterable[Step]) -> tuple[MediaKind, ...]:
        """The kinds that no step sees."""
        steps = tuple(steps)
        if any(step.worker == SELF and not step.access for step in steps):
            return ()
        seen = {kind for step in steps for kind in self.seen_by(step.worker)}
        return tuple(kind for kind in self.files if kind not in seen)

    def fault(self, steps: Iterable[Step]) -> str:
        """Why these steps are not a valid plan; empty where they are."""
        for kind in self.unseen(steps):
            who = format_list(self.names[kind]) or "nobody"
            # Without the name of the file: the planner may not be shown the files.
            return f"no step asks a worker that can see the attached {_SINGULARS[kind]}; {who} can"
        return ""


def find_viewers(question: Question, shown: Mapping[str, Question], pool: Pool) -> Viewers:
    """Who can see what. `shown` is the question as each worker of the pool is shown it by the policy.

    A nested run that was given an answer needs nobody to look again.
    """
    kinds = {} if question.given else {file.kind_without_text: file for file in reversed(question.files)}
    files = {kind: one_line(file.name) for kind, file in kinds.items() if kind is not None}
    names = {
        kind: tuple(
            worker.name
            for worker in pool
            if kind in (worker.accepts or ())
            and any(file.kind_without_text == kind for file in shown[worker.name].files)
        )
        for kind in files
    }
    hidden = {
        kind: tuple(one.name for one in pool if kind in (one.accepts or ()) and one.name not in names[kind])
        for kind in files
    }
    return Viewers(files=files, names=names, hidden=hidden)


def nobody_sees(viewers: Viewers, absent: Collection[str]) -> tuple[str, str]:
    """What to say and to advise where nobody can see a file, else nothing. The workers in `absent` cannot be asked."""
    for kind, names in viewers.names.items():
        if set(names) - set(absent):
            continue
        could = f"{format_list(names)} could, but cannot be used; " if names else ""
        if hidden := viewers.hidden.get(kind):
            hint = f"{format_list(hidden)} could, but a rule hides the files: conductor config show"
            return f"nobody who may see {viewers.files[kind]} accepts {_PLURALS[kind]}", hint
        hint = f"{could}if a worker can, say so: conductor workers add NAME --accepts {kind}"
        return f"no worker of this run accepts {_PLURALS[kind]}, so nobody could see {viewers.files[kind]}", hint
    return "", ""


def describe_attached(
    question: Question, shown: Mapping[str, Question], labels: Mapping[str, str], pool: Pool
) -> list[str]:
    """What the planner is told of the attachments, a line each: what it is, and which workers, by label, can see it.

    `question` is the one that the planner is shown, `shown` what each worker is.
    """
    lines = []
    for file in question.files:
        if file.attachment is None:
            continue
        able = [
            label
            for label, worker in labels.items()
            if worker in shown and file in shown[worker].files and file.is_sent_to(pool[worker].accepts or ())
        ]
        name = f'Attached: "{one_line(file.name)}" ({describe_media(file.attachment)}).'
        if file.kind_without_text is None:
            lines.append(f"{name} Every worker reads its text" + (f"; {format_list(able)} the file." if able else "."))
        else:
            lines.append(f"{name} Only {format_list(able)} can see it, so a step of one of these must look at it.")
    return lines
