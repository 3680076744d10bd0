"""Schedule: what it tells of itself, and that whatever cannot run is refused with the place and the way out."""

import re

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from reference import OP_TEXT, Prices, drawn, examples, is_legal, needs, replay

import pplab
from pplab import Op, Schedule, ScheduleError
from pplab import needs as needs_module

# ── What it tells of itself ───────────────────────────────────────────────────────────────────────────────────────


def test_sizes_and_columns_are_derived_from_rows():
    s = Schedule(["0F0 2F0 2I0 2W0 0B0", "1F0 1B0"], name="mine")
    assert (s.num_devices, s.num_stages, s.num_microbatches, s.num_ops, s.name) == (2, 3, 1, 7, "mine")
    assert s.device.tolist() == [0, 0, 0, 0, 0, 1, 1]
    assert s.stage.tolist() == [0, 2, 2, 2, 0, 1, 1]
    assert "".join(s.kind) == "FFIWBFB"
    assert s.row_slices == [(0, 5), (5, 7)]
    assert s.rows[1] == (Op(1, "F", 0), Op(1, "B", 0))
    assert s.needs.tolist() == [[-1, -1], [5, -1], [-1, 1], [-1, 2], [6, 0], [0, -1], [2, 5]]
    assert s.hops.tolist() == [False, True, False, False, True, True, True]
    assert s.find(Op(1, "B", 0)) == 6


@given(drawn())
@examples(60)
def test_needs_and_hops_follow_the_rules(d):
    s = d.build()
    ops = {op for row in d.rows for op in row}
    device = {op: i for i, row in enumerate(d.rows) for op in row}
    for i in range(s.num_ops):
        op = s.op(i)
        assert {s.op(n) for n in s.needs[i] if n >= 0} == set(needs(op, ops))
        assert s.hops[i] == any(device[n] != device[op] for n in needs(op, ops))


@given(drawn())
@examples(60)
def test_slots_are_those_of_equal_ops_without_hops(d):
    s, n = d.build(), d.num_stages
    ones = Prices([1.0] * n, [1.0] * n, [1.0] * n, [0.0] * (n - 1), backward=[1.0] * n, pair=[1.0] * n)
    times = replay(d.rows, d.pairs, ones)
    assert s.slot.tolist() == [times[s.op(i)][0] for i in range(s.num_ops)]
    assert s.pairs == tuple(sorted(d.pairs, key=lambda pair: s.find(pair[0])))


@pytest.mark.parametrize("column", ["device", "stage", "kind", "microbatch", "paired", "needs"])
def test_columns_are_read_only(column):
    with pytest.raises(ValueError, match="read-only"):
        getattr(pplab.gpipe(2, 2), column)[0] = 0


def test_changing_the_arrays_it_was_built_from_changes_nothing():
    stage = np.array([0, 0])
    s = Schedule.from_columns([0, 0], stage, ["F", "B"], [0, 0])
    stage[0] = 7
    assert s.rows == ((Op(0, "F", 0), Op(0, "B", 0)),)


def test_equality_is_of_rows_and_pairs_not_of_names():
    rows = ["0F0 0F1 0B0 0B1"]
    paired = Schedule(rows, pairs=[("0F1", "0B0")])
    assert Schedule(rows, name="a") == Schedule(rows, name="b")
    assert hash(Schedule(rows, name="a")) == hash(Schedule(rows, name="b"))
    assert Schedule(rows) != paired
    assert Schedule(rows) != Schedule(["0F0 0F1 0B1 0B0"])
    assert Schedule(["0F0 0B0", "1F0 1B0"]) != Schedule(["0F0 1F0 1B0 0B0"])
    assert paired != "0F0 0F1 0B0 0B1"
    assert paired.pairs == ((Op(0, "F", 1), Op(0, "B", 0)),)


def test_repr_gives_the_sizes():
    assert repr(pplab.gpipe(2, 3)) == "<Schedule gpipe: 2 devices, 2 stages, 3 micro-batches, 12 ops>"


def test_str_is_a_grid_of_slots():
    assert str(pplab.gpipe(2, 2)) == (
        "slot       0  1  2  3  4  5\n"
        "device 0  F0 F1  .  . B1 B0\n"
        "device 1   . F0 F1 B1 B0  ."
    )  # fmt: skip


