"""Small pictures as SVG strings, in svg.timeline's looks: what stages take as bars, batch layouts as a scatter."""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Sequence
from html import escape
from math import log
from typing import Any

import numpy as np

from pplab.batching import BatchLayout, frontier
from pplab.svg_parts import nice_step, page, pattern_defs, style_rules

_LEFT, _TOP, _AXIS = 74, 24, 34
_BESIDE = 290  # pixels kept free beside the longest bar, for its numbers and notes
_MOST_TIPS = 150  # beyond, rings without tooltips: they lie too close, and would take too long
_HEIGHT = 240  # of the scatter's field
_SHARES = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0)  # ticks of the bubble


def stage_bars(
    stage_times: Any,
    notes: Sequence[str] = (),
    unit: str = "",
    width: int = 900,
    look: str = "auto",
    title: str = "stage times",
) -> str:
    """What each stage takes as SVG text: a bar a stage, the slowest crossed and named, the mean as a dashed line.

    ``stage_times``: (num_stages,), in ``unit``, a word for the picture. ``notes``: a text a stage, beside its bar, such
    as its layers. ``width`` in pixels; ``look`` as in svg.timeline. Raises ValueError for an unknown look, no stages,
    times that are negative or not finite, notes that do not fit the stages.
    """
    times = np.asarray(stage_times, float)
    if times.ndim != 1 or not len(times) or not np.isfinite(times).all() or (times < 0).any():
        raise ValueError(f"stage_times is {stage_times!r:.60}: give one finite time of 0 or more a stage")
    if len(notes) not in (0, len(times)):
        raise ValueError(f"there are {len(notes)} notes for {len(times)} stages: give one a stage, or none")
    scale = (width - _LEFT - _BESIDE) / (float(times.max()) or 1.0)
    row = min(28.0, max(14.0, 420.0 / len(times)))
    foot, mean = _TOP + row * len(times), float(times.mean())
    said = [_say(times, k, unit) + (f", {notes[k]}" if notes else "") for k in range(len(times))]
    body = "".join(_bar(k, float(time) * scale, row, said[k], width - _BESIDE) for k, time in enumerate(times))
    body += "".join(tick(_LEFT + v * scale, foot, f"{v:.6g}") for v in tick_values(float(times.max())))
    line = f"M{_LEFT + mean * scale:.1f} {_TOP}V{foot:.1f}"
    body += f'<path class="tick" stroke-width="2" stroke-dasharray="4 3" d="{line}"/>'
    told = f"mean{' (dashed)' * (len(times) > 1)}: {mean:.4g} {unit}".strip()
    body += f'<text x="{width - 12}" y="15" text-anchor="end" class="txt">{escape(told)}</text>'
    words = f"Bar chart of {title}: " + "; ".join(f"stage {k} {text}" for k, text in enumerate(said)) + f"; {told}"
    return frame(body, words, width, foot + _AXIS, look, title)


def slowest_stages(stage_times: Any) -> np.ndarray:
    """Which stages set the pace, (num_stages,) of truth values; none where all take equally long."""
    times = np.asarray(stage_times, float)
    slowest = np.isclose(times, times.max(), rtol=1e-9, atol=0.0)
    return slowest & ~slowest.all()


def batch_scatter(layouts: Iterable[BatchLayout], width: int = 900, look: str = "auto") -> str:
    """Batch layouts as SVG text: bubble against activation bytes (GB), both on logarithmic axes.

    Layouts on the frontier are filled diamonds, joined by a line in the order of their bubbles, with M × B × R beside
    them where there is room; the others are rings, with tooltips up to 150 of them. ``width`` in pixels; ``look`` as in
    svg.timeline. Raises ValueError for no layouts and an unknown look.
    """
    rows = list(layouts)
    if not rows:
        raise ValueError("layouts is empty: there is nothing to draw; give those of batch_layouts")
    best = frontier(rows)
    others = sorted(set(rows) - set(best))
    share, size = ([getattr(r, key) for r in rows] for key in ("bubble", "activation_bytes"))
    x = _Axis(share, _LEFT + 40, width - 100)
    y = _Axis([s / 1e9 for s in size], _TOP + _HEIGHT - 14, _TOP + 22)
    places = {r: (x.place(r.bubble), y.place(r.activation_bytes / 1e9)) for r in rows}
    body = f'<rect class="lane" x="{_LEFT}" y="{_TOP}" width="{width - _LEFT - 12}" height="{_HEIGHT}"/>'
    body += _scales(x, y, width)
    tips = len(others) <= _MOST_TIPS
    body += "".join(_ring(*places[r], _tell(r) if tips else "") for r in others)
    line = "L".join(f"{places[r][0]:.1f} {places[r][1]:.1f}" for r in best)
    body += f'<path d="M{line}" fill="none" stroke="var(--F)" stroke-width="2"/>'
    body += "".join(_diamond(*places[r], _tell(r)) for r in best) + _names(best, places)
    words = (
        f"Scatter of {len(rows)} batch layouts, bubble against activation bytes; on the frontier, from the smallest "
        f"bubble: {'; '.join(map(_tell, best[:12]))}{' …' if len(best) > 12 else ''}"
    )
    return frame(body + _key(width), words, width, _TOP + _HEIGHT + _AXIS + 6, look, "activations (GB) against bubble")


