r"""Published suites, and other files whose columns are named: how their rows become cases.

The instruction after a question (a box, or a letter on the last line) is that of published
harnesses, and what the scorers look for. MMLU-Pro and RLPR have the prompts of their authors.

To add a suite, write a reader, a function from a row to a case, and add a `Suite` to `SUITES`.

A suite is pinned at its first use, by commit and SHA-256, as models are.
"""

from __future__ import annotations

import ast
import json
import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from random import Random
from string import ascii_uppercase
from typing import Any, Final, Literal

from conductor_cli.core.errors import UsageError
from conductor_cli.evals.cases import Case
from conductor_cli.evals.program_text import defined_names, names_in, test_methods
from conductor_cli.evals.programs import (
    AssertTests,
    IoTests,
    UnitTests,
    dump_tests,
    livecodebench_tests,
)

# Characters of an answer; arXiv 2512.04388 leaves questions with a longer one out
MAX_RLPR_ANSWER: Final = 30
BOX: Final = "Put the final answer in \\boxed{}."
LETTER: Final = (
    "Your last line has this form, where LETTER is one of the letters above: Answer: LETTER"
)
"""A small model copies a letter that stands here: half a billion weights answered five of six
questions with the X of "Answer: X".
"""

MMLU_PRO_TASK: Final = (
    "The following are multiple choice questions (with answers) about {subject}. Think step by "
    "step and then output "
    'the answer in the format of "The answer is (X)" at the end.\n\n'
)
"""The prompt of its authors (TIGER-AI-Lab/MMLU-Pro, `evaluate_from_api.py`), as are the number and
form of examples.
"""
MMLU_PRO_EXAMPLES: Final = 5
MMLU_PRO_THINK: Final = "Let's think step by step."
MMLU_PRO_OPTIONS: Final = 10
MAX_WHOLE_FLOAT: Final = 2.0**53  # Up to which floats hold each whole number
SCRIPT: Final = (
    "Please provide a self-contained Python script that solves the following problem "
    "in a markdown code block:"
)
"""From EvalPlus and BigCodeBench (`generate.py`, Apache-2.0): their figures are for these words."""

MBPP_TASK: Final = (
    "You are an expert Python programmer, and here is your task: {} Your code "
    "should pass these tests:"
)
MBPP_FORM: Final = "Give the code in one markdown code block."
"""The first is from MBPP's paper (arXiv 2108.07732); a chat model has to be told the form."""

LCB_SYSTEM: Final = (
    "You are an expert Python programmer. You will be given a question (problem specification) and "
    "will generate a "
    "correct Python program that matches the specification and passes all tests."
)
LCB_STARTER: Final = (
    "You will use the following starter code to write the solution to the problem and enclose your "
    "code within "
    "delimiters."
)
LCB_STDIN: Final = (
    "Read the inputs from stdin solve the problem and write the answer to stdout (do not directly "
    "test on the sample "
    "inputs). Enclose your code within delimiters as follows. Ensure that when the python program "
    "runs, it reads the "
    "inputs, runs the algorithm and writes output to STDOUT."
)
"""These three are from LiveCodeBench (`prompts/code_generation.py`, MIT licence): its figures are
for these words.
"""

