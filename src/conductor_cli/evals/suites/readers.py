"""How a row of each suite becomes a case; of suites of programs, one whose answer is a set of tests.

The instruction after a question (a box, or a letter on the last line) is that of published harnesses, and what the
scorers look for. MMLU-Pro, RLPR and the suites of programs have the prompts of their authors.
"""

from __future__ import annotations

import base64
import binascii
import json
import pickletools
import re
import zlib
from collections.abc import Mapping, Sequence
from random import Random
from string import ascii_uppercase
from typing import Any, Final

from conductor_cli.evals.cases import Case
from conductor_cli.evals.programs import IoTests, dump_tests
from conductor_cli.evals.suites.rows import Context, Reader, Row, field, tags

BOX: Final = "Put the final answer in \\boxed{}."
LETTER: Final = "End with a line of this form, with one letter: Answer: X"

MMLU_PRO_TASK: Final = (
    "The following are multiple choice questions (with answers) about {subject}. Think step by step and then output "
    'the answer in the format of "The answer is (X)" at the end.\n\n'
)
"""The prompt of its authors (`evaluate_from_api.py`), as are the form of the examples and their number."""
MMLU_PRO_EXAMPLES: Final = 5
MMLU_PRO_THINK: Final = "Let's think step by step."
MAX_RLPR_ANSWER: Final = 30  # Characters of an answer; arXiv 2512.04388 leaves questions with a longer one out


def math500(row: Row, number: int, _: Context) -> Case:
    """`test.jsonl` of HuggingFaceH4/MATH-500: problem, answer, subject, level, unique_id."""
    level = row.get("level")
    return Case(
        id=str(row.get("unique_id") or number), question=f"{field(row, 'problem')}\n\n{BOX}",
        answer=field(row, "answer"), scorer="math",
        tags=tags("math", row.get("subject"), f"level {level}" if level is not None else ""),
    )  # fmt: skip


def aime25(row: Row, number: int, _: Context) -> Case:
    """`test.jsonl` of math-ai/aime25, or the files of opencompass/AIME2025: problem or question, answer, id."""
    answer = re.match(r"\d{1,3}", field(row, "answer"))  # one of opencompass's ends with a degree sign
    if answer is None:
        raise ValueError("the answer is not a whole number from 0 to 999")
    return Case(
        id=str(row.get("id") or number), question=f"{field(row, 'problem', 'question')}\n\n{BOX}",
        answer=str(int(answer[0])), scorer="number", tags=("math", "aime"),
    )  # fmt: skip


def mmlu(row: Row, number: int, _: Context) -> Case:
    """`*_test.csv` of the original release, or rows of cais/mmlu: question, choices, answer, subject."""
    # In a CSV file, the choices are spread over the columns A to D.
    choices, answer = row.get("choices") or [field(row, letter) for letter in "ABCD"], field(row, "answer", "Answer")
    if not isinstance(choices, list):
        raise ValueError("the choices are not a list")  # noqa: TRY004 - likewise
    subject = row.get("subject") or row.get("Subject")
    letter = ascii_uppercase[int(answer) :][:1] if answer.isdecimal() else answer
    name = "-".join((*tags(subject), str(number)))
    return _multiple_choice(name, field(row, "question", "Question"), choices, letter, tags("facts", subject))


def gpqa(row: Row, number: int, context: Context) -> Case:
    """`gpqa_diamond.csv` of Idavidrein/gpqa: Question, Correct Answer, Incorrect Answer 1 to 3, Record ID.

    The choices are shuffled by seed and question, because the right one is always first in the file.
    """
    choices = [field(row, "Correct Answer"), *(field(row, f"Incorrect Answer {index}") for index in (1, 2, 3))]
    name = str(row.get("Record ID") or number)
    order = list(range(len(choices)))
    Random(f"{context.seed}/{name}").shuffle(order)  # noqa: S311 - reproducible, no secret
    shuffled, letter = [choices[at] for at in order], ascii_uppercase[order.index(0)]
    return _multiple_choice(
        name, field(row, "Question"), shuffled, letter, tags("science", row.get("High-level domain"))
    )  # fmt: skip


