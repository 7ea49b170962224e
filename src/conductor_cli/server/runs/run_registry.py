"""The runs that a server drives, apart from the connections that read them.

A run belongs to the registry. A client reads it from its beginning, whenever it comes; one that
lost its connection and sends the same request again goes on with the run that is there, and pays
once. When nobody has read a run for a while, it is stopped. So many runs go on at once; those that
wait are taken from their owners in turn, so that somebody who sends 200 requests waits behind
themselves. All of it belongs to one loop, and not to threads.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Final

from conductor_cli.core import events as ev
from conductor_cli.core.chat import Tool, ToolCall
from conductor_cli.core.errors import ConductorError, Failure, TakenOver
from conductor_cli.core.question import Conversation
from conductor_cli.core.trace import Trace
from conductor_cli.programs.turns import CURRENT_CLIENT, SHARE_OF_FREE, FairPlaces
from conductor_cli.run.orchestra import new_run_id
from conductor_cli.server.api.errors import request_error
from conductor_cli.server.api.request import (
    ClientRequest,
    RequestError,
    ServedAnswer,
    ServedUsage,
)
from conductor_cli.server.http.access import Principal, describe_error
from conductor_cli.server.http.readiness import Readiness
from conductor_cli.server.runs.narration import AnswerText, Piece, Reasoning, ResponseStream
from conductor_cli.server.runs.run_starter import RunStarter, ServedJob

log = logging.getLogger(__name__)

# Adjacent pieces of text are joined up to so many characters while they are kept
BLOCK_CHARACTERS: Final = 4000

# Characters of a run that no client has read; beyond that the worker waits for the fastest client
MAX_UNREAD: Final = 64_000

# Characters of all runs that have ended; beyond that the oldest are forgotten
MAX_KEPT: Final = 32 << 20

FAILING_SECONDS: Final = 120.0
"""How long it is remembered that a request failed, and how often."""

MAX_FAILING: Final = 1_000  # Requests of which that is remembered
MAX_FAILURES: Final = 2  # Failures of equal requests after which their client is told to stop

KEPT_SECONDS: Final = 60.0  # How long a run that has ended can be joined and looked up

BuildJob = Callable[[str], Awaitable[ServedJob]]
"""Makes the job of a run with this id.

