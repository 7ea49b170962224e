"""Where the names of the points of a drawing go, so that none covers another name or a point. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

LETTER: Final = 6.6
"""About the width of a letter, in units of the drawing."""
LINE: Final = 14
"""The height of a name."""
RADIUS: Final = 6
"""Of a point, with a little room."""


class Area(NamedTuple):
    """The size of a drawing, and the margins around the part of it that has the points."""

    width: float
    height: float
    left: float
    right: float
    top: float
    bottom: float

    def x(self, share: float) -> float:
        """The place of a share from 0 (at the left) to 1."""
        return self.left + share * (self.width - self.left - self.right)

    def y(self, share: float) -> float:
        """The place of a share from 0 (at the bottom) to 1."""
        return self.height - self.bottom - share * (self.height - self.top - self.bottom)


AREA: Final = Area(width=480, height=346, left=44, right=26, top=20, bottom=46)
"""The second plot of a report. It is as wide as a phone, so that its texts can be read there."""


class Label(NamedTuple):
    """The place of a name, as SVG has it: its baseline, and whether it begins or ends at `x`.

    `far`: it is not beside its point, so a line should join them.
    """

    x: float
    y: float
    anchor: str
    far: bool


class _Box(NamedTuple):
    left: float
    top: float
    right: float
    bottom: float

    def covers(self, other: _Box) -> bool:
        """Whether any place is in both."""
        return (
            self.left < other.right and other.left < self.right and self.top < other.bottom and other.top < self.bottom
        )


def place_labels(points: Sequence[tuple[float, float, str]], area: Area) -> list[Label]:
    """A place for the name of each point `(x, y, name)`, all of them inside the drawing and above its axis.

    Each name goes to the nearest free place right or left of its point. If every place is taken, it covers a point
    rather than another name.
    """
    dots = [_Box(x - RADIUS, y - RADIUS, x + RADIUS, y + RADIUS) for x, y, _ in points]
    names: list[_Box] = []
    found = []
    for x, y, name in points:
        places = list(_places(x, y, LETTER * len(name), area.y(0)))
        inside = [place for place in places if area.left <= place[1].left and place[1].right <= area.width]
        readable = [place for place in inside if not any(place[1].covers(other) for other in names)]
        free = [place for place in readable if not any(place[1].covers(dot) for dot in dots)]
        label, box = (free or readable or inside or places)[0]
        names.append(box)
        found.append(label)
    return found


def _places(x: float, y: float, length: float, height: float) -> Iterator[tuple[Label, _Box]]:
    """The places right and left of a point, then those ever further above and below it."""
    for number in range(int(height / LINE)):
        for middle in (y - number * LINE, y + number * LINE) if number else (y,):
            if not LINE / 2 <= middle <= height - LINE / 2:
                continue
            for anchor, left in (("start", x + RADIUS + 3), ("end", x - RADIUS - 3 - length)):
                box = _Box(left, middle - LINE / 2, left + length, middle + LINE / 2)
                label = Label(left if anchor == "start" else left + length, middle + 4, anchor, far=number > 1)
                yield label, box
