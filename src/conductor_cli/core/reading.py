"""Whether a worker is sent a question whole, and what it is sent where that is too long.

A worker whose context does not hold the question with its files takes no part in a run, because
nobody may take an answer for one about files that it has not read. There are two ways around that.
Of an attached directory it gets the outline, and tools that read it. And a user may have all of it
shortened (`--fit`), which a notice then tells in figures.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Sequence
from dataclasses import replace
from typing import Final, Literal

from conductor_cli.core.chat import Attachment, MediaKind
from conductor_cli.core.errors import Failure
from conductor_cli.core.file_tools import passages_for
from conductor_cli.core.formatting import format_count
from conductor_cli.core.media import attachment_tokens
from conductor_cli.core.outline import OUTLINE_CHARS, as_outline, has_directory
from conductor_cli.core.pool import Worker
from conductor_cli.core.profile import WorkerProfile
from conductor_cli.core.question import File, Question
from conductor_cli.core.terminal_text import one_line
from conductor_cli.core.usage import CHARS_PER_TOKEN

Reading = Literal["whole", "outline", "shortened", "none"]
"""How a worker reads a question: as it is, with the outlines of directories, shortened, or not."""

PROMPT_CHARS: Final = 1500  # What a prompt has besides: the introduction, the subtask, tags
FILE_TAG_CHARS: Final = 50  # Around the text of a file, besides its name
MAX_ANSWER_ROOM: Final = 8000  # Characters that are kept free for the answers of other steps
SHORT_QUESTION_CHARS: Final = 2000
"""A question of at most so many characters is sent to every worker: one whose context does not hold
it can answer nothing.
"""
PASSAGE_CHARS: Final = 6000  # Of passages beside an outline
MAX_NAMED_FILES: Final = 20  # Shortened files that a notice names

READ_WITH_TOOLS: Final = (
    "This directory is too large to be shown. Here is its outline; passages of it that may answer "
    "the question stand below. Answer from them where they say it. Where they do not, look it up "
    "with your tools (search_text, find_files, list_files, read_file). Do not guess."
)


def context_of(worker: Worker, profile: WorkerProfile) -> int:
    """Return the tokens of a worker's context: by its settings, by its model, else as assumed."""
    return int(worker.options.get("context") or worker.max_input or profile.context)


def is_context_known(worker: Worker) -> bool:
    """Return whether anybody says how large a worker's context is."""
    return bool(worker.options.get("context") or worker.max_input)


