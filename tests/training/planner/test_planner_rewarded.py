"""The training by rewards: what its arms learn from a group, and that it goes on where it ended."""

from __future__ import annotations

import importlib.util
import json
import signal
import sys
from dataclasses import replace
from itertools import cycle
from pathlib import Path
from typing import Any

import pytest

if any(importlib.util.find_spec(name) is None for name in ("torch", "transformers", "peft")):
    pytest.skip(
        "torch is not installed: pip install 'conductor-llm[train]'", allow_module_level=True
    )

import torch
from transformers import AutoModelForCausalLM

from conductor_cli.models.llama.bindings import CancelToken
from conductor_cli.models.llama.engine import LlamaEngine
from conductor_cli.models.llama.loading import LlamaOptions
from conductor_cli.models.llama.sampling import SampledReply
from conductor_cli.train.base_model import find_base_model
from tests import tiny_gguf
from training.planner import supervised
from training.planner.packing import WeighedReplies, pack_replies, plan_logits
from training.planner.world import rewarded
from training.planner.world.cases import Case, World, draw_case, draw_cases, open_world
from training.planner.world.groups import Attempt, Group, sample_group
from training.planner.world.run import Outcome
from training.planner.world.sampling import ReplyTree

PLAN_TOKENS = 24


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("rewarded")
    extra = tiny_gguf.Extra(bias=None, template=tiny_gguf.CHATML)
    return tiny_gguf.make(directory / "base.gguf", extra=extra)


@pytest.fixture
def world(tables: dict[str, Path]) -> World:
    return open_world(tables["new"].parent)


def short_case(world: World, seed: str) -> Case:
    """A case whose plans are cut early: a model of random weights ends none."""
    return cut_short(draw_case(world, seed))


def short_cases(world: World, seed: str, count: int) -> list[Case]:
    return [cut_short(case) for case in draw_cases(world, seed, count)]


def cut_short(case: Case) -> Case:
    return replace(case, request=replace(case.request, max_tokens=PLAN_TOKENS))


def with_rewards(group: Group, rewards: list[float]) -> Group:
    attempts = [
        replace(attempt, outcome=replace(attempt.outcome, reward=reward))
        for attempt, reward in zip(group.attempts, rewards, strict=True)
    ]
    return replace(group, attempts=tuple(attempts))


def sampled(file: Path, world: World, count: int = 4, temperature: float = 1.0) -> Group:
    engine = LlamaEngine(file, LlamaOptions(threads=1), CancelToken())
    try:
        return sample_group(
            engine, world, short_case(world, "1"), "1", count=count, temperature=temperature
        )
    finally:
        engine.close()


def invented(world: World, rewards: list[float]) -> Group:
    """A group of plans of one token each."""
    attempts = [
        Attempt(
            reply=SampledReply(text="", tokens=(token,), logprobs=(-1.0,), entropies=(0.5,)),
            steps=(),
            outcome=Outcome(answer="", reward=reward, log=()),
        )
        for token, reward in enumerate(rewards, start=7)
    ]
    return Group(case=draw_case(world, "1"), prompt=(1, 2, 3), attempts=tuple(attempts))


def test_plans_are_computed_as_if_each_were_alone_and_what_they_share_once(file: Path) -> None:
    base = find_base_model(str(file))
    model = AutoModelForCausalLM.from_pretrained(base.directory, dtype=torch.float32).eval()
    groups = [
        WeighedReplies(
            prompt=[5, 9, 2, 7], replies=[[11, 4, 8], [11, 6], [3]], weights=[1.0, 2.0, 3.0]
        ),
        WeighedReplies(prompt=[5, 9, 13], replies=[[11, 4]], weights=[4.0]),
    ]
    with torch.inference_mode():
        row = pack_replies(groups)
        together = plan_logits(model.model, row, model.lm_head.weight)
        number = 0
        for group in groups:
            for reply in group.replies:
                packed = together[row.lessons == number]
                text = [*group.prompt, *reply[:-1]]
                alone = model(torch.tensor([text])).logits[0, -len(reply) :]
                assert torch.allclose(packed, alone, atol=1e-4)
                number += 1
    assert row.targets.tolist() == [11, 4, 8, 11, 6, 3, 11, 4]
    assert row.weights.tolist() == [1.0, 1.0, 1.0, 2.0, 2.0, 3.0, 4.0, 4.0]
    # Both prompts begin with 5 and 9, and two plans of the first one with 11.
    assert row.tokens.tolist() == [5, 9, 2, 7, 11, 4, 13, 11]


