"""Files in and out: spellings, round trips to the last bit, and files that are not what they should be."""

import json
import re
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from reference import drawn, examples, priced

import pplab
from pplab import (
    Costs,
    Op,
    Schedule,
    ScheduleError,
    Timeline,
    read_json,
    read_torch_csv,
    simulate,
    write_chrome_trace,
    write_json,
    write_torch_csv,
)

TORCH = Path(__file__).parent / "data/torch_csv"


@pytest.fixture
def file(tmp_path):
    """Write a text, or bytes, and give the path."""

    def write(content, name="rows.csv"):
        path = tmp_path / name
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        return path

    return write


# ── CSV ───────────────────────────────────────────────────────────────────────────────────────────────────────────

SAME = Schedule(["0F0 0F1 0B0 0B1", "1F0 1I0 1W0 1F1 1B1"])


@pytest.mark.parametrize(
    "text",
    [
        '"0F0","0F1", "0B0",0B1\n"1F0",1I0,1W0,1F1,"1B1"\n',
        "0F0,0F1,0B0,0B1\n1F0,1I0,1W0,1F1,1B1\n",
        "0F0,0F1,,,0B0,0B1,,\n,1F0,1I0,1W0,,1F1,1B1",
        " 0F0 ,\t0F1, 0B0 , 0B1 \n1F0 , 1I0,1W0, 1F1 ,1B1\n\n\n",
        "0F0,0F1,0B0,0B1\r\n1F0,1I0,1W0,1F1,1B1\r\n",
        "\ufeff0F0,0F1,0B0,0B1\n1F0,1I0,1W0,1F1,1B1\n",
        "0UNSHARD,0F0,0SEND_F0,0F1,0SEND_F1,0RECV_B0,0B0,0RECV_B1,0B1,0REDUCE_GRAD,0RESHARD\n"
        "1UNSHARD,1RECV_F0,1F0,1RECV_F1,1I0,1SEND_B0,1W0,1F1,1B1,1SEND_B1,1REDUCE_GRAD,1RESHARD\n",
    ],
)
def test_csv_in_every_spelling(file, text):
    assert read_torch_csv(file(text)) == SAME


def test_csv_with_pairs(file):
    s = read_torch_csv(file("0F0,1F0,0F1,1B0,(1F1;0B0)OVERLAP_F_B,1B1,0I1,0W1\n"))
    assert s.pairs == ((Op(1, "F", 1), Op(0, "B", 0)),)
    spaced = read_torch_csv(file("0F0,1F0,0F1,1B0, ( 1F1 ; 0B0 ) OVERLAP_F_B ,1B1,0I1,0W1\n"))
    assert spaced == s


def test_csv_is_named_after_its_file_unless_said(file):
    path = file("0F0,0B0\n", "mine.compute_only.csv")
    assert read_torch_csv(path).name == "mine"
    assert read_torch_csv(str(path), name="yours").name == "yours"


def test_csv_as_written(tmp_path):
    s = Schedule(["0F0 1F0 0F1 1B0 1F1 0B0 1B1 0I1 0W1"], pairs=[("1F1", "0B0")])
    write_torch_csv(s, tmp_path / "a.csv")
    assert (tmp_path / "a.csv").read_bytes() == b"0F0,1F0,0F1,1B0,(1F1;0B0)OVERLAP_F_B,1B1,0I1,0W1\n"


