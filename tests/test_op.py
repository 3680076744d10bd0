"""Op: its spelling, and rows of ops in every spelling that is accepted."""

import re

import numpy as np
import pytest

import pplab
from pplab import Op, Schedule, ScheduleError

ROWS = [[Op(0, "F", 0), Op(0, "F", 1), Op(0, "B", 0), Op(0, "B", 1)]]


def test_op_is_a_named_tuple_that_reads_and_writes_pytorchs_spelling():
    op = Op(stage=2, kind="F", microbatch=10)
    assert op == (2, "F", 10)
    assert str(op) == "2F10"
    assert Op.parse(" 2F10\n") == op


@pytest.mark.parametrize("kind", "FBIW")
def test_parse_is_the_inverse_of_str(kind):
    for op in (Op(0, kind, 0), Op(11, kind, 123456789), Op(999999999, kind, 7)):
        assert Op.parse(str(op)) == op


@pytest.mark.parametrize(
    "text",
    ["", "F0", "0F", "0f0", "0X0", "-1F0", "0F-1", "1.0F0", "0F0 0B0", "0F0,", "0SEND_F0", "1" * 10 + "F0", 5, None],
)
def test_parse_refuses_what_is_not_an_op_and_shows_how_to_write_one(text):
    with pytest.raises(ScheduleError, match=r"is not an op; write pplab\.Op\(2, 'F', 0\)") as error:
        Op.parse(text)
    assert repr(text)[:40] in str(error.value)


@pytest.mark.parametrize(
    "rows",
    [
        ["0F0 0F1 0B0 0B1"],
        ["0F0, 0F1,0B0\t0B1\n"],
        [["0F0", "0F1", "0B0", "0B1"]],
        [[(0, "F", 0), (0, "F", 1), (0, "B", 0), (0, "B", 1)]],
        [[[0, "F", 0], [0, "F", 1], [0, "B", 0], [0, "B", 1]]],
        [["0F0", Op(0, "F", 1), (0, "B", 0), [0, "B", 1]]],
        [[(np.int64(0), "F", np.uint8(m)) for m in (0, 1)] + [(0, np.str_("B"), m) for m in (0, 1)]],
        (iter(row) for row in ROWS),
    ],
)
def test_rows_may_be_spelled_in_many_ways(rows):
    s = Schedule(rows)
    assert s.rows == tuple(map(tuple, ROWS))
    assert all(type(op) is Op and type(op.stage) is int and type(op.kind) is str for op in s.rows[0])


@pytest.mark.parametrize(
    ("rows", "says"),
    [
        (None, "rows must be a list with one row of ops a device, not None"),
        ("0F0 0B0", "rows must be a list with one row of ops a device, not '0F0 0B0'"),
        ({0: ["0F0"]}, "rows must be a list with one row of ops a device"),
        ([], "the schedule is empty: give one row of ops a device, such as ['0F0 0B0']"),
        ([1], "device 0: a row is a list of ops, not 1"),
        (["0F0 0B0", None], "device 1: a row is a list of ops, not None"),
        ([b"0F0 0B0"], "device 0: a row is a list of ops"),
        (["0F0 0B0", []], "device 1 runs nothing: give it a stage, or leave its row out"),
        (["0F0 0B0", "  "], "device 1 runs nothing"),
        (["0F0 0B0", "1F0 1X0"], "device 1, op 1: '1X0' is not an op"),
        ([["0F0 0B0"]], "device 0, op 0: '0F0 0B0' is not an op"),
        ([["0F0", 5]], "device 0, op 1: 5 is not an op"),
        ([["0F0", (0, "B")]], "device 0, op 1: (0, 'B') is not an op"),
        ([[(0, "F", 0), (0, "f", 0)]], "device 0, op 1: kind 'f' is unknown"),
        ([[(0, "FB", 0)]], "device 0, op 0: kind 'FB' is unknown"),
        ([[(0, ["F"], 0)]], "device 0, op 0: kind ['F'] is unknown"),
        ([[(0, None, 0)]], "device 0, op 0: kind None is unknown"),
        ([[(-1, "F", 0)]], "device 0, op 0: stage -1 must be a whole number from 0"),
        ([[(0, "F", -1)]], "device 0, op 0: microbatch -1 must be a whole number from 0"),
        ([[(0.0, "F", 0)]], "device 0, op 0: stage 0.0 must be a whole number from 0"),
        ([[(True, "F", 0)]], "device 0, op 0: stage True must be a whole number from 0"),
        ([[("0", "F", 0)]], "device 0, op 0: stage '0' must be a whole number from 0"),
        ([[(2**40, "F", 0)]], "device 0, op 0: stage 1099511627776 must be a whole number from 0"),
        ([[(0, "F", float("nan"))]], "device 0, op 0: microbatch nan must be a whole number from 0"),
    ],
)
def test_rows_that_are_not_ops_are_refused_by_place(rows, says):
    with pytest.raises(ScheduleError, match=re.escape(says)):
        Schedule(rows)


