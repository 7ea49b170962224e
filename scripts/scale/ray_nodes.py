"""T6: a batch on two nodes of Ray, one of which is killed at half of its rows."""

from __future__ import annotations

import json
import os
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from scripts.scale.stage import CONDUCTOR, Figure, Place, place

PARALLEL: Final = 64
FAIL_EVERY: Final = 100
TRIES: Final = 5
"""Ray gives a node 30 seconds to start, which a busy machine may need more than once."""


@contextmanager
def two_nodes(at: Place) -> Iterator[tuple[str, Any]]:
    """Start two nodes of a CPU each on loopback; yields the address, and what kills the second one."""
    # Ray imports jsonschema in each of its processes, which takes seconds where this library is there too.
    (at.home / "quick").mkdir()
    (at.home / "quick/rfc3987_syntax.py").write_text("raise ImportError\n")
    before = dict(os.environ)
    os.environ.update(at.environ)  # the nodes read the settings of this home
    os.environ |= {
        "PYTHONPATH": f"{at.home}/quick{os.pathsep}{os.environ['PYTHONPATH']}",
        "RAY_USAGE_STATS_ENABLED": "0",
    }
    sys.path.insert(0, str(at.home / "quick"))
    from ray.cluster_utils import Cluster

    # Ray reads 127.0.0.1 in an address as the machine's name in its network, where these nodes do not listen.
    node = {"num_cpus": 1, "object_store_memory": 100 << 20, "node_ip_address": "127.0.0.2", "include_dashboard": False}
    cluster = Cluster()
    try:
        added = [_add(cluster, node) for _ in range(2)]
        yield cluster.address, lambda: cluster.remove_node(added[1], allow_graceful=False)
    finally:
        cluster.shutdown()
        sys.path.remove(str(at.home / "quick"))
        os.environ.clear()
        os.environ.update(before)


def _add(cluster: Any, node: dict[str, Any]) -> Any:
    for tried in range(1, TRIES + 1):
        try:
            return cluster.add_node(**node)
        except Exception:  # Ray raises nothing finer
            if tried == TRIES:
                raise
            if not cluster.worker_nodes:
                cluster.head_node = None  # so that the next one is the head
    raise AssertionError


def run(*, questions: int) -> Iterator[Figure]:
    """Ask, kill a node at half, and count what was asked twice."""
    with place(fail_every=FAIL_EVERY) as at:
        at.configure(after="[limits]\nattempts = 1")
        with (at.home / "questions.jsonl").open("w") as file:
            file.writelines(f'{{"id":"q{n}","question":"number {n}"}}\n' for n in range(questions))
        with two_nodes(at) as (address, kill):
            command = (*CONDUCTOR, "batch", "questions.jsonl", "-o", "answers.jsonl", "--yes", "--no-trace",
                       "--parallel", PARALLEL, "--progress", "none", "--ray", address)  # fmt: skip
            started, first, killed = time.monotonic(), 0.0, 0.0
            process = at.start(*command)
            while at.is_running(process):
                done = len(_lines(at.home / "answers.jsonl"))
                now = time.monotonic()
                first = first or (now if done else 0.0)
                if not killed and done >= questions // 2:
                    kill()
                    killed = now
                time.sleep(0.2)
            spent, ended = at.ended(process), time.monotonic()
            again = at.ended(at.start(*command))
        counts = at.counts()
        refused = questions // FAIL_EVERY
        ids = Counter(json.loads(line)["id"] for name in ("answers", "answers.failed")
                      for line in _lines(at.home / f"{name}.jsonl"))  # fmt: skip
        whole = len(ids) == questions and set(ids.values()) == {1}
        said = (at.home / "log").read_text()[-500:] if not whole else ""
        yield Figure("ids, each once, a node killed at half", f"{len(ids):,} of {questions:,} {said}",
                     "all, none twice", whole and killed > 0)  # fmt: skip
        # A refused call is made once more without what the server may not know.
        repeated = counts["repeated"] - refused
        yield Figure("calls made again after it", f"{repeated:,}", f"<= {PARALLEL:,}", repeated <= PARALLEL)
        yield Figure("codes at the end, and of the same command again", f"{spent.code}, {again.code}", "7, 7",
                     (spent.code, again.code) == (7, 7))  # fmt: skip
        yield Figure("seconds to the first answer, and rows a second then",
                     f"{first - started:.0f}; {questions / (ended - first):.0f}/s")  # fmt: skip
        yield Figure("memory of the command", f"{spent.memory:.0f} MB")


def _lines(path: Path) -> list[bytes]:
    """Return the whole lines of a file."""
    return [line for line in path.open("rb") if line.endswith(b"\n")] if path.exists() else []
