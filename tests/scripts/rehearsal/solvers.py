"""Doubles of the rehearsal's workers: they read the message that real ones read, and do by rule what those learnt."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from conductor_cli.core.chat import Request
from conductor_cli.core.pool import Card, Pool, Worker
from conductor_cli.core.usage import FREE
from conductor_cli.models.scripted import ScriptedModel
from conductor_cli.rehearsal.normalize import Skill
from scripts.rehearsal.operations import OPERATIONS, SKILLS
from scripts.rehearsal.phrasings import WAYS, PhrasingForm

FORMS: tuple[PhrasingForm, ...] = ("noun", "ask", "order")
VALUE = r"(?P<x>it|that|its|the result|[A-Z0-9]+)"


def _patterns(skill: Skill) -> Iterator[tuple[str, re.Pattern[str]]]:
    for name, ways in WAYS.items():
        for form in FORMS:
            for phrasing in ways.of(form, "all") if OPERATIONS[name].skill == skill else ():
                text = re.escape(phrasing.removeprefix("the ")).replace(r"\{x\}'s", rf"(?:{VALUE}'s|its)")
                yield name, re.compile(text.replace(r"\{x\}", VALUE).replace(r"\{k\}", r"(?P<k>\d+)"))


PATTERNS = {skill: list(_patterns(skill)) for skill in SKILLS}


def solve(skill: Skill, prompt: str) -> str:
    """What a specialist answers: `NO` where it is not its skill, or where it does not see what the subtask is about."""
    lines = prompt.splitlines()
    seen = [line.removeprefix("a: ") for line in lines[:-1] if line.startswith("a: ")]
    task = next(line for line in reversed(lines) if line.startswith("s: ")).removeprefix("s: ").removeprefix("the ")
    for name, pattern in PATTERNS[skill]:
        if found := pattern.fullmatch(task):
            given = found.groupdict().get("x") or "it"
            value = given if given.isupper() or given.isdecimal() else (seen or ["?"])[-1]
            amount = int(found.groupdict().get("k") or 0)
            return OPERATIONS[name].does(value, amount) if amount in OPERATIONS[name].amounts(value) else "NO"
    return "NO"


def specialist(skill: Skill) -> ScriptedModel:
    return ScriptedModel(reply=lambda request: [solve(skill, _prompt(request))])


def generalist() -> ScriptedModel:
    """One that knows the facts, and of letters nothing but how many there are."""
    return ScriptedModel(reply=lambda request: [_little(_prompt(request))])


def _little(prompt: str) -> str:
    fact, letters = solve("facts", prompt), solve("letters", prompt)
    return fact if fact != "NO" else letters if letters.isdecimal() else "NO"


def _prompt(request: Request) -> str:
    return request.messages[0].content


def solvers() -> tuple[Pool, dict[str, ScriptedModel]]:
    """A pool with cards as they would be measured, and its models."""
    cards: dict[str, Any] = {skill: {other: float(other == skill) for other in SKILLS} for skill in SKILLS}
    names = (*SKILLS, "generalist")
    strengths = {**cards, "generalist": {"letters": 0.5, "numbers": 0.3, "facts": 0.6}}
    pool = Pool(
        workers=tuple(
            Worker(name=name, kind="llama", card=Card(strengths=strengths[name], measured=True), price=FREE)
            for name in names
        )
    )
    models: dict[str, ScriptedModel] = {skill: specialist(skill) for skill in SKILLS}
    return pool, {**models, "generalist": generalist()}
