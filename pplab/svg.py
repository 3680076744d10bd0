"""A timeline as an SVG string: quick enough to redraw while a slider moves."""

from __future__ import annotations

import base64
import zlib
from html import escape
from typing import NamedTuple

import numpy as np

from pplab.metrics import bubble_fraction, makespan, peak_in_flight
from pplab.palette import COMMUNICATION, LIGHT, MESSAGE
from pplab.schedule import Schedule
from pplab.svg_parts import nice_step, page, pattern_defs, style_rules
from pplab.timeline import Timeline, check_timeline

MOST_BOXES = 2000  # beyond, one path a kind instead of a box an op, and no tooltips
_LEFT, _TOP, _AXIS = 74, 24, 34


def describe(t: Timeline) -> str:
    """What a picture of the timeline shows, in words: the alt text of every picture of it."""
    s = check_timeline(t).schedule
    held = peak_in_flight(t).tolist()
    how = "Measured" if t.measured else "Simulated"
    share = f"{bubble_fraction(t):.1%} of it idle" if makespan(t) else "without length, since every op takes no time"
    return (
        f"{how} timeline of {s.name}: {s.num_devices} devices as rows, {s.num_microbatches} micro-batches, "
        f"{makespan(t):.4g} long, {share}; at most "
        f"{', '.join(map(str, held[:16]))}{' …' if len(held) > 16 else ''} in flight on the devices in turn"
    )


class Frame(NamedTuple):
    """Where a picture of a timeline has things, in its own pixels: the left end of the axis, the top of the first row.

    ``row``: a row's height; ``tall``: that of the boxes in its middle; ``scale``: pixels a unit of time;
    ``width`` and ``height``: the whole picture's.
    """

    left: float
    top: float
    row: float
    tall: float
    scale: float
    width: float
    height: float


def frame(t: Timeline, width: int = 900, until: float | None = None) -> Frame:
    """Where ``timeline``, given the same, draws things; raises the same ValueErrors."""
    num_devices = check_timeline(t).schedule.num_devices
    length = makespan(t) if until is None else float(until)
    if not width >= 200:
        raise ValueError(f"width is {width!r:.20}: a picture needs 200 pixels or more")
    if not length >= makespan(t) * (1 - 1e-9) or not np.isfinite(length):
        raise ValueError(f"until is {until}: the axis must reach to the timeline's end at {makespan(t):g}")
    row = min(28.0, max(6.0, 420.0 / num_devices))
    tall = row * (0.66 if shows_messages(t) else 0.88)
    scale, height = (width - _LEFT - 12) / (length or 1.0), _TOP + row * num_devices + _AXIS
    return Frame(_LEFT, _TOP, row, tall, scale, width, height)


def timeline(
    t: Timeline,
    width: int = 900,
    until: float | None = None,
    look: str = "auto",
    title: str | None = None,
    tooltips: bool = True,
) -> str:
    """The timeline as SVG text: a row a device, a box an op, idle time as the bare lane.

    ``width`` in pixels. ``until``: where the time axis ends, in the timeline's unit, so that pictures
    share one axis; the timeline's own end unless given. ``look``: ``"light"`` or ``"dark"`` with a page of
    that colour, or ``"auto"``: no page, and the colours of the JupyterLab theme, or of the system, around
    it. ``title``: the schedule's name unless given. Boxes carry the micro-batch while it fits, and, with
    ``tooltips``, op and times to read with the mouse, up to 2,000 of them. Raises ValueError for an unknown look, an
    axis that is too short, a width below 200.
    """
    s, origin = check_timeline(t).schedule, float(t.start.min())
    length = makespan(t) if until is None else float(until)
    _, _, row, tall, scale, _, height = frame(t, width, until)
    x0, x1 = _LEFT + (t.start - origin) * scale, _LEFT + (t.end - origin) * scale
    between = shows_messages(t)
    y = _TOP + t.device * row + (row - tall) / 2
    body = _lanes(s.num_devices, row, tall, makespan(t) * scale)
    body += _boxes(t, x0, x1, y, tall, tooltips)
    body += _bars(t, x0, x1, y, tall)
    body += _communication(t, x0, x1, y, tall, scale)
    body += _messages(t, origin, scale, row) if between else ""
    body += _labels(t, x0, x1, y, tall)
    body += _ticks(length, scale, _TOP + row * s.num_devices)
    key = f"{zlib.crc32(repr((s, t.end[-1], width, look, title)).encode()):08x}"
    present = [k for k in "FBIW" if s.is_kind(k).any()] + [COMMUNICATION] * bool((t.send + t.receive).any())
    present += [MESSAGE] * between
    empty = "" if makespan(t) else ": every op takes no time, so there is nothing to see"
    title = escape(told_title(t, title)) + empty
    head = f'<text x="{_LEFT}" y="15" class="txt ttl">{title}</text>{_legend(present, width)}'
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" class="p{key}" role="img" viewBox="0 0 {width} {height:.0f}" '
        f'width="{width}" style="max-width:100%;height:auto" aria-label="{escape(describe(t))}">'
        f"<style>{style_rules(look, key)}</style>{pattern_defs(key)}{page(look)}{head}{body}</svg>"
    )


