"""Curves of losses, and the explorer of asynchronous training: what they show is what ``train`` gives."""

import re
import xml.etree.ElementTree as ET
from html import unescape

import ipywidgets
import numpy as np
import pytest

import pplab
from pplab.loss_curves import describe_losses, draw_losses, loss_curves
from pplab.numeric import MLP, MODES, train
from pplab.widgets import explore_asynchronous

SVG = "{http://www.w3.org/2000/svg}"
DRAW = np.random.default_rng(0)
MODEL, X = MLP([6] * 6 + [2]), DRAW.normal(size=(16, 6))
Y = np.tanh(X[:, :2])
OPTIONS = dict(num_devices=3, num_microbatches=8, passes=3)
RUNS = {mode: train(MODEL, X, Y, mode, learning_rate=0.1, **OPTIONS) for mode in MODES}
WILD = train(MODEL, X, Y, "vertical", learning_rate=1e3, **OPTIONS | {"passes": 60})


def explorer(**options):
    """The explorer with the problem above."""
    return explore_asynchronous(MODEL, X, Y, **{"num_devices": 3, "num_microbatches": 8, "passes": 3} | options)


def curves(picture):
    """Each curve's points by the name in its tooltip, (n, 2) pixels."""
    out = {}
    for g in ET.fromstring(picture).iter(f"{SVG}g"):
        if g.find(f"{SVG}title") is not None:
            points = g.find(f"{SVG}path").get("d")[1:].split("L")
            out[g.find(f"{SVG}title").text.split(":")[0]] = np.array([p.split() for p in points], float)
    return out


def cells(html):
    """The texts of a table's cells, a list a row, the heading first."""
    rows = re.findall(r"<tr[^>]*>(.*?)</tr>", html)
    return [[unescape(cell) for cell in re.findall(r"<t[dh][^>]*>(.*?)</t[dh]>", row)] for row in rows]


# ── Curves ────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("over", ["time", "microbatches"])
def test_each_loss_stands_at_its_place(over):
    """Linear in time, logarithmic in the loss: two runs' first points fix the scale, and all others follow it."""
    drawn = curves(loss_curves(RUNS, over))
    assert list(drawn) == list(RUNS)
    along, up, x, y = ([], [], [], [])
    for name, run in RUNS.items():
        assert len(drawn[name]) == len(run.losses)
        x, y = [*x, *drawn[name][:, 0]], [*y, *drawn[name][:, 1]]
        along, up = [*along, *(run.times if over == "time" else run.microbatches)], [*up, *np.log(run.losses)]
    for places, values in ((x, along), (y, up)):
        slope, offset = np.polyfit(values, places, 1)
        assert np.abs(np.polyval((slope, offset), values) - places).max() < 0.11  # pixels are told to a tenth
    assert max(x) == pytest.approx(900 - 24, abs=0.1) and min(x) == 74


def test_a_run_that_diverges_leaves_at_the_top():
    picture = loss_curves({"wild": WILD, "calm": RUNS["stashed"]})
    points = curves(picture)["wild"]
    assert points[-1, 1] == 46 and (points[:, 1] >= 46).all() and len(points) <= 500
    assert "then it diverges" in picture and "inf" not in picture and "nan" not in picture
    line = draw_losses({"wild": WILD}).lines[0].get_ydata()
    assert np.isfinite(line).all() and line[-1] > 2 * WILD.losses[0]


@pytest.mark.parametrize("look", ["auto", "light", "dark"])
def test_curves_say_in_words_what_they_show(look):
    picture = loss_curves(RUNS, look=look, title="a < b")
    root = ET.fromstring(picture)
    assert root.get("role") == "img" and root.get("aria-label") == describe_losses(RUNS)
    texts = [text.text for text in root.iter(f"{SVG}text")]
    assert {"a < b", *MODES} <= set(texts)
    dashes = [path.get("stroke-dasharray") for path in root.iter(f"{SVG}path") if path.get("fill") == "none"]
    assert len(set(dashes)) == len(MODES)  # told apart without their colours
    assert ("#1f5f9f" in picture.split("</style>")[1]) == (look != "dark")


def test_the_stored_picture_has_the_same_curves():
    for over, along in (("time", "times"), ("microbatches", "microbatches")):
        ax = draw_losses(RUNS, over=over)
        for line, run in zip(ax.lines, RUNS.values(), strict=True):
            assert np.array_equal(line.get_xdata(), getattr(run, along)) and np.array_equal(
                line.get_ydata(), run.losses
            )
        assert [text.get_text() for text in ax.get_legend().get_texts()] == list(RUNS)
        assert ax.get_yscale() == "log"
    assert pplab.picture(ax, alt="curves").png[:4] == b"\x89PNG"


def test_curves_refuse_what_cannot_be_drawn():
    for draw in (loss_curves, draw_losses):
        with pytest.raises(ValueError, match="over is 'steps': choose one of time, microbatches"):
            draw(RUNS, over="steps")
        with pytest.raises(ValueError, match="there are 0 runs: give 1 to 6"):
            draw({})
        with pytest.raises(ValueError, match="there are 7 runs"):
            draw({str(n): WILD for n in range(7)})
        with pytest.raises(ValueError, match="look is 'grey': choose 'light' or 'dark'"):
            draw(RUNS, look="grey")
    with pytest.raises(ValueError, match="width is 399: a picture needs 400 pixels"):
        loss_curves(RUNS, width=399)