def mmlu_pro(row: Row, number: int, context: Context) -> Case:
    """A row of TIGER-Lab/MMLU-Pro: question_id, question, options, answer, category.

    Before the question come five solved ones of the same category, if the file of examples is there.
    """
    options, subject = _options(row), field(row, "category")
    examples = [example for example in context.examples if example.get("category") == subject]
    solved = "".join(
        f"{_mmlu_pro_question(example)}{str(example.get('cot_content') or MMLU_PRO_THINK).removeprefix('A: ')}\n\n"
        for example in examples[:MMLU_PRO_EXAMPLES]
    )
    answer = field(row, "answer")
    if answer not in ascii_uppercase[: len(options)]:
        raise ValueError(f"the answer {answer!r:.40} is none of the options")
    return Case(
        id=str(row.get("question_id", number)), answer=answer, scorer="mmlu-pro", choices=options,
        question=f"{MMLU_PRO_TASK.format(subject=subject)}{solved}{_mmlu_pro_question(row)}{MMLU_PRO_THINK}",
        tags=tags("facts", subject),
    )  # fmt: skip


def _mmlu_pro_question(row: Row) -> str:
    listed = "".join(f"{letter}. {option}\n" for letter, option in zip(ascii_uppercase, _options(row), strict=False))
    return f"Question: {field(row, 'question')}\nOptions: {listed}Answer: "


def _options(row: Row) -> tuple[str, ...]:
    """The options without those that only fill the list up. Raises `ValueError`."""
    options = row.get("options")
    if not isinstance(options, list) or not 1 < len(options) <= 10:
        raise ValueError("the options are not a list of 2 to 10")
    return tuple(str(option) for option in options if option != "N/A")


def rlpr(row: Row, number: int, _: Context) -> Case | None:
    """A row of openbmb/RLPR-Train-Dataset or RLPR-Evaluation: prompt (messages), ability, reward_model, extra_info.

    None for an answer that is too long.
    """
    reward, messages = row.get("reward_model"), row.get("prompt")
    if not isinstance(reward, Mapping) or not isinstance(messages, list) or not messages:
        raise ValueError("it has no prompt or no reward_model")
    answer = field(reward, "ground_truth")
    if len(answer) > MAX_RLPR_ANSWER:
        return None
    more = row.get("extra_info")
    index = more.get("index") if isinstance(more, Mapping) else None
    source = tags(row.get("data_source"))
    return Case(
        id="-".join((*source, str(number if index is None else index), str(number))),
        question="\n\n".join(field(message, "content") for message in messages if isinstance(message, Mapping)),
        answer=answer, scorer="rlpr", tags=tags("reasoning", row.get("ability")),
    )  # fmt: skip


def by_columns(columns: Mapping[str, str]) -> Reader:
    """Return a reader that takes each field of a case from the column of this name. `question` and `answer` are needed.

    `scorer` may name a scorer itself. The answer to a multiple choice is a letter, a number from 0, or a choice.
    """

    def read(row: Row, number: int, _: Context) -> Case:
        found = {
            name: field(row, column) for name, column in columns.items() if name not in ("choices", "tags", "scorer")
        }
        name, tagged = found.get("id", str(number)), tags(*_listed(row.get(columns.get("tags", ""))))
        scorer = str(row.get(columns.get("scorer", ""), columns.get("scorer", "")))
        choices = _listed(row.get(columns["choices"])) if "choices" in columns else ()
        if not choices:
            return Case(
                id=name, question=found["question"], answer=found["answer"], scorer=scorer or "exact", tags=tagged
            )  # fmt: skip
        answer = found["answer"]
        if answer in choices:
            answer = ascii_uppercase[choices.index(answer)]
        elif answer.isdecimal():
            answer = ascii_uppercase[int(answer) :][:1]
        return _multiple_choice(name, found["question"], choices, answer, tagged)

    return read


def _listed(value: object) -> list[str]:
    """The texts of a list, which a column of a CSV file holds as JSON; a text alone is one of them."""
    if isinstance(value, str) and value.startswith("["):
        value = json.loads(value)
    return [str(each) for each in value] if isinstance(value, (list, tuple)) else [str(value)] if value else []


def _multiple_choice(name: str, question: str, choices: Sequence[object], answer: str, tagged: tuple[str, ...]) -> Case:
    listed = "\n".join(f"{letter}) {choice}" for letter, choice in zip(ascii_uppercase, choices, strict=False))
    return Case(
        id=name, question=f"{question}\n\n{listed}\n\n{LETTER}", answer=answer, scorer="choice", tags=tagged,
        choices=tuple(map(str, choices)),
    )  # fmt: skip


MAX_TESTS: Final = 1 << 30  # Bytes of the tests of one problem, unpacked