def test_replies_that_begin_alike_are_those_that_are_drawn_alone(file: Path, world: World) -> None:
    case = short_case(world, "1")
    seeds = [1, 2, 3, 1]
    engine = LlamaEngine(file, LlamaOptions(threads=1), CancelToken())
    try:
        alone = [
            engine.sample(replace(case.request, temperature=1.0, seed=seed), CancelToken())
            for seed in seeds
        ]
        tree = ReplyTree(engine, replace(case.request, temperature=1.0, habit=None))
        together = [tree.draw(seed) for seed in seeds]
    finally:
        engine.close()
    assert [reply.text for reply in together] == [reply.text for reply in alone]
    assert [reply.tokens for reply in together] == [reply.tokens for reply in alone]
    # A token that is read in a batch with others has another rounding than alone.
    for ours, theirs in zip(together, alone, strict=True):
        assert ours.logprobs == pytest.approx(theirs.logprobs, abs=0.02)
        assert ours.entropies == pytest.approx(theirs.entropies, abs=0.02)
    assert tree.computed_tokens <= sum(len(reply.tokens) for reply in alone[:3])


@pytest.mark.parametrize("temperature", [1.0, 0.5])
def test_torch_gives_sampled_tokens_the_probability_that_llama_cpp_gave_them(
    file: Path, world: World, temperature: float
) -> None:
    group = sampled(file, world, temperature=temperature)
    group = with_rewards(group, [0.0, 1.0, 0.0, 1.0])
    training = supervised.begin(find_base_model(str(file)), rate=1e-3, seed=1)
    inner = training.model.base_model.model
    before = {name: weight.clone() for name, weight in supervised.trained(training.model).items()}
    batch = rewarded.batch_of([group], "grpo", "")
    assert batch is not None
    count = sum(len(attempt.reply.tokens) for attempt in group.attempts)
    # The last token of a plan is not read, and the first plan and another may begin alike.
    assert len(batch.row.tokens) <= len(group.prompt) + count - 4
    matrix = inner.lm_head.weight.detach()
    ratios = rewarded.learn_batch(
        inner.model, matrix, training.optimizer, batch, uncertain=1.0, temperature=temperature
    )
    assert ratios.count == count
    assert ratios.mean == pytest.approx(1.0, abs=0.02)
    assert ratios.largest < 1.1
    after = supervised.trained(training.model)
    assert any(not torch.equal(weight, after[name]) for name, weight in before.items())


def test_a_step_makes_the_plans_that_earned_more_likelier(file: Path, world: World) -> None:
    group = with_rewards(sampled(file, world), [0.0, 1.0, 0.0, 1.0])
    training = supervised.begin(find_base_model(str(file)), rate=1e-3, seed=1)
    inner = training.model.base_model.model
    matrix = inner.lm_head.weight.detach()
    batch = rewarded.batch_of([group], "grpo", "")
    assert batch is not None

    def gain() -> float:
        with torch.inference_mode():
            logits = plan_logits(inner.model, batch.row, matrix)
        chosen = logits.log_softmax(-1).gather(1, batch.row.targets[:, None])[:, 0]
        return float((chosen * batch.row.weights).sum())

    before = gain()
    for _ in range(3):
        rewarded.learn_batch(inner.model, matrix, training.optimizer, batch, uncertain=1.0)
    assert gain() > before


def test_a_group_without_a_signal_teaches_no_arm_anything(world: World) -> None:
    for arm in ("grpo", "shuffled", "best-of-8"):
        assert rewarded.batch_of([invented(world, [1.0, 1.0])], arm, "") is None
        assert rewarded.batch_of([invented(world, [0.0, 0.0])], arm, "") is None


def test_a_group_without_a_signal_is_in_neither_numerator_nor_denominator(world: World) -> None:
    silent = invented(world, [0.0, 0.0])
    telling = invented(world, [1.0, 0.0])
    alone = rewarded.batch_of([telling], "grpo", "")
    both = rewarded.batch_of([silent, telling], "grpo", "")
    assert alone is not None
    assert both is not None
    assert both.row.targets.tolist() == alone.row.targets.tolist()
    assert both.row.weights.tolist() == alone.row.weights.tolist()
    assert both.row.tokens.tolist() == alone.row.tokens.tolist()


