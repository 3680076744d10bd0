"""The explorers, moved from code: what they show is what pplab's functions give, and controls follow each other."""

import re
import xml.etree.ElementTree as ET
from html import escape, unescape

import ipywidgets
import numpy as np
import pytest
from anywidget import AnyWidget
from hypothesis import given
from hypothesis import strategies as st
from reference import examples

import pplab
from pplab import Costs, bars, bubble_fraction, makespan, peak_in_flight, simulate, svg
from pplab.batching import BatchLayout, batch_layouts, frontier
from pplab.hardware import ACCELERATORS, LINKS, layer_times, naive_split, stage_and_message_time
from pplab.model import MODELS
from pplab.numeric import MLP, MODES
from pplab.partition import Partition, optimal, uniform
from pplab.widgets import (
    Explorer,
    explore,
    explore_asynchronous,
    explore_batches,
    explore_cuts,
    explore_layout,
    explore_links,
    explore_memory,
    explore_runs,
)
from pplab.widgets.batches import layouts_table
from pplab.widgets.controls import choice, number, set_range
from pplab.widgets.cuts import pushed
from pplab.widgets.tables import milliseconds

# a number box belongs to its slider
MOVED = (ipywidgets.IntSlider, ipywidgets.FloatSlider, ipywidgets.Dropdown, ipywidgets.Checkbox)
BOXES = (ipywidgets.BoundedIntText, ipywidgets.BoundedFloatText)
MAKERS = [lambda: explore("gpipe", "1f1b"), explore_cuts, explore_links, explore_batches]
NAMES = ["schedules", "cuts", "links", "batches"]
SIZES = ["devices D", "micro-batches M"]
BLOCKING, RECOMPUTE = "a hop keeps both devices busy", "recompute: run each forward again before its backward"
SPLIT = "sequence parallel: tensor ranks share norms and dropouts too"


def cells(html):
    """The texts of a table's cells, a list a row, the heading first."""
    rows = re.findall(r"<tr[^>]*>(.*?)</tr>", html)
    return [[unescape(cell) for cell in re.findall(r"<t[dh][^>]*>(.*?)</t[dh]>", row)] for row in rows]


def all_widgets(widget):
    """A widget and all within it."""
    return [widget, *(deep for child in getattr(widget, "children", ()) for deep in all_widgets(child))]


# ── All explorers ─────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("make", MAKERS, ids=NAMES)
def test_every_control_has_a_visible_label_and_numbers_have_a_box(make):
    widgets = all_widgets(make())
    sliders = [x for x in widgets if isinstance(x, (ipywidgets.IntSlider, ipywidgets.FloatSlider))]
    boxes = [x for x in widgets if isinstance(x, (ipywidgets.BoundedIntText, ipywidgets.BoundedFloatText))]
    assert len(sliders) == len(boxes) > 0
    for slider, box in zip(sliders, boxes, strict=True):
        assert (slider.value, slider.min, slider.max) == (box.value, box.min, box.max)
    for control in widgets:
        if isinstance(control, (ipywidgets.IntSlider, ipywidgets.FloatSlider, ipywidgets.Dropdown, ipywidgets.Button)):
            assert control.description
    assert len({s.description for s in sliders}) == len(sliders)


def train_something():
    draw = np.random.default_rng(0)
    return explore_asynchronous(MLP([4] * 4), draw.normal(size=(8, 4)), draw.normal(size=(8, 4)), 2, 4, passes=2)