def as_image(t: Timeline) -> str:
    """The picture as an HTML image with alt text, which notebooks show even before they are trusted."""
    data = base64.b64encode(timeline(t, look="light").encode()).decode()
    return f'<img alt="{escape(describe(t))}" src="data:image/svg+xml;base64,{data}">'


def shows_messages(t: Timeline) -> bool:
    """Whether the picture has lanes for messages: where some take time and keep no device busy."""
    return bool(len(t.messages.sender)) and not (t.send + t.receive).any()


def _messages(t: Timeline, origin: float, scale: float, row: float) -> str:
    """Thin bars between the rows: below the sender's row to later devices, above it to earlier ones."""
    m = t.messages
    down = t.device[m.needed_by] > t.device[m.sender]
    y = _TOP + (t.device[m.sender] + np.where(down, 0.86, 0.03)) * row
    columns = (_LEFT + (m.departure - origin) * scale, y, (m.arrival - m.departure) * scale)
    path = "".join(
        f"M{a:.2f} {b:.2f}h{w:.2f}v{row * 0.11:.2f}h-{w:.2f}z"
        for a, b, w in zip(*(column.tolist() for column in columns), strict=True)
    )
    return f'<path class="{MESSAGE}" d="{path}"/>'


def _lanes(num_devices: int, row: float, tall: float, width: float) -> str:
    every, gap = max(1, int(np.ceil(12 / row))), (row - tall) / 2
    return "".join(
        f'<rect class="lane" x="{_LEFT}" y="{_TOP + d * row + gap:.2f}" width="{width:.2f}" height="{tall:.2f}"/>'
        for d in range(num_devices)
    ) + "".join(
        f'<text x="{_LEFT - 8}" y="{_TOP + (d + 0.5) * row + 4:.1f}" text-anchor="end" class="txt">device {d}</text>'
        for d in range(0, num_devices, every)
    )


def _boxes(t: Timeline, x0: np.ndarray, x1: np.ndarray, y: np.ndarray, height: float, tooltips: bool) -> str:
    """One box an op with a tooltip; without, or beyond MOST_BOXES, one path a kind."""
    gap = 1.0 if len(t) and float(np.median(x1 - x0)) > 4 else 0.0
    w = np.maximum(x1 - x0 - gap, 0.3)
    half = pair_halves(t)
    out = []
    for kind in "FBIW":
        chosen = np.flatnonzero(t.schedule.is_kind(kind))
        columns = (x0[chosen].tolist(), (y + half * height / 2)[chosen].tolist(), w[chosen].tolist())
        tall = np.where(in_pair(t), height / 2, height)[chosen].tolist()
        if not tooltips or len(t) > MOST_BOXES:
            path = "".join(
                f"M{a:.2f} {b:.2f}h{c:.2f}v{h:.2f}h-{c:.2f}z" for a, b, c, h in zip(*columns, tall, strict=True)
            )
            marks = f'<path class="{kind}p" d="{path}"/>' if LIGHT.kinds[kind].pattern else ""
            out.append(f'<path class="{kind}" d="{path}"/>{marks}' if path else "")
            continue
        notes = (
            t.stage[chosen].tolist(),
            t.microbatch[chosen].tolist(),
            t.start[chosen].tolist(),
            t.end[chosen].tolist(),
        )
        for a, b, c, h, stage, m, start, end in zip(*columns, tall, *notes, strict=True):
            box = f'x="{a:.2f}" y="{b:.2f}" width="{c:.2f}" height="{h:.2f}"'
            pattern = f'<rect class="{kind}p" {box}/>' if LIGHT.kinds[kind].pattern else ""
            out.append(
                f"<g><title>{stage}{kind}{m}: {LIGHT.kinds[kind].word} of micro-batch {m} on stage {stage}, "
                f'{start:.6g} to {end:.6g}</title><rect class="{kind}" {box}/>{pattern}</g>'
            )
    return "".join(out)


def in_pair(t: Timeline) -> np.ndarray:
    """Which ops run as one with a neighbour, and so share the height of the row with it."""
    paired = t.schedule.paired
    return paired | np.r_[False, paired[:-1]]


def pair_halves(t: Timeline) -> np.ndarray:
    """1 for the second op of a pair, which is drawn below the first; 0 otherwise."""
    return np.r_[0, t.schedule.paired[:-1].astype(int)]