def test_the_least_certain_tokens_are_those_of_the_whole_step(file: Path, world: World) -> None:
    groups = [invented(world, [1.0, 0.0]), invented(world, [0.0, 1.0])]
    batch = rewarded.batch_of(groups, "grpo", "")
    assert batch is not None
    batch = replace(batch, entropies=torch.tensor([0.1, 0.2, 0.8, 0.9]))
    training = supervised.begin(find_base_model(str(file)), rate=1e-3, seed=1)
    inner = training.model.base_model.model
    matrix = inner.lm_head.weight.detach()
    learned = list[list[int]]()

    def note(
        model: Any, matrix: Any, batch: Any, tokens: Any, temperature: float
    ) -> rewarded.Ratios:
        learned.append(tokens.tolist())
        return rewarded.Ratios(count=len(tokens))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(rewarded, "_add_gradient", note)
        rewarded.learn_batch(inner.model, matrix, training.optimizer, batch, uncertain=0.5)
    assert learned == [[2, 3]]


def test_an_advantage_is_the_reward_minus_the_mean_of_the_group(world: World) -> None:
    batch = rewarded.batch_of([invented(world, [1.0, 0.0, 0.0, 0.0])], "grpo", "")
    assert batch is not None
    assert batch.row.weights.tolist() == [0.75, -0.25, -0.25, -0.25]
    assert batch.corrected


def test_shuffled_rewards_are_those_of_the_group_for_other_plans(world: World) -> None:
    group = invented(world, [1.0, 0.0, 0.0, 0.0])
    weights = list[list[float]]()
    for seed in range(20):
        batch = rewarded.batch_of([group], "shuffled", str(seed))
        assert batch is not None
        weights.append(batch.row.weights.tolist())
    assert all(sorted(weight_row) == [-0.25, -0.25, -0.25, 0.75] for weight_row in weights)
    assert len({weight_row.index(0.75) for weight_row in weights}) == 4


def test_best_of_8_has_only_right_plans_as_lessons(world: World) -> None:
    batch = rewarded.batch_of([invented(world, [1.0, 0.0, 1.0, 0.0])], "best-of-8", "")
    assert batch is not None
    assert batch.row.targets.tolist() == [7, 9]
    assert batch.row.weights.tolist() == [1.0, 1.0]
    assert not batch.corrected


class Training:
    """Calls of the command on a tiny model, in which every second plan is taken as right."""

    def __init__(
        self, monkeypatch: pytest.MonkeyPatch, directory: Path, file: Path, world: Path
    ) -> None:
        self.directory = directory
        self._patch = monkeypatch
        start = supervised.begin(find_base_model(str(file)), rate=1e-3, seed=1)
        start.write_weights(directory)
        self._words = [
            "rewarded",
            *("--model", str(file), "--world", str(world), "--questions", "2", "--plans", "4"),
            *("--adapter", str(directory / "adapter.gguf")),
        ]
        monkeypatch.setattr(rewarded, "draw_cases", short_cases)
        monkeypatch.setattr(rewarded, "sample_group", self.sample)

    def sample(
        self,
        engine: LlamaEngine,
        world: World,
        case: Case,
        seed: str,
        *,
        count: int,
        temperature: float,
    ) -> Group:
        group = sample_group(engine, world, case, seed, count=count, temperature=temperature)
        rewards = cycle([0.0, 1.0])
        return with_rewards(group, [next(rewards) for _ in group.attempts])

    def run(self, out: str, *options: str) -> int:
        threads = torch.get_num_threads()
        words = [*self._words, "--out", str(self.directory / out), *options]
        self._patch.setattr(sys, "argv", words)
        try:
            return rewarded.main()
        finally:
            torch.set_num_threads(threads)

    def lines(self, out: str, name: str = "log.jsonl") -> list[dict[str, Any]]:
        text = (self.directory / out / name).read_text()
        return [json.loads(line) for line in text.splitlines()]

    def state(self, out: str) -> dict[str, Any]:
        return dict(torch.load(self.directory / out / "state.pt", weights_only=True))