@pytest.mark.parametrize(
    ("make", "first", "more"),
    [
        (lambda: explore("1f1b"), [*SIZES, "backward : forward", "hop : forward"], [BLOCKING]),
        (
            lambda: explore("zb-h1", "interleaved-1f1b", recompute=True),
            [*SIZES, "chunks V", "hop : forward"],
            ["backward : forward", "weight share of backward", RECOMPUTE, BLOCKING],
        ),
        (explore_batches, ["global batch", "devices a pipeline D", "devices in all"], None),
        (explore_cuts, ["stages D", *(f"stage {k} from layer" for k in (1, 2, 3))], ["model"]),
        (explore_links, ["link", "messages are", "micro-batch size B", "devices D"], ["micro-batches M"]),
        (
            explore_memory,
            [*SIZES, "recomputation", "sequence parallel: they share norms and dropouts too"],
            ["model", "micro-batch size B", "tensor parallel", "bytes a parameter", "accelerator"],
        ),
        (
            explore_layout,
            ["tensor t", "pipeline p", "chunks V", "recomputation"],
            ["model", "nodes of 8 devices", "micro-batch size", SPLIT],
        ),
        (train_something, ["devices D", "learning rate", "loss over"], list(MODES)),
        (
            explore_runs,
            ["schedule", *SIZES, "slower by, %"],
            ["forward, ms", "backward, ms", "slower stage"],
        ),
    ],
    ids=["schedules", "schedules that split", "batches", "cuts", "links", "memory", "layouts", "asynchronous", "runs"],
)
def test_at_most_four_controls_at_first_sight_and_each_has_a_label(make, first, more):
    e = make()
    widgets = all_widgets(e)
    moved = [x.description for x in widgets if isinstance(x, MOVED)]
    assert len(first) <= 4
    if more is None:
        assert moved == first
    else:
        assert at_first_sight(e) == [first, more]
    assert len(set(moved)) == len(moved)
    for x in widgets:  # a box's label is its tooltip, since the words before it are the slider's
        if not isinstance(x, (ipywidgets.Box, ipywidgets.HTML, ipywidgets.IntProgress, AnyWidget)):
            assert x.tooltip.endswith(", as a number") if isinstance(x, BOXES) else x.description.strip()


@pytest.mark.parametrize("make", MAKERS, ids=NAMES)
def test_pictures_are_told_in_words_and_the_table_has_its_class(make):
    shown = [x.value for x in all_widgets(make()) if isinstance(x, ipywidgets.HTML)]
    *pictures, numbers = shown
    for picture in pictures:
        root = ET.fromstring(f"<div>{picture}</div>")[0]
        assert root.get("role") == "img"
        assert len(root.get("aria-label")) > 40
    assert 'class="pplab-numbers"' in numbers
    assert 'role="status"' in numbers


@pytest.mark.parametrize(("make", "what"), list(zip(MAKERS, ["gpipe, 1f1b", *NAMES[1:]], strict=True)), ids=NAMES)
def test_says_in_text_what_it_is(make, what):
    assert repr(make()) == f"[explorer of {what}: run this cell to move its sliders]"


def test_slider_and_box_follow_each_other():
    row, slider = number("devices", 4, 1, 16)
    box = row.children[1]
    box.value = 7
    assert slider.value == 7
    slider.value = 3
    assert box.value == 3
    box.value = 99  # as typed: the box keeps to its range
    assert (slider.value, box.value) == (16, 16)


def test_a_new_range_moves_slider_and_box_together():
    row, slider = number("cut", 3, 1, 5)
    for low, high, value in [(10, 20, 12), (1, 4, 2), (2, 30, 30), (5, 5, 5)]:
        set_range(row, low, high, value)
        assert [(part.min, part.max, part.value) for part in row.children[:2]] == [(low, high, value)] * 2
        assert slider.value == value


@pytest.mark.parametrize("value", [0, 17, -1, 2.5, "4", None, True, float("nan")])
def test_a_bad_number_is_named_with_its_range(value):
    with pytest.raises(ValueError, match=r"^devices is .*: give a whole number from 1 to 16$"):
        number("devices", value, 1, 16)


def test_a_bad_choice_is_named_with_those_there_are():
    with pytest.raises(ValueError, match="link is 'wire': choose one of a, b"):
        choice("link", "wire", ["a", "b"])


@pytest.mark.parametrize(
    ("value", "text"),
    [(0.0, "0 ms"), (2.0132, "2.013 ms"), (999.4, "999.4 ms"), (32441.7, "32442 ms"), (1e6, "1000000 ms")],
)
def test_milliseconds_are_read_without_powers_of_ten(value, text):
    assert milliseconds(value) == text


# ── Schedules ─────────────────────────────────────────────────────────────────────────────────────────────────────