def from_other_end(s: Schedule) -> np.ndarray:
    """Which ops are of micro-batches that enter the pipeline on another device than micro-batch 0 does."""
    enters = s.is_kind("F") & (s.stage == 0)
    device = np.empty(s.num_microbatches, int)
    device[s.microbatch[enters]] = s.device[enters]
    return (device != device[0])[s.microbatch]


def told_title(t: Timeline, title: str | None) -> str:
    """The title, the schedule's name unless given, and what a bar in the boxes means where there are two directions."""
    other = from_other_end(t.schedule)
    devices = " or ".join(map(str, np.unique(t.device[other & (t.stage == 0)])))
    return (title or t.schedule.name) + (f" (bar: enters on device {devices})" if devices else "")


def has_bar(s: Schedule) -> np.ndarray:
    """Which boxes get a bar: those of what comes from the other end; with one direction, of a device's odd chunks."""
    marked, chunk = from_other_end(s), np.zeros(s.num_ops, int)
    for a, b in s.row_slices:
        chunk[a:b] = np.unique(s.stage[a:b], return_inverse=True)[1]
    return marked if marked.any() else chunk % 2 == 1


def _bars(t: Timeline, x0: np.ndarray, x1: np.ndarray, y: np.ndarray, height: float) -> str:
    """A light bar at the foot of the marked boxes."""
    marked = np.flatnonzero(has_bar(t.schedule))
    tall = np.where(in_pair(t), height / 2, height)
    y = y + pair_halves(t) * tall + 0.82 * tall
    bars = zip(*(column[marked].tolist() for column in (x0, y, x1 - x0, 0.18 * tall)), strict=True)
    path = "".join(f"M{a:.2f} {b:.2f}h{w:.2f}v{h:.2f}h-{w:.2f}z" for a, b, w, h in bars)
    return f'<path class="chunk" d="{path}"/>' if path else ""


def _communication(t: Timeline, x0: np.ndarray, x1: np.ndarray, y: np.ndarray, height: float, scale: float) -> str:
    boxes = [(x0 - t.receive * scale, t.receive * scale), (x1, t.send * scale)]
    path = "".join(
        f"M{a:.2f} {b + height / 4:.2f}h{w:.2f}v{height / 2:.2f}h-{w:.2f}z"
        for left, wide in boxes
        for a, b, w in zip(left.tolist(), y.tolist(), wide.tolist(), strict=True)
        if w > 0
    )
    return f'<path class="{COMMUNICATION}" d="{path}"/><path class="{COMMUNICATION}p" d="{path}"/>' if path else ""


def _labels(t: Timeline, x0: np.ndarray, x1: np.ndarray, y: np.ndarray, height: float) -> str:
    """The micro-batch in each box that has room for the longest; smaller in a pair, whose ops share the height."""
    share = np.where(in_pair(t), height / 2, height)
    size = np.minimum(12.0, share * 0.7)
    wide = (x1 - x0) > size * (0.62 * len(str(t.schedule.num_microbatches - 1)) + 0.3)
    shown = np.flatnonzero(wide & (size >= 8))
    if len(shown) > MOST_BOXES:
        return ""
    middle = y + (pair_halves(t) + 0.5) * share + size * 0.36
    columns = ((x0 + x1) / 2, middle, size, t.kind, t.microbatch)
    texts = "".join(
        f'<text x="{a:.1f}" y="{b:.1f}" font-size="{z:.1f}" class="{k}t">{m}</text>'
        for a, b, z, k, m in zip(*(column[shown].tolist() for column in columns), strict=True)
    )
    return f'<g text-anchor="middle" pointer-events="none">{texts}</g>'


def _ticks(length: float, scale: float, y: float) -> str:
    step = nice_step(length / 8)
    values = np.arange(0, length * (1 + 1e-9), step).tolist()
    return "".join(
        f'<path d="M{_LEFT + v * scale:.1f} {y:.1f}v5" class="tick"/>'
        f'<text x="{_LEFT + v * scale:.1f}" y="{y + 18:.1f}" text-anchor="middle" class="txt">{v:.6g}</text>'
        for v in values
    )


def _legend(kinds: list[str], width: int) -> str:
    out, x = [], float(width - 12)
    for kind in reversed(kinds):
        word = LIGHT.kinds[kind].word
        x -= 6.4 * len(word) + 26
        box = f'x="{x:.1f}" y="5" width="12" height="12"'
        out.append(f'<rect class="{kind}" {box}/><rect class="{kind}p" {box}/>')
        out.append(f'<text x="{x + 17:.1f}" y="15" class="txt">{word}</text>')
    return "".join(out)
