"""Pictures with Matplotlib, for the page and for print: functions that take ax=None and return the Axes."""

from __future__ import annotations

import base64
import io
from html import escape
from typing import TYPE_CHECKING

import numpy as np

from pplab.metrics import in_flight, makespan
from pplab.palette import COMMUNICATION, MESSAGE, Theme, theme
from pplab.svg import describe, has_bar, in_pair, pair_halves, shows_messages, told_title
from pplab.timeline import Timeline, check_timeline

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

HATCH = {"lines": "///", "dots": "...", "cross": "xxxx"}


def draw_timeline(
    t: Timeline, ax: Axes | None = None, until: float | None = None, look: str = "light", title: str | None = None
) -> Axes:
    """Draw a row a device and a box an op; idle time is the bare lane.

    ``ax``: where to draw; a new figure of its own unless given. ``until``: where the time axis ends, in the
    timeline's unit. ``look``: ``"light"`` or ``"dark"``. Boxes carry the micro-batch while it fits.
    Returns the Axes. Raises ValueError for an unknown look.
    """
    colours = theme(look)
    s, length = check_timeline(t).schedule, makespan(t)
    if ax is None:
        ax = new_axes(height=0.9 + 0.32 * min(s.num_devices, 24), look=look)
    x0, x1 = t.start - t.start.min(), t.end - t.start.min()
    box = 0.64 if shows_messages(t) else 0.86
    tall = np.where(in_pair(t), box / 2, box)
    y = t.device + np.where(in_pair(t), (pair_halves(t) - 0.5) * box / 2, 0.0)
    ax.barh(np.arange(s.num_devices), length, height=box, color=colours.lane, zorder=0)
    for kind in "FBIW":
        chosen = s.is_kind(kind)
        if chosen.any():
            _add_boxes(ax, x0[chosen], x1[chosen], y[chosen], kind, colours, tall[chosen])
    _add_bars(ax, x0, x1, y, tall, has_bar(s))
    _add_messages(ax, t, colours)
    ax.set(xlim=(0, until or length or 1.0), ylim=(s.num_devices - 0.5, -0.5), ylabel="device")
    ax.set_yticks(np.arange(0, s.num_devices, max(1, s.num_devices // 16)))
    ax.set_title(told_title(t, title), loc="left", fontsize=10, color=colours.words)
    _label(ax, t, x0, x1, y, colours)
    ax.legend(ncols=5, loc="lower right", bbox_to_anchor=(1, 1), frameon=False, fontsize=8, labelcolor=colours.words)
    return ax


def _add_bars(ax: Axes, x0: np.ndarray, x1: np.ndarray, y: np.ndarray, tall: np.ndarray, marked: np.ndarray) -> None:
    """A light bar at the foot of the marked boxes."""
    from matplotlib.collections import PolyCollection

    if marked.any():
        corners = _corners(x0, x1, y + 0.41 * tall, 0.18 * tall)[marked]
        ax.add_collection(PolyCollection(list(corners), facecolor=(1, 1, 1, 0.55), linewidth=0))


def _add_messages(ax: Axes, t: Timeline, colours: Theme) -> None:
    """Time that messages keep devices busy, in their rows; or messages on their way, between the rows."""
    shift = t.start.min()
    if (t.send + t.receive).any():
        starts, ends = np.r_[t.start - t.receive, t.end], np.r_[t.start, t.end + t.send]
        rows = np.r_[t.device, t.device]
        _add_boxes(ax, starts - shift, ends - shift, rows, COMMUNICATION, colours, np.full(len(rows), 0.4))
    elif shows_messages(t):
        m = t.messages
        at = t.device[m.sender] + np.where(t.device[m.needed_by] > t.device[m.sender], 0.42, -0.42)
        _add_boxes(ax, m.departure - shift, m.arrival - shift, at, MESSAGE, colours, np.full(len(at), 0.11))


def draw_in_flight(t: Timeline, ax: Axes | None = None, look: str = "light") -> Axes:
    """Draw how many micro-batches each device holds over time, a step line a device, darker for earlier ones.

    ``ax``: where to draw; a new figure unless given. Returns the Axes. Raises ValueError for an unknown look.
    """
    import matplotlib

    check_timeline(t)
    colours, shades_of = theme(look), {"light": (0.0, 0.85), "dark": (0.4, 1.0)}
    ax = ax or new_axes(height=2.2, look=look)
    shades = matplotlib.colormaps["cividis"](np.linspace(*shades_of[look], t.schedule.num_devices))
    for device, shade in enumerate(shades):
        moments, held = in_flight(t, device)
        line = ax.step(
            moments - t.start.min(), held, where="post", color=shade, linewidth=1.8, label=f"device {device}"
        )
        line[0].set_linestyle(("-", "--", "-.", ":")[device % 4])
    ax.set(xlim=(0, makespan(t) or 1.0), xlabel="time", ylabel="micro-batches held")
    ax.set_ylim(bottom=0)
    ax.legend(frameon=False, fontsize=8, labelcolor=colours.words)
    ax.set_title(t.schedule.name, loc="left", fontsize=10, color=colours.words)
    return ax


def draw_grid(
    values: np.ndarray, rows: list[str], columns: list[str], ax: Axes | None = None, look: str = "light"
) -> Axes:
    """Draw a table of shares, (rows, columns), as cells that are darker for more, each with its percentage.

    ``ax``: where to draw; a new figure unless given. Returns the Axes. Raises ValueError for an unknown look.
    """
    values = np.asarray(values, float)
    ax = ax or new_axes(height=0.8 + 0.36 * len(rows), width=2.4 + 1.6 * len(columns), look=look)
    top = max(float(values.max()), 1e-9)
    ax.imshow(values, cmap="cividis_r", aspect="auto", vmin=0, vmax=1.25 * top)
    ax.set_xticks(range(len(columns)), columns)
    ax.set_yticks(range(len(rows)), rows)
    for (i, j), value in np.ndenumerate(values):
        ax.text(
            j, i, f"{value:.1%}", ha="center", va="center", fontsize=9, color="white" if value > 0.6 * top else "black"
        )
    ax.tick_params(length=0)
    return ax


def new_axes(height: float = 2.5, width: float = 9.0, look: str = "light") -> Axes:
    """Axes of a new figure, so many inches wide and high, in a theme's colours."""
    return new_rows(1, height, width, look)[0]


def new_rows(count: int, height: float, width: float, look: str) -> list[Axes]:
    """Axes under each other in one figure, sharing one time axis, each so many inches high."""
    from matplotlib.figure import Figure

    colours = theme(look)
    figure = Figure(figsize=(width, height * count), facecolor=colours.page, layout="constrained")
    axes = figure.subplots(count, 1, sharex=True, squeeze=False)[:, 0]
    for ax in axes:
        ax.set_facecolor(colours.page)
        ax.tick_params(colors=colours.words, labelsize=8)
        ax.yaxis.label.set_color(colours.words)
        ax.xaxis.label.set_color(colours.words)
        for side, spine in ax.spines.items():
            spine.set_visible(side == "bottom")
            spine.set_color(colours.line)
    return list(axes)


def _add_boxes(
    ax: Axes, x0: np.ndarray, x1: np.ndarray, y: np.ndarray, kind: str, colours: Theme, height: np.ndarray
) -> None:
    """All boxes of a kind as one collection: a patch a box would take minutes where this takes milliseconds."""
    from matplotlib.collections import PolyCollection
    from matplotlib.colors import to_rgb

    look, corners = colours.kinds[kind], _corners(x0, x1, y, height)
    thin = (x1 - x0).max(initial=0.0) * 400 < np.ptp(ax.dataLim.intervalx)
    edges = {"linewidth": 0.0} if thin else {"edgecolor": colours.page, "linewidth": 0.8}
    ax.add_collection(PolyCollection(list(corners), facecolor=look.fill, label=look.word, **edges))
    if look.pattern:
        ink = (*to_rgb(look.text), 0.4)
        hatch = HATCH[look.pattern]
        ax.add_collection(PolyCollection(list(corners), facecolor="none", edgecolor=ink, linewidth=0, hatch=hatch))


def _corners(x0: np.ndarray, x1: np.ndarray, y: np.ndarray, height: np.ndarray) -> np.ndarray:
    """The corners of boxes round y, (n, 4, 2)."""
    h = height / 2
    return np.stack([np.stack([x, y + dy], axis=1) for x, dy in ((x0, -h), (x1, -h), (x1, h), (x0, h))], axis=1)


def _label(ax: Axes, t: Timeline, x0: np.ndarray, x1: np.ndarray, y: np.ndarray, colours: Theme) -> None:
    """The micro-batch in each box that has room for the longest, at most 1,000 of them."""
    inches = ax.get_figure().get_size_inches()[0] * 0.9  # type: ignore[union-attr]
    wide = (x1 - x0) / ax.get_xlim()[1] * inches * 72
    shown = np.flatnonzero(wide > 6.0 * len(str(t.schedule.num_microbatches - 1)) + 2)
    if t.schedule.num_devices > 24 or len(shown) > 1000:
        return
    for i in shown:
        text = colours.kinds[str(t.kind[i])].text
        ax.text(
            (x0[i] + x1[i]) / 2,
            y[i],
            str(t.microbatch[i]),
            ha="center",
            va="center",
            fontsize=8,
            color=text,
            clip_on=True,
        )


class Picture:
    """A finished figure for a notebook: a PNG with alt text, shown as it is stored, trusted or not."""

    def __init__(self, png: bytes, alt: str) -> None:
        self.png, self.alt = png, alt

    def __repr__(self) -> str:
        return f"[picture: {self.alt}]"

    def _repr_html_(self) -> str:
        data = base64.b64encode(self.png).decode()
        return f'<img alt="{escape(self.alt)}" style="max-width:100%" src="data:image/png;base64,{data}">'


def _png(figure: Figure) -> bytes:
    """A figure as PNG, in 64 colours: patterns would make it three times as large in all of them."""
    from PIL import Image

    full, small = io.BytesIO(), io.BytesIO()
    figure.savefig(full, format="png", dpi=96)
    Image.open(full).convert("RGB").quantize(64).save(small, format="png", optimize=True)
    return small.getvalue()


def picture(
    *shown: Timeline | Axes, alt: str | None = None, titles: tuple[str, ...] = (), look: str = "light"
) -> Picture:
    """Timelines under each other on one time axis, or one Axes, as a picture that a notebook stores.

    ``alt``: what the picture shows, in words; needed for Axes, made from the timelines otherwise. ``titles``: one
    a timeline, their schedules' names otherwise. Raises ValueError without a picture or its alt text.
    """
    timelines = [t for t in shown if isinstance(t, Timeline)]
    if timelines and len(timelines) == len(shown):
        until = max(map(makespan, timelines))
        devices = max(min(t.schedule.num_devices, 24) for t in timelines)
        axes = new_rows(len(timelines), 0.75 + 0.3 * devices, 9.0, look)
        for ax, t, title in zip(axes, timelines, (*titles, *[None] * len(timelines)), strict=False):
            draw_timeline(t, ax=ax, until=until, look=look, title=title)
        alt = alt or ". ".join(map(describe, timelines))
    elif len(shown) == 1 and alt:
        axes = [shown[0]]  # type: ignore[list-item]
    else:
        raise ValueError("picture takes timelines, or one Axes with alt='what it shows'")
    return Picture(_png(axes[0].get_figure()), alt)  # type: ignore[arg-type]