Row = Mapping[str, Any]
Reader = Callable[[Row, int, int], Case | None]
"""From a row, its number, and the seed to a case, or None to leave it out. Raises `KeyError`,
`ValueError`.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Suite:
    """A published set of questions.

    `repo` and `file` say where it is on the hub, `split` which part of it that is. `prompt` and
    `scoring` name where they are from. `examples` is the file of the solved questions that the
    prompt shows, of the same repo, and `reader_with` makes the reader from them. `shareable`:
    whether its licence lets anybody pass it on; what is not is never stored with this project.
    `gated`: the hub gives it only to who has agreed.
    """

    name: str
    about: str = ""
    reader: Reader
    repo: str = ""
    file: str
    examples: str = ""
    reader_with: Callable[[Sequence[Row]], Reader] | None = None
    reader_columns: tuple[str, ...] = ()  # Those that a row may lack, but not all rows
    split: str = ""
    licence: str = ""
    prompt: str = ""
    scoring: str = ""
    needs: tuple[Literal["math-verify", "parquet", "bubblewrap"], ...] = ()
    shareable: bool = True
    gated: bool = False

    @property
    def source(self) -> str:
        if not self.repo:
            return self.file
        return f"{self.file} of {self.repo}"

    def json(self) -> dict[str, object]:
        values = {}
        for item in fields(self):
            if not item.name.startswith("reader"):
                values[item.name] = getattr(self, item.name)
        return values


def field(row: Row, *names: str) -> str:
    """Return the first of these fields that exists. Raises `KeyError`."""
    for name in names:
        value = row.get(name)
        if not _is_missing(value):
            return _written(value).strip()
    raise KeyError(names[0])


def _is_missing(value: object) -> bool:
    """Return whether a table has nothing there: null, or the NaN by which pandas writes it."""
    return value is None or (isinstance(value, float) and math.isnan(value))


def _written(value: object) -> str:
    """Return a value as text. Raises `ValueError` for bytes that are none.

    Parquet files of Spark hold texts as bytes, and whole numbers of a column with gaps are floats.
    """
    if isinstance(value, bytes):
        try:
            return value.decode()
        except UnicodeDecodeError:
            raise ValueError("expected text, found bytes that are no UTF-8") from None
    if isinstance(value, float) and value.is_integer() and abs(value) < MAX_WHOLE_FLOAT:
        return str(int(value))
    return str(value)


def _name(row: Row, column: str, number: int) -> str:
    """Return the id that a row has itself, which may be 0, else its number."""
    name = row.get(column)
    if name in (None, ""):
        return str(number)
    return str(name)


def tags(*texts: object) -> tuple[str, ...]:
    """Return the texts as tags: "Counting & Probability" becomes counting-probability."""
    names = []
    for text in texts:
        words = re.findall(r"[a-z0-9]+", str(text or "").lower())
        names.append("-".join(words))
    return tuple(dict.fromkeys(filter(None, names)))


def math500(row: Row, number: int, _: int) -> Case:
    """`test.jsonl` of HuggingFaceH4/MATH-500: problem, answer, subject, level, unique_id."""
    level = ""
    if row.get("level") is not None:
        level = f"level {row['level']}"
    return Case(
        id=_name(row, "unique_id", number),
        question=f"{field(row, 'problem')}\n\n{BOX}",
        answer=field(row, "answer"),
        scorer="math",
        tags=tags("math", row.get("subject"), level),
    )


def aime25(row: Row, number: int, _: int) -> Case:
    """`test.jsonl` of math-ai/aime25, or the files of opencompass/AIME2025.

    Problem or question, answer, id.
    """
    # One of opencompass's ends with a degree sign
    answer = re.match(r"\d{1,3}", field(row, "answer"))
    if answer is None:
        raise ValueError("the answer is not a whole number from 0 to 999")
    return Case(
        id=_name(row, "id", number),
        question=f"{field(row, 'problem', 'question')}\n\n{BOX}",
        answer=str(int(answer[0])),
        scorer="number",
        tags=("math", "aime"),
    )


HASHES: Final = "####"  # Before the answer of a row of GSM8K


def gsm8k(row: Row, number: int, _: int) -> Case:
    """`test.jsonl` of openai/grade-school-math: question, answer, which ends with `#### 18`."""
    _worked, hashes, answer = field(row, "answer").rpartition(HASHES)
    if not hashes:
        raise ValueError(f"the answer does not end with {HASHES} and a number")
    return Case(
        id=str(number),
        question=f"{field(row, 'question')}\n\n{BOX}",
        answer=answer.strip().replace(",", ""),
        scorer="number",
        tags=("math", "gsm8k"),
    )


def mmlu(row: Row, number: int, _: int) -> Case:
    """A row of cais/mmlu: question, choices, answer (a number from 0), subject."""
    subject = row.get("subject")
    answer = field(row, "answer")
    if answer.isdecimal():
        answer = ascii_uppercase[int(answer) :][:1]
    name = "-".join((*tags(subject), str(number)))
    return _multiple_choice(
        name, field(row, "question"), _listed(row.get("choices")), answer, tags("facts", subject)
    )


def mmlu_pro(examples: Sequence[Row]) -> Reader:
    """Return a reader of rows of TIGER-Lab/MMLU-Pro.

    Question_id, question, options, answer, category.

    Before each question stand five solved ones of its category, from `examples`.
    """

    def read(row: Row, number: int, _: int) -> Case:
        options = _options(row)
        subject = field(row, "category")
        answer = field(row, "answer")
        solved = [example for example in examples if example.get("category") == subject]
        solved = solved[:MMLU_PRO_EXAMPLES]
        if len(solved) < MMLU_PRO_EXAMPLES:
            raise ValueError(
                f"the file of examples has {len(solved)} of {MMLU_PRO_EXAMPLES} about "
                f"{subject!r:.40}"
            )
        if answer not in ascii_uppercase[: len(options)]:
            raise ValueError(f"the answer {answer!r:.40} is none of the options")
        shown = ""
        for example in solved:
            shown += f"{_mmlu_pro_question(example)}{_reasoning(example)}\n\n"
        return Case(
            id=str(row.get("question_id", number)),
            answer=answer,
            scorer="mmlu-pro",
            choices=options,
            question=f"{MMLU_PRO_TASK.format(subject=subject)}{shown}{_mmlu_pro_question(row)}{MMLU_PRO_THINK}",
            tags=tags("facts", subject),
        )

    return read


def _mmlu_pro_question(row: Row) -> str:
    listed = ""
    for letter, option in zip(ascii_uppercase, _options(row), strict=False):
        listed += f"{letter}. {option}\n"
    return f"Question: {field(row, 'question')}\nOptions: {listed}Answer: "


def _reasoning(example: Row) -> str:
    return field(example, "cot_content").removeprefix("A: ")


def _options(row: Row) -> tuple[str, ...]:
    """Return the options without those that only fill the list up. Raises `ValueError`.

    Five rows of the published file have one option.
    """
    options = row.get("options")
    if not isinstance(options, list) or not 0 < len(options) <= MMLU_PRO_OPTIONS:
        raise ValueError(f"the options are not a list of 1 to {MMLU_PRO_OPTIONS}")
    return tuple(str(option) for option in options if option != "N/A")


def gpqa(row: Row, number: int, seed: int) -> Case:
    """`gpqa_diamond.csv` of Idavidrein/gpqa.

    Question, Correct Answer, Incorrect Answer 1 to 3, Record ID.

    The choices are shuffled by seed and question, because the right one is always first in the
    file.
    """
    columns = ("Correct Answer", *(f"Incorrect Answer {index}" for index in (1, 2, 3)))
    choices = [field(row, column) for column in columns]
    name = _name(row, "Record ID", number)
    order = list(range(len(choices)))
    Random(f"{seed}/{name}").shuffle(order)  # noqa: S311 - reproducible, no secret
    shuffled = [choices[at] for at in order]
    letter = ascii_uppercase[order.index(0)]
    tagged = tags("science", row.get("High-level domain"))
    return _multiple_choice(name, field(row, "Question"), shuffled, letter, tagged)


def rlpr(row: Row, number: int, _: int) -> Case | None:
    """Return the case in a row of openbmb/RLPR-Train-Dataset or -Evaluation.

    Prompt (messages), ability, reward_model, extra_info.
    """
    reward = row.get("reward_model")
    messages = row.get("prompt")
    if not isinstance(reward, Mapping) or not isinstance(messages, list) or not messages:
        raise ValueError("it has no prompt or no reward_model")
    answer = field(reward, "ground_truth")
    if len(answer) > MAX_RLPR_ANSWER:
        return None
    index = None
    extra_info = row.get("extra_info")
    if isinstance(extra_info, Mapping):
        index = extra_info.get("index")
    if index is None:
        index = number
    texts = [field(message, "content") for message in messages if isinstance(message, Mapping)]
    return Case(
        id="-".join((*tags(row.get("data_source")), str(index), str(number))),
        question="\n\n".join(texts),
        answer=answer,
        scorer="rlpr",
        tags=tags("reasoning", row.get("ability")),
    )


def humaneval(row: Row, number: int, _: int) -> Case:
    """A row of HumanEval, also of EvalPlus' form of it: task_id, prompt, entry_point, test."""
    prompt = _text(row, "prompt")
    function = _identifier(row)
    # The names beside the function are in the prompt
    asserts = f"{_text(row, 'test')}\n\ncheck({function})\n"
    return Case(
        id=_name(row, "task_id", number),
        question=f"{SCRIPT}\n```\n{prompt.strip()}\n```\n",
        answer=dump_tests(
            AssertTests(asserts=asserts, function=function, before=prompt, names=(function,))
        ),
        scorer="program",
        tags=("code", "function"),
    )


