"""The picture of a frontier, with Matplotlib: memory across, bubble upwards, so the best is below on the left."""

from __future__ import annotations

from collections import defaultdict
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np

from pplab.draw import new_axes
from pplab.frontier import Frontier, Point, Shape
from pplab.palette import Theme, theme

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_DASHES = ("-", (0, (5, 2)), (0, (1, 1.5)), (0, (6, 2, 1, 2)))
_SHARES = (0, 1, 2, 5, 10, 20, 30, 50, 75, 100)  # per cent, on an axis that gives small bubbles room
_COLOURS = {"light": ("#1f5f9f", "#b3003c", "#4a7d74"), "dark": ("#6ba8e0", "#ff7fa5", "#79c9b1")}
_SIZE = 8.0  # of labels, in points
_REACHES = (7, 14, 24, 36, 50, 66, 84)  # how far from its point a label may stand, in points
_NOTE = "curve without a band: no order is better · with one: none below the band · hollow: two copies of the weights"
Box = tuple[float, float, float, float]  # x0, y0, x1, y1 in points


def draw_frontier(frontier: Frontier, ax: Axes | None = None, look: str = "light", title: str | None = None) -> Axes:
    """Draw named schedules as points and searches as steps: the bubble that each amount of memory can buy.

    Memory is on a scale of doublings, the bubble on one of square roots, so that small ones can be told apart. A band
    lies between the best found and a bound that no order beats: where there is none, the curve is proved to be the
    best. Hollow points hold two copies of the weights. ``ax``: where to draw; a new figure unless given. ``look``:
    "light" or "dark". Returns the Axes. Raises TypeError for what is no frontier, ValueError for an unknown look.
    """
    if not isinstance(frontier, Frontier):
        raise TypeError(f"frontier is {frontier!r:.40}: give what pplab.frontier returns")
    colours = theme(look)
    ax = ax or new_axes(height=4.6, width=8.6, look=look)
    _scales(ax, frontier, colours)
    labels, used = _Labels(ax, colours), []
    for i, (shape, points) in enumerate(frontier.searched.items()):
        if points:
            used.append((_say(shape), points, _COLOURS[look][i % 3]))
            _add_curve(ax, points, _COLOURS[look][i % 3], _DASHES[i % 4])
            labels.avoid_steps(points)
    same = defaultdict(list)
    for point in frontier.named:
        copies = len({s for row in point.schedule.placement for s in row}) < sum(map(len, point.schedule.placement))
        ax.plot(point.memory, point.bubble, "D" if copies else "o", markersize=6.5, zorder=4, clip_on=False,
                markeredgecolor=colours.words, markerfacecolor=colours.page if copies else colours.words)  # fmt: skip
        same[round(point.memory, 6), round(point.bubble, 6)].append(point.name)
    labels.avoid_points(list(same))
    for words, points, colour in used:
        labels.along(points, words, colour)
    for (memory, bubble), names in same.items():
        labels.beside(memory, bubble, ", ".join(names))
    ax.set_title(title or _title(frontier), loc="left", fontsize=10, color=colours.words, pad=20)
    ax.annotate(_NOTE, (0, 1), (0, 6), xycoords="axes fraction", textcoords="offset points", fontsize=8,
                color=colours.words)  # fmt: skip
    return ax


def _say(shape: Shape) -> str:
    chunks, placement = shape
    where = f", {'as a V' if placement == 'v' else 'wrapped'}" if chunks > 1 else ""
    return f"best found, {chunks} stage{'s' * (chunks > 1)} a device{where}"


def _title(frontier: Frontier) -> str:
    share = "longest span" if frontier.over == "span" else "makespan"
    return (
        f"What memory buys: {frontier.num_devices} devices, {frontier.num_microbatches} micro-batches, bubble as a "
        f"share of the {share}"
    )


def _scales(ax: Axes, frontier: Frontier, colours: Theme) -> None:
    everything = [*frontier.named, *(point for points in frontier.searched.values() for point in points)]
    memory, bubble = (np.array([getattr(point, name) for point in everything]) for name in ("memory", "bubble"))
    ax.set_xscale("log", base=2)
    ax.set_yscale("function", functions=(lambda y: np.sign(y) * np.sqrt(np.abs(y)), lambda y: np.sign(y) * y * y))
    ax.set(xlim=(memory.min() / 1.12, memory.max() * 1.35), ylim=(-0.0006, bubble.max() * 1.12 + 0.01))
    ticks = [x for x in (0.5, 1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 128, 256) if memory.min() <= x <= memory.max()]
    ax.set_xticks(ticks, [f"{x:g}" for x in ticks])
    ax.set_xticks([], minor=True)
    shares = [share / 100 for share in _SHARES if share / 100 <= ax.get_ylim()[1]]
    ax.set_yticks(shares, [f"{share:.0%}" for share in shares])
    ax.grid(axis="y", color=colours.lane, linewidth=1, zorder=0)
    ax.set_axisbelow(True)
    ax.set_xlabel("memory of the fullest device, in micro-batches")
    ax.set_ylabel("bubble")