def test_schedules_and_numbers_are_those_of_the_simulator():
    e = explore("gpipe", "1f1b", num_devices=4, num_microbatches=8, recompute=False)
    e.devices.value, e.microbatches.value, e.hop.value, e.ratio.value = 5, 7, 0.5, 1.5
    e.blocking.value = e.recompute.value = True
    costs = Costs(forward=1, backward=2.5, hop=0.5, blocking=True)
    expected = [simulate(pplab.SCHEDULES[name](5, 7), costs) for name in ("gpipe", "1f1b")]
    assert e.timelines == expected
    until = max(map(makespan, expected))
    for html, t in zip(pictures(e), expected, strict=True):
        assert html.startswith(svg.timeline(t, until=until, tooltips=False))
    for row, t in zip(rows(e), expected, strict=True):
        assert (row["schedule"], row["time"]) == (t.schedule.name, f"{makespan(t):.5g}")
        assert row["bubble, simulated"] == f"{bubble_fraction(t):.1%}"
        assert row[HELD] == ", ".join(map(str, peak_in_flight(t)))
        assert row[SENT] == "56: 7, 14, 14, 14, 7"  # 2M(D − 1)


HELD = "micro-batches in flight on device 0, 1, …, at most"
SENT = "messages, and how many device 0, 1, … sends"
SPAN = "bubble over the longest span"


def rows(e):
    """The explorer's numbers, a dictionary a schedule shown."""
    head, *lines = cells(e.numbers.value)
    return [dict(zip(head, line, strict=True)) for line in lines]


def pictures(e):
    """What the explorer's player shows, a piece of HTML a schedule."""
    return [item["html"] for item in e.player.shown["items"]]


def at_first_sight(e):
    """The labels of the controls outside "more", and of those in it, which its button shows and hides."""
    place = next(i for i, x in enumerate(e.children) if isinstance(x, ipywidgets.ToggleButton))
    button, box = e.children[place : place + 2]
    assert (button.description, button.value, box.layout.display) == ("more", False, "none")
    button.value = True
    assert box.layout.display == ""
    button.value = False
    assert box.layout.display == "none"
    outside = [x for row in (*e.children[:place], *e.children[place + 2 :]) for x in all_widgets(row)]
    return [[x.description for x in group if isinstance(x, MOVED)] for group in (outside, all_widgets(box))]


def test_any_number_of_schedules_share_an_axis():
    e = explore("gpipe", "1f1b", "interleaved-1f1b", num_devices=4, num_microbatches=8, hop=0.5)
    until = max(map(makespan, e.timelines))
    assert [t.schedule.name for t in e.timelines] == ["gpipe", "1f1b", "interleaved-1f1b"]
    for html, t in zip(pictures(e), e.timelines, strict=True):
        assert html.startswith(svg.timeline(t, until=until, tooltips=False))


def test_chunks_share_a_devices_work_and_each_picture_has_its_numbers():
    """D = 4, M = 8, V = 2: bubble (D − 1)/(VM + D − 1), 5.5 micro-batches (E25), 2M(VD − 1) messages (E13)."""
    e = explore("1f1b", "interleaved-1f1b", num_devices=4, num_microbatches=8)
    assert makespan(e.timelines[0]) == 33
    assert makespan(e.timelines[1]) == 24 + 3 * 3 / 2
    assert ">bubble 27.3% · at most 4 micro-batches in flight · 48 messages" in pictures(e)[0]
    assert ">V = 2 · bubble 15.8% · at most 5.5 micro-batches in flight · 112 messages" in pictures(e)[1]
    assert [row["bubble, formula"] for row in rows(e)] == ["27.3%", "15.8%"]
    assert rows(e)[1][HELD] == "5.5, 4.5, 3.5, 2.5"
    e.chunks.value = 4
    assert rows(e)[1]["bubble, simulated"] == f"{3 / 35:.1%}"
    assert makespan(e.timelines[0]) == 33  # V is none of its business


@pytest.mark.parametrize(
    ("names", "given", "chunks"),
    [
        (("interleaved-1f1b",), None, 2),
        (("zb-h1",), None, 1),
        (("zb-h1", "interleaved-1f1b"), None, 2),
        (("zb-h1",), 3, 3),
    ],
)
def test_v_begins_as_the_schedules_have_it_or_as_told(names, given, chunks):
    e = explore(*names, num_chunks=given)
    assert e.chunks.value == chunks
    assert [t.schedule.num_stages for t in e.timelines] == [4 * chunks] * len(names)


