"""Small plots as SVG text, each mark with a title that shows its exact numbers on hovering.

A plot is 360 units wide, about a phone's width: side by side on a desktop, one below the other on
a phone, with letters of readable size on both.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from equilibrate.paper.html import text

WIDTH = 360.0
LETTER = 6.4  # units, the width of one at most, on average over a name
Scale = Callable[[float], float]
Tick = tuple[float, str]


def log_scale(low: float, high: float) -> Scale:
    """Map [low, high] to [0, 1] by the logarithm, and what is beyond to the ends.

    Example:
        >>> log_scale(1.0, 100.0)(10.0), log_scale(1.0, 100.0)(0.0)
        (0.5, 0.0)
    """
    span = math.log(high / low)

    def scale(x: float) -> float:
        return 0.0 if x <= low else 1.0 if x >= high else math.log(x / low) / span

    return scale


def decades(low: float, high: float, most: int = 6) -> list[Tick]:
    """Return ticks at powers of ten, no more than asked for; at 1, 2, 5 where those are few.

    Example:
        >>> decades(0.5, 2000.0)
        [(1.0, '1'), (10.0, '10'), (100.0, '100'), (1000.0, '1000')]
        >>> decades(0.3, 3.0)
        [(0.5, '0.5'), (1.0, '1'), (2.0, '2')]
    """
    first, last = math.ceil(math.log10(low) - 1e-9), math.floor(math.log10(high) + 1e-9)
    if last - first < 1:  # too few: the ones between
        near = [f * 10.0**e for e in (first - 1, first, last + 1) for f in (1, 2, 5)]
        return [(x, f"{x:.4g}") for x in sorted(set(near)) if low <= x <= high]
    stride = max(1, math.ceil((last - first + 1) / most))
    return [(10.0**e, f"{10.0**e:.4g}") for e in range(first, last + 1, stride)]


@dataclass
class Plot:
    """A frame with axes; marks are added in data coordinates mapped to [0, 1] by the scales."""

    title: str
    x: Scale
    y: Scale
    height: float = 220.0
    left: float = 52.0
    bottom: float = 40.0
    parts: list[str] = field(default_factory=list)

    _TOP, _RIGHT = 36.0, 12.0

    def px(self, x: float) -> float:
        """Return the horizontal place of a value."""
        return self.left + self.x(x) * (WIDTH - self.left - self._RIGHT)

    def py(self, y: float) -> float:
        """Return the vertical place of a value."""
        return self.height - self.bottom - self.y(y) * (self.height - self.bottom - self._TOP)

    def x_axis(self, ticks: Sequence[Tick], label: str) -> None:
        """Draw ticks, faint lines and the name of the axis."""
        foot = self.height - self.bottom
        for value, name in ticks:
            at = self.px(value)
            self._line(at, self._TOP, at, foot, "grid")
            self._text(at, foot + 14, name, "middle")
        self._line(self.left, foot, WIDTH - self._RIGHT, foot, "axis")
        middle = (self.left + WIDTH - self._RIGHT) / 2
        self._text(middle, self.height - 6, label, "middle")

    def y_axis(self, ticks: Sequence[Tick], label: str) -> None:
        """Draw ticks and faint lines; the name goes above the axis."""
        for value, name in ticks:
            at = self.py(value)
            self._line(self.left, at, WIDTH - self._RIGHT, at, "grid")
            self._text(self.left - 5, at + 4, name, "end")
        self._text(4, self._TOP - 9, label, "start")

    def row_name(self, y: float, label: str, whole: str, shift: float = 4.0) -> None:
        """Name a row at the left, its whole name on hovering."""
        at = self.py(y) + shift
        self.parts.append(
            f'<text x="{self.left - 9:.1f}" y="{at:.1f}" text-anchor="end">'
            f"<title>{text(whole)}</title>{text(label)}</text>"
        )

    def bar(self, x: tuple[float, float], y: tuple[float, float], colour: str, told: str) -> None:
        """Draw a filled box between two values on each axis."""
        left, right = sorted(map(self.px, x))
        top, foot = sorted(map(self.py, y))
        self.parts.append(
            f'<rect class="mark" x="{left:.1f}" y="{top:.1f}" fill="{colour}" '
            f'width="{max(0.8, right - left):.1f}" height="{max(0.8, foot - top):.1f}">'
            f"<title>{text(told)}</title></rect>"
        )

    def range(
        self, x: tuple[float, float, float], y: float, colour: str, told: str, shift: float = 0.0
    ) -> None:
        """Draw low, middle and high as a line with a dot; arrows where it goes beyond the ends."""
        low, middle, high = map(self.px, x)
        at = self.py(y) + shift
        tip = _tip(high, at, -6) if self.x(x[2]) >= 1 and x[2] > x[1] else ""
        tip += _tip(low, at, 6) if self.x(x[0]) <= 0 else ""
        dot = f'<circle cx="{middle:.1f}" cy="{at:.1f}" r="3.2"/>' if self.x(x[1]) > 0 else ""
        self.parts.append(
            f'<g class="mark" stroke="{colour}" fill="{colour}"><title>{text(told)}</title>'
            f'<path class="hit" d="M{low:.1f} {at:.1f}H{high:.1f}"/>'
            f'<path d="M{low:.1f} {at:.1f}H{high:.1f}{tip}" fill="none"/>{dot}</g>'
        )

    def dots(
        self,
        points: Sequence[tuple[float, float]],
        colour: str,
        told: Sequence[str],
        *,
        hollow: bool = False,
    ) -> None:
        """Draw points, each with its own title."""
        fill = f'fill="#fff" stroke="{colour}"' if hollow else f'fill="{colour}"'
        for (x, y), words in zip(points, told, strict=True):
            self.parts.append(
                f'<circle class="mark" cx="{self.px(x):.1f}" cy="{self.py(y):.1f}" r="4" '
                f"{fill}><title>{text(words)}</title></circle>"
            )

    def arrow(self, y: float, colour: str, told: str) -> None:
        """Draw an arrow at the left frame, for a value below what the axis shows."""
        at, left = self.py(y), self.left
        self.parts.append(
            f'<path class="mark" fill="{colour}" d="M{left:.1f} {at:.1f}L{left + 8:.1f} '
            f'{at - 4.5:.1f}V{at + 4.5:.1f}Z"><title>{text(told)}</title></path>'
        )

    def words(self, x: float, y: float, words: str) -> None:
        """Write words that begin at a place, given in shares of the frame."""
        at = self.left + x * (WIDTH - self.left - self._RIGHT)
        foot = self.height - self.bottom
        self._text(at, foot - y * (foot - self._TOP) + 4, words, "start")

    def line(self, points: Sequence[tuple[float, float]], colour: str, dash: str = "") -> None:
        """Draw a line through points."""
        way = "L".join(f"{self.px(x):.1f} {self.py(y):.1f}" for x, y in points)
        self.parts.append(
            f'<path d="M{way}" fill="none" stroke="{colour}" stroke-dasharray="{dash}"/>'
        )

    def svg(self) -> str:
        """Return the finished plot."""
        inner = "\n".join(self.parts)
        return (
            f'<svg class="plot" viewBox="0 0 {WIDTH:.0f} {self.height:.0f}" role="img" '
            f'aria-label="{text(self.title)}"><text class="title" x="4" y="12">'
            f"{text(self.title)}</text>\n{inner}</svg>"
        )

    def _line(self, x1: float, y1: float, x2: float, y2: float, kind: str) -> None:
        self.parts.append(f'<path class="{kind}" d="M{x1:.1f} {y1:.1f}L{x2:.1f} {y2:.1f}"/>')

    def _text(self, x: float, y: float, words: str, anchor: str) -> None:
        self.parts.append(
            f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{text(words)}</text>'
        )


def _tip(x: float, y: float, back: float) -> str:
    """Return the path of an arrow's tip at a place; `back` is where its ends are."""
    return f"M{x + back:.1f} {y - 4:.1f}L{x:.1f} {y:.1f}L{x + back:.1f} {y + 4:.1f}"