def mbpp(row: Row, number: int, _: int) -> Case:
    """Return the case in a row of MBPP, also of its sanitized form.

    Text (sanitized: prompt), code, task_id, test_list, test_setup_code (sanitized: test_imports).
    """
    tests = _listed(row.get("test_list"))
    if not tests:
        raise KeyError("test_list")
    setup = [*_listed(row.get("test_imports")), str(row.get("test_setup_code") or "")]
    asserts = "\n".join([*setup, *tests])
    # What the reference solution defines and the tests read. A name of Python's own, as `sum`, must
    # mean the function.
    defined = defined_names(str(row.get("code") or ""))
    called = [name for name in re.findall(r"\w+(?=\()", tests[0]) if name in defined]
    function = ""
    if called:
        function = called[0]
    names = tuple(sorted(defined & names_in(asserts)))
    listed = "\n".join(tests)
    return Case(
        id=_name(row, "task_id", number),
        question=f"{MBPP_TASK.format(field(row, 'text', 'prompt'))}\n\n{listed}\n\n{MBPP_FORM}",
        answer=dump_tests(AssertTests(asserts=asserts, function=function, names=names)),
        scorer="program",
        tags=("code", "function"),
    )


def livecodebench(row: Row, number: int, _: int) -> Case:
    """Return the case in a row of code_generation_lite.

    Question_content, starter_code, public and private tests, metadata.
    """
    starter = str(row.get("starter_code") or "")
    content = field(row, "question_content")
    metadata = row.get("metadata") or {}
    if isinstance(metadata, str):
        metadata = json.loads(metadata)
    function = None
    if isinstance(metadata, Mapping):
        function = metadata.get("func_name")
    if function is not None and not str(function).isidentifier():
        raise ValueError(f"the function {function!r:.60} has no valid name")
    tests = [*_test_list(row, "public_test_cases"), *_test_list(row, "private_test_cases")]
    if not tests:
        raise ValueError("it has no tests")
    task = LCB_STDIN
    if starter:
        task = LCB_STARTER
    return Case(
        id=_name(row, "question_id", number),
        scorer="program",
        question=f"{LCB_SYSTEM}\n\n### Question:\n{content}\n\n### Format: {task}\n"
        f"```python\n{starter or '# YOUR CODE HERE'}\n```\n\n### Answer: (use the provided format "
        "with backticks)\n\n",
        answer=dump_tests(IoTests(tests=tuple(tests), function=str(function or ""))),
        tags=tags("code", row.get("platform"), row.get("difficulty")),
    )


