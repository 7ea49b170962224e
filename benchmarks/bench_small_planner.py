"""How long a small planner takes from a new process to its plan, with the prefix on disk.

`python benchmarks/bench_small_planner.py MODEL.gguf [ADAPTER.gguf]` runs `conductor plan` in new
processes, and then measures in one process what a plan is made of: loading, the prefix, the rest of
the prompt, and tokens by the number of threads. The bound is for a model of half a billion weights
on two idle cores; beside it stands the processor time, which other programs lengthen less.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from figures import Figure, Table, newcomer, orchestra, spent
from run import judged, load_before

from conductor_cli.models.llama.bindings import CancelToken
from conductor_cli.models.llama.engine import LlamaEngine
from conductor_cli.models.llama.loading import LlamaOptions
from conductor_cli.system.hardware import physical_cores

QUESTION: Final = "Write a CSV parser in Python, then tests for it, then a README"
BOUND_SECONDS: Final = 2.5  # From the start of the process to the printed plan
ROUNDS: Final = 5
DECODED_TOKENS: Final = 16  # By which the pace of writing is measured, each ROUNDS times
PREFIX_TOKENS: Final = 128
SETTINGS: Final = """\
[planner]
model = "{model}"
{more}
"""
WORKER: Final = """\
[workers.{name}]
kind = "openai-compatible"
base_url = "http://127.0.0.1:9/v1"
model = "{name}"
price = {{ input = 1, output = 2 }}
card = {{ strengths = {{ code = {code}, writing = {writing}, math = {math} }} }}
"""
CARDS: Final = (("ada", 0.8, 0.4, 0.6), ("bob", 0.5, 0.8, 0.3), ("cyd", 0.3, 0.5, 0.9))


def measure(model: Path, adapter: Path | None) -> Table:
    """Run the command in new processes, then what it does in this one."""
    with tempfile.TemporaryDirectory() as directory:
        environ = newcomer(directory)
        _write_settings(Path(environ["HOME"]), environ, model, adapter)
        command = [*orchestra(), "plan", QUESTION]
        first = spent(command, environ, remarks=False)
        later = [spent(command, environ, remarks=False) for _ in range(ROUNDS)]
        planning = _newest_planning(environ)
    wall = min(run.wall for run in later)
    cpu = statistics.median(run.cpu for run in later)
    also = f"the quickest of {ROUNDS}; median {statistics.median(run.wall for run in later):.2f} s"
    figures = [
        Figure("a new process, to its plan", wall, "s", BOUND_SECONDS, also),
        Figure("its processor time", cpu, "s", also=f"the median of {ROUNDS}"),
        Figure("the first process, which computes the prefix", first.wall, "s"),
        Figure("tokens of the prompt that were not on disk", _new_tokens(planning), "tokens"),
        Figure("tokens of the plan", planning["tokens_out"], "tokens"),
        *_phases(model, adapter),
    ]
    if not planning["tokens_cached"]:
        raise SystemExit("the prefix did not come from disk")
    about = f"{model.name}{f' with {adapter.name}' if adapter else ''}: `conductor plan`."
    return Table("A small planner", about, figures)


def _write_settings(
    home: Path, environ: Mapping[str, str], model: Path, adapter: Path | None
) -> None:
    directory = Path(environ.get("XDG_CONFIG_HOME", home / ".config")) / "conductor-llm"
    directory.mkdir(parents=True, exist_ok=True)
    adapter_keys = ""
    if adapter is not None:
        adapter_keys = f'adapter = "{adapter}"\nprofile = "kinds"'
    tables = [SETTINGS.format(model=model, more=adapter_keys)]
    for name, code, writing, math in CARDS:
        tables.append(WORKER.format(name=name, code=code, writing=writing, math=math))
    (directory / "config.toml").write_text("\n".join(tables), encoding="utf-8")


def _newest_planning(environ: Mapping[str, str]) -> dict[str, Any]:
    """What the planner used in the newest run."""
    command = [*orchestra(), "trace", "show", "last", "--json"]
    done = subprocess.run(command, env=dict(environ), capture_output=True, text=True, check=True)
    planning: dict[str, Any] = json.loads(done.stdout)["planning"]
    return planning


def _new_tokens(planning: Mapping[str, Any]) -> int:
    return int(planning["tokens_in"] - planning["tokens_cached"])


def _phases(model: Path, adapter: Path | None) -> Iterator[Figure]:
    """What a plan is made of: loading, and tokens by the number of threads."""
    for threads in range(1, physical_cores() + 1):
        options = LlamaOptions(adapter=adapter, threads=threads)
        began = time.perf_counter()
        cpu_before = time.process_time()
        engine = LlamaEngine(model, options, CancelToken())
        if threads == 1:
            also = f"processor time {time.process_time() - cpu_before:.2f} s"
            yield Figure("loading the model", time.perf_counter() - began, "s", also=also)
        cache = engine.kv_cache
        cache.decode(list(range(100, 100 + PREFIX_TOKENS)))
        writing = [_seconds_of_decoding(cache, 1, DECODED_TOKENS) for _ in range(ROUNDS)]
        reading = [_seconds_of_decoding(cache, 32, 1) for _ in range(ROUNDS)]
        engine.close()
        also = f"{1 / min(writing):.1f} tokens/s, the quickest of {ROUNDS}"
        unit = "thread" if threads == 1 else "threads"
        yield Figure(f"a token of the plan, {threads} {unit}", min(writing), "ms", also=also)
        yield Figure(f"a token of the prompt, {threads} {unit}", min(reading), "ms")


def _seconds_of_decoding(cache: Any, size: int, count: int) -> float:
    """Seconds for each token, in `count` batches of `size`; the cache is left as it was."""
    before = len(cache.tokens)
    began = time.perf_counter()
    for number in range(count):
        cache.decode(list(range(300 + number * size, 300 + (number + 1) * size)))
    seconds = time.perf_counter() - began
    cache.truncate(before)
    return seconds / (size * count)


def main(arguments: list[str]) -> int:
    """Measure the model that is named, with its adapter if it has one."""
    paths = [Path(argument).absolute() for argument in arguments]
    if len(paths) not in (1, 2) or not all(path.is_file() for path in paths):
        print("name a model, and perhaps its adapter: make bench-planner MODEL=…", file=sys.stderr)
        return 2
    load = load_before()
    adapter = paths[1] if len(paths) == 2 else None
    table = measure(paths[0], adapter)
    print(table.markdown())
    print(f"{os.cpu_count()} processors, load before {load}")
    return judged([table], [], None)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