@pytest.fixture
def training(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, file: Path, tables: dict[str, Path]
) -> Training:
    return Training(monkeypatch, tmp_path, file, tables["new"].parent)


def test_a_training_by_rewards_that_was_stopped_goes_on_as_if_it_had_not_been(
    training: Training,
) -> None:
    # The rate falls with the seconds that are used, which no two calls share.
    endless = ("--seconds", "1e9", "--steps")
    assert training.run("whole", *endless, "2") == supervised.DONE
    assert training.run("parts", *endless, "1") == supervised.DONE
    assert training.run("parts", *endless, "2") == supervised.DONE
    whole = training.state("whole")
    parts = training.state("parts")
    assert (whole["step"], whole["lessons"]) == (parts["step"], parts["lessons"]) == (2, 16)
    for name, weight in whole["mean"].items():
        assert torch.allclose(weight, parts["mean"][name], rtol=1e-5, atol=1e-6)
    for out in ("whole", "parts"):
        assert [line["step"] for line in training.lines(out)] == [1, 2]
    assert training.lines("whole", "rewards.jsonl") == training.lines("parts", "rewards.jsonl")


def test_the_log_of_a_step_has_rewards_ratios_and_seconds(training: Training) -> None:
    training.run("out", "--steps", "1")
    (line,) = training.lines("out")
    assert (line["arm"], line["reward"], line["signal"], line["plans"]) == ("grpo", 0.5, 1.0, 8)
    assert line["ratio_mean"] == pytest.approx(1.0, abs=0.02)
    assert line["ratio_largest"] < 1.1
    assert line["used"] == line["processor"] > 0
    assert {"seconds", "workers", "opening", "sampling", "learning", "rate"} <= line.keys()
    plans = training.lines("out", "rewards.jsonl")
    assert [plan["reward"] for plan in plans] == [0.0, 1.0, 0.0, 1.0] * 2
    assert (training.directory / "out" / "adapter.gguf").exists()


def test_it_ends_when_its_seconds_of_the_processor_are_used_up(training: Training) -> None:
    assert training.run("out", "--seconds", "0.1") == supervised.DONE
    assert len(training.lines("out")) == 1


def test_it_ends_with_the_step_in_which_it_is_told_to(
    training: Training, monkeypatch: pytest.MonkeyPatch
) -> None:
    def told_to_end(*arguments: Any, **options: Any) -> Group:
        signal.raise_signal(signal.SIGTERM)
        return training.sample(*arguments, **options)

    monkeypatch.setattr(rewarded, "sample_group", told_to_end)
    assert training.run("out", "--steps", "5") == supervised.UNFINISHED
    assert training.state("out")["step"] == len(training.lines("out")) == 1


def test_the_arm_of_lessons_samples_no_plan(training: Training) -> None:
    training.run("out", "--arm", "supervised", "--steps", "1")
    (line,) = training.lines("out")
    assert line["loss"] > 0
    assert not (training.directory / "out" / "rewards.jsonl").exists()


def test_without_an_average_the_weights_as_they_are_are_exported(training: Training) -> None:
    training.run("out", "--steps", "2", "--average", "0")
    state = training.state("out")
    assert all(torch.equal(weight, state["mean"][name]) for name, weight in state["model"].items())


def test_the_rate_rises_over_the_steps_that_are_asked_for(training: Training) -> None:
    training.run("out", "--seconds", "1e9", "--steps", "3", "--warmup", "2", "--rate", "1e-3")
    rates = [line["rate"] for line in training.lines("out")]
    assert rates == pytest.approx([5e-4, 1e-3, 1e-3], rel=1e-3)


def test_the_questions_of_a_step_have_one_pool_whose_prompt_is_read_once(world: World) -> None:
    first, second = draw_cases(world, "1", 2)
    assert first.drawn is second.drawn
    assert first.request.messages[0] == second.request.messages[0]
    assert first.composed != second.composed


def test_the_rate_of_best_of_8_falls_over_its_lessons(training: Training) -> None:
    training.run("out", "--arm", "best-of-8", "--steps", "3", "--lessons", "8")
    lines = training.lines("out")
    assert [line["lessons"] for line in lines] == [4, 8, 12]
    warmed = [line["rate"] / number for number, line in enumerate(lines, start=1)]
    assert warmed == pytest.approx([warmed[0], warmed[0] / 2, warmed[0] / 10])