def _test_list(row: Row, name: str) -> list[tuple[str, str]]:
    """Return the tests of LiveCodeBench in a field, packed, as JSON, or as a list."""
    value = row.get(name)
    if value is None:
        raise KeyError(name)
    if not isinstance(value, str):
        value = json.dumps(value)
    return livecodebench_tests(value)


def bigcodebench(row: Row, number: int, _: int) -> Case:
    """Return the case in a row of BigCodeBench, in words.

    Task_id, instruct_prompt, code_prompt, canonical_solution, test, libs.
    """
    function = _identifier(row)
    before = str(row.get("code_prompt") or "")
    tests = _text(row, "test")
    if not test_methods(tests):
        raise ValueError("its test has no class TestCases with tests")
    libraries = row.get("libs") or "[]"
    if isinstance(libraries, str):
        libraries = ast.literal_eval(libraries)
    solution = row.get("canonical_solution")
    reference = ""
    if solution:
        reference = f"{before}{solution}"
    return Case(
        id=_name(row, "task_id", number),
        question=f"{SCRIPT}\n{field(row, 'instruct_prompt')}\n",
        answer=dump_tests(
            UnitTests(
                unittest=tests,
                function=function,
                before=before,
                libraries=tuple(map(str, libraries)),
                reference=reference,
            )
        ),
        scorer="program",
        tags=("code", "library"),
    )


