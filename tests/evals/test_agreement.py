"""Routing without right answers: the estimate from agreement, and the two systems that use it."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from conductor_cli.evals.cases import Case
from conductor_cli.evals.embeddings import HashedNgrams
from conductor_cli.evals.systems import (
    answer_distances,
    choose_for_all,
    choose_for_each,
    estimate_noise,
    select_by_agreement,
)
from conductor_cli.models.base import ScriptedModel
from tests.evals.kit import case, cases, conductor, pool, run_evaluation, worker_model


def noisy_answers(levels: Sequence[float], count: int = 4000, dimensions: int = 3) -> np.ndarray:
    """Answers of workers that are the right vector with independent noise of these standard deviations."""
    random = np.random.default_rng(7)
    truth = random.normal(size=(count, 1, dimensions))
    noise = random.normal(size=(count, len(levels), dimensions)) * np.array(levels)[None, :, None]
    return np.asarray(truth + noise)


def test_the_noise_of_each_worker_is_found_without_the_truth() -> None:
    """The estimate is the mean squared distance to the right vector, which it never sees."""
    levels = (0.2, 1.0, 0.5, 2.0)
    distances = answer_distances(noisy_answers(levels)).mean(axis=0)
    assert np.allclose(estimate_noise(distances), [3 * level**2 for level in levels], rtol=0.15, atol=0.05)


def test_the_closed_form_is_the_mean_over_all_pairs_of_others() -> None:
    """As the paper writes it, for a matrix of which nothing is known."""
    random = np.random.default_rng(1)
    matrix = random.random((5, 5))
    matrix = matrix + matrix.T
    np.fill_diagonal(matrix, 0)
    slow = [
        np.mean([
            (matrix[i, j] + matrix[i, k] - matrix[j, k]) / 2
            for j in range(5) for k in range(j + 1, 5) if i not in (j, k)
        ])
        for i in range(5)
    ]  # fmt: skip
    assert np.allclose(estimate_noise(matrix), slow)


def test_similar_questions_decide_locally() -> None:
    """A worker that is good at one kind of question counts there, and another one elsewhere."""
    letters, numbers = noisy_answers((0.1, 2.0, 1.0), 30), noisy_answers((2.0, 0.1, 1.0), 30)
    distances = answer_distances(np.concatenate([letters, numbers]))
    kinds = np.repeat(np.eye(2), 30, axis=0)
    assert choose_for_each(distances, kinds) == [0] * 30 + [1] * 30
    assert set(choose_for_all(distances)) <= {0, 1, 2}


def expert(*known: str) -> ScriptedModel:
    """Knows the questions with these words; to all others it has a wrong answer of its own."""

    def reply(request: object) -> list[str]:
        text = request.messages[-1].content  # type: ignore[attr-defined]
        number = text.split()[-1].rstrip("?")
        right = any(word in text for word in known)
        return [f"{int(number) + 3}" if right else f"{int(number) * 7 + 100 * len(known[0])}"]

    return ScriptedModel(reply=reply)


def two_kinds(count: int) -> tuple[Case, ...]:
    kinds = ("apples in the red basket", "kilometres to the far harbour")
    return tuple(
        case(number, question=f"How many {kinds[number % 2]} after 3 more than {number}?")
        for number in range(1, count + 1)
    )


def test_local_agreement_beats_the_best_single_worker_and_global_agreement_cannot(tmp_path: Path) -> None:
    """Each kind has two workers that agree; only an estimate for each kind finds them. No right answer is read."""
    # Four workers: each kind is known to two of them. No worker knows both.
    models = {
        "ann": expert("apples"),
        "bob": expert("kilometres"),
        "cyd": expert("apples in"),
        "dan": expert("kilometres to"),
    }
    by = conductor(models, pool=pool(*models))
    found = run_evaluation(tmp_path / "e", by, two_kinds(40), ["alone", "smoothie-global", "smoothie-local"])

    def right(system: str) -> int:
        return sum(outcome.right for (name, _), outcome in found.items() if name == system)

    assert [right(f"alone:{name}") for name in models] == [20, 20, 20, 20]
    assert right("smoothie-local") == 40
    assert right("smoothie-global") == 20


def test_every_answer_counts_in_the_cost_of_a_selection(tmp_path: Path) -> None:
    """All workers are asked, at the same time, and none sees what another one answered."""
    models = {name: worker_model(name) for name in ("ann", "bob", "cyd")}
    found = run_evaluation(tmp_path / "e", conductor(models), cases(3), ["smoothie-global"])
    assert [outcome.usage.calls for outcome in found.values()] == [3, 3, 3]
    assert {request.messages[0].content for model in models.values() for request in model.requests} == {
        f"What is {number} + 3?" for number in (1, 2, 3)
    }


def test_a_continued_selection_is_that_of_all_cases(tmp_path: Path) -> None:
    """Outcomes that a kill left out are selected again from all answers, which are not asked for again."""
    models = {name: worker_model(name) for name in ("ann", "bob", "cyd")}
    first = run_evaluation(tmp_path / "e", conductor(models), cases(6), ["smoothie-local"])
    file = tmp_path / "e" / "outcomes.jsonl"
    file.write_text("".join(file.read_text().splitlines(keepends=True)[:2]))
    asked = sum(len(model.requests) for model in models.values())
    again = run_evaluation(tmp_path / "e", conductor(models), cases(6), ["smoothie-local"])
    assert {key: outcome.answer for key, outcome in again.items()} == {
        key: outcome.answer for key, outcome in first.items()
    }
    assert sum(len(model.requests) for model in models.values()) == asked


@pytest.mark.parametrize("names", [("ann",), ("ann", "bob")])
def test_two_workers_are_too_few(tmp_path: Path, names: tuple[str, ...]) -> None:
    """Where two differ, nothing says who is wrong."""
    by = conductor({name: worker_model(name) for name in names})
    assert run_evaluation(tmp_path / "e", by, cases(1), ["smoothie-local", "best-worker"]).keys() == {
        ("best-worker", "c1")
    }


def test_selection_reads_answers_as_the_scorer_does() -> None:
    """`4`, `4.0` and a sentence with 4 are the same answer; the one that differs is not selected."""
    texts = ("The answer is surely 4.", "9", "4.0", "it must be 4")
    chosen = asyncio.run(select_by_agreement([(case(), texts)] * 4, embedder=HashedNgrams(), local=False))
    assert set(chosen) <= {0, 2, 3}


def test_hashed_ngrams_are_the_same_everywhere_and_have_length_one() -> None:
    """Equal texts have equal vectors, similar ones larger products than others; a text of nothing has no direction."""
    texts = ("red apples in a basket", "Red apple baskets", "the square root of two", "", "\ud800")
    rows = np.asarray(asyncio.run(HashedNgrams().embed(texts)))
    assert np.allclose(np.linalg.norm(rows, axis=1), [1, 1, 1, 0, 1])
    assert rows[0] @ rows[1] > 0.4
    assert abs(rows[0] @ rows[2]) < 0.2
    assert (
        rows[0, :40].round(3).tolist()
        == np.asarray(asyncio.run(HashedNgrams().embed(texts[:1])))[0, :40].round(3).tolist()
    )
