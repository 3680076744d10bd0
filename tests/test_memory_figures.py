"""Pictures of memory: bars as high as the bytes, a line where the accelerator ends, lanes under the timeline."""

import re
from itertools import pairwise

import numpy as np
import pytest
from matplotlib.colors import to_hex
from matplotlib.figure import Figure

import pplab
from pplab import Schedule, simulate
from pplab.hardware import ACCELERATORS
from pplab.memory import PARTS, estimate_memory
from pplab.memory_figures import LOOKS, describe_memory, draw_memory, draw_memory_trace, parts_of
from pplab.model import MODELS, TransformerModel
from pplab.palette import DARK, LIGHT
from pplab.presets import UnknownPresetError

LARGE = estimate_memory(
    MODELS["GPT-3 175B"], pplab.one_f_one_b(8, 16), micro_batch_size=4, tensor_parallel=8, recompute="selective",
    sequence_parallel=True,
)  # fmt: skip
ALL_PARTS = estimate_memory(MODELS["GPT-3 175B"], pplab.SCHEDULES["pipedream"](8, 16), recompute="selective")
SMALL = estimate_memory(TransformerModel(12, 16, 4, 100, 32), simulate(pplab.one_f_one_b(4, 8)), recompute="full")
WORDS = {look.word: name for name, look in LOOKS.items()}


def bars(ax):
    """Foot and top of each bar by part, in the axis' unit."""
    return {
        WORDS[c.get_label()]: [(b.get_y(), b.get_y() + b.get_height()) for b in c]
        for c in ax.containers
        if c.get_label() in WORDS
    }


def lane(ax, device):
    """The line round one device's areas: times, and height above the lane's floor in lanes."""
    x, y = ax.lines[device].get_data()
    return x, device + 0.44 - y


def test_bars_stand_on_each_other_and_reach_the_total():
    found = bars(draw_memory(ALL_PARTS))
    assert list(found) == list(LOOKS)
    foot = np.zeros(8)
    for name, part in parts_of(ALL_PARTS).items():
        assert [a for a, _ in found[name]] == pytest.approx(foot.tolist())
        foot = foot + part / 1e9
        assert [b for _, b in found[name]] == pytest.approx(foot.tolist())
    assert foot == pytest.approx(ALL_PARTS.total / 1e9)


def test_the_embedding_is_taken_out_of_the_first_three_parts():
    parts = parts_of(LARGE)
    assert sum(parts.values()) == pytest.approx(sum(getattr(LARGE, name) for name in PARTS))
    block = 18 * 12 * MODELS["GPT-3 175B"].block_parameters / 8
    assert sum(parts[name] for name in PARTS[:3]) == pytest.approx(np.full(8, block))
    assert (parts["embedding"] > 0).tolist() == [True, *[False] * 6, True]


def test_parts_that_are_empty_are_left_out():
    estimate = estimate_memory(TransformerModel(4, 16, 4, 100, 32), pplab.gpipe(2, 2), convention="14")
    assert set(bars(draw_memory(estimate))) == {"weights", "optimizer", "embedding", "activations", "logits"}


@pytest.mark.parametrize("accelerator", ["A100 80GB", ACCELERATORS["A100 80GB"]])
def test_the_limit_is_a_line_with_its_name(accelerator):
    ax = draw_memory(LARGE, accelerator)
    (line,) = ax.lines
    assert line.get_ydata() == [80, 80]
    assert line.get_label() == "80 GB of the A100 80GB"
    said = [text.get_text() for text in ax.texts]
    assert ["too much" in text for text in said] == (LARGE.total > 80e9).tolist()
    assert [float(text.split()[0]) for text in said] == pytest.approx((LARGE.total / 1e9).tolist(), rel=5e-3)
    assert ax.get_ylim()[1] > LARGE.total.max() / 1e9
    assert "80 GB of the A100 80GB" in [text.get_text() for text in ax.get_legend().get_texts()]


def test_units_fit_the_sizes():
    assert draw_memory(LARGE).get_ylabel() == "GB"
    assert draw_memory(SMALL).get_ylabel() == "kB"
    assert draw_memory(SMALL, "H100").get_ylabel() == "GB"


def test_lanes_stand_under_the_timeline_on_one_time_axis():
    ax = draw_memory_trace(SMALL)
    above, below = ax.figure.axes
    assert below is ax
    assert above.get_shared_x_axes().joined(above, below)
    assert above.get_xlim() == below.get_xlim() == (0, 33)
    assert above.get_ylim() == below.get_ylim() == (3.5, -0.5)
    assert len(above.collections) and below.get_xlabel() == "time" and not above.get_xlabel()


@pytest.mark.parametrize("states", [False, True])
def test_a_lane_is_the_trace(states):
    """Every line starts at nothing, or at what is always there, and follows the bytes; all lanes have one scale."""
    ax = draw_memory_trace(SMALL, states=states)
    base = SMALL.states if states else np.zeros(4)
    most = max(base + (SMALL.total - SMALL.states))
    for device in range(4):
        x, height = lane(ax, device)
        trace = SMALL.trace(device)
        assert x.tolist() == [0, *trace.times, 33]
        held = base[device] + np.array([0, *trace.total, 0])
        assert height / 0.84 * most == pytest.approx(held, abs=1e-6 * most)


