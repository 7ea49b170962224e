"""The ratings of runs: an append-only file of JSON lines beside the directory of traces, readable by the owner only.

A rating has no text of its run, so it stays when the trace is deleted. A process that is killed can only leave the last
line incomplete; such a line is left out when the file is read, and its readers are told how many were.
"""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any, Final, get_args

from conductor_cli.core.errors import ConfigError
from conductor_cli.core.formatting import format_count
from conductor_cli.core.learning import RatedBy, Rating, RatingShare, Verdict
from conductor_cli.core.serialization import dump
from conductor_cli.models.disk import AppendLog
from conductor_cli.state.interfaces import StoredRatings

NEWEST: Final = 1 << 19
"""Bytes at the end of the file that are read, about 2,000 ratings. What is before them weighs nothing any more."""


class RatingsFile:
    """The ratings in one file."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def read(self) -> StoredRatings:
        """Return the ratings of the file; none without one. Damage is reported in `problem` and never raised."""
        path, ratings, damaged = self._path, [], 0
        try:
            if not path.is_file():  # a pipe would be waited for
                return StoredRatings()
            with path.open("rb") as file:
                start = path.stat().st_size - NEWEST
                file.seek(max(start, 0))
                # The first line is cut where the file is longer.
                lines = file.read(NEWEST).split(b"\n")[1 if start > 0 else 0 :]
        except OSError as error:
            return StoredRatings(problem=f"{path} cannot be read: {error.strerror}")
        for raw in filter(bytes.strip, lines):
            rating = parse_rating(raw)
            damaged += rating is None
            ratings += [rating] if rating is not None else []
        what = "line is" if damaged == 1 else "lines are"
        problem = f"{path}: {damaged} {what} damaged; {format_count(len(ratings), 'rating')} could be read"
        return StoredRatings(ratings=tuple(ratings), problem=problem if damaged else "")

    def add(self, rating: Rating) -> None:
        """Append a rating. Raises `ConfigError` where the disk refuses."""
        try:
            log = AppendLog(self._path)
            try:
                log.append(json.dumps(dump(rating), separators=(",", ":")) + "\n")
            finally:
                log.close()
        except OSError as error:
            hint = "check the disk and the file permissions"
            raise ConfigError(f"{self._path} cannot be written: {error.strerror}", hint=hint) from None


def parse_rating(raw: bytes) -> Rating | None:
    """The rating of a line, None where it is none. It is read before each question, so in a tenth of `load`'s time."""
    try:
        data = json.loads(raw)
        shares = tuple(map(_parse_share, data["shares"]))
        run, step, verdict, by, time = (data[name] for name in ("run", "step", "verdict", "by", "time"))
    except (ValueError, LookupError, TypeError, RecursionError):
        return None
    is_rating = type(run) is str and type(step) is int and type(time) in (int, float) and math.isfinite(time)
    if not is_rating or verdict not in get_args(Verdict) or by not in get_args(RatedBy):
        return None
    return Rating(run=run, step=step, verdict=verdict, by=by, time=time, shares=shares)


def _parse_share(data: Any) -> RatingShare:  # noqa: ANN401 - any JSON value
    """Raises `ValueError`, `LookupError` or `TypeError`."""
    share = RatingShare(**{name: data[name] for name in ("worker", "key", "step", "kind", "weight", "good")})
    texts = type(share.worker) is type(share.key) is type(share.kind) is str
    if not texts or type(share.step) is not int or type(share.good) is not bool or not 0 < share.weight <= 1:
        raise ValueError("not a share")
    return share
