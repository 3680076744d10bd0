"""Losses of training runs as curves: with Matplotlib to store, and as an SVG string, quick enough for a slider.

Both have a logarithmic scale of losses, which ends above the first: a run that diverges goes out of sight there.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Mapping
from html import escape
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from pplab.asynchronous import Training
from pplab.bars import frame, svg_text, tick, tick_values
from pplab.draw import new_axes
from pplab.palette import theme

if TYPE_CHECKING:
    from matplotlib.axes import Axes

OVER = {"time": "time", "microbatches": "micro-batches"}  # what a curve runs over, and the words for it
_LEFT, _TOP, _AXIS, _HEIGHT, _ROOM = 74, 46, 40, 250, 14
_MOST_POINTS = 500  # of a curve: more than there are pixels for
_ABOVE = 2.0  # how far above the first loss the picture reaches


class _Line(NamedTuple):
    """How a curve looks: its colours on light and dark pages, and its dashes."""

    light: str
    dark: str
    dashes: tuple[int, ...]


_LINES = (
    _Line("#1f5f9f", "#6fb1ee", ()),
    _Line("#b1452c", "#f08a6c", (7, 3)),
    _Line("#2c7a57", "#6fcf9f", (2, 3)),
    _Line("#7d55a8", "#c5a3ee", (10, 3, 2, 3)),
    _Line("#856a00", "#e0bd4a", (16, 5)),
    _Line("#3b4754", "#c3ccd6", (5, 2, 1, 2, 1, 2)),
)


def loss_curves(
    runs: Mapping[str, Training], over: str = "time", width: int = 900, look: str = "auto", title: str | None = None
) -> str:
    """Losses of up to six training runs as SVG text, by the words that stand in the legend.

    over : "time" (simulated, in the unit of the costs) or "microbatches" (as many data). ``width`` in pixels; ``look``
    as in svg.timeline. Raises ValueError for another ``over``, an unknown look, no runs or more than six, a width
    below 400.
    """
    x, low, high = _check(runs, over)
    if not width >= 400:
        raise ValueError(f"width is {width!r:.20}: a picture needs 400 pixels or more")
    most, foot = max(float(values[-1]) for values in x.values()), _TOP + _HEIGHT
    scale = (width - _LEFT - 24) / most
    title = title or f"loss over {OVER[over]}"
    key = f"{zlib.crc32(repr((list(runs), [r.losses.tobytes() for r in runs.values()], over, width)).encode()):08x}"
    body = f'<rect class="lane" x="{_LEFT}" y="{_TOP}" width="{width - _LEFT - 24}" height="{_HEIGHT}"/>'
    body += "".join(tick(_LEFT + v * scale, foot, f"{v:,.6g}") for v in tick_values(most))
    for value in _loss_ticks(low, high):
        y = _place(value, low, high)
        body += f'<path d="M{_LEFT} {y:.1f}h-5" class="tick"/>' + svg_text(_LEFT - 9, y + 4, f"{value:g}", "end")
    body += svg_text(width - 24, foot + 34, OVER[over], "end")
    for name, line in zip(runs, _LINES, strict=False):
        a, losses = _thinned(x[name], runs[name].losses)
        points = "L".join(
            f"{_LEFT + at * scale:.1f} {_place(v, low, high):.1f}" for at, v in zip(a.tolist(), losses, strict=True)
        )
        body += f"<g><title>{escape(f'{name}: {_end(runs[name])}')}</title>{_stroke(line, f'M{points}', key)}</g>"
    body += _legend(runs, key)
    return frame(f'{_colours(look, key)}<g class="c{key}">{body}</g>', describe_losses(runs, over), width, foot + _AXIS,
                 look, title)  # fmt: skip


def draw_losses(runs: Mapping[str, Training], ax: Axes | None = None, over: str = "time", look: str = "light") -> Axes:
    """Draw the losses of up to six training runs, by the words that stand in the legend.

    ``ax``: where to draw; a new figure unless given. ``over`` as in ``loss_curves``. Returns the Axes. Raises
    ValueError for another ``over``, an unknown look, no runs or more than six.
    """
    x, low, high = _check(runs, over)
    colours = theme(look)
    ax = ax or new_axes(height=3.0, look=look)
    for name, line in zip(runs, _LINES, strict=False):
        shown = np.minimum(runs[name].losses, 1e3 * high)  # Matplotlib breaks a line at inf
        colour = line.dark if look == "dark" else line.light
        ax.plot(x[name], shown, color=colour, label=name, linewidth=1.6, linestyle=(0, line.dashes or (None)))
    ax.set(yscale="log", ylim=(low, high), ylabel="loss", xlabel=OVER[over], xlim=(0, max(v[-1] for v in x.values())))
    ticks = _loss_ticks(low, high)
    ax.set_yticks(ticks, [f"{value:g}" for value in ticks])
    ax.minorticks_off()
    place: dict[str, Any] = {"loc": "upper left", "bbox_to_anchor": (1.01, 1)}
    ax.legend(**place, frameon=False, fontsize=8, labelcolor=colours.words, handlelength=6)  # the longest dashes show
    return ax


def describe_losses(runs: Mapping[str, Training], over: str = "time") -> str:
    """What the picture shows, in words: its label for screen readers."""
    said = (f"{name}: {_end(run)}, {run.times[-1]:.5g} long" for name, run in runs.items())
    return f"Curves of the loss over {OVER[over]}. " + "; ".join(said)


def _end(run: Training) -> str:
    first, last = run.losses[[0, -1]]
    return f"from {first:.3g}, then it diverges" if run.diverged else f"from {first:.3g} to {last:.3g}"


def _check(runs: Mapping[str, Training], over: str) -> tuple[dict[str, np.ndarray], float, float]:
    """Where each run's losses stand on the axis, and the range of losses that is shown."""
    if over not in OVER:
        raise ValueError(f"over is {over!r:.40}: choose one of {', '.join(OVER)}")
    if not 1 <= len(runs) <= len(_LINES):
        raise ValueError(f"there are {len(runs)} runs: give 1 to {len(_LINES)}, so that they can be told apart")
    x = {name: run.times if over == "time" else run.microbatches for name, run in runs.items()}
    finite = np.concatenate([run.losses[run.losses > 0] for run in runs.values()])
    low = float(finite.min(initial=1.0) * 0.8)
    return x, low, max(_ABOVE * max(float(run.losses[0]) for run in runs.values()), 2 * low)