Raises `RequestError`, `ConductorError` or `AnsweredAtOnce`.
"""


class AnsweredAtOnce(Exception):
    """A request is answered with this text, and no run."""


@dataclass(slots=True)
class _Block:
    """Adjacent pieces of the answer, or of the reasoning, as one text that grows."""

    kind: type[Reasoning | AnswerText]
    text: str


class ServedRun:
    """One run as its clients read it.

    `origin` is who asked for it, `model` what was asked for by name.

    `began` is set when it has begun or ended: from then on an error of the beginning is known.
    `answered` is set when the first piece of its answer is there, or when it has ended.
    `ended` is how it ended, None while it goes on; then `streamed_text` is the answer as it was
    streamed, which may hold more than the answer. `keeps_up` is set while the run may go on: a
    client keeps up with it, or none reads it.
    """

    def __init__(
        self, run: str, key: str, stream: ResponseStream, *, origin: str = "", model: str = ""
    ) -> None:
        self.id = run
        self.key = key
        self.origin = origin
        self.model = model
        self.created = int(time.time())
        self.began_at = time.monotonic()
        self.began = asyncio.Event()
        self.answered = asyncio.Event()
        self.ended: ServedAnswer | RequestError | None = None
        self.streamed_text = ""
        self.readers: set[Subscriber] = set()
        self.is_stored = True  # Whether a file has its trace
        self.was_delivered = False  # Whether a client has read it to its end
        self.size = 0
        self.first_text_at: float | None = None
        self.task: asyncio.Task[None] | None = None
        self.leaving: asyncio.TimerHandle | None = None
        self.stream = stream
        self.keeps_up = asyncio.Event()
        self.keeps_up.set()
        self.items: list[_Block | ToolCall] = []
        self.outlives_clients = False  # Whether it goes on where nobody reads it
        self.is_leased = False  # Whether another server goes on with it where this one is gone
        # The client's tools that are no plain functions, by name, namespace and kind
        self.tools: tuple[Tool, ...] = ()
        self.echo: Mapping[str, Any] = {}  # What a response says of its request
        self.ignored: tuple[str, ...] = ()  # The fields of the request that had no effect

    def keep_request(self, asked: ClientRequest | Conversation) -> None:
        """Remember what a client asked with, for when it reads the run again."""
        self.echo = asked.echo
        self.ignored = asked.ignored
        self.tools = tuple(
            Tool(name=tool.name, namespace=tool.namespace, kind=tool.kind)
            for tool in asked.tools
            if tool.namespace or tool.kind
        )

    @property
    def may_be_read_again(self) -> bool:
        """Whether the response may be read by its id: its client may say `store: false`."""
        return self.echo.get("store") is not False

    def show_piece(self, event: ev.StepDelta) -> None:
        """Show a piece of what a worker writes, of which many come, one after the other."""
        for piece in self.stream.read_delta(event):
            self.add(piece, at_once=True)

    def show(self, event: ev.Event, trace: Trace) -> None:
        """Show an event. Some of them come together."""
        if isinstance(event, ev.StepDelta):
            self.show_piece(event)
            return
        for piece in self.stream.read(event, trace):
            self.add(piece)
        self.began.set()

    def pace(self) -> None:
        """Let the run wait, or go on, as its clients read."""
        for reader in self.readers:
            if not reader.is_behind:
                self.keeps_up.set()
                return
        if self.readers:
            self.keeps_up.clear()
        else:
            self.keeps_up.set()

    def end(self, ended: ServedAnswer | RequestError) -> None:
        if self.ended is not None:
            return
        self.ended = ended
        self.streamed_text = self.stream.shown
        if isinstance(ended, ServedAnswer):
            self.size += len(ended.text) + len(ended.reasoning) + len(self.streamed_text)
        # What it was made from is not needed any more, and holds all texts a second time.
        self.stream = ResponseStream()
        self.began.set()
        self.answered.set()
        for reader in self.readers:
            reader.woken.set()

    @property
    def is_lost(self) -> bool:
        """Whether another server has the run, and its end."""
        return isinstance(self.ended, RequestError) and self.ended.code == TakenOver().reason

    @property
    def reasoning(self) -> str:
        """All that was told of the run so far."""
        return "".join(
            item.text for item in self.items if isinstance(item, _Block) and item.kind is Reasoning
        )

    def add(self, piece: Piece, *, at_once: bool = False) -> None:
        """Keep a piece. `at_once`: who has all before it is sent it by this task."""
        if isinstance(piece, ToolCall):
            self.answered.set()
            self.items.append(piece)
            self.size += BLOCK_CHARACTERS
        else:
            if self.first_text_at is None and isinstance(piece, AnswerText):
                self.answered.set()
                self.first_text_at = time.monotonic()
            self.size += len(piece.text)
            self._add_text(piece)
        is_written = False  # To a client that has all by now, so that the run need not wait
        for reader in self.readers:
            if not reader.takes_pieces:
                continue
            if at_once and reader.write_now(piece):
                is_written = True
            else:
                reader.woken.set()
        if not is_written:
            self.pace()

    def _add_text(self, piece: Reasoning | AnswerText) -> None:
        last = self.items[-1] if self.items else None
        kind = type(piece)
        if isinstance(last, _Block) and last.kind is kind and len(last.text) < BLOCK_CHARACTERS:
            last.text += piece.text
        else:
            self.items.append(_Block(kind, piece.text))


class Subscriber:
    """One client's place in a run. Use `pieces` until it returns None, then look at `run.ended`.

    A client that does not take pieces is sent the whole answer, and woken for that alone.
    """

    def __init__(self, run: ServedRun, *, heartbeat: float, takes_pieces: bool = True) -> None:
        self.run = run
        self.takes_pieces = takes_pieces
        self.is_gone = False
        self.taken = 0  # As `ServedRun.size`: how much of it this client was given
        self.woken = asyncio.Event()
        self.write: Callable[[Piece], bool] | None = None
        """Writes a piece to the client at once, without waking a task for it.

        False where it cannot, for now.
        """
        self._waits = False
        self._item = 0
        self._offset = 0
        self._period = heartbeat
        self._loop = asyncio.get_running_loop()
        self._last = self._loop.time()
        self._timer: asyncio.TimerHandle | None = None
        self._is_silent = False

    @property
    def is_behind(self) -> bool:
        """Whether so much waits for this client that the run has to wait, too."""
        return self.takes_pieces and self.run.size - self.taken > MAX_UNREAD

    def leave(self) -> None:
        """Let `pieces` return at once: the client is gone."""
        self.is_gone = True
        self.woken.set()

    def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()

    def restart_silence(self) -> None:
        """Count the silence from now.

        The client was sent something, if only what keeps its connection open.
        """
        self._last = self._loop.time()

    async def pieces(self) -> list[Piece] | None:
        """Return new pieces; an empty list after a silence.

        None when the run has ended or the client has left.
        """
        while not self.is_gone:
            self.woken.clear()
            pieces = self._new_pieces()
            if pieces:
                self.taken = self.run.size
                self.run.pace()
                return pieces
            if self._is_silent:
                self._is_silent = False
                return []
            if self.run.ended is not None:
                return None
            if self._timer is None:
                self._timer = self._loop.call_later(self._period, self._tick)
            self._waits = True
            try:
                await self.woken.wait()
            finally:
                self._waits = False
        return None

    def write_now(self, piece: Piece) -> bool:
        """Write the piece that was added last, if this client has everything before it.

        False where `pieces` has it.
        """
        if self.write is None or not self._waits or self.woken.is_set() or not self.write(piece):
            return False
        last = self.run.items[-1]
        self._item = len(self.run.items)
        self._offset = 0
        if isinstance(last, _Block):  # which may grow
            self._item -= 1
            self._offset = len(last.text)
        self.taken = self.run.size
        self._last = self._loop.time()
        return True

    def _tick(self) -> None:
        # One timer for a stream, and not one for each token: it looks how long the silence has
        # been.
        rest = self._last + self._period - self._loop.time()
        if rest > 0.01:
            self._timer = self._loop.call_later(rest, self._tick)
        else:
            self._timer = None
            self._is_silent = True
            self.woken.set()

    def _new_pieces(self) -> list[Piece]:
        """Return what was added since the last call.

        The last block may still grow, so the next call begins at its end.
        """
        pieces = list[Piece]()
        if not self.takes_pieces:
            return pieces
        items = self.run.items
        while self._item < len(items):
            item = items[self._item]
            if isinstance(item, _Block):
                if len(item.text) > self._offset:
                    pieces.append(item.kind(item.text[self._offset :]))
                    self._offset = len(item.text)
                if self._item == len(items) - 1:
                    break
            else:
                pieces.append(item)
            self._item += 1
            self._offset = 0
        return pieces


@dataclass(eq=False, slots=True)
class QueuePlace:
    """A place for one run.

    Wait for `granted`; give it back with `FairQueue.leave`, whether it was granted or not.
    """

    owner: str
    client: str
    granted: asyncio.Event = field(default_factory=asyncio.Event)


class FairQueue:
    """Lets `parallel` runs go on at once, and has `queue` places for those that wait.

    `FairPlaces` says how many of them one client may have at once.
    """

    def __init__(self, parallel: int, queue: int) -> None:
        self._places = FairPlaces(parallel)
        self.waiting = 0
        self._queue = queue
        # Those that wait, by owner. The first owner is the next one
        self._waiting = OrderedDict[str, OrderedDict[QueuePlace, None]]()

    @property
    def free(self) -> int:
        """Return how many runs could go on at once beside those that do."""
        return self._places.free

    def take(self, owner: str) -> QueuePlace | None:
        """Return a place, granted at once where one is free for the client of this task.

        None where the queue has none for this owner.
        """
        place = QueuePlace(owner, CURRENT_CLIENT.get())
        if self._places.take(place.client):  # then none of this client waits
            place.granted.set()
            return place
        free_to_wait = self._queue - self.waiting
        if len(self._waiting.get(owner, ())) >= SHARE_OF_FREE * free_to_wait:
            return None
        self._waiting.setdefault(owner, OrderedDict())[place] = None
        self.waiting += 1
        return place

    def leave(self, place: QueuePlace) -> None:
        """Give a place up: its run has ended, or nobody waits for it any more."""
        if not place.granted.is_set():
            places = self._waiting[place.owner]
            del places[place]
            self.waiting -= 1
            if not places:
                del self._waiting[place.owner]
        else:
            self._places.give_back(place.client)
            while self._grant_next():
                pass

    def _grant_next(self) -> bool:
        """Grant the oldest place of the owner whose turn it is, who then comes last."""
        for owner, places in self._waiting.items():
            place = next(iter(places))
            if self._places.take(place.client):
                del places[place]
                self._waiting.move_to_end(owner)
                if not places:
                    del self._waiting[owner]
                self.waiting -= 1
                place.granted.set()
                return True
        return False


@dataclass(kw_only=True)
class RegistryLimits:
    """`parallel` runs at once, `queue` that wait; `grace` seconds of a run that nobody reads.

    After `heartbeat` seconds of silence a client is given a sign of life. An equal request of the
    same session is one that is sent again once the run is `resend` seconds old: agents that start
    side by side want two answers.
    """

    parallel: int = 32
    queue: int = 256
    grace: float = 20.0
    heartbeat: float = 10.0
    resend: float = 2.0


class _EqualRequests:
    """The runs of equal requests, without those that failed, in groups: the oldest first.

    So the run that a request joins is found without reading through all that are kept.
    """

    def __init__(self) -> None:
        self.lost = OrderedDict[str, ServedRun]()  # No client reads it, and none has its end
        self.read = OrderedDict[str, ServedRun]()  # A client reads it: never more than connections
        self.delivered = OrderedDict[str, ServedRun]()  # No client reads it, and one has its end

    def __bool__(self) -> bool:
        return bool(self.lost or self.read or self.delivered)

    def add(self, served: ServedRun) -> None:
        """Put a run into its group."""
        self.remove(served)
        if served.readers:
            self.read[served.id] = served
        elif served.was_delivered:
            self.delivered[served.id] = served
        else:
            self.lost[served.id] = served

    def remove(self, served: ServedRun) -> None:
        for group in (self.lost, self.read, self.delivered):
            group.pop(served.id, None)


def _first(group: OrderedDict[str, ServedRun]) -> ServedRun | None:
    return next(iter(group.values()), None)


def _least_read(runs: Iterable[ServedRun]) -> ServedRun | None:
    return min(runs, key=lambda served: len(served.readers), default=None)


@dataclass
class RunRegistry:
    """All runs of one server. `observe` is told of each run that has ended."""

    starter: RunStarter
    limits: RegistryLimits = field(default_factory=RegistryLimits)
    observe: Callable[[ServedRun], None] = lambda _: None
    tasks: tuple[Callable[[], Coroutine[Any, Any, None]], ...] = ()
    """What goes on beside the requests of clients, until it is cancelled."""

    def __post_init__(self) -> None:
        self.readiness = Readiness(self.starter)
        self._queue = FairQueue(self.limits.parallel, self.limits.queue)
        self._by_key: dict[str, _EqualRequests] = {}
        self._by_id: dict[str, ServedRun] = {}
        self._ended = OrderedDict[
            str, ServedRun
        ]()  # Those that are kept, in the order of their ends
        self._is_ending = False
        self._kept = 0
        self.running = 0  # Runs that go on or wait
        # The failures of equal requests, and when the last one was, the newest last
        self._failures = OrderedDict[str, tuple[int, float]]()

    def recent_failures(self, key: str) -> int:
        """Return how often equal requests have failed lately.

        Each of them has asked every worker several times. A client that repeats it on and on would
        cost minutes and many calls.
        """
        count, at = self._failures.get(key, (0, 0.0))
        if time.monotonic() - at >= FAILING_SECONDS:
            return 0
        return count

    def _note_end(self, key: str, ended: ServedAnswer | RequestError) -> None:
        """Remember whether a request failed by what may be better a moment later.

        Where the shared state was away, no worker was asked.
        """
        if isinstance(ended, ServedAnswer):
            self._failures.pop(key, None)
            return
        if ended.status < 500 or ended.code == "state":
            return
        count, at = self._failures.pop(key, (0, 0.0))
        if time.monotonic() - at > FAILING_SECONDS:
            count = 0
        self._failures[key] = (count + 1, time.monotonic())
        if len(self._failures) > MAX_FAILING:
            self._failures.popitem(last=False)

    @property
    def going_on(self) -> list[ServedRun]:
        return [served for served in self._by_id.values() if served.ended is None]

    @property
    def free_places(self) -> int:
        """Return how many runs could go on at once beside those that do."""
        return 0 if self._is_ending else self._queue.free

    def find(self, run: str) -> ServedRun | None:
        """Return the run of this id, while it goes on and shortly after.

        Not one that another server has.
        """
        served = self._by_id.get(run)
        return None if served is None or served.is_lost else served

    def join(
        self, key: str, *, is_retry: bool = False, in_session: bool = False
    ) -> ServedRun | None:
        """Return the run of the same request, where its client has lost it or sends it again.

        `server/http/idempotency.py` says which requests are the same. Equal requests at the same
        moment are several samples, each a run of its own. A run that failed is not joined: who asks
        again wants another try.
        """
        same = self._by_key.get(key)
        if same is None:
            return None
        # Where several samples are sent again, each goes on with a run of its own.
        if same.lost:
            return _first(same.lost)
        if is_retry:
            return _first(same.delivered) or _least_read(same.read.values())
        if in_session:
            before = time.monotonic() - self.limits.resend
            return _least_read(
                served
                for served in same.read.values()
                if served.ended is None and served.began_at <= before
            )
        return None

    def begin(
        self,
        key: str,
        build_job: BuildJob,
        stream: ResponseStream,
        *,
        principal: Principal,
        run: str = "",
    ) -> ServedRun:
        """Begin a run, with the id `run` if that was announced.

        Those that wait are taken from each owner in turn.

        Raises `RequestError`.
        """
        if self._is_ending:
            raise RequestError(
                503, "server_is_ending", "the server is about to end", retry_after=5.0
            )
        place = self._queue.take(principal.owner)
        if place is None:
            waiting = self._queue.waiting
            message = f"the server is busy: {waiting} requests are waiting for their turn"
            raise RequestError(429, "busy", message, retry_after=5.0)
        served = ServedRun(
            run or new_run_id(datetime.now(UTC)), key, stream, origin=principal.origin
        )
        self._by_id[served.id] = served
        self._group(served)
        served.task = asyncio.create_task(self._perform(served, build_job, place))
        self._count_running(1)
        # A task that is cancelled before it has begun executes nothing, not even its own clean-up.
        served.task.add_done_callback(lambda _: self._keep_ended(served, place))
        return served

    def open(self, served: ServedRun, *, takes_pieces: bool = True) -> Subscriber:
        """Return a reader from the beginning. Close it with `close`."""
        heartbeat = self.limits.heartbeat
        reader = Subscriber(served, heartbeat=heartbeat, takes_pieces=takes_pieces)
        served.readers.add(reader)
        self._group(served)
        if served.leaving is not None:
            served.leaving.cancel()
            served.leaving = None
        return reader

    def close(self, reader: Subscriber, *, delivered: bool) -> None:
        """Forget a client that has left, after it was given everything where `delivered`."""
        reader.close()
        served = reader.run
        served.readers.discard(reader)
        served.pace()
        served.was_delivered = served.was_delivered or delivered
        self._group(served)
        if not served.readers and served.ended is None and not served.outlives_clients:
            loop = asyncio.get_running_loop()
            served.leaving = loop.call_later(self.limits.grace, self.cancel, served.id)

    def cancel(self, run: str) -> bool:
        """Stop a run. False where it is not there or has ended."""
        served = self._by_id.get(run)
        if served is None or served.task is None:
            return False
        has_ended = served.ended is not None and not served.is_lost
        if has_ended:
            return False
        served.task.cancel()
        return True

    def lose(self, run: str) -> None:
        """Another server has a run: who reads it here is cut off, and reads on there."""
        served = self._by_id.get(run)
        if served is not None:
            self._end(served, request_error(TakenOver().failure))
            self.cancel(run)

    def cancel_all(self) -> None:
        """Stop every run, because the server ends."""
        self._is_ending = True
        for served in self.going_on:
            self._leave(served)

    def _leave(self, served: ServedRun) -> None:
        """Stop a run here. Another server goes on with it where it may."""
        if served.is_leased and (leases := self.starter.leases) is not None:
            with suppress(ConductorError):  # else its lease runs out
                leases.hand_over(served.id)
            self.lose(served.id)
        self.cancel(served.id)

    def forget(self, run: str) -> None:
        """Keep nothing more of a run that has ended."""
        served = self._by_id.get(run)
        if served is None or served.ended is None:
            return
        self._ungroup(served)
        del self._by_id[run]
        if self._ended.pop(run, None) is not None:
            self._kept -= served.size

    def _group(self, served: ServedRun) -> None:
        """Let a run be found by equal requests as it is now."""
        if self._by_id.get(served.id) is not served:
            return  # it is one of another server, or forgotten
        if isinstance(served.ended, RequestError):
            self._ungroup(served)
            return
        same = self._by_key.get(served.key)
        if same is None:
            same = _EqualRequests()
            self._by_key[served.key] = same
        same.add(served)

    def _ungroup(self, served: ServedRun) -> None:
        same = self._by_key.get(served.key)
        if same is not None:
            same.remove(served)
            if not same:
                del self._by_key[served.key]

    def _end(self, served: ServedRun, ended: ServedAnswer | RequestError) -> None:
        if served.ended is None:
            self._note_end(served.key, ended)
        served.end(ended)
        self._group(served)

    def _end_cancelled(self, served: ServedRun) -> None:
        """Give a run that was cancelled its end."""
        failure = Failure(kind="cancelled", message="the run was cancelled")
        if self._is_ending:
            failure = Failure(kind="terminated", message="the server ended")
        self._end(served, request_error(failure, served.id))

    async def drain(self, seconds: float) -> None:
        """Begin nothing more, wait for what goes on, and stop what is left after these seconds."""
        self._is_ending = True
        tasks = [served.task for served in self.going_on if served.task is not None]
        if tasks:
            await asyncio.wait(tasks, timeout=seconds)
        self.cancel_all()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _perform(self, served: ServedRun, build_job: BuildJob, place: QueuePlace) -> None:
        CURRENT_CLIENT.set(place.client)  # of this task, and of all that it begins
        try:
            await place.granted.wait()
            job = await build_job(served.id)
            del build_job  # it holds the bytes of files, which are stored by now
            served.is_stored = job.store is not None
            await self.starter.perform(
                job, served.show, show_piece=served.show_piece, keeps_up=served.keeps_up
            )
            self._end(served, served.stream.outcome(served.reasoning))
        except AnsweredAtOnce as answered:
            text = str(answered)
            served.stream.shown = text
            served.add(AnswerText(text))
            self._end(
                served, ServedAnswer(run=served.id, text=text, finish="stop", usage=ServedUsage())
            )
        except RequestError as error:
            self._end(served, error.alone())
        except ConductorError as error:
            self._end(served, request_error(error.failure, served.id))
        except Exception as error:  # noqa: BLE001 - whatever happens, the run gets an end
            # Its text may quote a prompt
            log.error("run %s failed: %s", served.id, describe_error(error))  # noqa: TRY400
            failure = Failure(
                kind="internal", message=f"this is a bug in conductor: {type(error).__name__}"
            )
            self._end(served, request_error(failure, served.id))

    def _count_running(self, change: int) -> None:
        self.running += change
        if self.starter.options.siblings is not None:
            self.starter.options.siblings.tell_running(self.running)

    def _keep_ended(self, served: ServedRun, place: QueuePlace) -> None:
        """Keep a run that is over for a while; one that was cancelled has no end yet."""
        if served.ended is None:
            self._end_cancelled(served)
        served.task = None  # one that was cancelled holds all that it worked on
        self._count_running(-1)
        self._queue.leave(place)
        if served.leaving is not None:
            served.leaving.cancel()
        with suppress(Exception):  # a counter must not take the end away
            self.observe(served)
        if served.is_leased and (leases := self.starter.leases) is not None:
            asyncio.get_running_loop().run_in_executor(None, leases.withdraw, served.id)
        if self._by_id.get(served.id) is not served:
            return  # its client has deleted it
        self._ended[served.id] = served
        self._kept += served.size
        if served.is_lost:
            self.forget(served.id)
        while self._kept > MAX_KEPT and _first(self._ended) is not served:
            self.forget(next(iter(self._ended)))
        asyncio.get_running_loop().call_later(KEPT_SECONDS, self.forget, served.id)
