"""What the benchmark of the local conductor asks, and how a model of random weights is made to answer it.

The wanted plan is forced token by token: before each draw the logit of its next token is lifted above all others. All
else is as it would be: the logits are computed, the grammar is asked, the token is drawn.
"""

from __future__ import annotations

import ctypes
import time
from collections.abc import Callable
from typing import Any, Final, Self

from conductor_cli.core.events import Mode
from conductor_cli.core.plan import Plan, Step
from conductor_cli.core.plan_formats import PLAN_FORMATS
from conductor_cli.core.policy import plan_rules
from conductor_cli.core.pool import Card, Limits, Pool, Worker
from conductor_cli.core.profile import PROMPTED, PROMPTED_JSON, Profile
from conductor_cli.core.prompts import conductor_request, plan_format_context
from conductor_cli.core.question import Question
from conductor_cli.models.llama.sampling import GrammarSampler

CONTEXT: Final = 4096
"""Tokens; for everybody."""

LIFT: Final = 1e4
"""The logit of a forced token; of one that is forced to be refused, twice that."""

REFUSED: Final = "\t"
"""The grammar of a plan allows it nowhere."""

_ABOUT: Final = (
    ("atlas", "long documents, geography, history of places and borders", "recall", "reading"),
    ("bishop", "strategy games, planning under uncertainty, chess endings", "planning", "logic"),
    ("cobalt", "code in any language, debugging, reading unfamiliar programs", "code", "review"),
    ("delta", "statistics, experiments, reading tables and finding the outlier", "numbers", "logic"),
    ("ember", "fluent prose, summaries, letters in a warm and plain voice", "writing", "reading"),
    ("fermat", "proofs, number theory, exact arithmetic with long numbers", "maths", "logic"),
    ("gauge", "careful review, test cases, finding the step that is wrong", "review", "testing"),
    ("harbor", "law and policy, contracts, licences, what a clause permits", "law", "reading"),
    ("iris", "medicine, physiology, what a study shows and what it does not", "medicine", "reading"),
    ("juno", "translation between European languages, idioms, register", "languages", "writing"),
    ("krill", "short factual answers, quickly and at a low price", "recall", "speed"),
    ("lumen", "physics, units, estimates of magnitude, optics and heat", "science", "numbers"),
    ("mason", "software design, interfaces, migrations, concurrent programs", "code", "planning"),
    ("nadir", "security, protocols, threat models, what an attacker would try", "security", "review"),
    ("onyx", "data formats, parsers, regular expressions, encodings", "code", "testing"),
    ("piper", "children's questions, analogies, patient explanations", "writing", "recall"),
    ("quartz", "databases, query plans, locks, isolation and lost updates", "code", "logic"),
    ("rowan", "biology, ecology, field guides, naming what is described", "science", "recall"),
    ("sable", "finance, accounting, contracts for interest and currency", "numbers", "law"),
    ("tundra", "networks, timeouts, retries, what a proxy does to a request", "code", "security"),
    ("umber", "art, music and film, their history and their vocabulary", "recall", "writing"),
    ("vesper", "astronomy, orbits, calendars, time zones and leap seconds", "science", "maths"),
    ("willow", "editing, plain language, cutting a text to a given length", "writing", "review"),
)

POOL: Final = Pool(
    workers=tuple(
        Worker(
            name=name, kind="scripted", about=about,
            card=Card(strengths={first: 0.94 - at / 100, second: 0.81 - at / 100, "following": 0.75, "general": 0.7}),
        )
        for at, (name, about, first, second) in enumerate(_ABOUT)
    )
)  # fmt: skip
"""So many workers with full cards: with rules and examples in front of them a prefix of about 1,500 tokens."""

QUESTION: Final = Question(
    text="Our client library retries every request three times. Can a payment be sent twice, and how would we notice? "
    "Give the answer with a test that shows it."
)

PLAN: Final = Plan(
    steps=(
        Step(worker="mason", subtask="List every way in which a retry of the client can send the same request twice."),
        Step(worker="nadir", subtask="Say what the server must check to refuse the second request."),
        Step(worker="cobalt", subtask="Write a test that drops the reply to the first request.", access=(1,)),
        Step(worker="gauge", subtask="Check the test and both lists for any mistakes.", access=(1, 2, 3)),
        Step(worker="ember", subtask="Answer the question, with the test and its outcome.", access=(2, 3, 4)),
    )
)

