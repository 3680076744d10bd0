"""Matplotlib pictures: the same boxes as the SVG, and pictures that a notebook can store with their words."""

import base64
import re
import subprocess
import sys

import numpy as np
import pytest
from matplotlib.colors import to_hex
from matplotlib.figure import Figure

import pplab
from pplab import Costs, Schedule, makespan, simulate
from pplab.draw import draw_in_flight, draw_timeline, new_axes, picture
from pplab.palette import DARK, LIGHT

T = simulate(pplab.one_f_one_b(4, 8))


def boxes(ax, word="forward"):
    """Left, right, top, bottom of each box of a kind."""
    found = [c for c in ax.collections if c.get_label() == word]
    return [
        (*p.vertices[:, 0][[0, 1]], *sorted(p.vertices[:, 1])[:: len(p.vertices) - 1])
        for c in found
        for p in c.get_paths()
    ]


def test_a_box_an_op_where_its_time_says():
    ax = draw_timeline(T)
    for kind, word in (("F", "forward"), ("B", "backward")):
        spans = [span for span in T if span.kind == kind]
        assert [box[:2] for box in boxes(ax, word)] == [(s.start, s.end) for s in spans]
        assert [np.mean(box[2:]) for box in boxes(ax, word)] == pytest.approx([s.device for s in spans])
    assert ax.get_xlim() == (0, 33)
    assert ax.get_ylim() == (3.5, -0.5)  # device 0 on top


def test_draws_into_given_axes_and_returns_them():
    ax = Figure().subplots()
    assert draw_timeline(T, ax=ax, until=50, title="mine") is ax
    assert ax.get_xlim() == (0, 50)
    assert ax.get_title(loc="left") == "mine"


def test_labels_are_there_while_they_fit():
    shown = sorted(text.get_text() for text in draw_timeline(T).texts)
    assert shown == sorted(str(span.microbatch) for span in T)
    assert not draw_timeline(simulate(pplab.one_f_one_b(4, 300))).texts


def test_a_legend_names_the_kinds_that_are_there():
    t = simulate(Schedule(["0F0 0I0 0W0", "1F0 1I0 1W0"]), Costs(hop=1, blocking=True))
    assert [text.get_text() for text in draw_timeline(t).get_legend().get_texts()] == [
        "forward", "backward for the input", "backward for the weights", "sending or receiving",
    ]  # fmt: skip


def test_pairs_share_the_height_of_the_row():
    ax = draw_timeline(simulate(Schedule(["0F0 0F1 0B0 0B1"], pairs=[("0F1", "0B0")])))
    (_, _, top, bottom), (left, right, upper, middle) = boxes(ax, "forward")
    (x0, x1, middle2, lower), _ = boxes(ax, "backward")
    assert (left, right) == (x0, x1) == (1, 4)
    assert (upper, middle) == pytest.approx((top, (top + bottom) / 2))
    assert (middle2, lower) == pytest.approx((middle, bottom))


@pytest.mark.parametrize(("look", "colours"), [("light", LIGHT), ("dark", DARK)])
def test_looks_are_the_palettes(look, colours):
    ax = draw_timeline(T, look=look)
    assert to_hex(ax.get_facecolor()) == to_hex(ax.get_figure().get_facecolor()) == colours.page
    forward = next(c for c in ax.collections if c.get_label() == "forward")
    assert to_hex(forward.get_facecolor()[0]) == colours.kinds["F"].fill
    with pytest.raises(ValueError, match="look is 'auto': choose 'light' or 'dark'"):
        draw_timeline(T, look="auto")


def test_patterned_kinds_have_hatches():
    ax = draw_timeline(simulate(Schedule(["0F0 0I0 0W0"])))
    assert {c.get_hatch() for c in ax.collections} == {None, "...", "///"}


def test_in_flight_is_a_step_line_a_device():
    ax = draw_in_flight(T)
    assert [max(line.get_ydata()) for line in ax.lines] == [4, 3, 2, 1]
    assert all(line.get_drawstyle() == "steps-post" for line in ax.lines)
    assert [text.get_text() for text in ax.get_legend().get_texts()] == [f"device {d}" for d in range(4)]
    own = new_axes()
    assert draw_in_flight(T, ax=own) is own


def alt_of(shown):
    """The alt text and the bytes of a stored picture."""
    html = shown._repr_html_()
    return re.search(r'alt="([^"]*)"', html)[1], base64.b64decode(re.search(r"base64,([^\"]+)", html)[1])


def test_picture_is_a_png_with_words():
    shown = picture(T)
    alt, png = alt_of(shown)
    assert png == shown.png
    assert png.startswith(b"\x89PNG\r\n")
    assert alt == pplab.svg.describe(T)
    assert repr(shown) == f"[picture: {alt}]"


def test_picture_of_several_timelines_shares_one_axis_and_tells_of_all():
    other = simulate(pplab.gpipe(4, 8), Costs(hop=1))
    shown = picture(T, other, titles=("first",))
    assert shown.alt == f"{pplab.svg.describe(T)}. {pplab.svg.describe(other)}"
    assert picture(T, other, alt="two <pictures>").alt == "two <pictures>"
    assert 'alt="two &lt;pictures&gt;"' in picture(T, other, alt="two <pictures>")._repr_html_()


def test_picture_of_axes_needs_words():
    ax = new_axes()
    assert picture(ax, alt="nothing yet").png.startswith(b"\x89PNG")
    for shown in ((ax,), (), (T, ax)):
        with pytest.raises(ValueError, match="picture takes timelines, or one Axes with alt='what it shows'"):
            picture(*shown)


def test_no_picture_of_many_ops_takes_a_patch_an_op():
    ax = draw_timeline(simulate(pplab.one_f_one_b(64, 64)))
    assert len(ax.collections) <= 8
    assert len(ax.patches) == 64  # the lanes


def test_drawing_needs_no_pyplot():
    """Figures made by pyplot are shown twice in a notebook, and stay in memory."""
    draw = "import sys, pplab; pplab.picture(pplab.simulate(pplab.gpipe(2, 2)))"
    code = f"{draw}; sys.exit('matplotlib.pyplot' in sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)


def test_makespan_is_the_lane():
    assert {patch.get_width() for patch in draw_timeline(T, until=50).patches} == {makespan(T)}


def test_later_chunks_have_a_bar_and_first_ones_none():
    """Of two chunks a device the second: half of all boxes, each at its own place in time."""
    t = pplab.simulate(pplab.interleaved_1f1b(2, 4, 2))
    light = [c for c in pplab.draw_timeline(t).collections if tuple(c.get_facecolor()[0]) == (1, 1, 1, 0.55)]
    starts = sorted(path.vertices[0, 0] for path in light[0].get_paths())
    assert starts == sorted(t.start[t.stage >= 2].tolist())
    plain = pplab.draw_timeline(pplab.simulate(pplab.one_f_one_b(2, 4)))
    assert all(tuple(c.get_facecolor()[0]) != (1, 1, 1, 0.55) for c in plain.collections if len(c.get_facecolor()))
