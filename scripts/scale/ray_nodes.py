"""T6: a batch on two nodes of Ray, one of which is killed at half of its rows."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final
from unittest.mock import patch

from scripts.scale.batch import COMMAND, FAIL_EVERY, PARALLEL, figures, lines, prepare
from scripts.scale.stage import ROOT, Figure, Place, place

# Ray gives a node 30 seconds to start, which a busy machine may need more than once
TRIES: Final = 5


@contextmanager
def two_nodes(at: Place) -> Iterator[tuple[str, Any]]:
    """Start two nodes of a CPU each on loopback.

    Yields the address, and what kills the second one.
    """
    # Ray imports jsonschema in each of its processes, which takes seconds where this library is
    # there too.
    quick = at.home / "quick"
    quick.mkdir()
    (quick / "rfc3987_syntax.py").write_text("raise ImportError\n")
    # The nodes read the settings of this home.
    environ = at.environ | {
        "PYTHONPATH": f"{quick}{os.pathsep}{ROOT}",
        "RAY_USAGE_STATS_ENABLED": "0",
    }
    with patch.dict(os.environ, environ), patch.object(sys, "path", [str(quick), *sys.path]):
        from ray.cluster_utils import Cluster

        # Ray reads 127.0.0.1 in an address as the machine's name in its network, where these nodes
        # do not listen.
        node = {"node_ip_address": "127.0.0.2", "num_cpus": 1, "object_store_memory": 100 << 20}
        cluster = Cluster()
        try:
            added = [_add(cluster, node | {"include_dashboard": False}) for _ in range(2)]
            yield cluster.address, lambda: cluster.remove_node(added[1], allow_graceful=False)
        finally:
            cluster.shutdown()


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
        prepare(at, questions)
        with two_nodes(at) as (address, kill):
            command = (*COMMAND, *at.planned, "--ray", address)
            started = time.monotonic()
            first = 0.0
            killed = False
            process = at.start(*command)
            while at.is_running(process):
                done = len(lines(at.home / "answers.jsonl"))
                first = first or (time.monotonic() if done else 0.0)
                if not killed and done >= questions // 2:
                    kill()
                    killed = True
                time.sleep(0.2)
            spent = at.ended(process)
            ended = time.monotonic()
            again = at.ended(at.start(*command))
        yield Figure("a node was killed at half", str(killed), "True", killed)
        yield from figures(at, questions, [spent, again], "it", PARALLEL)
        yield Figure(
            "seconds to the first answer, and rows a second then",
            f"{first - started:.0f}; {questions / (ended - first):.0f}/s",
        )
        yield Figure("memory of the command", f"{spent.memory:.0f} MB")