@given(drawn())
@settings(examples(60), suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_csv_round_trip(tmp_path, d):
    write_torch_csv(d.build(), tmp_path / "a.csv")
    assert read_torch_csv(tmp_path / "a.csv") == d.build()


WHOLE = (TORCH / "Interleaved1F1B_D2_M4_V2.compute_only.csv").read_text().rstrip()


@pytest.mark.parametrize(
    ("content", "says"),
    [
        ("", "rows.csv is empty: a schedule has one line of actions a rank, such as 0F0,0F1,,0B0,0B1"),
        (" \n\n", "rows.csv is empty"),
        (WHOLE[:-1], "rows.csv, line 2, cell 20: '1B' is not an action of PyTorch's schedules"),
        (WHOLE[:-2], "rows.csv, line 2, cell 20: '1' is not an action"),
        (WHOLE[:-4], "rows.csv: 1B3 is missing: stage 1 never runs micro-batch 3 backward"),
        (WHOLE.splitlines()[0], "rows.csv: no op is of stage 1, yet 2F0 (entry 2 of device 0) is of stage 2"),
        (WHOLE[: len(WHOLE) // 3], "rows.csv: "),
        ("0F0,0B0\n\n1F0,1B0\n", "rows.csv: device 1 runs nothing"),
        ("0F0,0B0,0F0\n", "rows.csv: 0F0 stands twice: entry 0 of device 0 and entry 2 of device 0"),
        ("0F0;0B0\n1F0;1B0\n", "rows.csv, line 1, cell 1: '0F0;0B0' is not an action"),
        ("rank,action\n0,F0\n", "rows.csv, line 1, cell 1: 'rank' is not an action"),
        ("name,age\nAda,36\n", "is the file cut short, or of another format?"),
        ('{"rows": []}', "rows.csv, line 1, cell 1: '{\"rows\": []}' is not an action"),
        ("0F0,(0F1;0B0)OVERLAP_F\n", "rows.csv, line 1, cell 2: '(0F1;0B0)OVERLAP_F' is not an action"),
        ("0F0,(0F1;0B0;0B1)OVERLAP_F_B\n", "line 1, cell 2"),
        ("0F0,(0B0;0F1)OVERLAP_F_B,0B1\n", None),
        ("0F0,(0F1;0B1)OVERLAP_F_B,0B0\n", "rows.csv: 0F1 and 0B1 on device 0 cannot run as a pair"),
        ("0F0 0F1,0B0\n", "rows.csv, line 1, cell 1: '0F0 0F1' is not an action"),
        ('0F0,"0B0\n', "rows.csv, line 1: unexpected end of data; is the file cut short"),
        ("0F0,\u0660B0\n", "rows.csv, line 1, cell 2: '\u0660B0' is not an action"),
        ("0F0,0X0\n", "rows.csv, line 1, cell 2: '0X0' is not an action of PyTorch's schedules, such as 2F0"),
        ("0F0,0SEND_X0,0B0\n", "rows.csv, line 1, cell 2: '0SEND_X0' is not an action"),
        (bytes(range(256)), "rows.csv is not a text file: give the CSV that PyTorch's _dump_csv wrote"),
        ("0F0,0B0\n".encode("utf-16"), "rows.csv is not a text file"),
        (b"\x89PNG\r\n\x1a\n\x00\x00", "rows.csv is not a text file"),
        (b"\x00\x01\x02", "rows.csv, line 1, cell 1: "),
    ],
)
def test_csv_that_is_none_is_refused_by_line_and_cell(file, content, says):
    if says is None:
        assert read_torch_csv(file(content)).pairs
        return
    with pytest.raises(ScheduleError, match=re.escape(says)):
        read_torch_csv(file(content))


def test_csv_cut_anywhere_is_refused(file):
    """Wherever the file ends too early: in a cell, after it, after a line. (Its first two cells could be all.)"""
    for length in range(len("0F0,0F1,2"), len(WHOLE)):
        with pytest.raises(ScheduleError, match=r"rows\.csv"):
            read_torch_csv(file(WHOLE[:length]))


def test_a_missing_file_is_the_systems_error(tmp_path):
    with pytest.raises(FileNotFoundError):
        read_torch_csv(tmp_path / "none.csv")


# ── JSON ──────────────────────────────────────────────────────────────────────────────────────────────────────────


@given(priced(), st.booleans())
@settings(examples(80), suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_json_round_trip_is_equal_to_the_last_bit(tmp_path, case, measured):
    d, prices = case
    s = Schedule(d.rows, name="mine – ½", pairs=d.pairs)
    t = simulate(s, Costs(**prices._asdict()))
    t = Timeline(s, t.start, t.end, t.receive, t.send, measured=measured)
    for value in (s, t):
        write_json(value, tmp_path / "a.json")
        again = read_json(tmp_path / "a.json")
        assert type(again) is type(value)
        assert again == value
        assert (again if value is s else again.schedule).name == "mine – ½"
    assert again.measured is measured
    assert all(np.array_equal(getattr(again, c), getattr(t, c)) for c in ("start", "end", "receive", "send"))


def test_json_is_easy_to_read(tmp_path):
    write_json(Schedule(["0F0 0F1 0B0 0B1"], name="tiny", pairs=[("0F1", "0B0")]), tmp_path / "a.json")
    assert json.loads((tmp_path / "a.json").read_text()) == {
        "format": "pplab/1", "name": "tiny", "rows": ["0F0 0F1 0B0 0B1"], "pairs": [["0F1", "0B0"]],
    }  # fmt: skip


TIMELINE = {"format": "pplab/1", "rows": ["0F0 0B0"], "start": [0, 1], "end": [1, 2]}


@pytest.mark.parametrize(
    ("content", "says"),
    [
        ("", "rows.json is not JSON, or is cut short: give a file that pplab.write_json wrote"),
        (json.dumps(TIMELINE)[:-5], "rows.json is not JSON, or is cut short"),
        (b"\x89PNG\r\n\xff", "rows.json is not JSON"),
        ("[" * 100_000, "rows.json is not JSON"),
        (json.dumps(TIMELINE | {"pairs": [[1, 2]]}), "pairs, op 0: 1 is not an op"),
        ("[]", "rows.json holds no schedule of pplab"),
        ('{"rows": ["0F0 0B0"]}', "rows.json holds no schedule of pplab"),
        ('{"format": "pplab/1"}', "rows.json holds no schedule of pplab"),
        ('{"traceEvents": []}', "rows.json holds no schedule of pplab"),
        (json.dumps(TIMELINE | {"rows": 5}), "rows must be a list with one row of ops a device, not 5"),
        (json.dumps(TIMELINE | {"rows": ["0F0"]}), "finite times"),
        (json.dumps(TIMELINE | {"rows": ["0F0 0F0"]}), "0F0 stands twice"),
        (json.dumps(TIMELINE | {"pairs": 5}), "rows.json holds no schedule of pplab"),
        (json.dumps(TIMELINE | {"pairs": [["0F0", "0B0"]]}), "0F0 and 0B0 on device 0 cannot run as a pair"),
        (json.dumps(TIMELINE | {"start": [0]}), "start needs 2 finite times, one an op of rows"),
        (json.dumps(TIMELINE | {"start": [0, None]}), "start needs 2 finite times"),
        (json.dumps({k: v for k, v in TIMELINE.items() if k != "end"}), "end needs 2 finite times"),
        (json.dumps(TIMELINE | {"end": [1, 0]}), "0B0 ends at 0, before it starts at 1"),
    ],
)
def test_json_that_is_none_is_refused(file, content, says):
    with pytest.raises(ValueError, match=re.escape(says)):
        read_json(file(content, "rows.json"))


# ── Chrome trace ──────────────────────────────────────────────────────────────────────────────────────────────────


def events_of(t, tmp_path):
    """The events of a written trace, by phase."""
    write_chrome_trace(t, tmp_path / "trace.json")
    written = json.loads((tmp_path / "trace.json").read_text())
    by_phase = {phase: [] for phase in "MXsf"}
    for event in written["traceEvents"]:
        by_phase[event["ph"]].append(event)
    return by_phase


def test_trace_has_a_track_a_device_and_a_slice_an_op_in_microseconds(tmp_path):
    t = simulate(pplab.one_f_one_b(4, 8), Costs(0.020, backward=0.040))
    events = events_of(t, tmp_path)
    names = {e["tid"]: e["args"]["name"] for e in events["M"] if e["name"] == "thread_name"}
    assert names == {d: f"device {d}" for d in range(4)}
    assert [e["args"]["name"] for e in events["M"] if e["name"] == "process_name"] == ["pplab: 1f1b"]
    assert len(events["X"]) == len(t)
    for event, span in zip(events["X"], t, strict=True):
        assert (event["name"], event["tid"], event["pid"]) == (str(span.op), span.device, 0)
        assert event["ts"] == pytest.approx(span.start * 1e6)
        assert event["dur"] == pytest.approx(20_000 if span.kind == "F" else 40_000)
        assert event["args"] == {"stage": span.stage, "microbatch": span.microbatch}
    assert Counter(e["cat"] for e in events["X"]) == {"forward": 32, "backward": 32}


@pytest.mark.parametrize("blocking", [False, True])
def test_trace_draws_each_message_as_an_arrow_from_its_sender_to_its_receiver(tmp_path, blocking):
    """Viewers bind an arrow to the slice that is open at its time, the last of the file where several are."""
    s = read_torch_csv(TORCH / "DualPipeV_D2_M4_V2.compute_only.csv")
    t = simulate(s, Costs(hop=0.25, blocking=blocking))
    events = events_of(t, tmp_path)

    def slice_at(event):
        there = [e for e in events["X"] if e["tid"] == event["tid"] and e["ts"] <= event["ts"] <= e["ts"] + e["dur"]]
        return {e["name"] for e in there if e["ts"] == max(e["ts"] for e in there)}

    ends = {e["id"]: e for e in events["f"]}
    assert len(ends) == len(events["f"]) == len(events["s"]) == 2 * 2 * 4  # F and backward, over 0–1 and 2–3, M = 4
    messages = []
    for begin in events["s"]:
        end = ends[begin["id"]]
        assert begin["cat"] == end["cat"]
        assert begin["name"] == end["name"]
        assert end["bp"] == "e"
        assert begin["tid"] != end["tid"]
        assert begin["ts"] < end["ts"]
        sent = [(Op.parse(a), Op.parse(b)) for a in slice_at(begin) for b in slice_at(end) if "f" not in a + b]
        messages += [(a, b) for a, b in sent if a.microbatch == b.microbatch and abs(a.stage - b.stage) == 1]
    assert len(set(messages)) == 16
    assert {(a.stage, b.stage) for a, b in messages if a.kind == "F"} == {(0, 1), (2, 3)}
    assert {(a.stage, b.stage) for a, b in messages if a.kind != "F"} == {(3, 2), (1, 0)}


def test_trace_shows_blocking_time_as_slices_of_its_own(tmp_path):
    t = simulate(pplab.gpipe(2, 1), Costs(hop=0.5, blocking=True))
    kept = [
        (e["name"], e["tid"], e["ts"], e["dur"]) for e in events_of(t, tmp_path)["X"] if e["cat"] == "communication"
    ]
    assert kept == [
        ("send of 0F0", 0, 1e6, 5e5),
        ("receive for 0B0", 0, 4.5e6, 5e5),
        ("receive for 1F0", 1, 1e6, 5e5),
        ("send of 1B0", 1, 4.5e6, 5e5),
    ]


def test_one_device_sends_nothing(tmp_path):
    events = events_of(simulate(Schedule(["0F0 1F0 1B0 0B0"]), Costs(hop=1)), tmp_path)
    assert events["s"] == events["f"] == []