def test_recompute_is_at_hand_where_it_is_asked_for():
    assert RECOMPUTE in at_first_sight(explore("gpipe", recompute=False))[0]
    assert RECOMPUTE in at_first_sight(explore("interleaved-1f1b", recompute=False))[1]
    assert all(RECOMPUTE not in group for group in at_first_sight(explore("gpipe")))


def test_sizes_that_a_schedule_refuses_get_its_words(monkeypatch):
    def even(num_devices, num_microbatches, num_chunks=1):
        if num_devices % 2:
            raise ValueError(f"even needs an even number of devices, not {num_devices} <odd>")
        return pplab.one_f_one_b(num_devices, num_microbatches)

    monkeypatch.setitem(pplab.SCHEDULES, "even", even)
    e = explore("gpipe", "even", num_devices=5)
    assert [t.schedule.name for t in e.timelines] == ["gpipe"]
    assert "even: even needs an even number of devices, not 5 &lt;odd&gt;" in pictures(e)[1]
    assert "svg" not in pictures(e)[1]
    assert len(rows(e)) == 1
    e.devices.value = 6
    assert len(e.timelines) == len(rows(e)) == 2
    alone = explore("even", num_devices=5)
    assert (alone.timelines, alone.numbers.value) == ([], "")


def test_the_span_is_shown_where_it_differs_or_is_asked_for(monkeypatch):
    assert SPAN not in rows(explore("1f1b"))[0]
    assert rows(explore("1f1b", over="span"))[0][SPAN] == "27.3%"
    ahead = ["0F0 0F1 0F2 0I0 0W0 0I1 0W1 0I2 0W2", "1F0 1I0 1F1 1I1 1F2 1I2 1W0 1W1 1W2"]  # 0 to 9, and 1 to 10
    monkeypatch.setitem(pplab.SCHEDULES, "ahead", lambda d, m, num_chunks=1: pplab.Schedule(ahead, name="ahead"))
    shown = rows(explore("1f1b", "ahead"))
    assert [(row["bubble, simulated"], row[SPAN]) for row in shown] == [("27.3%", "27.3%"), ("10.0%", "0.0%")]
    assert shown[1]["bubble, formula"] == "–"
    with pytest.raises(ValueError, match="over is 'all': choose 'makespan' or 'span'"):
        explore("1f1b", over="all")


def test_a_split_backward_gets_its_share(monkeypatch):
    split = lambda d, m, num_chunks=1: pplab.Schedule(["0F0 0I0 0W0"], name="split")  # noqa: E731
    monkeypatch.setitem(pplab.SCHEDULES, "split", split)
    e = explore("split", ratio=4.0, recompute=True)
    assert "weight share of backward" in at_first_sight(e)[1]
    e.weight_share.value = 0.25
    t = e.timelines[0]
    assert (t.end - t.start).tolist() == [1, 3 + 1, 1]  # the forward that runs again stands before I


@pytest.mark.parametrize("name", pplab.SCHEDULES)
def test_every_named_schedule_can_be_explored(name):
    """At its own sizes it is shown; at others it is shown or says why not."""
    e = explore(name, num_devices=4, num_microbatches=8)
    assert [t.schedule.name for t in e.timelines] == [name]
    for e.devices.value, e.microbatches.value in [(1, 1), (5, 3), (3, 8)]:
        assert len(e.timelines) == 1 or f"{name}: " in pictures(e)[0]


@pytest.mark.parametrize("names", [(), ("gpip",), ("1f1b", "nothing"), (["1f1b"],), (5,)])
def test_explore_needs_schedules_that_there_are(names):
    with pytest.raises(ValueError, match="explore needs schedules out of naive, gpipe"):
        Explorer(*names)


def test_explore_says_where_chunks_are_no_choice():
    with pytest.raises(ValueError, match="num_chunks is 3, but zb-v leave no choice: leave it out"):
        Explorer("zb-v", num_chunks=3)


@pytest.mark.parametrize("sizes", [{"num_devices": 17}, {"num_microbatches": 0}, {"hop": 2.5}, {"ratio": 0.1}])
def test_explore_refuses_sizes_out_of_reach(sizes):
    with pytest.raises(ValueError, match=r"give a (whole )?number from"):
        explore("1f1b", **sizes)


# ── Cuts ──────────────────────────────────────────────────────────────────────────────────────────────────────────