class _Axis:
    """A logarithmic axis over positive values; 0, if it occurs, stands at half of the least of them."""

    def __init__(self, values: Sequence[float], first: float, last: float) -> None:
        above = [v for v in values if v > 0] or [1.0]
        self.low, self.high = min(above) / (2 if min(values) <= 0 < max(values) else 1), max(above)
        self.first, self.last, self.zero = first, last, min(values) <= 0

    def place(self, value: float) -> float:
        """The value's pixel."""
        if self.high == self.low:
            return (self.first + self.last) / 2
        part = log(max(value, self.low) / self.low) / log(self.high / self.low)
        return self.first + part * (self.last - self.first)


def _scales(x: _Axis, y: _Axis, width: int) -> str:
    shares = [s for s in _SHARES if x.low * (1 + 1e-9) <= s <= x.high] if x.high > x.low else []
    foot = _TOP + _HEIGHT
    out = [tick(x.place(s), foot, f"{s:.6g}" if s < 0.001 else f"{s:.1%}".replace(".0%", "%")) for s in shares]
    if x.zero:
        out.append(tick(x.place(0.0), foot, "0%"))
    powers = range(int(np.floor(np.log10(y.low))), int(np.ceil(np.log10(y.high))) + 1)
    steps = (1, 2, 5) if len(powers) < 4 else (1,)
    for value in (k * 10.0**p for p in powers for k in steps):
        if y.low * (1 - 1e-9) <= value <= y.high * (1 + 1e-9):
            out.append(f'<path d="M{_LEFT} {y.place(value):.1f}h-5" class="tick"/>')
            out.append(svg_text(_LEFT - 9, y.place(value) + 4, f"{value:.6g} GB", "end"))
    return "".join(out) + svg_text(width - 12, foot + 18, "bubble", "end")


def _names(best: list[BatchLayout], places: dict[BatchLayout, tuple[float, float]]) -> str:
    """M × B × R above those layouts of the frontier that have room for it beside the ones before."""
    out: list[str] = []
    used: list[tuple[float, float]] = []
    for row in best:
        a, b = places[row]
        if all(abs(a - p) > 84 or abs(b - q) > 14 for p, q in used):
            used.append((a, b))
            out.append(
                svg_text(a + 5, b - 7, f"{row.num_microbatches} × {row.micro_batch_size} × {row.num_replicas}", "start")
            )
    return "".join(out)


def _tell(row: BatchLayout) -> str:
    return (
        f"M {row.num_microbatches}, B {row.micro_batch_size}, R {row.num_replicas}: bubble {row.bubble:.1%}, "
        f"{row.activation_bytes / 1e9:.3g} GB"
    )


def _ring(a: float, b: float, title: str) -> str:
    shape = f'<circle cx="{a:.1f}" cy="{b:.1f}" r="4" fill="none" stroke="var(--txt)" stroke-opacity=".7"/>'
    return f"<g>{f'<title>{title}</title>' if title else ''}{shape}</g>"


def _diamond(a: float, b: float, title: str) -> str:
    shape = f'<path class="F" d="M{a:.1f} {b - 7:.1f}l7 7l-7 7l-7 -7z"/>'
    return f"<g>{f'<title>{title}</title>' if title else ''}{shape}</g>"


def _key(width: int) -> str:
    """The legend, and what the texts beside diamonds are."""
    return (
        _diamond(width - 330, 11, "") + svg_text(width - 318, 15, "on the frontier: M × B × R", "start")
        + _ring(width - 96, 11, "") + svg_text(width - 86, 15, "other layouts", "start")
    )  # fmt: skip


def _say(times: np.ndarray, stage: int, unit: str) -> str:
    return f"{times[stage]:.4g} {unit}".strip() + (", slowest" if slowest_stages(times)[stage] else "")


def _bar(stage: int, wide: float, row: float, said: str, side: float) -> str:
    """A bar on its lane, which ends at ``side``; its numbers stand beyond, clear of the line of the mean."""
    top = _TOP + row * stage
    place = f'x="{_LEFT}" y="{top + row * 0.06:.2f}" height="{row * 0.88:.2f}"'
    box, lane = f'{place} width="{wide:.2f}"', f'<rect class="lane" {place} width="{side - _LEFT:.2f}"/>'
    crossed = f'<rect class="Cp" {box}/>' if ", slowest" in said else ""
    return (
        f'{lane}<g><title>stage {stage}: {escape(said)}</title><rect class="F" {box}/>{crossed}</g>'
        f"{svg_text(_LEFT - 8, top + row / 2 + 4, f'stage {stage}', 'end')}"
        f"{svg_text(side + 8, top + row / 2 + 4, said, 'start')}"
    )


def tick_values(most: float) -> list[float]:
    """Where ticks stand from 0 to most."""
    return np.arange(0, most * (1 + 1e-9), nice_step(most / 8)).tolist()


def tick(x: float, y: float, text: str) -> str:
    """A tick of the axis with its number below."""
    return f'<path d="M{x:.1f} {y:.1f}v5" class="tick"/>{svg_text(x, y + 18, text)}'


def svg_text(x: float, y: float, text: str, anchor: str = "middle") -> str:
    """Words at a place; ``anchor`` says which end of them stands there."""
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" class="txt">{escape(text)}</text>'


def frame(body: str, words: str, width: int, height: float, look: str, title: str) -> str:
    """The picture around its parts: colours, title, and what it shows in words."""
    key = f"{zlib.crc32(repr((body, words, look, title)).encode()):08x}"
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" class="p{key}" role="img" viewBox="0 0 {width} {height:.0f}" '
        f'width="{width}" style="max-width:100%;height:auto" aria-label="{escape(words)}">'
        f"<style>{style_rules(look, key)}</style>{pattern_defs(key)}{page(look)}"
        f'<text x="{_LEFT}" y="15" class="txt ttl">{escape(title)}</text>{body}</svg>'
    )
