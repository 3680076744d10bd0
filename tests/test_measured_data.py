"""The stored runs of real processes: whole, in order, and near what the simulator predicts."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import pplab

DATA = Path(pplab.__file__).parent / "data"
FORWARD, BACKWARD = 0.020, 0.040  # seconds that the passes were told to sleep, at least
SCHEDULES = {
    "measured_1f1b_d4_m8.json": pplab.one_f_one_b(4, 8),
    "measured_gpipe_d4_m8.json": pplab.gpipe(4, 8, backward_order="fifo"),
}


@pytest.fixture(params=SCHEDULES)
def run(request: pytest.FixtureRequest) -> pplab.Timeline:
    t = pplab.read_json(DATA / request.param)
    assert isinstance(t, pplab.Timeline)
    assert t.schedule == SCHEDULES[request.param]
    return t


def test_is_measured_and_starts_at_0(run):
    assert run.measured
    assert run.start.min() == 0


def test_ops_of_a_device_do_not_overlap(run):
    for a, b in run.schedule.row_slices:
        assert (run.start[a + 1 : b] >= run.end[a : b - 1]).all()


def test_each_op_starts_after_what_it_needs(run):
    needs = run.schedule.needs
    ends = np.where(needs < 0, 0, run.end[needs])
    assert (run.start >= ends.max(axis=1) - 0.001).all()


def test_passes_last_as_long_as_they_sleep(run):
    lengths = run.end - run.start
    assert lengths[run.kind == "F"].min() >= FORWARD
    assert lengths[run.kind == "B"].min() >= BACKWARD


def test_simulation_is_within_a_tenth(run):
    predicted = pplab.simulate(run.schedule, pplab.Costs(forward=FORWARD, backward=BACKWARD))
    assert pplab.makespan(run) == pytest.approx(pplab.makespan(predicted), rel=0.1)
    assert pplab.makespan(run) >= pplab.lower_bound(run.schedule, pplab.Costs(forward=FORWARD, backward=BACKWARD))


@pytest.mark.parametrize("name", SCHEDULES)
def test_reading_needs_no_torch(name):
    code = f"import sys; sys.modules['torch'] = None; import pplab; pplab.read_json({str(DATA / name)!r})"
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)
