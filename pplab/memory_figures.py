"""Pictures of what devices hold, with Matplotlib: bars of its parts, and its course under the timeline."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from pplab.draw import HATCH, draw_timeline, new_axes, new_rows
from pplab.hardware import ACCELERATORS, Accelerator
from pplab.memory import MemoryEstimate
from pplab.metrics import makespan
from pplab.palette import Look, Theme, theme

if TYPE_CHECKING:
    from matplotlib.axes import Axes

# From the foot of a bar to its top. Neighbours differ in lightness, and every second one has a pattern.
LOOKS: dict[str, Look] = {
    "weights": Look("#1f5f9f", "#ffffff", "", "weights of the blocks"),
    "gradients": Look("#8fc1ea", "#062338", "lines", "gradients of the blocks"),
    "optimizer": Look("#4a7d74", "#ffffff", "dots", "optimizer state of the blocks"),
    "embedding": Look("#b9d9b0", "#12290b", "dots", "embedding and head, all three"),
    "versions": Look("#8b6bb1", "#ffffff", "cross", "older versions of weights"),
    "activations": Look("#f2a531", "#1f1300", "", "activations"),
    "logits": Look("#fbe9a6", "#1f1300", "cross", "logits"),
    "temporary": Look("#c4553b", "#ffffff", "lines", "recomputed activations"),
}
_STATES = Look("#4a7d74", "#ffffff", "", "weights and their states")
LIMIT_COLOURS = {"light": "#b3003c", "dark": "#ff7fa5"}
_UNITS = ((1e9, "GB"), (1e6, "MB"), (1e3, "kB"), (1.0, "bytes"))
_MOST_TOTALS = 16  # beyond so many devices, no room for the number over each bar
_TALL = 0.84  # of a lane, what the largest number fills


def parts_of(estimate: MemoryEstimate) -> dict[str, np.ndarray]:
    """The parts of a bar, (num_devices,) bytes each, with the embedding's and head's taken out of the first three."""
    blocks = 1 - estimate.embedding / np.maximum(estimate.states - estimate.versions, 1e-300)
    states = {name: getattr(estimate, name) * blocks for name in ("weights", "gradients", "optimizer")}
    held = {name: getattr(estimate, name) for name in ("embedding", "versions", "activations", "logits", "temporary")}
    return {name: np.asarray(part) for name, part in (states | held).items()}


def describe_memory(estimate: MemoryEstimate, accelerator: Accelerator | str | None = None) -> str:
    """What the pictures show, in words, for their alt text."""
    full, devices, k = estimate.total / 1e9, estimate.schedule.num_devices, estimate.fullest
    older = f", {estimate.versions[k] / 1e9:.4g} GB of them older versions," if estimate.versions.any() else ""
    words = (
        f"Memory of {devices} devices under {estimate.schedule.name}: "
        f"{', '.join(f'{size:.4g}' for size in full[:_MOST_TOTALS])}{' …' if devices > _MOST_TOTALS else ''} GB at the "
        f"peak of each in turn; device {k} is fullest, with {estimate.states[k] / 1e9:.4g} GB of weights, gradients "
        f"and optimizer state{older} and {estimate.activations[k] / 1e9:.4g} GB of activations"
    )
    limit = as_accelerator(accelerator)
    over = 0 if limit is None else np.count_nonzero(estimate.total > limit.memory_bytes)
    return words + (f"; {over} of {devices} are over the {say_limit(limit)}" if limit else "")


def draw_memory(
    estimate: MemoryEstimate,
    accelerator: Accelerator | str | None = None,
    ax: Axes | None = None,
    look: str = "light",
    title: str | None = None,
) -> Axes:
    """Draw a bar a device of what it holds at its fullest moment, in parts, and a line where an accelerator ends.

    accelerator : one, or its name in ``ACCELERATORS``; bars beyond its memory are marked. ``ax``: where to draw; a new
    figure unless given. ``look``: "light" or "dark". Sizes are in GB of 10⁹ bytes, or less where all are small.
    Returns the Axes. Raises ValueError for an unknown look, UnknownPresetError for an unknown accelerator.
    """
    _check_estimate(estimate)
    colours, limit = theme(look), as_accelerator(accelerator)
    devices = np.arange(estimate.schedule.num_devices)
    ax = ax or new_axes(height=3.4, width=float(np.clip(4.2 + 0.62 * len(devices), 6.6, 12)), look=look)
    most = max(float(estimate.total.max()), limit.memory_bytes if limit else 0.0)
    unit, name = byte_unit(most)
    _add_bars(ax, estimate, unit, colours)
    if limit is not None:
        ax.axhline(
            limit.memory_bytes / unit,
            color=LIMIT_COLOURS[look],
            linewidth=1.8,
            linestyle=(0, (6, 2)),
            label=say_limit(limit),
        )
    if len(devices) <= _MOST_TOTALS:
        _add_totals(ax, estimate, unit, limit, look)
    ax.set(ylim=(0, 1.16 * most / unit), xlabel="device", ylabel=name, xlim=(-0.6, len(devices) - 0.4))
    ax.set_xticks(devices[:: max(1, len(devices) // 16)])
    handles, names = ax.get_legend_handles_labels()
    ax.legend(handles[::-1], names[::-1], loc="upper left", bbox_to_anchor=(1.01, 1), frameon=False, fontsize=8,
              labelcolor=colours.words)  # fmt: skip
    _entitle(ax, title or f"{estimate.schedule.name}: what each device holds at its fullest", colours)
    return ax


def draw_memory_trace(
    estimate: MemoryEstimate,
    accelerator: Accelerator | str | None = None,
    ax: Axes | None = None,
    look: str = "light",
    states: bool = False,
    title: str | None = None,
) -> Axes:
    """Draw what the passes of each device hold over time, a lane a device, each under the timeline's row of boxes.

    All lanes have one scale, from nothing to the most that any device holds, or to the limit; the peak of each stands
    beside it. ``ax``: where to draw the lanes alone; unless given, a new figure with the timeline above, both on one
    time axis. states : add what does not change: weights, gradients and optimizer state. They are added where an
    accelerator, or its name, is given, whose memory is a line in each lane. Returns the Axes of the lanes, whose
    figure holds both. Raises ValueError for an unknown look, UnknownPresetError for an unknown accelerator.
    """
    _check_estimate(estimate)
    colours, t, limit = theme(look), estimate.timeline, as_accelerator(accelerator)
    states, count = states or limit is not None, t.schedule.num_devices
    if ax is None:
        over, ax = new_rows(2, 0.9 + 0.4 * min(count, 24), 9.0, look)
        draw_timeline(t, ax=over, look=look)
    peaks = estimate.total if states else estimate.total - estimate.states
    most = max(float(peaks.max()), limit.memory_bytes if limit else 0.0)
    unit, name = byte_unit(most)
    for device in range(count):
        _add_lane(ax, estimate, device, most, states, colours)
        if count <= 24:
            beyond = limit is not None and peaks[device] > limit.memory_bytes
            ax.annotate(f"{peaks[device] / unit:.3g} {name}", (1, device), (5, 0), xycoords=ax.get_yaxis_transform(),
                        textcoords="offset points", va="center", fontsize=8,
                        color=LIMIT_COLOURS[look] if beyond else colours.words)  # fmt: skip
    if limit is not None:
        y = np.arange(count) + 0.44 - _TALL * limit.memory_bytes / most
        ax.hlines(
            y, 0, makespan(t), color=LIMIT_COLOURS[look], linewidth=1.5, linestyle=(0, (6, 2)), label=say_limit(limit)
        )
    ax.set(xlim=(0, makespan(t)), ylim=(count - 0.5, -0.5), xlabel="time", ylabel="device")
    ax.set_yticks(np.arange(0, count, max(1, count // 16)))
    ax.legend(ncols=5, loc="lower right", bbox_to_anchor=(1, 1), frameon=False, fontsize=8, labelcolor=colours.words,
              columnspacing=1.2)  # fmt: skip
    above = 22 if states or title else 6  # clear of the legend, which is long then
    _entitle(ax, title or ("all that each device holds" if states else "what passes hold"), colours, above)
    return ax


def _add_lane(ax: Axes, estimate: MemoryEstimate, device: int, most: float, states: bool, colours: Theme) -> None:
    """One device's bytes as areas on top of each other; the line round them also shows what is gone for no time."""
    t, trace = estimate.timeline, estimate.trace(device)
    x = np.r_[t.start.min(), trace.times, t.end.max()] - t.start.min()
    parts = {name: np.r_[0.0, part, part[-1]] for name, part in trace._asdict().items() if name != "times"}
    if states:
        parts = {"states": np.full(len(x), estimate.states[device])} | parts
    foot = np.zeros(len(x))
    floor = device + 0.44
    ax.barh(device, x[-1], height=0.88, color=colours.lane, zorder=0)
    for name, part in parts.items():
        if part.any():
            look = _STATES if name == "states" else LOOKS[name]
            known = look.word in ax.get_legend_handles_labels()[1]
            low, high = (floor - _TALL * (foot + extra) / most for extra in (0.0, part))
            ax.fill_between(x, low, high, step="post", facecolor=look.fill, hatch=HATCH.get(look.pattern), linewidth=0,
                            edgecolor=_ink(look), label=None if known else look.word)  # fmt: skip
            foot = foot + part
    ax.step(x, floor - _TALL * foot / most, where="post", color=colours.words, linewidth=0.8)