def _text(row: Row, name: str) -> str:
    """Return a field as it is: white space counts in code."""
    field(row, name)
    return _written(row[name])


def _identifier(row: Row) -> str:
    function = field(row, "entry_point")
    if not function.isidentifier():
        raise ValueError(f"the function {function!r:.60} has no valid name")
    return function


def by_columns(columns: Mapping[str, str]) -> Reader:
    """Return a reader that takes each field of a case from the column of this name.

    `question` and `answer` are needed.

    `scorer` may name a scorer itself. The answer to a multiple choice is a letter, a number from 0,
    or a choice.
    """

    def read(row: Row, number: int, _: int) -> Case:
        name = str(number)
        if "id" in columns:
            name = field(row, columns["id"])
        question = _one_text(row, columns["question"], "question")
        answer = _one_text(row, columns["answer"], "answer")
        tagged = _listed(_cell(row, columns, "tags"))
        choices, labels = _choices_of(_cell(row, columns, "choices"), columns.get("choices", ""))
        if not choices:
            scorer = str(_cell(row, columns, "scorer") or columns.get("scorer", "exact"))
            return Case(
                id=name, question=question, answer=answer, scorer=scorer, tags=tags(*tagged)
            )
        letter = _letter_of(row[columns["answer"]], answer, choices, labels)
        return _multiple_choice(name, question, choices, letter, tags(*tagged))

    return read


def _cell(row: Row, columns: Mapping[str, str], key: str) -> object:
    """Return what stands in the column that was named for a field; None where none was named.

    A column without a name, as pandas writes its index into a CSV file, is nobody's.
    """
    return row.get(columns[key]) if key in columns else None


def _choices_of(value: object, column: str) -> tuple[list[str], list[str]]:
    """Return the texts of a multiple choice, and the labels by which the file names them.

    They are a list of texts, a list of objects with `text` and `label`, one object with these two
    lists, as in ARC, or an object whose keys are the letters. In a Parquet file such an object has
    null at the letters that only other rows have. A list may have one: five rows of MMLU-Pro do.
    Raises `ValueError` for anything else, and for more than have a letter.
    """
    if isinstance(value, str) and value.startswith(("[", "{")):
        value = json.loads(value)
    value, labels = _texts_and_labels(value)
    if _is_missing(value) or value == "":
        return [], []
    if not isinstance(value, list | tuple):
        # The file's fault, not the caller's
        problem = f"expected a list of texts in {column!r}, found {value!r:.60}"
        raise ValueError(problem)  # noqa: TRY004
    for item in value:
        if _is_missing(item) or isinstance(item, Mapping | list | tuple):
            raise ValueError(f"expected texts in {column!r}, found {item!r:.60}")
    if len(value) > len(ascii_uppercase):
        raise ValueError(f"it has {len(value)} choices, and at most 26 have a letter")
    named = list(map(str, labels)) if isinstance(labels, list | tuple) else []
    return list(map(_written, value)), named if len(named) == len(value) else []


def _texts_and_labels(value: object) -> tuple[object, object]:
    """Return what a column of choices holds, and the labels that it has beside them."""
    if isinstance(value, Mapping):
        if isinstance(value.get("text"), list | tuple):
            return value["text"], value.get("label")
        if "".join(map(str, value)) == ascii_uppercase[: len(value)]:
            texts = list(value.values())
            while texts and _is_missing(texts[-1]):
                texts.pop()
            return texts, None
    if isinstance(value, list | tuple):
        objects = [item for item in value if isinstance(item, Mapping)]
        if len(objects) == len(value):
            texts = [item.get("text", item) for item in objects]
            labels = [item.get("label") for item in objects]
            return texts, None if None in labels else labels
    return value, None