def priced_layers(model, micro_batch_size=1):
    return 1e3 * layer_times(MODELS[model], ACCELERATORS["A100 80GB"], micro_batch_size, efficiency=0.5)


def expect_cuts(e, sizes, num_microbatches=8):
    """That the explorer shows these sizes, on its sliders, in its pictures and in its numbers."""
    p = Partition(sizes, tuple(priced_layers(e.model.value)))
    assert e.partition == p
    assert [cut.value for cut in e.cuts[: p.num_stages - 1]] == list(p.bounds[1:-1])
    assert len(e._cuts_box.children) == p.num_stages - 1
    costs = Costs(forward=p.stage_times, backward=2 * p.stage_times)
    t = simulate(pplab.one_f_one_b(p.num_stages, num_microbatches), costs)
    assert e.timeline == t
    assert pictures(e)[0].startswith(svg.timeline(t, title="1f1b with these stages, milliseconds", tooltips=False))
    assert cells(e.numbers.value)[1] == [
        f"stage {p.stage_times.argmax()}: {milliseconds(p.slowest)}",
        milliseconds(p.stage_times.mean()),
        milliseconds(makespan(t)),
        f"{bubble_fraction(t):.1%}",
        milliseconds(pplab.idle_by_reason(t)["slower stage"].sum()),
    ]
    assert all(f"stage {k}: {time:.4g} ms" in e.bars.value for k, time in enumerate(p.stage_times))


def test_cuts_begin_with_blocks_shared_out_evenly():
    e = explore_cuts()
    assert naive_split(MODELS["Llama-3 8B"], 4) == (9, 8, 8, 9)
    expect_cuts(e, (9, 8, 8, 9))
    assert "Llama-3 8B: forward of each stage" in e.bars.value
    assert "embedding to block 7" in e.bars.value
    assert "block 24 to head" in e.bars.value


def test_a_cut_pushes_its_neighbours():
    e = explore_cuts(num_stages=4)  # 34 layers
    e.cuts[0].value = 30
    expect_cuts(e, (30, 1, 1, 2))
    e.cuts[2].value = 3
    expect_cuts(e, (1, 1, 1, 31))
    e.cuts[1].value = 32
    expect_cuts(e, (1, 31, 1, 1))
    e._rows[1].children[1].value = 99  # typed: kept to what leaves the later stages a layer
    expect_cuts(e, (1, 31, 1, 1))


@given(st.integers(2, 8), st.data())
@examples(60)
def test_pushed_cuts_stay_in_order(stages, data):
    """Any cut, moved anywhere that its slider reaches; the others move no farther than they must."""
    layers = data.draw(st.integers(stages, 40))
    inner = st.lists(st.integers(1, layers - 1), min_size=stages - 1, max_size=stages - 1, unique=True)
    before = sorted(data.draw(inner))
    place = data.draw(st.integers(0, stages - 2))
    cuts = list(before)
    cuts[place] = data.draw(st.integers(place + 1, layers - stages + 1 + place))
    after = pushed(cuts, place)
    assert after[place] == cuts[place]
    assert min(np.diff([0, *after, layers])) >= 1
    for k, (a, b) in enumerate(zip(before, after, strict=True)):
        if k != place and a != b:
            assert b == cuts[place] + k - place


def test_buttons_set_the_cuts():
    e = explore_cuts()
    e.uniform.click()
    expect_cuts(e, uniform(34, 4))
    e.best.click()
    expect_cuts(e, optimal(priced_layers("Llama-3 8B"), 4).sizes)
    assert e.partition.slowest < Partition((9, 8, 8, 9), e.partition.times).slowest


def test_another_model_or_number_of_stages_starts_anew():
    e = explore_cuts(num_stages=2, num_microbatches=3)
    for model, stages in [("GPT-3 175B", 2), ("GPT-3 175B", 8), ("Llama-3 8B", 8), ("Llama-3 8B", 5), ("GPT 1T", 5)]:
        e.model.value, e.stages.value = model, stages
        expect_cuts(e, naive_split(MODELS[model], stages), num_microbatches=3)
        e.cuts[stages - 2].value -= 5


def test_each_cut_leaves_every_stage_a_layer_at_its_ends():
    e = explore_cuts(num_stages=8)
    for cut in e.cuts:
        for value in (cut.min, cut.max):
            cut.value = value
            assert min(e.partition.sizes) >= 1


