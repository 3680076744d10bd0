"""The frontier of memory and bubble: points from closed forms, curves that never rise, a picture that can be read."""

import numpy as np
import pytest

import pplab
from pplab.frontier import Frontier

D, M = 4, 8


@pytest.fixture(scope="module")
def found() -> Frontier:
    return pplab.frontier(None, D, M)


def test_named_points_are_those_of_the_papers(found):
    """Memory and bubble of each at F = I = W: references.md, sections 1 and 2."""
    points = {point.name: (point.memory, point.bubble) for point in found.named}
    expected = {
        "naive": (1, 1 - 1 / D),
        "gpipe": (M, (D - 1) / (M + D - 1)),
        "1f1b": (D, (D - 1) / (M + D - 1)),
        "interleaved-1f1b": (11 / 2, (D - 1) / (2 * M + D - 1)),
        "zb-h1": (D, (D - 1) / (3 * M + D - 1)),  # (p − 1)(T_F + T_B − T_W)
        "zb-h2": (2 * D - 1, 0),
        "zb-v": (D, 0),
        "dualpipe-v": (9 / 2, 1 - 48 / 54),
    }
    assert {name: points[name] for name in expected} == {k: pytest.approx(v) for k, v in expected.items()}
    memory = {name: points[name][0] for name in ("v-min", "v-half", "dualpipe")}
    assert memory == {"v-min": (D + 4) // 3, "v-half": (D + 2) // 2, "dualpipe": D + 1}
    assert not {"forward-only", "pipedream"} & set(points)  # no whole steps


def test_more_memory_never_costs_bubble_and_limits_hold(found):
    assert set(found.searched) == {(1, "wrap"), (2, "v")}
    for (chunks, _), points in found.searched.items():
        assert [point.memory for point in points] == sorted({point.memory for point in points})
        bubbles = [point.bubble for point in points]
        assert bubbles == sorted(bubbles, reverse=True)
        for point in points:
            costs = pplab.Costs(1 / chunks, 1 / chunks, 1 / chunks)
            t = pplab.simulate(point.schedule, costs)
            assert point.least <= point.bubble == pplab.bubble_fraction(t, over="span")
            assert pplab.peak_in_flight(t).max() / chunks <= point.memory


def test_curves_lie_nowhere_above_a_named_schedule_of_their_shape(found):
    for (chunks, placement), points in found.searched.items():
        for named in found.named:
            same = named.schedule.placement == points[0].schedule.placement and not named.schedule.paired.any()
            within = [point.bubble for point in points if point.memory <= named.memory]
            if same:
                assert min(within) <= named.bubble + 1e-12, (named.name, chunks, placement)


def test_best_named_are_beaten_by_no_other(found):
    assert [point.name for point in found.best_named] == ["naive", "v-min", "v-half", "zb-v"]


def test_costs_are_of_a_whole_device():
    """ZB-H2's and ZB-V's share of the papers' Table 5 times: V stages take 1 / V each, a hop what it takes."""
    costs = pplab.Costs(2.0, 2.5, 1.0, hop=0.25)
    f = pplab.frontier(costs, 2, 4, limits=[2], shapes=[(2, "v")], effort=0)
    for point in f.named:
        fair = pplab.Costs.per_device(point.schedule, forward=2.0, backward_input=2.5, backward_weight=1.0, hop=0.25)
        assert point.bubble == pytest.approx(pplab.bubble_fraction(pplab.simulate(point.schedule, fair), over="span"))
    (point,) = f.searched[2, "v"]
    t = pplab.simulate(point.schedule, pplab.Costs(1.0, 1.25, 0.5, hop=0.25))
    assert pplab.busy_time(t) == pytest.approx(4 * (2 + 2.5 + 1))
    assert point.bubble == pplab.bubble_fraction(t, over="span")


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"costs": pplab.Costs(forward=[1, 2, 3, 4])}, "forward differs by stage, but here .*: give one number"),
        ({"costs": pplab.Costs(hop=[1, 2, 3])}, "hop differs by stage"),
        ({"limits": [0.5]}, r"memory_limit is 0.5 on device 0, .*: give 1 or more"),
        ({"shapes": [(0, "v")]}, "num_chunks is 0"),
        ({"num_devices": -1}, "num_devices is -1"),
        ({"over": "time"}, "over is 'time'"),
    ],
)
def test_errors_say_what_to_give(change, words):
    arguments = {"costs": None, "num_devices": 4, "num_microbatches": 4, "effort": 0} | change
    with pytest.raises(ValueError, match=words):
        pplab.frontier(**arguments)


# ── The picture ───────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("look", ["light", "dark"])
def test_every_schedule_is_named_and_no_text_covers_another_or_a_point(found, look):
    ax = pplab.draw_frontier(found, look=look)
    ax.figure.draw_without_rendering()
    texts = [text for text in ax.texts if text.get_text()]
    words = " ".join(text.get_text() for text in texts)
    assert all(point.name in words for point in found.named)
    assert "best found, 1 stage a device" in words
    assert "best found, 2 stages a device, as a V" in words
    boxes = [text.get_window_extent().extents for text in texts]
    for i, a in enumerate(boxes):
        for b in boxes[:i]:
            assert a[0] >= b[2] or a[2] <= b[0] or a[1] >= b[3] or a[3] <= b[1], words
        for point in found.named:
            x, y = ax.transData.transform((point.memory, point.bubble))
            assert not (a[0] < x < a[2] and a[1] < y < a[3]), point.name


def test_curves_differ_in_their_dashes_and_copies_in_their_shape(found):
    ax = pplab.draw_frontier(found)
    steps = [line for line in ax.lines if line.get_drawstyle() == "steps-post"]
    assert len({line.get_linestyle() for line in steps}) == len(steps) == 2
    hollow = {line.get_xydata()[0].tolist()[0] for line in ax.lines if line.get_marker() == "D"}
    assert hollow == {point.memory for point in found.named if point.name in ("dualpipe", "chimera")}
    for line, points in zip(steps, found.searched.values(), strict=True):
        assert np.array_equal(line.get_xydata()[:-1], [(p.memory, p.bubble) for p in points])


def test_draws_into_given_axes_and_refuses_what_is_no_frontier(found):
    from matplotlib.figure import Figure

    ax = Figure().subplots()
    assert pplab.draw_frontier(found, ax, title="mine") is ax
    assert ax.get_title(loc="left") == "mine"
    with pytest.raises(TypeError, match=r"give what pplab\.frontier returns"):
        pplab.draw_frontier(3)
    with pytest.raises(ValueError, match="look is 'blue'"):
        pplab.draw_frontier(found, look="blue")


@pytest.mark.parametrize(
    ("given", "text"),
    [
        ({"limits": 5}, r"limits is 5: give numbers of micro-batches in a list, such as \[2, 4, 8\]"),
        ({"limits": [None]}, r"limits is \[None\]: give numbers"),
        ({"limits": "ab"}, "limits is 'ab': give numbers"),
        ({"shapes": 5}, r"shapes is 5: give \(chunks a device, placement\) for each curve"),
        ({"shapes": [(2, [[0, 5], [1, 4], [2, 3]])]}, "placements are wrap, v"),
    ],
)
def test_says_what_limits_and_shapes_are(given, text):
    with pytest.raises(ValueError, match=text):
        pplab.frontier(None, 3, 3, **given)
