"""The SVG picture: well formed, told in words, a box an op, and labels while they fit."""

import base64
import re
import xml.etree.ElementTree as ET
from html import unescape

import numpy as np
import pytest
from hypothesis import given
from reference import examples, priced

import pplab
from pplab import Costs, Schedule, Timeline, makespan, simulate, svg

NS = "{http://www.w3.org/2000/svg}"
T = simulate(pplab.one_f_one_b(4, 8))
LEFT, RIGHT = 74, 12  # pixels left of the time axis and right of it


def drawn_boxes(root):
    """The boxes with a tooltip: class, left end, width, top, height."""
    boxes = [g.find(f"{NS}rect") for g in root.iter(f"{NS}g") if g.find(f"{NS}title") is not None]
    return [(b.get("class"), *(float(b.get(k)) for k in ("x", "width", "y", "height"))) for b in boxes]


def labels(root):
    """Class and text of the micro-batch numbers."""
    return [(e.get("class"), e.text) for e in root.iter(f"{NS}text") if e.get("class") in ("Ft", "Bt", "It", "Wt")]


@pytest.mark.parametrize("look", ["auto", "light", "dark"])
def test_is_well_formed_and_says_in_words_what_it_shows(look):
    root = ET.fromstring(svg.timeline(T, look=look))
    assert root.tag == f"{NS}svg"
    assert root.get("role") == "img"
    assert root.get("aria-label") == (
        "Simulated timeline of 1f1b: 4 devices as rows, 8 micro-batches, 33 long, 27.3% of it idle; "
        "at most 4, 3, 2, 1 in flight on the devices in turn"
    )


def test_a_box_an_op_where_its_time_says():
    root = ET.fromstring(svg.timeline(T, width=LEFT + RIGHT + 660))  # 20 pixels a slot
    boxes = drawn_boxes(root)
    by_kind = [span for kind in "FBIW" for span in T if span.kind == kind]
    assert len(boxes) == len(T) == 64
    for (kind, x, width, _, _), span in zip(boxes, by_kind, strict=True):
        assert kind == span.kind
        assert x == pytest.approx(LEFT + 20 * span.start)
        assert width == pytest.approx(20 * (span.end - span.start) - 1)  # a gap of one pixel
    tops = {span.device: y for (_, _, _, y, _), span in zip(boxes, by_kind, strict=True)}
    assert list(np.argsort([tops[d] for d in range(4)])) == [0, 1, 2, 3]


def test_tooltips_name_op_and_times():
    titles = [e.text for e in ET.fromstring(svg.timeline(T)).iter(f"{NS}title")]
    assert titles[0] == "0F0: forward of micro-batch 0 on stage 0, 0 to 1"
    assert len(set(titles)) == len(T)


def test_idle_time_is_the_bare_lane_of_the_steps_length():
    root = ET.fromstring(svg.timeline(T, width=LEFT + RIGHT + 660, until=66))
    lanes = [e for e in root.iter(f"{NS}rect") if e.get("class") == "lane"]
    assert [float(e.get("width")) for e in lanes] == [330] * 4


@pytest.mark.parametrize(("d", "m", "many"), [(4, 250, False), (4, 251, True), (64, 64, True)])
def test_above_2000_ops_one_path_a_kind(d, m, many):
    t = simulate(pplab.one_f_one_b(d, m))
    root = ET.fromstring(svg.timeline(t))
    assert (len(t) > 2000) is many
    paths = {p.get("class"): p.get("d") for p in root.iter(f"{NS}path") if p.get("class") in ("F", "B")}
    if many:
        assert not drawn_boxes(root)
        assert {kind: path.count("M") for kind, path in paths.items()} == {"F": d * m, "B": d * m}
    else:
        assert len(drawn_boxes(root)) == 2 * d * m
        assert not paths


def test_labels_are_there_while_they_fit():
    for t, fits in ((T, True), (simulate(pplab.one_f_one_b(4, 200)), False)):
        shown = labels(ET.fromstring(svg.timeline(t)))
        assert sorted(shown) == (sorted((f"{s.kind}t", str(s.microbatch)) for s in t) if fits else [])
    narrow = labels(ET.fromstring(svg.timeline(T, width=300)))
    assert {kind for kind, _ in narrow} == {"Bt"}  # a backward is twice as wide
    low = simulate(pplab.one_f_one_b(64, 4))
    assert not labels(ET.fromstring(svg.timeline(low)))