def test_a_lane_rises_with_each_forward_and_falls_with_each_backward():
    estimate = estimate_memory(TransformerModel(12, 16, 4, 100, 32), simulate(pplab.one_f_one_b(4, 8)))
    ax = draw_memory_trace(estimate)
    t = estimate.timeline
    for device in range(4):
        x, height = lane(ax, device)
        change = np.diff(height)
        a, b = t.schedule.row_slices[device]
        assert sorted(x[1:][change > 1e-9]) == sorted(t.start[a:b][t.kind[a:b] == "F"])
        assert sorted(x[1:][change < -1e-9]) == sorted(t.end[a:b][t.kind[a:b] == "B"])


def test_peaks_stand_beside_the_lanes_and_the_limit_in_them():
    ax = draw_memory_trace(LARGE, "A100 80GB")
    said = [float(text.get_text().split()[0]) for text in ax.texts]
    assert said == pytest.approx((LARGE.total / 1e9).tolist(), rel=5e-3)
    lines = [c for c in ax.collections if c.get_label() == "80 GB of the A100 80GB"]
    (segments,) = [c.get_segments() for c in lines]
    most = LARGE.total.max()
    assert [s[0][1] for s in segments] == pytest.approx([k + 0.44 - 0.84 * 80e9 / most for k in range(8)])


@pytest.mark.parametrize("draw", [draw_memory, draw_memory_trace])
def test_draws_into_given_axes_and_returns_them(draw):
    ax = Figure().subplots()
    assert draw(SMALL, ax=ax, title="mine") is ax
    assert ax.get_title(loc="left") == "mine"
    assert len(ax.figure.axes) == 1


@pytest.mark.parametrize("draw", [draw_memory, draw_memory_trace])
@pytest.mark.parametrize(("look", "colours"), [("light", LIGHT), ("dark", DARK)])
def test_themes_and_pictures(draw, look, colours):
    ax = draw(LARGE, "A100 80GB", look=look)
    assert to_hex(ax.figure.get_facecolor()) == to_hex(ax.get_facecolor()) == colours.page
    shown = pplab.picture(ax, alt=describe_memory(LARGE, "A100 80GB"))
    assert shown.png.startswith(b"\x89PNG")
    assert "device 0 is fullest" in shown._repr_html_()


@pytest.mark.parametrize("draw", [draw_memory, draw_memory_trace])
def test_the_legend_stays_clear_of_the_title(draw):
    ax = draw(LARGE, "A100 80GB")
    ax.figure.canvas.draw()
    title, legend = ax._left_title.get_window_extent(), ax.get_legend().get_window_extent()
    assert not title.overlaps(legend)


def luminance(colour):
    channels = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    r, g, b = (c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in channels)
    return 0.2126 * r + 0.7152 * g + 0.0722 * b


def test_parts_differ_in_lightness_or_in_pattern():
    looks = list(LOOKS.values())
    assert len({look.word for look in looks}) == len({look.fill for look in looks}) == len(looks)
    for one, other in pairwise(looks):  # neighbours in a bar
        light, dark = sorted((luminance(one.fill), luminance(other.fill)), reverse=True)
        assert (light + 0.05) / (dark + 0.05) > 1.5 or one.pattern != other.pattern


def test_words_say_what_is_fullest_and_what_is_too_much():
    words = describe_memory(LARGE, "A100 80GB")
    assert re.search(r"8 devices under 1f1b: 92\.\d+, .*device 0 is fullest", words)
    assert words.endswith(f"; {np.count_nonzero(LARGE.total > 80e9)} of 8 are over the 80 GB of the A100 80GB")
    assert "over" not in describe_memory(LARGE)


def test_many_devices_and_split_backwards():
    many = estimate_memory(MODELS["GPT 1T"], pplab.one_f_one_b(64, 64), tensor_parallel=8)
    assert not draw_memory(many).texts
    assert not draw_memory_trace(many).texts
    split = estimate_memory(TransformerModel(2, 16, 4, 100, 32), Schedule(["0F0 0I0 0W0"]), input_frees=True)
    x, height = lane(draw_memory_trace(split), 0)
    assert x.tolist() == [0, 0, 2, 3, 3] and (np.diff(height[1:-1]) < 0).all()


@pytest.mark.parametrize("draw", [draw_memory, draw_memory_trace])
def test_errors(draw):
    with pytest.raises(ValueError, match="look is 'grey'"):
        draw(SMALL, look="grey")
    with pytest.raises(UnknownPresetError, match=r"no accelerator is called 'A200'; known are: .*H100"):
        draw(SMALL, "A200")


def test_older_versions_of_the_weights_are_a_part_of_their_own():
    estimate = estimate_memory(MODELS["Llama-3 8B"], pplab.SCHEDULES["pipedream"](4, 8))
    parts = parts_of(estimate)
    assert (parts["versions"] == estimate.versions).all() and estimate.versions[0] == 3 * estimate.weights[0]
    assert sum(parts.values()) == pytest.approx(estimate.total)
    assert parts["weights"] == pytest.approx(np.full(4, 2 * 8 * MODELS["Llama-3 8B"].block_parameters))
    assert parts["optimizer"] == pytest.approx(6 * parts["weights"])
    assert "older versions of weights" in [text.get_text() for text in draw_memory(estimate).get_legend().get_texts()]
    assert f"{estimate.versions[0] / 1e9:.4g} GB of them older versions" in describe_memory(estimate)
    assert "older" not in describe_memory(LARGE)