def columns(**changed):
    """Columns of two devices with one micro-batch, some of them changed."""
    right = dict(device=[0, 0, 1, 1], stage=[0, 0, 1, 1], kind=["F", "B", "F", "B"], microbatch=[0, 0, 0, 0])
    return right | changed


def test_columns_build_the_same_schedule_as_rows():
    assert Schedule.from_columns(**columns()) == Schedule(["0F0 0B0", "1F0 1B0"])


def test_columns_of_smaller_types_and_two_dimensions_are_read():
    small = {name: np.array(c).reshape(2, 2) for name, c in columns(stage=np.array([0, 0, 1, 1], np.uint8)).items()}
    assert Schedule.from_columns(**small) == Schedule(["0F0 0B0", "1F0 1B0"])


@pytest.mark.parametrize(
    ("changed", "says"),
    [
        (dict(kind=["F", "B", "F", "X"]), "column kind, entry 3: 'X' must be F, B, I or W"),
        (dict(kind=["F", "Backward", "F", "B"]), "column kind, entry 1: 'Backward' must be F, B, I or W"),
        (dict(kind=[0, 1, 0, 1]), "column kind, entry 0: 0 must be F, B, I or W"),
        (dict(stage=[0, 0, -1, -1]), "column stage, entry 2: -1 must be a whole number from 0"),
        (dict(stage=[0, 0, 1.5, 1]), "column stage, entry 0: 0.0 must be a whole number from 0"),
        (dict(microbatch=[0, 0, np.nan, 0]), "column microbatch, entry 0: 0.0 must be a whole number from 0"),
        (dict(microbatch=[0, 0, 2**40, 0]), "column microbatch, entry 2: 1099511627776 must be a whole number from 0"),
        (dict(device=[-1, -1, 0, 0]), "column device, entry 0: -1 must be a whole number from 0"),
        (dict(device=[1, 1, 2, 2]), "column device, entry 0: 1 must be the device before it or the next one, from 0"),
        (dict(device=[0, 0, 2, 2]), "column device, entry 2: 2 must be the device before it or the next one"),
        (dict(device=[0, 1, 0, 1]), "column device, entry 2: 0 must be the device before it or the next one"),
        (dict(device=[0, 0, 1]), "device, stage, microbatch and kind have 3, 4, 4 and 4 entries: each needs one an op"),
        (dict(device=[], stage=[], kind=[], microbatch=[]), "a schedule at least one op"),
        (dict(paired=[True]), "paired has 1 entries for 4 ops"),
        (dict(paired=[False, True, False, False]), "0B0 and 1F0 cannot run as a pair: a pair stands side by side"),
        (dict(paired=[False, False, False, True]), "1B0 and nothing cannot run as a pair"),
        (
            dict(paired=[True, False, False, False]),
            "0F0 and 0B0 on device 0 cannot run as a pair: the second needs the",
        ),
    ],
)
def test_columns_that_are_not_ops_are_refused_by_entry(changed, says):
    with pytest.raises(ScheduleError, match=re.escape(says)):
        Schedule.from_columns(**columns(**changed))


@pytest.mark.parametrize("odd", ["0X0", (0, "F"), (0, "F", -1), "0F0 0F1"])
@pytest.mark.parametrize("place", [0, 999, 1000, 2500, 5999])
@pytest.mark.parametrize("spelled", [str, tuple], ids=["text", "tuples"])
def test_an_odd_entry_of_a_long_row_is_named_by_its_place(spelled, place, odd):
    row = list(map(spelled, pplab.gpipe(1, 3000).rows[0]))
    assert Schedule([row]) == pplab.gpipe(1, 3000)
    row[place] = odd
    with pytest.raises(ScheduleError, match=rf"device 0, op {place}: "):
        Schedule([row])


def test_a_long_row_may_mix_spellings():
    row = list(pplab.gpipe(1, 3000).rows[0])
    row[2500] = str(row[2500])
    assert Schedule([row]) == pplab.gpipe(1, 3000)


def test_schedule_error_is_a_value_error():
    assert issubclass(ScheduleError, ValueError)
    assert pplab.ScheduleError is ScheduleError


@pytest.mark.parametrize(
    "spell",
    [list, lambda op: np.str_(op), lambda op: f" {op} ", lambda op: (np.uint8(op[0]), np.str_(op[1]), np.int32(op[2])),
     lambda op: str(op) if op.microbatch % 2 else op],
)  # fmt: skip
def test_long_rows_in_any_spelling_are_the_same(spell):
    s = pplab.one_f_one_b(2, 3000)
    assert pplab.Schedule([[spell(op) for op in row] for row in s.rows]) == s
    rows = [[spell(op) for op in row] for row in s.rows]
    rows[1][2500] = "1X0"
    with pytest.raises(pplab.ScheduleError, match="device 1, op 2500: '1X0' is not an op"):
        pplab.Schedule(rows)


def test_digits_of_other_alphabets_are_refused():
    with pytest.raises(pplab.ScheduleError, match="is not an op"):
        pplab.Op.parse("\u0662F\u0660")
    with pytest.raises(pplab.ScheduleError, match=r"stage 10000.* must be a whole number from 0 to 2³¹ − 1"):
        pplab.Schedule([[(10**30, "F", 0)]])
