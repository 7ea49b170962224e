"""Scripted workers with known strengths, their cards, what they answer, and a server of them on loopback.

Each is good at one or two subjects, fair at two, and weak at the others, to a degree of its own. Names and descriptions
say nothing about that: only the figures of the card do. A worker reads its subtask and the answers that it sees. At
each subject it is right with the probability on its card. Whether it is right at one part of one request is drawn from
the request's seed, so an equal request gets an equal answer. It never reads the whole question: to a subtask that it
does not understand it answers that it does not know.
"""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from random import Random
from typing import Any, Final

from conductor_cli.core.pool import Card, Worker
from training.rehearsal.words import WORDS
from training.smollm2.questions import FACTS, SUBJECTS, TONGUES, Fact, compute

KIND: Final = "openai-compatible"
ABOUT: Final = (
    "general purpose", "assistant", "all kinds of tasks", "chat model", "helps with anything", "large model",
)  # fmt: skip


def draw_workers(count: int, *seed: object) -> tuple[Worker, ...]:
    """`count` workers with different names; the same ones for the same seed."""
    random = Random(" ".join(map(str, ("workers", *seed))))
    return tuple(_draw_worker(random, name.lower()) for name in random.sample(WORDS, count))


def _draw_worker(random: Random, name: str) -> Worker:
    good = random.choice((1, 1, 2))
    order = random.sample(SUBJECTS, len(SUBJECTS))
    ranges = [(0.84, 0.98)] * good + [(0.45, 0.72)] * 2 + [(0.04, 0.35)] * (len(SUBJECTS) - good - 2)
    drawn = {subject: round(random.uniform(*bounds), 2) for subject, bounds in zip(order, ranges, strict=True)}
    strengths = {subject: drawn[subject] for subject in SUBJECTS}
    return Worker(name=name, kind=KIND, model=name, about=random.choice(ABOUT), card=Card(strengths=strengths))


def best_for(subject: str, workers: Sequence[Worker]) -> Worker:
    """The worker with the highest strength at a subject."""
    return max(workers, key=lambda worker: worker.card.strengths[subject])


def config_text(workers: Sequence[Worker], port: int) -> str:
    """The workers as tables of a `config.toml`, all at one address on this machine. They cost nothing."""
    lines = []
    for worker in workers:
        card = ", ".join(f"{subject} = {value}" for subject, value in worker.card.strengths.items())
        lines += [
            f"[workers.{worker.name}]", f'kind = "{KIND}"', f'model = "{worker.model}"',
            f'base_url = "http://127.0.0.1:{port}/v1"', f'about = "{worker.about}"',
            f"card = {{ strengths = {{ {card} }} }}", "price = { input = 0.0, output = 0.0 }", "max_tokens = 64", "",
        ]  # fmt: skip
    return "\n".join(lines)


UNKNOWN: Final = "I do not know."