@pytest.mark.parametrize(
    ("sizes", "says"),
    [
        ({"model": "GPT-9"}, "model is 'GPT-9': choose one of GPT-3 175B"),
        ({"num_stages": 9}, "stages D is 9: give a whole number from 2 to 8"),
        ({"num_stages": 1}, "stages D is 1"),
        ({"num_microbatches": 0}, "num_microbatches is 0"),
        ({"accelerator": "abacus"}, "no accelerator is called 'abacus'; known are: V100"),
        ({"efficiency": 0}, "efficiency is 0"),
        ({"micro_batch_size": 1.5}, "micro_batch_size is 1.5"),
    ],
)
def test_cuts_refuse_bad_starts(sizes, says):
    with pytest.raises(ValueError, match=re.escape(says)):
        explore_cuts(**sizes)


# ── Links ─────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_stage_and_message_by_hand():
    """A stage of GPT-3 on 8 · 8 A100s: 12 blocks of 24·B·T·H²(1 + T/(6H)) FLOPs; B · T · H · 2 bytes over 25 GB/s."""
    found = stage_and_message_time(
        MODELS["GPT-3 175B"],
        ACCELERATORS["A100 80GB"],
        LINKS["InfiniBand HDR"],
        8,
        4,
        efficiency=0.5,
        tensor_parallel=8,
    )
    flops = 24 * 4 * 2048 * 12288**2 * (1 + 2048 / (6 * 12288))
    assert found.forward == pytest.approx(12 * flops / (0.5 * 312e12) / 8)
    assert found.message == 4 * 2048 * 12288 * 2 / 25e9
    assert found.ratio == found.message / found.forward
    assert found.hides
    times = priced_layers("GPT-3 175B", 4)[1:-1]
    assert 1e3 * found.forward == pytest.approx(times.sum() / 64)
    with pytest.raises(ValueError, match="num_devices is 97, but GPT-3 175B has 96 blocks"):
        stage_and_message_time(MODELS["GPT-3 175B"], ACCELERATORS["H100"], LINKS["NVLink 4"], 97, efficiency=0.5)


@pytest.mark.parametrize(
    ("sending", "way"),
    [("overlapped", {}), ("links: one message at a time", {"links": True}), ("blocking", {"blocking": True})],
)
def test_links_show_what_the_simulator_gives(sending, way):
    e = explore_links()
    e.sending.value, e.link.value, e.micro_batch_size.value = sending, "Ethernet 100", 2
    e.devices.value, e.microbatches.value = 5, 9
    times = stage_and_message_time(
        MODELS["GPT-3 175B"], ACCELERATORS["A100 80GB"], LINKS["Ethernet 100"], 5, 2, efficiency=0.5, tensor_parallel=8
    )
    forward, message = 1e3 * times.forward, 1e3 * times.message
    s = pplab.one_f_one_b(5, 9)
    t = simulate(s, Costs(forward=forward, backward=2 * forward, hop=message, **way))
    free = simulate(s, Costs(forward=forward, backward=2 * forward))
    assert (e.times, e.timeline, e.free) == (times, t, free)
    assert pictures(e)[0].startswith(svg.timeline(t, title="1f1b over Ethernet 100, milliseconds", tooltips=False))
    assert cells(e.numbers.value)[1] == [
        milliseconds(forward),
        milliseconds(message),
        f"{times.ratio:.3g}",
        "yes, it can hide",
        milliseconds(makespan(t)),
        milliseconds(makespan(free)),
        f"{makespan(t) / makespan(free):.3f} ×",
        f"{bubble_fraction(t):.1%}",
    ]


def test_a_message_longer_than_the_forward_cannot_hide():
    e = explore_links("Llama-3 8B", 16, link="Ethernet 100", tensor_parallel=16)
    assert e.times.ratio > 1
    assert "no, it cannot hide" in cells(e.numbers.value)[1]