def _add_curve(ax: Axes, points: tuple[Point, ...], colour: str, dashes: object) -> None:
    """Steps: a bubble holds from its limit up to the next one, the last one to the edge."""
    memory = [*(point.memory for point in points), ax.get_xlim()[1]]
    bubble, least = ([*(getattr(p, name) for p in points), getattr(points[-1], name)] for name in ("bubble", "least"))
    ax.fill_between(memory, least, bubble, step="post", facecolor=colour, alpha=0.18, linewidth=0, zorder=1)
    ax.step(memory, bubble, where="post", color=colour, linestyle=dashes, linewidth=2.2, zorder=3)


class _Labels:
    """Texts beside points, each where it covers no point, no curve and no other text; all in points of the figure."""

    def __init__(self, ax: Axes, colours: Theme) -> None:
        self.ax, self.colours = ax, colours
        figure = ax.get_figure(root=True)
        assert figure is not None
        figure.draw_without_rendering()  # the layout, which says where things are
        self.scale = 72 / figure.dpi
        x0, y0, x1, y1 = (float(edge) * self.scale for edge in ax.bbox.extents)
        self.edge: Box = (x0, y0, x1, y1)
        self.taken: list[Box] = []

    def _at(self, memory: float, bubble: float) -> tuple[float, float]:
        x, y = self.ax.transData.transform((memory, bubble)) * self.scale
        return float(x), float(y)

    def avoid_points(self, points: list[tuple[float, float]]) -> None:
        """Keep texts off these."""
        for x, y in (self._at(*point) for point in points):
            self.taken.append((x - 5, y - 5, x + 5, y + 5))

    def avoid_steps(self, points: tuple[Point, ...]) -> None:
        """Keep texts off a curve."""
        corners = [self._at(point.memory, point.bubble) for point in points]
        corners.append((self.edge[2], corners[-1][1]))
        for (x0, y0), (x1, y1) in pairwise(corners):
            self.taken += [(x0, y0 - 2, x1, y0 + 2), (x1 - 2, min(y0, y1), x1 + 2, max(y0, y1))]

    def along(self, points: tuple[Point, ...], text: str, colour: str) -> None:
        """A curve's name at its first step that has room above, below, after or before."""
        places = []
        for a, b in zip(points, [*points[1:], None], strict=True):
            x0, y = self._at(a.memory, a.bubble)
            x1 = self._at(b.memory, b.bubble)[0] if b else self.edge[2]
            before = x0 - 6 - self._width(text)
            places += [(x0 + 4, y + 5), (x0 + 4, y - 5 - _SIZE), (x1 + 6, y - 10), (x1 + 6, y - 24), (before, y - 5)]
        self._put(places, text, colour)

    def beside(self, memory: float, bubble: float, text: str) -> None:
        """A point's name, as near to it as there is room; from afar with a line to it."""
        x, y = self._at(memory, bubble)
        width = self._width(text)
        places = []
        for far in _REACHES:
            sides = ((far, -_SIZE / 2), (-far - width, -_SIZE / 2), (-width / 2, far), (-width / 2, -far - _SIZE))
            corners = [(dx, dy) for dx in (0.7 * far, -0.7 * far - width) for dy in (0.7 * far, -0.7 * far - _SIZE)]
            places += [(x + dx, y + dy) for dx, dy in (*sides, *corners)]
        self._put(places, text, self.colours.words, (x, y))

    def _width(self, text: str) -> float:
        return 0.56 * _SIZE * len(text)

    def _put(
        self, places: list[tuple[float, float]], text: str, colour: str, of: tuple[float, float] | None = None
    ) -> None:
        """At the first place, the lower left corner of the text, where it covers the least."""
        boxes = [(x, y, x + self._width(text), y + _SIZE) for x, y in places]
        box = min(boxes, key=self._covers)
        self.taken.append(box)
        x, y = np.array(box[:2]) / self.scale
        x, y = self.ax.transAxes.inverted().transform((x, y))
        self.ax.annotate(text, (x, y), xycoords="axes fraction", fontsize=_SIZE, color=colour, va="bottom", zorder=5)
        if of is not None:
            self._join(box, of)

    def _join(self, box: Box, of: tuple[float, float]) -> None:
        """A thin line from a text to its point, where they are not side by side."""
        near = np.clip(of[0], box[0], box[2]), np.clip(of[1], box[1], box[3])
        if np.hypot(near[0] - of[0], near[1] - of[1]) > 9:
            ends = self.ax.transAxes.inverted().transform(np.array([near, of]) / self.scale)
            self.ax.plot(*ends.T, transform=self.ax.transAxes, color=self.colours.line, linewidth=0.8, zorder=2)

    def _covers(self, box: Box) -> int:
        """How many things a text there would cover, the edge being many."""
        x0, y0, x1, y1 = box
        inside = x0 > self.edge[0] and x1 < self.edge[2] and y0 > self.edge[1] and y1 < self.edge[3]
        return sum(x0 <= b[2] and x1 >= b[0] and y0 <= b[3] and y1 >= b[1] for b in self.taken) + 99 * (not inside)