def room_for_text(
    worker: Worker, profile: WorkerProfile, attachments: Sequence[Attachment] = ()
) -> int:
    """Return the characters of text that a worker's prompt may have."""
    context = context_of(worker, profile)
    answer = min(int(worker.options.get("max_tokens") or profile.max_tokens), context // 2)
    # Half of it stays for the text: how long attachments are is a guess, and so is often the
    # context.
    attached = min(sum(map(attachment_tokens, attachments)), (context - answer) // 2)
    return int((context - answer - attached) * CHARS_PER_TOKEN)


def reading_of(
    question: Question, worker: Worker, profile: WorkerProfile, *, has_tools: bool
) -> Reading:
    """Return how a worker reads a question. `has_tools`: it can be given tools.

    A client's conversation goes to its model as it is, and a model that was trained on prompts of
    its own gets what these hold.
    """
    if question.conversation is not None or profile.render is not None:
        return "whole"
    if _fits(question, worker, profile):
        return "whole"
    if profile.fits_files and _has_room_for_words(question, worker, profile):
        return "shortened"
    if has_tools and has_directory(question):
        outlined = outline_for(question, worker, profile)
        if _fits(outlined, worker, profile, besides=passage_room(worker, profile)):
            return "outline"
    return "none"


def outline_for(question: Question, worker: Worker, profile: WorkerProfile) -> Question:
    """Return the question with outlines of its directories that a worker has room for."""
    room = min(OUTLINE_CHARS, room_for_text(worker, profile) // 4)
    return as_outline(question, room, READ_WITH_TOOLS)


def passage_room(worker: Worker, profile: WorkerProfile) -> int:
    """Return the characters of the passages that stand beside an outline."""
    return min(PASSAGE_CHARS, room_for_text(worker, profile) // 4)


def with_passages(
    outlined: Question, files: Sequence[File], worker: Worker, profile: WorkerProfile
) -> Question:
    """Return a question with the passages of some files that have most of its words.

    They are where a worker begins to look, and for a small model often all that it reads.
    """
    text = passages_for(files, outlined.text, passage_room(worker, profile))
    if not text:
        return outlined
    passages = File(name="passages that have most words of the question", text=text)
    return replace(outlined, files=(*outlined.files, passages))


def _fits(question: Question, worker: Worker, profile: WorkerProfile, *, besides: int = 0) -> bool:
    """Return whether the text and the files of a question fit a worker, with room for answers.

    `besides` characters are needed for something else. Earlier turns do not count: the oldest of
    them are left out where there is no room.
    """
    length = _text_length(question, worker.accepts or ()) + besides
    if length <= SHORT_QUESTION_CHARS:
        return _has_room_for_words(question, worker, profile)
    room = _room_beside_system(question, worker, profile)
    return length + min(MAX_ANSWER_ROOM, room // 4) <= room


def _has_room_for_words(question: Question, worker: Worker, profile: WorkerProfile) -> bool:
    """Return whether system text and schema leave room for the words of the question.

    Short ones always do: a worker whose context does not hold them can answer nothing.
    """
    if _length_of_rules(question) <= SHORT_QUESTION_CHARS:
        return True
    words = min(len(question.text), SHORT_QUESTION_CHARS)
    return words <= _room_beside_system(question, worker, profile)


def _room_beside_system(question: Question, worker: Worker, profile: WorkerProfile) -> int:
    """Return the characters of a prompt that are left for text and files of a question."""
    attachments = question.attachments_for(worker.accepts or ())
    room = room_for_text(worker, profile, attachments) - PROMPT_CHARS
    return room - _length_of_rules(question)


def _length_of_rules(question: Question) -> int:
    """Return how many characters the system text and the schema of a question have."""
    length = len(question.system)
    if question.schema is not None:
        length += len(json.dumps(question.schema, ensure_ascii=False))
    return length


def _text_length(question: Question, accepts: Collection[MediaKind]) -> int:
    """Return about how many characters the text and the files of a question have in a prompt."""
    length = len(question.text)
    for file in question.files:
        length += FILE_TAG_CHARS + len(file.name)
        if not file.is_sent_to(accepts):
            length += len(file.text)
    return length


def too_small(question: Question, worker: Worker, profile: WorkerProfile) -> Failure:
    """Return why a worker does not get a question that it has no room for."""
    length = _text_length(question, worker.accepts or ()) + _length_of_rules(question)
    tokens = int(length / CHARS_PER_TOKEN)
    message = (
        f"{_subject(question)} has about {tokens:,} tokens, and the context of "
        f"{worker.name} holds {_describe_context(worker, profile)}"
    )
    hint = f"if it is larger: conductor workers add {worker.name} --set context=N"
    return Failure(kind="worker", message=message, hint=hint, reason="length")


def nobody_reads(
    question: Question, workers: Sequence[Worker], profile: WorkerProfile
) -> tuple[str, str]:
    """Return the message and the hint for a question that fits the context of no worker."""
    length = _text_length(question, ()) + _length_of_rules(question)
    tokens = int(length / CHARS_PER_TOKEN)
    contexts = [f"{worker.name} {_describe_context(worker, profile)}" for worker in workers]
    message = (
        f"{_subject(question)} has about {tokens:,} tokens, more than any worker reads: "
        f"{', '.join(contexts)}"
    )
    if any(context_of(worker, profile) > tokens for worker in workers):
        message += "; a part of it is kept for the answer"
    return message, ", ".join(_choices(question, workers))


def _choices(question: Question, workers: Sequence[Worker]) -> list[str]:
    """Return what can be done about a question that is too long."""
    has_long_rules = _length_of_rules(question) > SHORT_QUESTION_CHARS
    choices = ["attach less", "add a worker with a larger context"]
    if has_long_rules:
        choices.insert(0, "shorten the system text and the schema")
    unknown = [worker.name for worker in workers if not is_context_known(worker)]
    if unknown:
        choices.append(f"say how large it is (conductor workers add {unknown[0]} --set context=N)")
    if question.files or not has_long_rules:
        choices.append("have it shortened: --fit")
    choices[-1] = f"or {choices[-1]}"
    return choices


def _subject(question: Question) -> str:
    """Return what of a question is too long, in words."""
    parts = []
    if question.files:
        parts.append("its files")
    if _length_of_rules(question) > SHORT_QUESTION_CHARS:
        parts.append("its system text and schema")
    if not parts:
        return "the question"
    return f"the question with {' and '.join(parts)}"


def assumed_context(worker: Worker, profile: WorkerProfile) -> str:
    """Return a remark that the context of a worker is a guess, and how to set it."""
    return (
        f"the context of {worker.name} is unknown, and {profile.context:,} tokens are assumed; to "
        f"set it: conductor workers add {worker.name} --set context=N"
    )


def _describe_context(worker: Worker, profile: WorkerProfile) -> str:
    tokens = f"{context_of(worker, profile):,}"
    if is_context_known(worker):
        return tokens
    return f"{tokens} (assumed)"


def describe_shortened(worker: Worker, parts: Sequence[tuple[str, int, int]]) -> str:
    """Return what a worker was sent of parts that were shortened, and what changes that.

    Each part has its name, the characters that were sent, and those of all. Of a context that
    nobody knows `assumed_context` tells.
    """
    named = []
    for name, sent, length in parts[:MAX_NAMED_FILES]:
        named.append(f"{one_line(name)} {_share(sent, length)}")
    others = parts[MAX_NAMED_FILES:]
    if others:
        share = _share(sum(part[1] for part in others), sum(part[2] for part in others))
        named.append(f"{format_count(len(others), 'other part')} {share}")
    text = f"{worker.name} was sent only a part of {', '.join(named)}"
    if not is_context_known(worker):
        return text
    return f"{text}; if its context is larger: conductor workers add {worker.name} --set context=N"


def _share(kept: int, length: int) -> str:
    """Return `4 % (8,994 of 226,411 characters)`."""
    return f"{100 * kept // max(length, 1)} % ({kept:,} of {length:,} characters)"