def test_str_names_the_stage_where_a_device_has_several_and_joins_pairs():
    s = Schedule(["0F0 1F0 0F1 1B0 1F1 0B0 1B1 0B1"], pairs=[("1F1", "0B0")])
    assert str(s) == (
        "slot            0       1       2       3       4       5       6\n"
        "device 0      0F0     1F0     0F1     1B0 1F1&0B0     1B1     0B1"
    )


def test_str_stops_after_100_slots_and_says_so():
    text = str(pplab.gpipe(1, 60))
    assert text.splitlines()[-1] == "… the first 100 of 120 slots"
    assert len(text.splitlines()[1].split()) == 2 + 100


def test_str_leaves_ops_without_length_out():
    t = pplab.simulate(pplab.gpipe(2, 2), pplab.Costs(forward=0, backward=1))
    assert str(t).splitlines()[1:] == ["device 0   . B1 B0", "device 1  B1 B0  ."]


def test_a_schedule_shows_itself_as_an_image_with_alt_text():
    html = pplab.gpipe(2, 2)._repr_html_()
    assert html.startswith('<img alt="Simulated timeline of gpipe: 2 devices as rows, 2 micro-batches')


# ── Pairs ─────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("pairs", "says"),
    [
        ([("0F0", "0B0")], "0F0 and 0B0 cannot run as a pair: a pair stands side by side in one row"),
        ([("0B0", "0F1")], "0B0 and 0F1 cannot run as a pair: a pair stands side by side"),
        ([("0F0", "0F1"), ("0F1", "0B0")], "cannot run as a pair: a pair stands side by side in one row, and an op"),
        ([("0B1", "1F0")], "0B1 and 1F0 cannot run as a pair"),
        ([("1B0", "1F1")], None),
        (
            [("1F0", "1B0")],
            "1F0 and 1B0 on device 1 cannot run as a pair: the second needs the first; take the pair out",
        ),
        ([("0F0", "7F0")], "7F0 is not in the schedule custom"),
        ([("0F0", "zero")], "'zero' is not an op"),
        ([("0F0",)], "('0F0',) is not a pair: give two ops, such as ('0F1', '0B0')"),
        (["0F0"], "'0F0' is not a pair"),
    ],
)
def test_pairs_stand_side_by_side_and_do_not_need_each_other(pairs, says):
    rows = ["0F0 0F1 0B0 0B1", "1F0 1B0 1F1 1B1"]
    if says is None:
        assert Schedule(rows, pairs=pairs).pairs == ((Op(1, "B", 0), Op(1, "F", 1)),)
        return
    with pytest.raises(ScheduleError, match=re.escape(says)):
        Schedule(rows, pairs=pairs)


def test_a_pair_whose_ops_wait_for_each_other_through_another_device_is_a_deadlock():
    rows = ["0F0 2F0 2B0 0B0", "1F0 1B0"]
    assert Schedule(rows).num_ops == 6
    with pytest.raises(ScheduleError, match=r"deadlock: device 0 waits at 2F0 for 1F0; device 1 waits at 1F0 for 0F0"):
        Schedule(rows, pairs=[("0F0", "2F0")])


# ── Bad input: what, where, what to do ────────────────────────────────────────────────────────────────────────────

