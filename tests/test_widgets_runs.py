"""The explorer of real runs: it predicts at once, runs when told to and never before, and says what went wrong."""

import os
import re
import signal
import threading
from html import unescape

import numpy as np
import pytest

import pplab
from pplab.distributed import RunError, launcher, run, stored_run
from pplab.widgets import explore_runs, runs


def cells(html):
    """The texts of a table's cells, a list a row, without the heading."""
    rows = re.findall(r"<tr[^>]*>(.*?)</tr>", html)[1:]
    return [[unescape(cell) for cell in re.findall(r"<td[^>]*>(.*?)</td>", row)] for row in rows]


@pytest.fixture
def instead(monkeypatch):
    """A function to call in place of a run; nothing runs unless a test sets one."""

    def set_to(do):
        monkeypatch.setattr(runs, "run", do)

    set_to(lambda *_, **__: pytest.fail("a process was started"))
    return set_to


def raises(error):
    def fail(*_, **__):
        raise error

    return fail


def test_it_predicts_at_once_and_runs_nothing_by_itself(instead):
    x = explore_runs(num_devices=4, num_microbatches=8)
    assert pplab.makespan(x.predicted) == pytest.approx((8 + 4 - 1) * 0.06)
    assert x.result is None and x.pictures[1].value == "" and not x.go.disabled
    assert cells(x.numbers.value) == [
        ["predicted", "660 ms", "", "27.3%", "4, 3, 2, 1", "", "ramp 360 ms, drain 360 ms"]
    ]
    x.schedule.value, x.devices.value, x.microbatches.value = "gpipe", 2, 3
    assert pplab.makespan(x.predicted) == pytest.approx(4 * 0.06)
    x.forward.value, x.backward.value = 10.0, 30.0
    assert pplab.makespan(x.predicted) == pytest.approx(4 * 0.04)


def test_a_slower_stage(instead):
    x = explore_runs("gpipe", 2, 8, slow_stage=1, percent_slower=20)
    # one forward in, 8 passes each way on the slow stage, one backward out
    assert pplab.makespan(x.predicted) == pytest.approx(0.020 + 8 * 0.072 + 0.040)
    x.slow.value = 0
    assert pplab.makespan(x.predicted) == pytest.approx(8 * 0.072 + 0.060)


def test_stages_share_their_devices_passes_and_the_slow_one_stays_in_reach(instead):
    x = explore_runs("interleaved-1f1b", 4, 8, slow_stage=7)
    assert (x.slow.max, x.workload.forward_ms) == (7, (10.0,) * 8)
    x.schedule.value = "1f1b"
    assert (x.slow.max, x.slow.value) == (3, 3)
    assert x.workload.backward_weight_ms == (20.0,) * 4


def test_a_click_shows_the_run_under_the_prediction(instead):
    asked = []
    stored = stored_run("1f1b_d4")
    instead(lambda *a, **k: asked.append((a, k, x.go.disabled)) or stored)
    x = explore_runs()
    x.go.click()
    ((schedule, workload), options, disabled), *more = asked
    assert not more and disabled and not x.go.disabled
    assert schedule == pplab.one_f_one_b(4, 8) and workload.forward_ms == (20.0,) * 4
    assert options["steps"] < 10
    assert x.result is stored
    assert "predicted, seconds" in x.pictures[0].value and "measured, seconds" in x.pictures[1].value
    widths = [float(re.search(r'<rect class="lane"[^>]*width="([\d.]+)"', html.value)[1]) for html in x.pictures]
    share = pplab.makespan(x.predicted) / stored.step_time
    assert widths[0] / widths[1] == pytest.approx(share, rel=2e-3)  # one axis under both
    measured = cells(x.numbers.value)[1]
    assert measured[0] == "measured" and measured[4] == "4, 3, 2, 1"
    times = stored.step_times
    assert measured[2].split(",")[0] == f"{0.66 / np.median(times) - 1:+.1%}"
    assert measured[2].endswith(f"{0.66 / times.max() - 1:+.1%} to {0.66 / times.min() - 1:+.1%}")
    x.microbatches.value = 9
    assert x.result is None and x.pictures[1].value == ""


@pytest.mark.parametrize(
    ("error", "says"),
    [
        (RunError("rank 1 was killed in <1F3>"), "no run: rank 1 was killed in <1F3>"),
        (ValueError("8 ranks need about 800 MB"), "no run: 8 ranks need about 800 MB"),
        (ImportError("a real run needs PyTorch"), "no run: a real run needs PyTorch"),
        (KeyboardInterrupt(), "interrupted: all processes of the run have ended"),
    ],
)
def test_what_goes_wrong_is_said(instead, error, says):
    instead(raises(error))
    x = explore_runs()
    x.go.click()
    assert says in unescape(x.numbers.value)
    assert x.result is None and not x.go.disabled and x.status.value == ""
    assert [row[0] for row in cells(x.numbers.value)] == ["predicted"]
    x.devices.value = 3
    assert says not in unescape(x.numbers.value)


def test_sizes_that_a_schedule_refuses(instead):
    x = explore_runs("dualpipe-v", 4, 8)
    x.microbatches.value = 7
    assert x.go.disabled and x.predicted is None and x.pictures[0].value == ""
    assert "num_microbatches is 7: dualpipe-v needs 2 · num_devices = 8 or more" in unescape(x.numbers.value)
    x.go.click()  # as a click that was on its way: nothing runs
    x.schedule.value = "gpipe"
    assert not x.go.disabled and x.predicted is not None


def test_only_what_processes_can_run_is_offered(instead):
    assert {"dualpipe", "chimera", "forward-only"} & set(runs.runnable()) == set()
    assert {"naive", "gpipe", "1f1b", "zb-v"} <= set(runs.runnable())
    with pytest.raises(ValueError, match="schedule is 'dualpipe': choose one of naive"):
        explore_runs("dualpipe")
    with pytest.raises(ValueError, match="devices D is 9: give a whole number from 1 to 8"):
        explore_runs(num_devices=9)
    assert "nothing runs before you press" in repr(explore_runs())


def test_a_real_run_and_one_that_is_interrupted(monkeypatch):
    pytest.importorskip("torch")
    x = explore_runs("gpipe", 2, 2, forward_ms=5, backward_ms=5)
    x.go.click()
    assert x.result is not None, x.numbers.value
    assert x.result.live_chunks == (2, 2) and x.result.bit_equal
    assert x.result.workload == x.workload
    x = explore_runs("naive", 2, 16, forward_ms=50, backward_ms=100)  # takes 30 s
    timer = threading.Timer(0.5, os.kill, (os.getpid(), signal.SIGINT))

    def start_and_interrupt(*sizes, **options):
        timer.start()  # only now: an interrupt before or after the run would end the tests
        return run(*sizes, **options)

    monkeypatch.setattr("pplab.widgets.runs.run", start_and_interrupt)
    x.go.click()
    assert "interrupted" in x.numbers.value and not launcher._idle