def test_devices_are_named_while_there_is_room():
    def names(d):
        root = ET.fromstring(svg.timeline(simulate(pplab.gpipe(d, 2))))
        return [e.text for e in root.iter(f"{NS}text") if (e.text or "").startswith("device")]

    assert names(3) == ["device 0", "device 1", "device 2"]
    assert 10 < len(names(64)) < 64


@pytest.mark.parametrize("name", ['<script>alert("1")</script>', "a & b", "\"quoted\" 'name'", "½ × –"])
def test_names_and_titles_are_escaped(name):
    t = simulate(Schedule(["0F0 0B0"], name=name))
    for text in (svg.timeline(t), svg.timeline(T, title=name)):
        root = ET.fromstring(text)
        assert name in [e.text for e in root.iter(f"{NS}text")]
        assert "<script" not in text
    assert f"timeline of {name}:" in ET.fromstring(svg.timeline(t)).get("aria-label")
    html = svg.as_image(t)
    assert "<script" not in html
    assert name in unescape(re.fullmatch(r'<img alt="([^"]*)" src="[^"]*">', html)[1])


def test_looks():
    auto, light, dark = (svg.timeline(T, look=look) for look in ("auto", "light", "dark"))
    for text, page in ((auto, False), (light, True), (dark, True)):
        assert ('class="page"/>' in text) is page
    assert "prefers-color-scheme:dark" in auto
    assert '[data-jp-theme-light="false"]' in auto
    for text in (light, dark):
        assert "prefers-color-scheme" not in text
        assert "data-jp-theme" not in text
    assert "--page:#ffffff" in light
    assert "--page:#ffffff" not in dark
    with pytest.raises(ValueError, match="look is 'blue': choose 'light' or 'dark'"):
        svg.timeline(T, look="blue")


def test_until_stretches_the_axis_and_must_reach_the_end():
    short, long = (drawn_boxes(ET.fromstring(svg.timeline(T, until=u))) for u in (None, 66))
    assert (long[5][1] - LEFT) * 2 == pytest.approx(short[5][1] - LEFT, abs=0.02)
    for until in (32, 0, float("nan"), float("inf")):
        with pytest.raises(ValueError, match=f"until is {until}: the axis must reach to the timeline's end at 33"):
            svg.timeline(T, until=until)


def test_pairs_share_the_height_of_the_row():
    s = Schedule(["0F0 0F1 0B0 0B1"], pairs=[("0F1", "0B0")])
    boxes = drawn_boxes(ET.fromstring(svg.timeline(simulate(s))))
    (_, x, w, y, h), (_, x2, w2, y2, h2) = boxes[1], boxes[2]
    assert (x, w, h) == (x2, w2, h2)
    assert y2 == pytest.approx(y + h, abs=0.02)
    assert boxes[0][4] == pytest.approx(2 * h, abs=0.02)


def test_communication_is_drawn_and_explained_only_where_there_is_some():
    busy, quiet = (svg.timeline(simulate(pplab.gpipe(2, 3), Costs(hop=0.5, blocking=b))) for b in (True, False))
    path = next(e for e in ET.fromstring(busy).iter(f"{NS}path") if e.get("class") == "C")
    assert path.get("d").count("M") == 2 * 2 * 3  # each of 2 · 3 messages at both ends
    assert ">sending or receiving<" in busy
    assert ">sending or receiving<" not in quiet


def test_the_legend_names_the_kinds_that_are_there():
    split = svg.timeline(simulate(Schedule(["0F0 0I0 0W0"])))
    for word in ("forward", "backward for the input", "backward for the weights"):
        assert f">{word}<" in split
    assert ">backward<" not in split


def test_measured_times_may_start_anywhere():
    late = Timeline(T.schedule, T.start + 1000, T.end + 1000, measured=True)
    assert [b[1:3] for b in drawn_boxes(ET.fromstring(svg.timeline(late)))] == [
        b[1:3] for b in drawn_boxes(ET.fromstring(svg.timeline(T)))
    ]
    assert "Measured timeline" in svg.timeline(late)


def test_image_holds_the_picture_and_its_words():
    html = svg.as_image(T)
    data = re.search(r"base64,([^\"]+)", html)[1]
    assert base64.b64decode(data).decode() == svg.timeline(T, look="light")
    assert svg.describe(T) in unescape(html)


@given(priced())
@examples(40)
def test_any_timeline_is_well_formed(case):
    d, prices = case
    t = simulate(d.build(), Costs(**prices._asdict()))
    if makespan(t) > 0:
        root = ET.fromstring(svg.timeline(t))
        assert len(drawn_boxes(root)) == len(t)
        assert "nan" not in svg.timeline(t).lower().replace("finance", "")