LCB_SYSTEM: Final = (
    "You are an expert Python programmer. You will be given a question (problem specification) and will generate a "
    "correct Python program that matches the specification and passes all tests."
)
LCB_STARTER: Final = (
    "You will use the following starter code to write the solution to the problem and enclose your code within "
    "delimiters."
)
LCB_STDIN: Final = (
    "Read the inputs from stdin solve the problem and write the answer to stdout (do not directly test on the sample "
    "inputs). Enclose your code within delimiters as follows. Ensure that when the python program runs, it reads the "
    "inputs, runs the algorithm and writes output to STDOUT."
)
"""These three are from LiveCodeBench (`prompts/code_generation.py`, MIT licence): its figures are for these words."""


def livecodebench(row: Row, number: int, _: Context) -> Case:
    """A row of code_generation_lite: question_content, starter_code, public and private tests, metadata."""
    starter, content = str(row.get("starter_code") or ""), str(row["question_content"])
    metadata = _parsed(field(row, "metadata"), dict) if row.get("metadata") else {}
    function = metadata.get("func_name")
    if function is not None and not (isinstance(function, str) and function.isidentifier()):
        raise ValueError(f"the function {function!r:.60} has no valid name")
    tests = [*_tests(field(row, "public_test_cases")), *_private_tests(field(row, "private_test_cases"))]
    if not tests:
        raise ValueError("it has no tests")
    task, code = (LCB_STARTER, starter) if starter else (LCB_STDIN, "# YOUR CODE HERE")
    return Case(
        id=str(row.get("question_id") or number), scorer="program",
        question=f"{LCB_SYSTEM}\n\n### Question:\n{content}\n\n### Format: {task}\n```python\n{code}\n```\n\n"
        "### Answer: (use the provided format with backticks)\n\n",
        answer=dump_tests(IoTests(tests=tuple(tests), function=function or "")),
        tags=tags("code", row.get("platform"), row.get("difficulty")),
    )  # fmt: skip


def _parsed(text: str, kind: type[Any]) -> Any:  # noqa: ANN401 - JSON
    """JSON of this kind. Raises `ValueError`."""
    value = json.loads(text)
    if not isinstance(value, kind):
        raise ValueError(f"{text[:40]!r} is no {kind.__name__}")  # noqa: TRY004 - the file's fault
    return value


def _tests(text: str) -> list[tuple[str, str]]:
    """Tests in JSON, as pairs of input and output. Raises `ValueError`."""
    tests = _parsed(text, list)
    if not all(
        isinstance(test, Mapping) and isinstance(test.get("input"), str) and isinstance(test.get("output"), str)
        for test in tests
    ):
        raise ValueError("a test has no input or no output")
    return [(test["input"], test["output"]) for test in tests]


def _private_tests(text: str) -> list[tuple[str, str]]:
    """Tests in JSON; or, to make them smaller, JSON in a pickle in zlib in base64. Raises `ValueError`."""
    if text.startswith("["):
        return _tests(text)
    try:
        unpacker = zlib.decompressobj()
        data = unpacker.decompress(base64.b64decode(text, validate=True), MAX_TESTS)
    except (binascii.Error, zlib.error) as error:
        raise ValueError(f"the private tests cannot be unpacked: {error}") from None
    if not unpacker.eof:
        raise ValueError("the private tests are cut off or too large")
    return _tests(pickled_text(data))


_HARMLESS: Final = {"PROTO", "FRAME", "MEMOIZE", "BINPUT", "LONG_BINPUT", "PUT", "STOP"}
_TEXTS: Final = {"SHORT_BINUNICODE", "BINUNICODE", "BINUNICODE8", "SHORT_BINBYTES", "BINBYTES", "BINBYTES8"}


def pickled_text(data: bytes) -> str:
    """The one text in a pickle. Nothing is unpickled: any other content is a `ValueError`."""
    found = []
    try:
        for opcode, value, _ in pickletools.genops(data):
            if opcode.name in _TEXTS:
                found.append(value.decode("utf-8") if isinstance(value, bytes) else str(value))
            elif opcode.name not in _HARMLESS:
                raise ValueError(f"the pickle holds more than a text: {opcode.name}")
    except (IndexError, OverflowError, UnicodeError) as error:
        raise ValueError(f"the pickle is damaged: {error}") from None
    if len(found) != 1:
        raise ValueError("the pickle does not hold one text")
    return found[0]