@pytest.mark.parametrize(
    ("sizes", "says"),
    [
        ({"model": "GPT-9"}, "no model is called 'GPT-9'"),
        ({"link": "string"}, "link is 'string': choose one of NVLink 2"),
        ({"num_devices": 17}, "devices D is 17: give a whole number from 1 to 16"),
        ({"num_microbatches": 65}, "micro-batches M is 65"),
        ({"micro_batch_size": 0}, "micro-batch size B is 0"),
        ({"tensor_parallel": 0}, "tensor_parallel is 0"),
        ({"efficiency": 2}, "efficiency is 2"),
    ],
)
def test_links_refuse_bad_starts(sizes, says):
    with pytest.raises(ValueError, match=re.escape(says)):
        explore_links(**sizes)


# ── Batches ───────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("sizes", [(512, 8, 64), (64, 4, 4), (360, 7, 700), (8, 1, 8), (1, 32, 32)])
def test_the_quick_way_of_1f1b_is_what_the_simulator_gives(sizes):
    quick, simulated = batch_layouts(*sizes), batch_layouts(*sizes, costs=Costs())
    assert quick == simulated


@given(st.integers(1, 80), st.integers(1, 6), st.integers(1, 60), st.sampled_from(["1f1b", "gpipe"]))
@examples(40)
def test_the_frontier_is_what_its_words_say(batch, d, pipelines, schedule):
    layouts = batch_layouts(batch, d, d * pipelines, schedule=schedule)
    best = frontier(layouts)
    assert best == frontier(reversed(layouts))
    assert [row.bubble for row in best] == sorted(row.bubble for row in best)
    for row in layouts:
        both = any(o.bubble < row.bubble and o.activation_bytes < row.activation_bytes for o in layouts)
        own = np.array([row.bubble, row.activation_bytes, -row.num_replicas])
        others = np.array([(o.bubble, o.activation_bytes, -o.num_replicas) for o in layouts])
        beaten = both or ((others <= own).all(axis=1) & (others < own).any(axis=1)).any()
        assert (row in best) == (not beaten)


def test_the_frontier_by_hand():
    """512 sequences on 8 devices: B = 1 holds least, and the more replicas share them, the larger the bubble."""
    best = frontier(batch_layouts(512, 8, 64))
    assert [row[:3] for row in best] == [(512, 1, 1), (256, 1, 2), (128, 1, 4), (64, 1, 8)]
    assert frontier([]) == []


@pytest.mark.parametrize(("batch", "devices", "total"), [(512, 8, 64), (96, 4, 4096), (2520, 16, 512), (8, 1, 1)])
def test_batches_show_the_layouts(batch, devices, total):
    e = explore_batches()
    e.total_devices.value, e.global_batch.value, e.devices.value = total, batch, devices
    layouts = batch_layouts(batch, devices, total, seq_len=2048, hidden_size=12288)
    best = frontier(layouts)
    assert (e.layouts, e.frontier) == (layouts, best)
    assert e.picture.value == bars.batch_scatter(layouts)
    assert e.numbers.value == layouts_table(layouts, best)
    rows = cells(e.numbers.value)[1:]
    assert len(rows) == min(20, len(layouts))
    expected = [*best, *(row for row in layouts if row not in best)][:20]
    for shown, row in zip(rows, expected, strict=True):
        gigabytes = f"{row.activation_bytes / 1e9:.4g} GB"
        assert shown[:3] == [str(size) for size in row[:3]]
        assert shown[3:6] == [f"{row.bubble:.1%}", str(row.in_flight), gigabytes]
        assert shown[6] == ("on the frontier" if row in best else "")
    assert e.numbers.value.count("font-weight:bold") == min(20, len(best))


def test_too_few_devices_are_told_in_place_of_the_table():
    e = explore_batches(total_devices=4)
    assert (e.layouts, e.frontier, e.picture.value) == ([], [], "")
    with pytest.raises(ValueError, match="too few") as error:
        batch_layouts(512, 8, 4)
    assert escape(str(error.value)) in e.numbers.value
    assert 'class="pplab-numbers" role="status"' in e.numbers.value
    e.total_devices.value = 8
    assert e.layouts
    assert "<svg" in e.picture.value


@pytest.mark.parametrize(
    ("sizes", "says"),
    [
        ({"global_batch": 4}, "global batch is 4: give a whole number from 8 to 4096"),
        ({"num_devices": 33}, "devices a pipeline D is 33"),
        ({"total_devices": 0}, "devices in all is 0"),
        ({"seq_len": 0}, "seq_len is 0"),
        ({"hidden_size": -1}, "hidden_size is -1"),
    ],
)
def test_batches_refuse_bad_starts(sizes, says):
    with pytest.raises(ValueError, match=re.escape(says)):
        explore_batches(**sizes)


