"""Controls with a visible label, a slider for the arrow keys and a number box for typing."""

from __future__ import annotations

from typing import Any

import ipywidgets as w

_LABEL = {"description_width": "150px"}


def number(label: str, value: float, low: float, high: float, step: float = 1) -> tuple[w.Widget, w.Widget]:
    """A slider and a number box that follow each other; returns the row to show and the slider to read.

    Whole numbers where ``value`` and ``step`` are; the box takes the same range as the slider.
    """
    whole = isinstance(value, int) and isinstance(step, int)
    slider_type, box_type = (w.IntSlider, w.BoundedIntText) if whole else (w.FloatSlider, w.BoundedFloatText)
    limits: dict[str, Any] = {"value": value, "min": low, "max": high, "step": step}
    slider = slider_type(
        **limits, description=label, readout=False, style=_LABEL, layout=w.Layout(width="430px"), tooltip=label
    )
    box = box_type(**limits, layout=w.Layout(width="80px"), tooltip=f"{label}, as a number")
    w.link((slider, "value"), (box, "value"))
    return w.HBox([slider, box]), slider


def switch(label: str, value: bool) -> w.Widget:
    """A checkbox with its label beside it."""
    return w.Checkbox(value=value, description=label, indent=False, tooltip=label)