BAD_ROWS = {
    "an op twice": (
        ["0F0 0B0", "1F0 1B0 1F0"],
        "1F0 stands twice: entry 0 of device 1 and entry 2 of device 1; remove one",
    ),
    "twice, on two devices": (
        ["0F0 0B0", "1F0 1B0", "0F0 1B0"],
        "0F0 stands twice: entry 0 of device 0 and entry 0 of device 2; remove one",
    ),
    "whole and split": (
        ["0F0 0B0 0I0 0W0"],
        "0B0 (entry 1 of device 0) and 0I0 (entry 2 of device 0): a backward is whole (B) or split "
        "(I, then W), not both; remove one",
    ),
    "a backward missing": (
        ["0F0 0F1 0B0", "1F0 1B0 1F1 1B1"],
        "0B1 is missing: stage 0 never runs micro-batch 1 backward, yet 0F1 runs on device 0; add it to the row of "
        "device 0, or take micro-batch 1 out of every row",
    ),
    "a forward missing": (
        ["0F0 0B0 0B1", "1F0 1B0 1F1 1B1"],
        "0F1 is missing: stage 0 never runs micro-batch 1 forward",
    ),
    "a micro-batch that no other stage runs": (
        ["0F0 0F1 0B0 0B1", "1F0 1B0"],
        "1F1 is missing: stage 1 never runs micro-batch 1 forward, yet 0F1 runs on device 0; add it to the row of "
        "device 1, or take micro-batch 1 out of every row",
    ),
    "a stage left out": (
        ["0F0 0B0", "2F0 2B0"],
        "no op is of stage 1, yet 2F0 (entry 0 of device 1) is of stage 2: number them from 0 without gaps",
    ),
    "counted from 1": (
        ["1F1 1B1"],
        "no op is of stage 0, yet 1F1 (entry 0 of device 0) is of stage 1: number them from 0 without gaps",
    ),
    "a micro-batch left out": (
        ["0F0 0F2 0B0 0B2"],
        "no op is of micro-batch 1, yet 0F2 (entry 1 of device 0) is of micro-batch 2: number them from 0 without gaps",
    ),
    "a number far out": (
        ["0F0 0B0 0F200000000"],
        "no op is of micro-batch 1, yet 0F200000000 (entry 2 of device 0) is of micro-batch 200000000",
    ),
    "W without I": (
        ["0F0 0W0"],
        "0I0 is missing: 0W0 (entry 1 of device 0) is one half of a backward; put I and, after it, W on the "
        "same device, or write B for both at once",
    ),
    "I without W": (
        ["0F0 0F1 0I0 0I1 0W0"],
        "0W1 is missing: 0I1 (entry 3 of device 0) is one half of a backward",
    ),
    "backward before forward": (
        ["0F0 0B0", "1B0 1F0"],
        "device 1 runs 1B0 (entry 0) before 1F0 (entry 1), which it needs; put 1F0 first",
    ),
    "W before I": (
        ["0F0 0W0 0I0"],
        "device 0 runs 0W0 (entry 1) before 0I0 (entry 2), which it needs; put 0I0 first",
    ),
    "a chunk before the one it needs": (
        ["1F0 0F0 1B0 0B0"],
        "device 0 runs 1F0 (entry 0) before 0F0 (entry 1), which it needs; put 0F0 first",
    ),
    "forward and backward apart": (
        ["0F0 1B0", "1F0 0B0"],
        "1B0 stands on device 0, but 1F0 left what it needs on device 1: a stage runs a micro-batch forward and "
        "backward on one device; move one of them",
    ),
    "I and W apart": (
        ["0F0 0I0", "1F0 1I0 1W0 0W0"],
        "0W0 stands on device 1, but 0I0 left what it needs on device 0",
    ),
    "a cycle of two devices": (
        ["0F0 0B0 0F1 0B1", "1F0 1F1 1B0 1B1"],
        "deadlock: device 0 waits at 0B0 for 1B0; device 1 waits at 1F1 for 0F1; each stands behind the wait of "
        "its own device. One way out: run 0F1 before 0B0 on device 0",
    ),
    "a cycle of three devices": (
        ["0F0 3F0 3B0 0B0", "1F0 4F0 4B0 1B0", "5F0 2F0 5B0 2B0"],
        "deadlock: device 2 waits at 5F0 for 4F0; device 1 waits at 4F0 for 3F0; device 0 waits at 3F0 for 2F0; each",
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", BAD_ROWS)
def test_what_cannot_run_is_refused_with_the_place_and_the_way_out(case):
    rows, says = BAD_ROWS[case]
    assert not is_legal([[Op.parse(op) for op in row.split()] for row in rows])
    with pytest.raises(ScheduleError) as error:
        Schedule(rows)
    text = str(error.value)
    if says.startswith("deadlock") and "device 2" in says:  # the cycle may be told from any of its devices
        assert set(says.removesuffix("; each").removeprefix("deadlock: ").split("; ")) <= set(re.split("; |: ", text))
    else:
        assert says in text


def test_the_way_out_of_a_deadlock_is_one():
    rows = ["0F0 0F1 0B0 0B1", "1F0 1F1 1B0 1B1"]
    assert Schedule(rows).num_ops == 8


CORRUPTIONS = ("drop", "double", "double elsewhere", "swap", "move", "kind", "stage", "micro-batch")


def corrupt(d, how, a, b):
    """Rows with one fault, if it is one; and the op that was touched."""
    rows = [list(row) for row in d.rows]
    place = [(r, i) for r, row in enumerate(rows) for i in range(len(row))]
    (r, i), (q, j) = place[a % len(place)], place[b % len(place)]
    op = rows[r][i]
    if how == "drop":
        del rows[r][i]
    elif how == "double":
        rows[r].insert(j % (len(rows[r]) + 1), op)
    elif how == "double elsewhere":
        rows[q].insert(j, op)
    elif how == "swap":
        rows[r][i], rows[q][j] = rows[q][j], rows[r][i]
    elif how == "move":
        del rows[r][i]
        rows[q].insert(j, op)
    elif how == "kind":
        rows[r][i] = op._replace(kind="FBIW"[b % 4])
    elif how == "stage":
        rows[r][i] = op._replace(stage=b % (d.num_stages + 1))
    else:
        rows[r][i] = op._replace(microbatch=b % 4)
    return [row for row in rows if row], op


@given(drawn(pairs=False), st.sampled_from(CORRUPTIONS), st.integers(0, 500), st.integers(0, 500))
@examples(400)
def test_whatever_a_slow_judge_refuses_is_refused_and_nothing_else(d, how, a, b):
    rows, op = corrupt(d, how, a, b)
    if not rows or is_legal(rows):
        if rows:
            Schedule(rows)
        return
    with pytest.raises(ScheduleError) as error:
        Schedule(rows)
    text = str(error.value)
    assert OP_TEXT.search(text)
    assert "device" in text
    if how.startswith("double"):
        assert f"{op} stands twice: " in text
    device = {str(op): i for i, row in enumerate(rows) for op in row}
    for where, what in re.findall(r"device (\d+) (?:waits at|runs) (\d+[FBIW]\d+)", text):
        assert device[what] == int(where)


@given(drawn(devices=(2, 4), microbatches=(2, 4), pairs=False), st.integers(0, 500))
@examples(100)
def test_an_op_left_out_is_named(d, a):
    rows, op = corrupt(d, "drop", a, 0)
    ops = {op for row in rows for op in row}
    if any(o.stage == op.stage for o in ops) and any(o.microbatch == op.microbatch for o in ops) and not is_legal(rows):
        with pytest.raises(ScheduleError, match=f"{op} is missing|{op._replace(kind='I')} is missing"):
            Schedule(rows)


@given(drawn(devices=(2, 5), pairs=False), st.integers(0, 500), st.integers(0, 500))
@examples(300)
def test_the_cycle_of_a_deadlock_is_one(d, a, b):
    rows, _ = corrupt(d, "swap", a, b)
    try:
        Schedule(rows)
        return
    except ScheduleError as error:
        text = str(error)
    waits = re.findall(r"device (\d+) waits at (\d+[FBIW]\d+) for (\d+[FBIW]\d+)", text)
    if not text.startswith("deadlock"):
        assert not waits
        return
    ops = {op for row in rows for op in row}
    for (where, stuck, wanted), (then, blocked, _) in zip(waits, [*waits[1:], waits[0]], strict=True):
        here, there = rows[int(where)], rows[int(then)]
        assert Op.parse(stuck) in here
        assert Op.parse(wanted) in needs(Op.parse(stuck), ops)
        assert there.index(Op.parse(wanted)) >= there.index(Op.parse(blocked))


# ── Both ways of walking through the rows ─────────────────────────────────────────────────────────────────────────


def outcome(d, few_devices, monkeypatch):
    """The slots, or the text of the error, if up to so many devices are walked through in Python."""
    monkeypatch.setattr(needs_module, "_FEW_DEVICES", few_devices)
    try:
        s = Schedule(d.rows, pairs=d.pairs)
    except ScheduleError as error:
        return str(error)
    return s.slot.tolist(), [sorted(step.tolist()) for step in s.steps]


@given(drawn(devices=(1, 10), chunks=(1, 2)), st.integers(0, 500), st.integers(0, 500), st.booleans())
@examples(100)
def test_walking_in_python_and_stepping_in_numpy_agree(d, a, b, harm):
    with pytest.MonkeyPatch.context() as monkeypatch:
        if harm:
            d = d._replace(rows=corrupt(d, "swap", a, b)[0], pairs=[])
        assert outcome(d, 0, monkeypatch) == outcome(d, 99, monkeypatch)


# ── Large ─────────────────────────────────────────────────────────────────────────────────────────────────────────

FAULTS = {
    "twice": "3F124999 stands twice: entry 249998 of device 3 and entry 249999 of device 3; remove one",
    "missing": "3B124999 is missing: stage 3 never runs micro-batch 124999 backward, yet 0F124999 runs on device 0",
    "order": "device 3 runs 3B124999 (entry 249998) before 3F124999 (entry 249999), which it needs; put 3F124999 first",
    "deadlock": "deadlock: device 2 waits at 2B124998 for 3B124998; device 3 waits at 3F124999 for 2F124999; each",
}


def a_million_ops(fault, num_devices=4):
    """The columns of 1F1B, with one fault at its very end."""
    m = 1_000_000 // (2 * num_devices)
    s = pplab.one_f_one_b(num_devices, m)
    columns = np.rec.fromarrays([s.device, s.stage, s.kind, s.microbatch], names="device,stage,kind,microbatch")
    if fault == "twice":
        columns = np.insert(columns, -1, columns[-2])
    elif fault == "missing":
        columns = columns[:-1]
    elif fault == "order":
        columns[[-2, -1]] = columns[[-1, -2]]
    elif fault == "deadlock":  # device 3: F F B B, as device 2: F B F B, each at its end
        columns[[-3, -2]] = columns[[-2, -3]]
        columns[[-2 * m - 3, -2 * m - 2]] = columns[[-2 * m - 2, -2 * m - 3]]
    return {name: columns[name] for name in columns.dtype.names}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_at_the_end_of_a_million_ops_is_named(fault):
    with pytest.raises(ScheduleError, match=re.escape(FAULTS[fault])):
        Schedule.from_columns(**a_million_ops(fault))


@pytest.mark.parametrize(
    ("pairs", "says"),
    [
        (None, "pairs must be a list of pairs of ops, such as [('0F1', '0B0')], not None"),
        ([(1, 2)], "pairs, op 0: 1 is not an op; write pplab.Op(2, 'F', 0)"),
        ([("0F1", (0, "B", 0, 1))], "pairs, op 1: (0, 'B', 0, 1) is not an op"),
        ([("0F1", "9B9")], "9B9 is not in the schedule custom"),
        ([("0F1", "0W0")], "0W0 is not in the schedule custom"),
    ],
)
def test_pairs_that_are_none_are_refused(pairs, says):
    with pytest.raises(ScheduleError, match=re.escape(says)):
        Schedule(["0F0 0F1 0B0 0B1"], pairs=pairs)


def test_many_pairs_are_found():
    row = ["0F0", *(x for m in range(1, 20_000) for x in (f"0F{m}", f"0B{m - 1}")), "0B19999"]
    s = Schedule([row], pairs=[(f"0F{m}", f"0B{m - 1}") for m in range(1, 20_000)])
    assert s.paired.nonzero()[0].tolist() == list(range(1, 39_999, 2))


def test_arrays_are_read_only():
    s = pplab.one_f_one_b(2, 2)
    for array in (s.first, s.slot, s.hops, s.nodes.of_op, s.nodes.first, *s.nodes.needs, *s.steps):
        with pytest.raises(ValueError, match="read-only"):
            array[0] = 1


def test_truth_values_are_no_numbers():
    with pytest.raises(ScheduleError, match=r"column device, entry 0: False must be a whole number from 0 to 2³¹ − 1"):
        Schedule.from_columns([False, False], [0, 0], ["F", "B"], [0, 0])
