"""Timeline: columns that agree, times that make sense, and how it shows itself."""

import re
import sys

import numpy as np
import pytest

import pplab
from pplab import Costs, Op, Timeline, simulate

S = pplab.gpipe(2, 2)
T = simulate(S)


def test_columns_lie_beside_each_other():
    columns = (T.device, T.stage, T.kind, T.microbatch, T.start, T.end)
    assert list(zip(*(c.tolist() for c in columns), strict=True)) == [tuple(span) for span in T]
    assert len(T) == S.num_ops == len(list(T))
    assert set(T.kind.tolist()) == {"F", "B"}
    assert T[5] == (1, 1, "F", 1, 2.0, 3.0)
    assert T[5].op == Op(1, "F", 1)
    assert [type(x) for x in T[5]] == [int, int, str, int, float, float]


@pytest.mark.parametrize("column", ["start", "end", "receive", "send"])
def test_times_are_read_only(column):
    with pytest.raises(ValueError, match="read-only"):
        getattr(T, column)[0] = 1


@pytest.mark.parametrize(
    "call",
    [
        pplab.makespan, pplab.bubble_fraction, pplab.utilization, pplab.peak_in_flight, pplab.critical_path,
        pplab.idle_gaps, pplab.metrics.busy_time, pplab.idle.idle_by_reason, pplab.svg.timeline, pplab.draw_timeline,
        pplab.draw.draw_in_flight, lambda t: pplab.metrics.in_flight(t, 0), lambda t: pplab.write_chrome_trace(t, "no"),
    ],
)  # fmt: skip
@pytest.mark.parametrize("given", [S, 7])
def test_what_needs_a_timeline_says_so(call, given):
    with pytest.raises(TypeError, match=r"is not a timeline: simulate a schedule first, pplab\.simulate\("):
        call(given)


@pytest.mark.parametrize("given", ["1f1b", [["0F0"]], None])
def test_what_needs_a_schedule_says_so(given):
    for call in (simulate, Costs.per_device, pplab.lower_bound, lambda s: Timeline(s, [], [])):
        with pytest.raises(TypeError, match=r"is not a schedule: give a Schedule, such as pplab\.one_f_one_b"):
            call(given)
    for call in (simulate, pplab.lower_bound):
        with pytest.raises(TypeError, match=r"costs is 1\.0: give pplab\.Costs"):
            call(S, 1.0)


def test_a_column_that_is_no_times_is_refused():
    with pytest.raises(ValueError, match="start must be 8 times, one an op of gpipe, not 'abc'"):
        Timeline(S, "abc", T.end)


def test_changing_the_arrays_it_was_built_from_changes_nothing():
    start = T.start.copy()
    t = Timeline(S, start, T.end, measured=True)
    start[:] = 7
    assert t == T


@pytest.mark.parametrize("column", ["start", "end", "receive", "send"])
@pytest.mark.parametrize(
    ("values", "says"),
    [
        ([0.0] * 7, "{} needs 8 finite times, one an op of gpipe, not (7,) with 0 that are not finite"),
        ([[0.0] * 8], "{} needs 8 finite times, one an op of gpipe, not (1, 8)"),
        ([0.0] * 7 + [np.nan], "{} needs 8 finite times, one an op of gpipe, not (8,) with 1 that are not finite"),
        ([0.0] * 6 + [np.inf, -np.inf], "not (8,) with 2 that are not finite"),
        (3, "{} needs 8 finite times"),
    ],
)
def test_columns_of_another_length_or_not_finite_are_refused(column, values, says):
    times = dict(start=T.start, end=T.end) | {column: values}
    with pytest.raises(ValueError, match=re.escape(says.format(column))):
        Timeline(S, **times)


def test_an_op_cannot_end_before_it_starts():
    end = T.end.copy()
    end[2] = 6.5
    with pytest.raises(ValueError, match=r"0B1 ends at 6\.5, before it starts at 7"):
        Timeline(S, np.where(np.arange(8) == 2, 7, T.start), end)


def test_equality_is_of_schedule_and_times():
    assert simulate(S) == T
    assert Timeline(S, T.start, T.end) == T
    assert Timeline(S, T.start - 1, T.end) != T
    assert Timeline(pplab.gpipe(2, 2, backward_order="fifo"), T.start, T.end) != T
    assert T != S
    assert Timeline(S, T.start, T.end, send=np.ones(8)) != T
    with pytest.raises(TypeError):
        hash(T)


def test_repr_says_where_the_times_come_from():
    assert repr(T) == "<Timeline of gpipe, simulated: 8 ops in 9>"
    assert repr(Timeline(S, T.start + 5, T.end + 5, measured=True)) == "<Timeline of gpipe, measured: 8 ops in 9>"


GRID = """\
slot       0  1  2  3  4  5  6  7  8
device 0  F0 F1  .  .  . B1  - B0  -
device 1   . F0 F1 B1  - B0  -  .  ."""

NO_GRID = "its times are no multiples of a slot that gives at most 400 of them"


@pytest.mark.parametrize(
    ("costs", "slot", "first"),
    [
        (Costs(1, backward=2, hop=0.5), "0.5", "F0  - F1  -"),
        (Costs(0.3, backward=0.7), "0.1", "F0  -  - F1  -  -"),
        (Costs(1, backward=1 + 1 / 3), "0.333333", "F0  -  - F1"),
        (Costs(1, backward=1.25), "0.25", "F0  -  -  - F1"),
    ],
)
def test_str_is_a_grid_of_parts_of_the_shortest_op(costs, slot, first):
    text = str(simulate(S, costs))
    assert text.endswith(f"\na slot is {slot}")
    assert text.splitlines()[1].startswith(f"device 0  {first}")


def test_a_timeline_without_length_shows_itself():
    t = simulate(S, Costs(0, backward=0))
    assert "0 long, without length, since every op takes no time; at most 2, 2 in flight" in t._repr_html_()
    assert "gpipe: every op takes no time, so there is nothing to see</text>" in pplab.svg.timeline(t)
    assert pplab.draw_timeline(t).get_xlim() == (0, 1)


@pytest.mark.parametrize(
    ("times", "text"),
    [
        (lambda x: x, GRID),
        (lambda x: x + 100, GRID),
        (lambda x: x * 0.02, f"{GRID}\na slot is 0.02"),
        (lambda x: x * 1.5 + 7, f"{GRID}\na slot is 1.5"),
        (lambda x: x**1.1, f"<Timeline of gpipe, simulated: 8 ops in 11.2116>\nno grid: {NO_GRID}"),
        (lambda x: 0 * x, "<Timeline of gpipe, simulated: 8 ops in 0>\nno grid: every op takes no time"),
    ],
)
def test_str_is_a_grid_where_slots_fit(times, text):
    assert str(Timeline(S, times(T.start), times(T.end))) == text


def test_html_is_an_image_with_alt_text():
    assert T._repr_html_().startswith('<img alt="Simulated timeline of gpipe: 2 devices as rows')
    assert 'alt="Measured timeline' in Timeline(S, T.start, T.end, measured=True)._repr_html_()


def test_to_frame_has_a_row_an_op():
    frame = T.to_frame()
    assert list(frame.columns) == ["device", "stage", "kind", "microbatch", "start", "end"]
    assert [tuple(row) for row in frame.itertuples(index=False)] == [tuple(span) for span in T]


def test_to_frame_without_pandas_says_how_to_get_it(monkeypatch):
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(ImportError, match="to_frame needs pandas: pip install pandas"):
        T.to_frame()