def _add_bars(ax: Axes, estimate: MemoryEstimate, unit: float, colours: Theme) -> None:
    """The parts on top of each other, those that are empty everywhere left out."""
    foot = np.zeros(estimate.schedule.num_devices)
    for name, part in parts_of(estimate).items():
        if not part.any():
            continue
        look = LOOKS[name]
        ax.bar(np.arange(len(part)), part / unit, 0.72, foot / unit, color=look.fill, edgecolor=_ink(look),
               linewidth=0.0, hatch=HATCH.get(look.pattern), label=look.word)  # fmt: skip
        foot = foot + part
    ax.bar(np.arange(len(foot)), foot / unit, 0.72, color="none", edgecolor=colours.line, linewidth=0.8)


def _add_totals(ax: Axes, estimate: MemoryEstimate, unit: float, limit: Accelerator | None, look: str) -> None:
    """The number over each bar, and a word where it is beyond the limit."""
    colours = theme(look)
    for device, size in enumerate(estimate.total.tolist()):
        over = limit is not None and size > limit.memory_bytes
        ax.annotate(
            f"{size / unit:.3g}" + ("\ntoo much" if over else ""),
            (device, size / unit),
            (0, 2),
            textcoords="offset points",
            ha="center",
            va="bottom",
            fontsize=8,
            color=LIMIT_COLOURS[look] if over else colours.words,
            bbox={"facecolor": colours.page, "linewidth": 0, "pad": 0.6},
        )


def _ink(look: Look) -> tuple[float, float, float, float]:
    from matplotlib.colors import to_rgb

    return (*to_rgb(look.text), 0.45)


def as_accelerator(accelerator: Accelerator | str | None) -> Accelerator | None:
    """An accelerator, also by its name."""
    return ACCELERATORS[accelerator] if isinstance(accelerator, str) else accelerator


def say_limit(limit: Accelerator) -> str:
    """An accelerator's memory in words."""
    return f"{limit.memory_bytes / 1e9:g} GB of the {limit.name}"


def byte_unit(most: float) -> tuple[float, str]:
    """The largest unit that keeps the largest number at 1 or more, and its name."""
    return next((unit for unit in _UNITS if most >= unit[0]), _UNITS[-1])


def _entitle(ax: Axes, title: str, colours: Theme, above: float = 6) -> None:
    ax.set_title(title, loc="left", fontsize=10, color=colours.words, pad=above)


def _check_estimate(estimate: object) -> None:
    if not isinstance(estimate, MemoryEstimate):
        raise TypeError(f"estimate is {estimate!r:.40}: give what pplab.estimate_memory returns")
