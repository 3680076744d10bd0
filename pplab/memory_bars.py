"""What devices hold as bars, as an SVG string: memory_figures' colours, quick enough to redraw while a slider moves."""

from __future__ import annotations

import zlib
from html import escape

import numpy as np

from pplab.bars import frame, svg_text, tick, tick_values
from pplab.hardware import Accelerator
from pplab.memory import PARTS, MemoryEstimate
from pplab.memory_figures import LIMIT_COLOURS, LOOKS, as_accelerator, byte_unit, describe_memory, say_limit
from pplab.svg_parts import PATTERNS

_LEFT, _TOP, _AXIS = 74, 24, 34
_BESIDE = 134  # pixels kept free beside the lanes, for the totals
_LIMIT_NAME = 18  # pixels of the line in which the accelerator's name stands
_NARROWEST = 600  # below, the legend finds no room


def memory_bars(
    estimate: MemoryEstimate,
    accelerator: Accelerator | str | None = None,
    until: float | None = None,
    width: int = 900,
    look: str = "auto",
    title: str | None = None,
) -> str:
    """What each device holds at its fullest moment, as SVG text: a bar a device, in the parts of ``PARTS``.

    accelerator : one, or its name in ``ACCELERATORS``; a line shows where its memory ends, and totals beyond are
    marked. ``until``: where the axis ends, in bytes, so that pictures share one axis; the fullest device's total or
    the accelerator's memory unless given. ``width`` in pixels; ``look`` as in svg.timeline. Raises ValueError for an
    unknown look, an axis that is too short, a width below 600; UnknownPresetError for an unknown accelerator.
    """
    limit, totals = as_accelerator(accelerator), estimate.total
    most = max(float(totals.max()), limit.memory_bytes if limit else 0.0)
    end = (most if until is None else float(until)) or 1.0
    if not width >= _NARROWEST:
        raise ValueError(f"width is {width!r:.20}: a picture needs {_NARROWEST} pixels or more")
    if not most * (1 - 1e-9) <= end < np.inf:
        raise ValueError(f"until is {until!r:.20}: the axis must reach to {most:g} bytes, and be finite")
    title = title or f"{estimate.schedule.name}: each device at its fullest"
    present = [name for name in PARTS if getattr(estimate, name).any()]
    key = f"{zlib.crc32(repr((estimate.total.tolist(), limit, end, width, look, title)).encode()):08x}"
    legend, start = _legend(present, width, key)
    top = _TOP + 20 * (_LEFT + 7 * len(title) + 12 > start)  # a long title has its line alone
    body = f'<g transform="translate(0 {top - _TOP})">{legend}</g>'
    top += _LIMIT_NAME * (limit is not None)
    row = min(28.0, max(6.0, 420.0 / len(totals)))
    foot, scale = top + row * len(totals), (width - _LEFT - _BESIDE) / end
    unit, name = byte_unit(end)
    every = max(1, int(np.ceil(12 / row)))
    for device in range(len(totals)):
        body += _bar(estimate, device, top + row * device, row, scale, (end, unit, name), key)
        if device % every == 0:
            beyond = limit is not None and float(totals[device]) > limit.memory_bytes
            told = f"{_size(totals[device], unit)} {name}{', too much' * beyond}"
            middle = top + row * (device + 0.5) + 4
            body += svg_text(_LEFT - 8, middle, f"device {device}", "end")
            body += (
                f'<g class="{"over" if beyond else "in"}">{svg_text(width - _BESIDE + 8, middle, told, "start")}</g>'
            )
    body += "".join(tick(_LEFT + v * unit * scale, foot, f"{v:,.6g} {name}") for v in tick_values(end / unit))
    if limit is not None:
        body += _line(limit, _LEFT + limit.memory_bytes * scale, top, foot, width)
    body = f'{_looks(look, key)}<g class="m{key}">{body}</g>'
    return frame(body, describe_memory(estimate, limit), width, foot + _AXIS, look, title)