# ── The explorer ──────────────────────────────────────────────────────────────────────────────────────────────────


def test_the_explorer_shows_what_train_gives():
    x = explorer(target=0.3)
    x.modes["2bw"].value = True
    for move in (lambda: None, lambda: setattr(x.devices, "value", 2), lambda: setattr(x.rate, "value", 0.5)):
        move()
        options = OPTIONS | {"num_devices": x.devices.value, "learning_rate": x.rate.value}
        runs = {mode: train(MODEL, X, Y, mode, **options) for mode in MODES}
        assert x.picture.value == loss_curves(runs)
        rows = cells(x.numbers.value)[1:]
        assert [row[0] for row in rows] == list(MODES) == list(x.runs)
        for row, run in zip(rows, runs.values(), strict=True):
            assert (row[1], float(row[2])) == (str(len(run.losses) - 1), run.times[-1])
            assert row[6:] == [", ".join(map(str, a)) for a in (run.staleness.max(axis=1), run.versions_held)]
            assert row[4] == f"{run.losses[-1]:.3g}"
            n = 8 // int(run.microbatches[1])  # losses in a pass
            hit = [run.times[u] for u in range(n - 1, len(run.losses)) if run.losses[u - n + 1 : u + 1].mean() <= 0.3]
            assert row[5] == (f"{hit[0]:g}" if hit else "not reached")
    x.over.value = "microbatches"
    assert x.picture.value == loss_curves(runs, "microbatches")


def test_the_bubble_in_the_table_is_the_formula():
    """(D − 1)/(M + D − 1), with M the micro-batches of a step, or of the whole run."""
    rows = cells(explorer().numbers.value)[1:]
    assert [row[3] for row in rows] == [f"{2 / 10:.1%}", *[f"{2 / 26:.1%}"] * 3]


def test_two_passes_with_a_flush_and_without_stand_on_one_axis():
    """Lengths are 2(M + D − 1) and 2M + D − 1 slots of F + B; without a flush nothing idles between ramp and drain."""
    x = explorer()
    for d in (3, 1, 6):
        x.devices.value = d
        lengths = [3 * 2 * (8 + d - 1), 3 * (16 + d - 1)]
        assert [pplab.makespan(t) for t in x.timelines] == lengths
        pictures = [item["html"] for item in x.player.shown["items"]]
        for html, t, bubble in zip(pictures, x.timelines, (1 - 48 / length for length in lengths), strict=True):
            assert pplab.svg.describe(t) in unescape(html)
            said = f"bubble {bubble:.1%} · at most {d} micro-batches in flight · {2 * 16 * (d - 1)} messages"
            assert said in html
        assert f"pipedream: bubble 0.0% from {d + 2 * (d - 1)} to 48" in pictures[1]
        wide = [float(re.search(r'<rect class="lane"[^>]*width="([\d.]+)"', html)[1]) for html in pictures]
        assert wide[1] / wide[0] == pytest.approx(lengths[1] / lengths[0], rel=1e-3)  # one axis for both
    gap = 3 * (
        6 - 1
    )  # of the flush, on each of the 6 devices: all that idles between the first ramp and the last drain
    assert f"flushed: bubble {gap / (2 * 24 + gap - (6 + 2 * 5)):.1%} from 16 to {48 + gap}" in pictures[0]


def test_the_table_says_where_a_run_diverges():
    x = explorer(passes=60, learning_rate=1.0)
    for row, run in zip(cells(x.numbers.value)[1:], x.runs.values(), strict=True):
        assert (row[4] == "diverges") == (run.losses[-1] >= 1e3 * run.losses[0]) == run.diverged
    assert x.runs["vertical"].diverged and not x.runs["synchronous"].diverged


def test_modes_can_be_switched_off_to_the_last():
    x = explorer()
    for mode in MODES:
        x.modes[mode].value = False
        assert mode not in x.runs
    assert x.picture.value == "" and "no mode is switched on: tick one or more" in x.numbers.value
    x.modes["stashed"].value = True
    assert list(x.runs) == ["stashed"] and "<svg" in x.picture.value


def test_controls_reach_as_far_as_the_problem_and_stop_the_rest():
    assert explorer().devices.max == 6  # the model has six layers
    assert explorer(num_microbatches=4).devices.max == 4  # 2bw needs one micro-batch a device
    assert isinstance(explorer(), ipywidgets.VBox) and "run this cell" in repr(explorer())
    for options, says in (
        (dict(num_devices=7), "devices D is 7: give a whole number from 1 to 6"),
        (dict(learning_rate=3.0), "learning rate is 3.0: give a number from 0.05 to 2"),
        (dict(num_microbatches=5), "does not split into 5 equal micro-batches"),
        (dict(passes=0), "passes is 0"),
    ):
        with pytest.raises(ValueError, match=says):
            explorer(**options)
    with pytest.raises(TypeError, match="None is not a model"):
        explore_asynchronous(None, X, Y)
