"""Which steps may start now. Nothing here starts or waits for anything."""

from __future__ import annotations

from collections.abc import Mapping, Sequence


class Schedule:
    """The steps of one run while it is being planned and executed.

    A step may start when every step on its access list has ended, fewer than `parallel` steps run, and fewer than its
    worker's own bound run on that worker. Steps start in the order of their numbers.
    """

    def __init__(self, parallel: int, per_worker: Mapping[str, int] | None = None) -> None:
        self._parallel = parallel
        self._per_worker = dict(per_worker or {})
        self._access: dict[int, tuple[int, ...]] = {}
        self._worker: dict[int, str] = {}
        self._waiting: list[int] = []
        self._running: set[int] = set()
        self._ended: set[int] = set()

    def add(self, number: int, worker: str, access: Sequence[int]) -> None:
        """A step of the plan is complete."""
        # Item 0 is given from the start, so no step has to wait for it.
        self._access[number] = tuple(item for item in access if item > 0)
        self._worker[number] = worker
        self._waiting.append(number)

    def take_ready(self) -> list[int]:
        """The steps to start now. They count as running from here on."""
        started = []
        # Lower numbers first: with few slots, the steps that others wait for tend to come early in a plan.
        for number in sorted(self._waiting):
            if len(self._running) < self._parallel and self._ready(number):
                self._waiting.remove(number)
                self._running.add(number)
                started.append(number)
        return started

    def _ready(self, number: int) -> bool:
        worker = self._worker[number]
        busy = sum(self._worker[other] == worker for other in self._running)
        seen = all(item in self._ended for item in self._access[number])
        return seen and busy < self._per_worker.get(worker, self._parallel)

    def mark_ended(self, number: int) -> None:
        """A step has ended, in whatever state."""
        # A step that is stopped before it starts is still waiting.
        if number in self._waiting:
            self._waiting.remove(number)
        self._running.discard(number)
        self._ended.add(number)

    @property
    def running(self) -> tuple[int, ...]:
        return tuple(sorted(self._running))

    @property
    def waiting(self) -> tuple[int, ...]:
        return tuple(sorted(self._waiting))
