"""Controls with a visible label, a slider for the arrow keys and a number box for typing."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from numbers import Integral, Real
from typing import Any, TypeVar

import anywidget
import ipywidgets as w

from pplab.presets import Presets, UnknownPresetError

T = TypeVar("T")
_LABEL = {"description_width": "150px"}


def number(label: str, value: float, low: float, high: float, step: float = 1) -> tuple[w.Widget, w.Widget]:
    """A slider and a number box that follow each other; returns the row to show and the slider to read.

    Whole numbers where ``value`` and ``step`` are; the box takes the same range as the slider.
    Raises ValueError for a value that is no number, not whole where ``step`` is, or out of range.
    """
    whole = isinstance(step, int)
    if isinstance(value, bool) or not isinstance(value, Integral if whole else Real) or not low <= value <= high:
        raise ValueError(f"{label} is {value!r:.40}: give a {'whole ' * whole}number from {low:g} to {high:g}")
    slider_type, box_type = (w.IntSlider, w.BoundedIntText) if whole else (w.FloatSlider, w.BoundedFloatText)
    limits: dict[str, Any] = {"value": int(value) if whole else float(value), "min": low, "max": high, "step": step}
    slider = slider_type(
        **limits, description=label, readout=False, style=_LABEL, layout=w.Layout(width="430px"), tooltip=label
    )
    box = box_type(**limits, layout=w.Layout(width="80px"), tooltip=f"{label}, as a number")
    w.link((slider, "value"), (box, "value"))
    return w.HBox([slider, box, _HandleName()]), slider


class _HandleName(anywidget.AnyWidget):
    """Gives the handle of the slider in its row the label's name, for screen readers: ipywidgets gives it none."""

    _esm = """
    export default { render({ el }) {
      let tries = 0;
      const name = () => {
        const row = el.parentElement?.closest(".widget-hbox");
        const handle = row?.querySelector(".noUi-handle"), label = row?.querySelector(".widget-label");
        if (handle && label) handle.setAttribute("aria-label", label.textContent);
        else if (++tries < 300) requestAnimationFrame(name);
      };
      el.style.display = "none";
      name();
    } };
    """


def set_range(row: w.Widget, low: int, high: int, value: int) -> None:
    """Give a row of ``number`` another range and value: wider first, so that neither part holds the other back."""
    parts = row.children[:2]
    for part in parts:
        part.min, part.max = min(part.min, low), max(part.max, high)
    parts[0].value = value
    for part in parts:
        part.min, part.max = low, high


def choice(label: str, value: str, options: Iterable[str]) -> w.Widget:
    """A dropdown with its label before it. Raises ValueError for a value that is none of the options."""
    known = tuple(options)
    if value not in known:
        raise ValueError(f"{label} is {value!r:.60}: choose one of {', '.join(known)}")
    return w.Dropdown(
        options=known, value=value, description=label, style=_LABEL, layout=w.Layout(width="430px"), tooltip=label
    )


def first_and_more(first: Sequence[w.Widget], more: Sequence[w.Widget]) -> list[w.Widget]:
    """The controls at first sight, at most four, then the others in a box that the button "more" opens.

    A button, since the title of an Accordion cannot be reached with the keyboard.
    """
    button = w.ToggleButton(description="more", tooltip="more controls", layout=w.Layout(width="80px"))
    box = w.VBox(list(more), layout=w.Layout(display="none"))
    button.observe(lambda change: setattr(box.layout, "display", "" if change.new else "none"), names="value")
    return [*first, button, box]


def resetter(*controls: w.Widget) -> Callable[[], None]:
    """A function that puts controls back to the values that they have now."""
    values = [control.value for control in controls]

    def reset() -> None:
        for control, value in zip(controls, values, strict=True):
            control.value = value

    return reset


def switch(label: str, value: bool) -> w.Widget:
    """A checkbox with its label beside it."""
    return w.Checkbox(value=value, description=label, indent=False, tooltip=label, layout=w.Layout(width="auto"))


def preset(presets: Presets[T], name: str) -> T:
    """The preset of that name. Raises ValueError, which lists the known ones, where there is none."""
    try:
        return presets[name]
    except (UnknownPresetError, TypeError) as error:  # TypeError: a name that cannot be looked up, such as a list
        raise ValueError(str(error)) from None