# ── Pictures ──────────────────────────────────────────────────────────────────────────────────────────────────────

LAYOUTS = batch_layouts(512, 8, 64, seq_len=2048, hidden_size=12288)


@pytest.mark.parametrize("look", ["auto", "light", "dark"])
def test_bars_say_in_words_what_they_show(look):
    root = ET.fromstring(bars.stage_bars([1.0, 2.0, 1.5], ["a", "b < c", "d"], "ms", look=look, title="forwards"))
    assert root.get("role") == "img"
    assert root.get("aria-label") == (
        "Bar chart of forwards: stage 0 1 ms, a; stage 1 2 ms, slowest, b < c; stage 2 1.5 ms, d; mean (dashed): 1.5 ms"
    )


def test_bars_are_as_long_as_their_times_and_the_slowest_is_crossed():
    root = ET.fromstring(bars.stage_bars([1.0, 2.0, 1.5]))
    rects = list(root.iter("{http://www.w3.org/2000/svg}rect"))
    wide = [float(r.get("width")) for r in rects if r.get("class") == "F"]
    assert wide == pytest.approx([wide[1] / 2, wide[1], wide[1] * 0.75])
    crossed = [r for r in rects if r.get("class") == "Cp"]
    assert [float(r.get("width")) for r in crossed] == [wide[1]]


def test_of_equal_stages_none_is_the_slowest():
    assert bars.slowest_stages([2.0, 2.0 * (1 + 1e-12)]).tolist() == [False, False]
    assert bars.slowest_stages([2.0, 2.0, 1.0]).tolist() == [True, True, False]
    assert "slowest" not in bars.stage_bars([3.0, 3.0])
    ET.fromstring(bars.stage_bars([0.0]))


@pytest.mark.parametrize("times", [[], [1.0, -1.0], [float("nan")], [[1.0]]])
def test_bars_refuse_times_that_are_none(times):
    with pytest.raises(ValueError, match=r"stage_times is .*give one finite time of 0 or more a stage"):
        bars.stage_bars(times)


def test_bars_refuse_notes_that_do_not_fit_and_unknown_looks():
    with pytest.raises(ValueError, match="there are 1 notes for 2 stages"):
        bars.stage_bars([1.0, 2.0], ["a"])
    with pytest.raises(ValueError, match="choose 'light' or 'dark'"):
        bars.stage_bars([1.0], look="blue")
    with pytest.raises(ValueError, match="layouts is empty"):
        bars.batch_scatter([])


@pytest.mark.parametrize("look", ["auto", "light", "dark"])
def test_the_scatter_has_a_mark_a_layout_and_says_the_frontier(look):
    root = ET.fromstring(bars.batch_scatter(LAYOUTS, look=look))
    titles = [e.text for e in root.iter("{http://www.w3.org/2000/svg}title")]
    assert len(titles) == len(set(titles)) == len(LAYOUTS)
    assert root.get("aria-label").startswith("Scatter of 34 batch layouts, bubble against activation bytes; on the fr")
    assert "M 512, B 1, R 1: bubble 1.3%, 0.403 GB; M 256, B 1, R 2" in root.get("aria-label")


def test_the_scatter_takes_layouts_of_one_place_and_bubbles_of_0():
    for layouts in ([LAYOUTS[0]], batch_layouts(8, 1, 8), [BatchLayout(1, 1, 1, 0.0, 1, 2), LAYOUTS[0]]):
        picture = bars.batch_scatter(layouts)
        ET.fromstring(picture)
        assert "nan" not in picture.replace("nance", "")


def test_a_cut_that_is_not_shown_moves_nothing():
    e = explore_cuts()
    e.stages.value = 2
    before = e.partition
    e.cuts[2].value += 1
    assert e.partition == before


@pytest.mark.parametrize("sizes", [[99], [0], [2.5], [-1], ["2"]])
def test_a_page_has_only_sizes_that_the_controls_reach(sizes):
    with pytest.raises(ValueError, match=r"num_devices is .*: give whole numbers from 1 to 16"):
        explore("1f1b").to_html(num_devices=sizes, num_microbatches=[8])
