"""read_chrome_trace: PyTorch's own profiler traces, ours, and what is none."""

import gzip
import json
from pathlib import Path

import numpy as np
import pytest

import pplab
from pplab import SCHEDULES, Costs, ScheduleError, Timeline, read_chrome_trace, simulate

DATA = Path(__file__).parent / "data/torch_traces"
RANKS = [DATA / f"zb_h1_d2_m4_rank{rank}.json" for rank in range(2)]


def test_pytorchs_trace_gives_the_schedule_and_the_times_that_the_run_noted_itself():
    """Two ranks, passes of 20 ms: they agree to a millisecond, but for the first stage's I."""
    t = read_chrome_trace(RANKS)
    noted = np.array([span[3:] for row in json.loads((DATA / "zb_h1_d2_m4_noted.json").read_text()) for span in row])
    assert t.schedule == SCHEDULES["zb-h1"](2, 4)
    assert t.measured
    assert t.end == pytest.approx(noted[:, 1], abs=0.001)
    apart = t.start - noted[:, 0]
    computes_nothing = (t.stage == 0) & (t.kind == "I")  # the first stage's I: nothing shows when its message is there
    assert apart[~computes_nothing] == pytest.approx(0, abs=0.001)
    assert apart[computes_nothing] == pytest.approx(-0.0025, abs=0.0025)


def test_the_order_of_the_files_does_not_matter():
    assert read_chrome_trace(RANKS[::-1]) == read_chrome_trace(RANKS)


def test_steps_are_told_apart():
    first, last = read_chrome_trace(RANKS, step=0), read_chrome_trace(RANKS, step=1)
    assert last == read_chrome_trace(RANKS)
    assert first.schedule == last.schedule
    assert first != last
    with pytest.raises(ValueError, match="step is 2, but the trace holds 2, numbered 0 to 1"):
        read_chrome_trace(RANKS, step=2)


def test_idle_time_is_put_down_to_its_reasons():
    """Ramp of device 1: a forward of 20 ms; zb-h1 has no drain on the first device."""
    t = read_chrome_trace(RANKS)
    idle = pplab.idle_by_reason(t)
    assert sum(idle.values()) == pytest.approx(pplab.makespan(t) - pplab.busy_time(t))
    assert idle["ramp"][1] == pytest.approx(0.020, abs=0.002)
    assert idle["hop"].min() > 0


@pytest.mark.parametrize("name", ["1f1b", "interleaved-1f1b", "zb-v"])
def test_our_own_trace_is_read_back(name, tmp_path):
    s = SCHEDULES[name](4, 8)
    t = simulate(s, Costs(0.02, 0.02, 0.02, hop=0.001))
    for measured in (False, True):
        pplab.write_chrome_trace(Timeline(s, t.start, t.end, measured=measured), tmp_path / "t.json")
        again = read_chrome_trace(tmp_path / "t.json")
        assert again.schedule == s
        assert again.start == pytest.approx(t.start, abs=1e-9)
        assert again.end == pytest.approx(t.end, abs=1e-9)


def test_a_measured_timeline_is_written_with_pytorchs_names(tmp_path):
    t = simulate(pplab.gpipe(1, 1))
    pplab.write_chrome_trace(Timeline(t.schedule, t.start, t.end, measured=True), tmp_path / "t.json")
    assert '"PP:0F0"' in (tmp_path / "t.json").read_text()


def write(path, spans, **more):
    """A trace of (name, start, length, category) in microseconds."""
    events = [
        {"ph": "X", "name": name, "cat": category, "pid": 1, "tid": 1, "ts": start, "dur": length}
        for name, start, length, category in spans
    ]
    path.write_text(json.dumps({"traceEvents": [{"ph": "M", "name": "process_name"}, *events]} | more))
    return path


def test_pairs_gpu_times_and_compressed_files(tmp_path):
    """A pair is one span of both ops; where the GPU's own times are there, they count."""
    rows = [("PP:0F0", 0, 10), ("PP:(0F1;0B0)OVERLAP_F_B", 10, 30), ("PP:0B1", 40, 20), ("aten::mm", 0, 5)]
    gpu = [(name, start + 1000, 2 * length, "gpu_user_annotation") for name, start, length in rows[:3]]
    path = write(tmp_path / "a.json", [*((*row, "user_annotation") for row in rows), *gpu])
    (tmp_path / "a.json.gz").write_bytes(gzip.compress(path.read_bytes()))
    t = read_chrome_trace(tmp_path / "a.json.gz")
    assert t.schedule == pplab.Schedule(["0F0 0F1 0B0 0B1"], pairs=[("0F1", "0B0")])
    assert (t.end - t.start) * 1e6 == pytest.approx([20, 60, 60, 40])


def test_an_op_starts_once_its_message_has_been_sent(tmp_path):
    """PyTorch's span of 1F0 begins when rank 1 begins to wait, at 0."""
    a = write(tmp_path / "a.json", [("PP:0F0", 0, 10, ""), ("PP:0B0", 10, 40, "")], distributedInfo={"rank": 0})
    b = write(tmp_path / "b.json", [("PP:1F0", 0, 25, ""), ("PP:1B0", 25, 10, "")], distributedInfo={"rank": 1})
    t = read_chrome_trace([a, b])
    assert t.start * 1e6 == pytest.approx([0, 35, 10, 25])
    assert t.end * 1e6 == pytest.approx([10, 50, 25, 35])


def test_what_is_no_trace_is_refused(tmp_path):
    path = tmp_path / "a.json"
    for text in ("", "{", "[1]", '{"traceEvents": 3}', '{"traceEvents": [{"ph": "X", "name": "PP:0F0"}]}'):
        path.write_text(text)
        with pytest.raises(ValueError, match=r"a\.json is no Chrome trace, or is cut short: give the files"):
            read_chrome_trace(path)
    write(path, [("Forward 0", 0, 1, "")])
    with pytest.raises(ScheduleError, match=r"a\.json: no span is named as PyTorch names its ops, such as PP:2F0"):
        read_chrome_trace(path)
    write(path, [("PP:0F0", 0, 1, ""), ("PP:0B0", 1, 1, ""), ("PP:0F0", 2, 1, "")])
    with pytest.raises(ScheduleError, match="0B0 is recorded 1 times and others 2 times: the profiler was started"):
        read_chrome_trace(path)
    with pytest.raises(ScheduleError, match=r"^the trace: "):
        read_chrome_trace(RANKS[1])  # one rank of two: what it receives is made by nobody


def test_two_files_of_one_rank_are_refused():
    with pytest.raises(ValueError, match="is of rank 0, as another file is"):
        read_chrome_trace([RANKS[0], RANKS[0]])