def _bar(
    estimate: MemoryEstimate,
    device: int,
    top: float,
    row: float,
    scale: float,
    axis: tuple[float, float, str],
    key: str,
) -> str:
    """One device's parts beside each other on its lane, a tooltip each. axis : its end, and its unit with its name."""
    end, unit, name = axis
    place = f'y="{top + row * 0.06:.2f}" height="{row * 0.88:.2f}"'
    out, x = [f'<rect class="lane" x="{_LEFT}" {place} width="{end * scale:.2f}"/>'], float(_LEFT)
    for part in PARTS:
        size = float(getattr(estimate, part)[device])
        if size:
            told = f"device {device}: {part} {_size(size, unit)} {name}"
            out.append(_box(part, f'x="{x:.2f}" {place} width="{size * scale:.2f}"', key, told))
            x += size * scale
            if size * scale > 3:  # a thinner part would vanish under the line at its end
                out.append(f'<path class="edge" d="M{x:.2f} {top + row * 0.06:.2f}v{row * 0.88:.2f}"/>')
    return "".join(out)


def _box(part: str, box: str, key: str, told: str = "") -> str:
    """A rectangle in a part's colour, with its pattern over it."""
    mark = f'<rect fill="url(#m{part}{key})" {box}/>' if LOOKS[part].pattern else ""
    tip = f"<title>{escape(told)}</title>" if told else ""
    return f'<g class="part {part}">{tip}<rect fill="{LOOKS[part].fill}" {box}/>{mark}</g>'


def _line(limit: Accelerator, x: float, top: float, foot: float, width: int) -> str:
    """Where the accelerator's memory ends; its name above, to the side on which there is room."""
    half = 3.2 * len(say_limit(limit))
    anchor = "start" if x - half < _LEFT else "end" if x + half > width - 12 else "middle"
    place = f'd="M{x:.2f} {top - 3}V{foot + 3:.2f}"'
    line = f'<path class="under" {place}/><path class="limit" {place}/>'
    return f'{line}<g class="over">{svg_text(x, top - 7, say_limit(limit), anchor)}</g>'


def _legend(parts: list[str], width: int, key: str) -> tuple[str, float]:
    """The parts' names in the order of the bar, and where they begin."""
    out, x = [], float(width - 12)
    for part in reversed(parts):
        x -= 6.4 * len(part) + 26
        out.append(_box(part, f'x="{x:.1f}" y="5" width="12" height="12"', key) + svg_text(x + 17, 15, part, "start"))
    return "".join(out), x


def _looks(look: str, key: str) -> str:
    """Patterns of the parts, and the colour of the limit on each page."""
    marks = "".join(
        f'<pattern id="m{part}{key}" width="6" height="6" patternUnits="userSpaceOnUse">'
        f"{PATTERNS[LOOKS[part].pattern].replace('{}', LOOKS[part].text)}</pattern>"
        for part in PARTS
        if LOOKS[part].pattern
    )
    me = f".m{key}"
    light, dark = (f"{{--limit:{LIMIT_COLOURS[name]}}}" for name in ("light", "dark"))
    auto = (
        f"{me}{light}@media(prefers-color-scheme:dark){{{me}{dark}}}"
        f'[data-jp-theme-light="true"] {me}{light}[data-jp-theme-light="false"] {me}{dark}'
    )
    rules = (
        f"{me} .limit{{stroke:var(--limit);stroke-width:2;stroke-dasharray:6 2}}{me} .edge{{stroke:var(--lane)}}"
        f"{me} .under{{stroke:var(--page);stroke-width:5}}{me} .over .txt{{fill:var(--limit);font-weight:600}}"
    )
    return f"<style>{auto if look == 'auto' else me + (dark if look == 'dark' else light)}{rules}</style>" + (
        f"<defs>{marks}</defs>"
    )


def _size(size: float, unit: float) -> str:
    """A size in the axis' unit, three digits, and all those before the point."""
    return f"{size / unit:.3g}" if size < 1000 * unit else f"{size / unit:,.0f}"
