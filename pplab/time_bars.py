"""What a step's time is spent on as bars, as an SVG string: a bar a layout, quick enough to redraw while one tries."""

from __future__ import annotations

import zlib
from collections.abc import Mapping
from html import escape

from pplab.bars import frame, svg_text, tick, tick_values
from pplab.palette import Look
from pplab.step_time import PARTS, StepTime
from pplab.svg_parts import PATTERNS

_LEFT, _TOP, _AXIS = 74, 26, 34
_BESIDE = 84  # pixels kept free beside the lanes, for the totals
_ROW, _BAR = 50, 26  # of a layout: its bar, and below it the parts in words
_NARROWEST = 700  # below, the parts in words find no room
_MARKS = PATTERNS | {"upright": '<path d="M1.5 0V6M4.5 0V6" stroke="{}" stroke-opacity=".6"/>'}

# In the order of the bar. Each part has a pattern of its own, and neighbours differ in lightness.
LOOKS: dict[str, Look] = {
    "compute": Look("#1f5f9f", "#ffffff", "", "compute"),
    "tensor": Look("#f2a531", "#1f1300", "dots", "tensor all-reduces"),
    "pipeline": Look("#4a7d74", "#ffffff", "upright", "pipeline hops"),
    "bubble": Look("#d5dce4", "#1f2933", "lines", "bubble"),
    "data": Look("#b1452c", "#ffffff", "cross", "data reduction"),
}


def time_bars(
    times: Mapping[str, StepTime],
    until: float | None = None,
    width: int = 900,
    look: str = "auto",
    title: str = "time of a step",
) -> str:
    """What steps take by cause, as SVG text: a bar a layout on one axis of seconds, in the five parts of ``PARTS``.

    times : by the words that stand before the bars. ``until``: where the axis ends, in seconds, so that pictures share
    one; the longest step unless given. ``width`` in pixels; ``look`` as in svg.timeline. Raises ValueError for an
    unknown look, no times, an axis that is too short, a width below 700.
    """
    if not times:
        raise ValueError("times is empty: there is nothing to draw; give the StepTime of one layout or more")
    most = max(time.total for time in times.values())
    end = (most if until is None else float(until)) or 1.0
    if not width >= _NARROWEST:
        raise ValueError(f"width is {width!r:.20}: a picture needs {_NARROWEST} pixels or more")
    if not most * (1 - 1e-9) <= end < float("inf"):
        raise ValueError(f"until is {until!r:.20}: the axis must reach to {most:g} seconds, and be finite")
    key = f"{zlib.crc32(repr((list(times.items()), end, width, look, title)).encode()):08x}"
    legend, start = _legend(width, key)
    top = _TOP + 20 * (_LEFT + 7 * len(title) + 12 > start)  # a long title has its line alone
    scale, foot = (width - _LEFT - _BESIDE) / end, top + _ROW * len(times)
    body = f'{_defs(key)}<g transform="translate(0 {top - _TOP})">{legend}</g>'
    body += "".join(_row(name, time, top + _ROW * k, scale, end, key) for k, (name, time) in enumerate(times.items()))
    body += "".join(tick(_LEFT + v * scale, foot, f"{v:,.6g} s") for v in tick_values(end))
    return frame(body, describe_times(times, title), width, foot + _AXIS, look, title)


def describe_times(times: Mapping[str, StepTime], title: str = "time of a step") -> str:
    """What the picture shows, in words: its label for screen readers."""
    said = (f"{name} {seconds(time.total)}: {', '.join(_told(time))}" for name, time in times.items())
    return f"Bars of {title}, in parts; " + "; ".join(said)


def seconds(value: float) -> str:
    """Seconds to read: four digits, and from 1,000 on all those before the point."""
    return f"{value:.4g} s" if value < 1000 else f"{value:,.0f} s"


def _told(time: StepTime, short: bool = False) -> list[str]:
    """Each part in words, the last of them alone if ``short``, with its share of the step."""
    out = []
    for part in PARTS:
        value, words = getattr(time, part), LOOKS[part].word.split()
        size = f"{value:.3g}" if value < 1000 else f"{value:,.0f}"
        out.append(f"{' '.join(words[-1:] if short else words)} {size} s ({value / (time.total or 1.0):.1%})")
    return out


def _row(name: str, time: StepTime, top: float, scale: float, end: float, key: str) -> str:
    """A layout's parts beside each other on its lane, a tooltip each, its total behind and its parts in words below."""
    place, x = f'y="{top:.2f}" height="{_BAR}"', float(_LEFT)
    out, edges = [f'<rect class="lane" x="{_LEFT}" {place} width="{end * scale:.2f}"/>'], ""
    for part, words in zip(PARTS, _told(time), strict=True):
        wide = getattr(time, part) * scale
        if wide > 0:
            out.append(_box(part, f'x="{x:.2f}" {place} width="{wide:.2f}"', key, f"{name}: {words}"))
            x += wide
            if wide > 3:  # a thinner part would vanish under the line at its end
                edges += f"M{x:.2f} {top:.2f}v{_BAR}"
    middle = top + _BAR / 2 + 4
    out.append(f'<path d="{edges}" stroke="var(--lane)"/>' if edges else "")
    out.append(
        svg_text(_LEFT - 8, middle, name, "end")
        + svg_text(_LEFT + end * scale + 8, middle, seconds(time.total), "start")
    )
    return "".join(out) + svg_text(_LEFT, top + _BAR + 14, " · ".join(_told(time, short=True)), "start")


def _box(part: str, box: str, key: str, told: str = "") -> str:
    """A rectangle in a part's colour, with its pattern over it."""
    mark = f'<rect fill="url(#t{part}{key})" {box}/>' if LOOKS[part].pattern else ""
    tip = f"<title>{escape(told)}</title>" if told else ""
    return f'<g class="part {part}">{tip}<rect fill="{LOOKS[part].fill}" {box}/>{mark}</g>'


def _legend(width: int, key: str) -> tuple[str, float]:
    """The parts' words in the order of the bar, and where they begin."""
    out, x = "", float(width - 12)
    for part in reversed(PARTS):
        word = LOOKS[part].word
        x -= 6.4 * len(word) + 26
        out += _box(part, f'x="{x:.1f}" y="5" width="12" height="12"', key) + svg_text(x + 17, 15, word, "start")
    return out, x


def _defs(key: str) -> str:
    marks = "".join(
        f'<pattern id="t{part}{key}" width="6" height="6" patternUnits="userSpaceOnUse">'
        f"{_MARKS[LOOKS[part].pattern].replace('{}', LOOKS[part].text)}</pattern>"
        for part in PARTS
        if LOOKS[part].pattern
    )
    return f"<defs>{marks}</defs>"