SHORT: Final = Plan(steps=(PLAN.steps[0], Step(worker="ember", subtask="Answer the question.", access=(1,))))
"""For where it matters how many questions were asked, not how long a plan is."""


def request(profile: Profile = PROMPTED, question: Question = QUESTION, mode: Mode = "auto") -> Any:  # noqa: ANN401
    """The request by which a conductor is asked."""
    return conductor_request(question, POOL, profile, _terms(profile, mode))


def spelled(plan: Plan, profile: Profile = PROMPTED) -> str:
    """The plan as a conductor of this profile writes it."""
    return PLAN_FORMATS[profile.plan_format].render(plan, _terms(profile, "auto"))


def _terms(profile: Profile, mode: Mode) -> Any:  # noqa: ANN401
    rules = plan_rules(POOL, Limits(), down=(), given=False, depth_left=0)
    return plan_format_context(profile, POOL, rules, mode, constrained=True)


def naive_job() -> dict[str, str]:
    """What the naive script is given: the prompt as one text, the grammar, the plan to force."""
    asked = request(PROMPTED_JSON)
    turns = "".join(f"<|im_start|>{turn.role}\n{turn.content}<|im_end|>\n" for turn in asked.messages)
    return {
        "prompt": f"{turns}<|im_start|>assistant\n",
        "grammar": asked.grammar,
        "plan": spelled(PLAN, PROMPTED_JSON),
    }


class Forced:
    """Makes every reply under a grammar be `text`.

    `draws` has the processor time of each draw, `times` when each ended, in seconds and by reply. `refused` says at
    which token, counted from 0 in each reply, the grammar has to refuse one first; below 0 nowhere.
    """

    def __init__(self, text: str, refused: int = -1) -> None:
        self.text, self.refused = text, refused
        self.draws: list[list[float]] = []
        self.times: list[list[float]] = []
        self.refusals = 0
        self.context: Any = None
        self._reply: Any = None
        self._tokens: list[int] = []
        self._draw: Callable[[Any, Any], int] = GrammarSampler.draw

    def __enter__(self) -> Self:
        # A bound method would not be handed the sampler that it is called on.
        GrammarSampler.draw = lambda sampler, context: self._forced(sampler, context)  # type: ignore[method-assign]  # noqa: PLW0108
        return self

    def __exit__(self, *_: object) -> None:
        GrammarSampler.draw = self._draw  # type: ignore[method-assign]

    def _forced(self, sampler: Any, context: Any) -> int:  # noqa: ANN401 - ours, and a C pointer
        import llama_cpp

        if sampler is not self._reply:
            self._reply, self.context = sampler, context
            self._tokens = tokens(llama_cpp, context, self.text)
            self.draws.append([])
            self.times.append([])
        at = len(self.draws[-1])
        logits = llama_cpp.llama_get_logits_ith(context, -1)
        logits[self._tokens[at]] = LIFT
        if at == self.refused:
            logits[tokens(llama_cpp, context, REFUSED)[0]] = 2 * LIFT
            self.refusals += 1
        began = time.thread_time()
        token = self._draw(sampler, context)
        spent, ended = time.thread_time() - began, time.perf_counter()
        if token != self._tokens[at]:
            raise SystemExit(f"token {at} of the plan was to be {self._tokens[at]} and is {token}")
        self.draws[-1].append(spent)
        self.times[-1].append(ended)
        return token


def tokens(lib: Any, context: Any, text: str, *, special: bool = False) -> list[int]:  # noqa: ANN401 - a C pointer
    """The tokens of a text, and the one that ends a reply. `special` reads those that are spelled in it."""
    vocabulary = lib.llama_model_get_vocab(lib.llama_get_model(context))
    data = text.encode()
    found = (ctypes.c_int32 * len(data))()
    count = lib.llama_tokenize(vocabulary, data, len(data), found, len(data), False, special)  # noqa: FBT003
    return [*found[:count], lib.llama_vocab_eos(vocabulary)]