def _one_text(row: Row, column: str, key: str) -> str:
    """Return the text or number in a column. Raises `KeyError`, or `ValueError` for a list.

    A list of one text is that text.
    """
    value = row.get(column)
    if isinstance(value, list | tuple) and len(value) == 1:
        value = value[0]
    # The file's fault, not the caller's
    if isinstance(value, Mapping):
        names = ", ".join(map(str, value))[:80]
        raise ValueError(  # noqa: TRY004
            f"expected text in {column!r}, found an object ({names}); --fields {key}=COLUMN names "
            "a column with one text"
        )
    if isinstance(value, list | tuple):
        raise ValueError(  # noqa: TRY004
            f"expected text in {column!r}, found a list of {len(value)}; --fields {key}=COLUMN "
            "names a column with one text"
        )
    return field({column: value}, column)


def _letter_of(value: object, answer: str, choices: Sequence[str], labels: Sequence[str]) -> str:
    """Return the letter of the right choice.

    A label of the file's own comes first. A whole number is the place of a choice, from 0. A text
    is a choice, else a letter, else such a place.
    """
    if answer in labels:
        return ascii_uppercase[labels.index(answer)]
    is_place = isinstance(value, int) and not isinstance(value, bool)
    bare = list(map(str.strip, choices))
    if not is_place and answer in bare:
        return ascii_uppercase[bare.index(answer)]
    if is_place or answer.isdecimal():
        index = int(answer)
        if not 0 <= index < len(choices):
            raise ValueError(f"the answer {index} is none of the {len(choices)} places, from 0")
        return ascii_uppercase[index]
    return answer


def _listed(value: object) -> list[str]:
    """Return the texts of a list, which a column of a CSV file holds as JSON.

    A text alone is one of them.
    """
    if isinstance(value, str) and value.startswith("["):
        value = json.loads(value)
    if isinstance(value, (list, tuple)):
        return list(map(str, value))
    if value:
        return [str(value)]
    return []


def _multiple_choice(
    name: str, question: str, choices: Sequence[str], answer: str, tagged: tuple[str, ...]
) -> Case:
    lettered = zip(ascii_uppercase, choices, strict=False)
    listed = "\n".join(f"{letter}) {choice}" for letter, choice in lettered)
    return Case(
        id=name,
        question=f"{question}\n\n{listed}\n\n{LETTER}",
        answer=answer,
        scorer="choice",
        tags=tagged,
        choices=tuple(choices),
    )


