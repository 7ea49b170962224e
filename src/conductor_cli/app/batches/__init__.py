"""Many questions from one file, with the answers in another: resumable after a kill at any moment.

A batch reads a text file with a question a line, JSON Lines, or the batch format of OpenAI:

    What is the capital of France?
    {"id": "7", "question": "What is the capital of France?", "system": "Answer in one word."}
    {"custom_id": "7", "method": "POST", "url": "/v1/chat/completions", "body": {"messages": […]}}

It appends a line to `answers.jsonl` for each question that was answered, and one to
`answers.failed.jsonl` for each that was not: the line of the input with the reason. So the file of
failures is itself an input that tries them again.

One loop (`driver.py`) does every batch. It takes questions from a `QuestionSource`: an input of
this process alone (`source.py`), or one that several machines share (`shared.py`). It has them
asked by an `Asker`: this process (`driver.py`), or the nodes of a Ray cluster (`ray_nodes.py`).
What becomes of them goes to an `AnswerSink` (`answer_files.py`). The batches of the server
(`server/batches.py`) are made of the same parts.
"""

from conductor_cli.app.batches.answer_files import AnswerFiles, AnswerSink
from conductor_cli.app.batches.answer_lines import failed_path
from conductor_cli.app.batches.batch_files import Batch, open_batch, sort_answers
from conductor_cli.app.batches.driver import Asker, ParallelAsker, run_batch
from conductor_cli.app.batches.input_forms import BatchItem, read_items
from conductor_cli.app.batches.results import BatchProgress, BatchResult, batch_result_of
from conductor_cli.app.batches.source import QuestionList, QuestionSource

__all__ = [
    "AnswerFiles",
    "AnswerSink",
    "Asker",
    "Batch",
    "BatchItem",
    "BatchProgress",
    "BatchResult",
    "ParallelAsker",
    "QuestionList",
    "QuestionSource",
    "batch_result_of",
    "failed_path",
    "open_batch",
    "read_items",
    "run_batch",
    "sort_answers",
]