_BLOCK: Final = re.compile(r"<(question|answer)-[0-9a-f]{8}[^>]*>\n(.*?)\n</\1-[0-9a-f]{8}>", re.DOTALL)
_SUBTASK: Final = re.compile(r"^Your subtask: (.*)$", re.MULTILINE)
_TIMES: Final = re.compile(r"\b(?:times|product|multiply|multiplied)\b", re.IGNORECASE)
_MINUS: Final = re.compile(
    r"\b(?:minus|subtract\w*|less|difference|differ|apart|reduce|away|smaller|lower)\b", re.IGNORECASE
)
_PLUS: Final = re.compile(r"\b(?:plus|add|sum|total|together|larger|more|increase)\b", re.IGNORECASE)
_DOUBLE: Final = re.compile(r"\b(?:double|twice|two times)\b", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Task:
    """What a worker is asked: its subtask, and the answers that it sees."""

    subtask: str
    seen: tuple[str, ...]


def read_task(prompt: str) -> Task:
    """The task in a prompt that `core.prompts.worker_messages` wrote."""
    blocks = _BLOCK.findall(prompt)
    found = _SUBTASK.search(prompt)
    return Task(found[1] if found else "", tuple(text for kind, text in blocks if kind == "answer"))


def answer(task: Task, name: str, strengths: Mapping[str, float], seed: int) -> str:
    """What the worker `name` answers."""
    return _Answering(name, strengths, seed).solve(task.subtask, task.seen) or UNKNOWN


@dataclass(frozen=True, slots=True)
class _Answering:
    name: str
    strengths: Mapping[str, float]
    seed: int

    def solve(self, text: str, seen: Sequence[str]) -> str:
        """The answer to a text that asks for facts, for what is done with them, or for both; empty if for neither."""
        facts = find_facts(text)
        known = [self._recall(fact) for fact in facts] or list(seen)
        tongue = next((tongue for tongue in TONGUES if tongue in text), "")
        if tongue and not any(fact.kind == tongue for fact in facts):
            return self._translate(known[-1], tongue) if known else ""
        rest = text
        for fact in facts:  # whose names may hold numbers
            rest = rest.replace(fact.key, " ")
        written = [int(number) for number in re.findall(r"\d+", rest)]
        numbers = [int(number) for item in known for number in re.findall(r"-?\d+", item)[-1:]] + written
        if _DOUBLE.search(text) and numbers:
            return self._work_out("2", numbers[0], 0)
        sign = "*" if _TIMES.search(text) else "-" if _MINUS.search(text) else "+" if _PLUS.search(text) else ""
        if sign and len(numbers) >= 2:
            return self._work_out(sign, numbers[0], numbers[1])
        return " and ".join(self._recall(fact) for fact in facts)

    def _recall(self, fact: Fact) -> str:
        others = [other.answer for other in FACTS if other.kind == fact.kind and other.answer != fact.answer]
        return fact.answer if self._is_right(fact.subject, fact.phrase) else self._random(fact.phrase).choice(others)

    def _translate(self, word: str, tongue: str) -> str:
        words = TONGUES[tongue]
        right = words.get(word.strip(" .").lower())
        if right is not None and self._is_right("languages", f"{tongue} {word}"):
            return right
        return self._random(tongue, word).choice([other for other in words.values() if other != right])

    def _work_out(self, sign: str, first: int, second: int) -> str:
        value = compute(sign, first, second)
        part = f"{first} {sign} {second}"
        return str(value if self._is_right("arithmetic", part) else value + self._random(part).randint(1, 9))

    def _is_right(self, subject: str, part: str) -> bool:
        return self._random("luck", part).random() < self.strengths[subject]

    def _random(self, *part: str) -> Random:
        return Random(" ".join((str(self.seed), self.name, *part)))


def find_facts(text: str) -> list[Fact]:
    """The facts that a text asks for, in its order."""
    found: dict[int, Fact] = {}
    for fact in FACTS:
        if fact.key not in text:  # much cheaper than the pattern, for hundreds of facts
            continue
        at = re.search(rf"\b{re.escape(fact.key)}\b", text)
        if at is not None and _is_meant(fact, text, at.start()):
            found.setdefault(at.start(), fact)
    return [found[at] for at in sorted(found)]


def _is_meant(fact: Fact, text: str, at: int) -> bool:
    """Whether a word is asked for as this kind of fact: `iron` may be translated, or have an atomic number."""
    if fact.kind in TONGUES:
        return fact.kind in text and not re.search(r"atomic|protons", text)
    return fact.kind != "number" or re.search(r"atomic|protons", text[max(at - 60, 0) :]) is not None


LARGEST: Final = 1 << 20  # bytes of a request; a larger one is none of ours


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    strengths: Mapping[str, Mapping[str, float]]

    def do_GET(self) -> None:
        """The list of models."""
        models = [{"id": name, "object": "model"} for name in self.strengths]
        self._send(200, "application/json", json.dumps({"object": "list", "data": models}))

    def do_POST(self) -> None:
        """A chat completion, streamed or not."""
        length = int(self.headers.get("content-length", "0"))
        if length > LARGEST:
            self._send(413, "application/json", "{}")
            return
        asked = json.loads(self.rfile.read(length))
        strengths = self.strengths.get(asked["model"])
        if strengths is None:
            self._send(404, "application/json", json.dumps({"error": {"message": "there is no such model"}}))
            return
        prompt = "\n\n".join(str(message["content"]) for message in asked["messages"])
        text = answer(read_task(prompt), asked["model"], strengths, int(asked.get("seed") or 0))
        usage = {"prompt_tokens": len(prompt) // 4, "completion_tokens": len(text) // 4 + 1}
        usage["total_tokens"] = sum(usage.values())
        if asked.get("stream"):
            self._send(200, "text/event-stream", _frames(text, usage))
        else:
            choice = {"index": 0, "message": {"role": "assistant", "content": text}, "finish_reason": "stop"}
            body = {"object": "chat.completion", "choices": [choice], "usage": usage}
            self._send(200, "application/json", json.dumps(body))

    def _send(self, status: int, kind: str, body: str) -> None:
        data = body.encode()
        self.send_response(status)
        self.send_header("content-type", kind)
        self.send_header("content-length", str(len(data)))
        self.end_headers()
        with suppress(ConnectionError):  # a run that was stopped does not wait for its answers
            self.wfile.write(data)

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the library's names
        """Say nothing."""


def _frames(text: str, usage: Mapping[str, int]) -> str:
    chunk = {"object": "chat.completion.chunk"}
    parts: list[dict[str, Any]] = [
        {**chunk, "choices": [{"index": 0, "delta": {"role": "assistant", "content": text}, "finish_reason": None}]},
        {**chunk, "choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]},
        {**chunk, "choices": [], "usage": usage},
    ]
    return "".join(f"data: {json.dumps(part)}\n\n" for part in parts) + "data: [DONE]\n\n"


@contextmanager
def serving(workers: Sequence[Worker], port: int) -> Iterator[int]:
    """The workers at a port of this machine, 0 for any free one, until the end of the block. Raises `OSError`."""
    strengths = {worker.model: worker.card.strengths for worker in workers}
    handler = type("Handler", (_Handler,), {"strengths": strengths})
    with ThreadingHTTPServer(("127.0.0.1", port), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        try:
            yield server.server_port
        finally:
            server.shutdown()