def _place(loss: float, low: float, high: float) -> float:
    """A loss's pixel; what is beyond the picture stands on its edge."""
    part = np.log(min(max(loss, low), high) / low) / np.log(high / low)
    return float(_TOP + _HEIGHT - part * _HEIGHT)


def _thinned(x: np.ndarray, losses: np.ndarray) -> tuple[np.ndarray, list[float]]:
    """At most so many of the points, first and last among them."""
    chosen = np.unique(np.linspace(0, len(x) - 1, min(len(x), _MOST_POINTS)).astype(int))
    return x[chosen], losses[chosen].tolist()


def _loss_ticks(low: float, high: float) -> list[float]:
    powers = range(int(np.floor(np.log10(low))), int(np.ceil(np.log10(high))) + 1)
    steps = (1, 2, 5) if len(powers) < 5 else (1,)
    return [k * 10.0**p for p in powers for k in steps if low <= k * 10.0**p <= high]


def _stroke(line: _Line, path: str, key: str) -> str:
    dashes = f' stroke-dasharray="{" ".join(map(str, line.dashes))}"' if line.dashes else ""
    return f'<path class="l{_LINES.index(line)}{key}" d="{path}" fill="none" stroke-width="2"{dashes}/>'


def _legend(names: Iterable[str], key: str) -> str:
    """The names in a row under the title, each behind a piece of its line."""
    out, x = "", float(_LEFT)
    for name, line in zip(names, _LINES, strict=False):
        out += _stroke(line, f"M{x:.1f} {_TOP - 12}h34", key) + svg_text(x + 40, _TOP - 8, name, "start")
        x += 40 + 6.6 * len(name) + _ROOM
    return out


def _colours(look: str, key: str) -> str:
    """The lines' colours on each page."""
    me = f".c{key}"
    if look != "auto":
        return f"<style>{_rules(me, key, look == 'dark')}</style>"
    light, dark = (f'[data-jp-theme-light="{which}"] {me}' for which in ("true", "false"))
    auto = f"{_rules(me, key, False)}@media(prefers-color-scheme:dark){{{_rules(me, key, True)}}}"
    return f"<style>{auto}{_rules(light, key, False)}{_rules(dark, key, True)}</style>"


def _rules(selector: str, key: str, dark: bool) -> str:
    return "".join(
        f"{selector} .l{i}{key}{{stroke:{line.dark if dark else line.light}}}" for i, line in enumerate(_LINES)
    )