SUITES: Final = {
    suite.name: suite
    for suite in (
        Suite(
            name="math500",
            about="500 competition problems",
            reader=math500,
            needs=("math-verify",),
            repo="HuggingFaceH4/MATH-500",
            file="test.jsonl",
            split="test",
            licence="MIT",
            prompt="a box for the answer, as in published harnesses",
            scoring="math-verify",
        ),
        Suite(
            name="gsm8k",
            about="1,319 word problems of grade school",
            reader=gsm8k,
            needs=("parquet",),
            repo="openai/gsm8k",
            file="main/test-00000-of-00001.parquet",
            split="test",
            licence="MIT",
            prompt="a box for the answer, as in published harnesses",
            scoring="equal numbers",
        ),
        Suite(
            name="aime25",
            about="30 competition problems of 2025",
            reader=aime25,
            licence="Apache-2.0",
            repo="math-ai/aime25",
            file="test.jsonl",
            split="test",
            prompt="a box for the answer, as in published harnesses",
            scoring="equal whole numbers",
        ),
        Suite(
            name="mmlu",
            about="14,042 questions of 57 subjects",
            reader=mmlu,
            needs=("parquet",),
            repo="cais/mmlu",
            file="all/test-00000-of-00001.parquet",
            split="test",
            licence="MIT",
            prompt="a letter on the last line, as in published harnesses",
            scoring="the letter",
        ),
        Suite(
            name="mmlu-pro",
            about="12,032 questions with up to ten options",
            reader=mmlu_pro(()),
            needs=("parquet",),
            repo="TIGER-Lab/MMLU-Pro",
            file="data/test-00000-of-00001.parquet",
            split="test",
            licence="MIT",
            examples="data/validation-00000-of-00001.parquet",
            reader_with=mmlu_pro,
            prompt=(
                "its authors' (evaluate_from_api.py), with five solved questions of the category"
            ),
            scoring="its authors' (evaluate_from_api.py); no letter is wrong",
        ),
        Suite(
            name="gpqa-diamond",
            about="198 questions of natural science",
            reader=gpqa,
            repo="Idavidrein/gpqa",
            file="gpqa_diamond.csv",
            split="diamond",
            licence="CC-BY-4.0",
            gated=True,
            # Its authors ask everybody not to put the questions where crawlers find them
            shareable=False,
            prompt="a letter on the last line, as in published harnesses",
            scoring="the letter",
        ),
        Suite(
            name="rlpr",
            about="questions of all subjects with short answers",
            reader=rlpr,
            repo="openbmb/RLPR-Train-Dataset",
            file="rlpr_train.parquet",
            split="train; answers of up to 30 characters",
            licence="CC-BY-NC-4.0",
            shareable=False,
            needs=("parquet",),
            prompt="its authors', as it is in the file",
            scoring="that of arXiv 2512.04388",
        ),
        Suite(
            name="humaneval",
            about="164 functions to write",
            reader=humaneval,
            needs=("parquet", "bubblewrap"),
            repo="openai/openai_humaneval",
            file="openai_humaneval/test-00000-of-00001.parquet",
            split="test",
            licence="MIT",
            prompt="that of EvalPlus",
            scoring="the file's asserts, outside of the program's process",
        ),
        Suite(
            name="mbpp",
            about="500 short functions to write",
            reader=mbpp,
            needs=("parquet", "bubblewrap"),
            repo="google-research-datasets/mbpp",
            file="full/test-00000-of-00001.parquet",
            split="test",
            licence="CC-BY-4.0",
            prompt="that of arXiv 2108.07732, and one sentence on the form",
            scoring="the file's asserts, outside of the program's process",
        ),
        Suite(
            name="mbpp-sanitized",
            about="257 short functions, checked by hand",
            reader=mbpp,
            repo="google-research-datasets/mbpp",
            file="sanitized/test-00000-of-00001.parquet",
            split="test",
            licence="CC-BY-4.0",
            needs=("parquet", "bubblewrap"),
            prompt="that of arXiv 2108.07732, and one sentence on the form",
            scoring="the file's asserts, outside of the program's process",
        ),
        Suite(
            name="livecodebench",
            about="175 programs of contests",
            reader=livecodebench,
            needs=("bubblewrap",),
            repo="livecodebench/code_generation_lite",
            file="test6.jsonl",
            split="v6; test.jsonl to test5.jsonl are v1 to v5",
            licence="not stated by its authors",
            shareable=False,
            prompt="its authors' (prompts/code_generation.py)",
            scoring="its authors' (evaluation/testing_util.py), each input in a process of its own",
        ),
        Suite(
            name="bigcodebench",
            about="1,140 functions that use libraries",
            reader=bigcodebench,
            repo="bigcode/bigcodebench",
            file="data/v0.1.4-00000-of-00001.parquet",
            split="v0.1.4",
            licence="Apache-2.0",
            needs=("parquet", "bubblewrap"),
            prompt="its authors', in words (instruct)",
            scoring="its unit tests, in the program's process",
        ),
    )
}
"""Every suite, by its name on the command line."""


FIELDS: Final = ("id", "question", "answer", "choices", "scorer", "tags")


def suite_by_columns(name: str, text: str) -> Suite:
    """Return the suite whose file has these columns: `question=problem,answer=target`.

    Raises `UsageError`.
    """
    columns = dict[str, str]()
    for part in text.split(","):
        field, _, column = (word.strip() for word in part.partition("="))
        if columns.setdefault(field, column) != column:
            message = (
                f"--fields gives {field!r:.40} two columns: {columns[field]!r:.40} and "
                f"{column!r:.40}"
            )
            raise UsageError(message, hint="leave one of them out")
    hint = f"for example: --fields question=problem,answer=target; fields: {', '.join(FIELDS)}"
    for field, column in columns.items():
        if field not in FIELDS or not column:
            raise UsageError(f"--fields: {field!r:.40} is not FIELD=COLUMN", hint=hint)
    if "question" not in columns or "answer" not in columns:
        raise UsageError("--fields needs question and answer", hint=hint)
    return Suite(
        name=name,
        reader=by_columns(columns),
        reader_columns=tuple(columns[key] for key in ("choices", "tags") if key in columns),
        file="--fields with the names of its columns",
    )
