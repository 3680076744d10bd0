"""fit_costs: from timelines whose costs are known, it finds them again; their makespan is then predicted exactly."""

import numpy as np
import pytest

import pplab
from pplab import SCHEDULES, Costs, Timeline, makespan, simulate
from pplab.distributed import Emulated, RunResult
from pplab.fitted import fit_costs

COSTS = dict(forward=[2.0, 3.0, 2.5, 2.0], backward_input=[1.5, 2.0, 2.0, 1.0], backward_weight=[1.0, 1.5, 1.0, 2.0])
ONE_CHUNK = ["naive", "gpipe", "1f1b", "eager-1f1b", "zb-h1", "zb-h2"]


def as_measured(s, costs, gap=0.0):
    """What a run would measure if each op were followed by a pause of the given length, which is not its own."""
    work = Costs(**{name: np.array(values) + gap for name, values in costs.items() if name != "hop"}, hop=costs["hop"])
    if "backward" not in costs and s.is_kind("B").any():
        both = np.array(costs["backward_input"]) + costs["backward_weight"]
        rest = {name: values for name, values in costs.items() if not name.startswith("backward")}
        return as_measured(s, rest | {"backward": both}, gap)
    t = simulate(s, work)
    return Timeline(s, t.start + gap, t.end, measured=True)


@pytest.mark.parametrize("name", ONE_CHUNK)
@pytest.mark.parametrize("hop", [0.0, 0.1, 0.7])
@pytest.mark.parametrize("gap", [0.0, 0.2])
def test_known_costs_are_found_again(name, hop, gap):
    s = SCHEDULES[name](4, 8)
    t = as_measured(s, COSTS | {"hop": hop}, gap)
    fitted = fit_costs(t)
    again = simulate(s, fitted)
    assert again.end - gap == pytest.approx(t.end - t.start.min(), abs=1e-6)
    assert fitted.hop == pytest.approx(hop, abs=1e-6)
    assert np.asarray(fitted.forward) == pytest.approx(np.array(COSTS["forward"]) + gap, abs=1e-6)


def test_what_is_fitted_on_one_schedule_predicts_another():
    fitted = fit_costs(as_measured(SCHEDULES["1f1b"](4, 8), COSTS | {"hop": 0.3}))
    other = SCHEDULES["gpipe"](4, 12)
    assert makespan(simulate(other, fitted)) == pytest.approx(makespan(simulate(other, Costs(**COSTS, hop=0.3))))


def test_half_of_a_pair_goes_to_each_op():
    s = SCHEDULES["dualpipe-v"](4, 8)
    t = simulate(s, Costs(1.0, 1.0, 1.0, hop=0.0))
    fitted = fit_costs(Timeline(s, t.start, t.end, measured=True))
    assert makespan(simulate(s, fitted)) == pytest.approx(makespan(t), rel=0.02)


def test_a_run_is_fitted_by_the_medians_of_its_steps():
    """One of three steps is three times as slow: the median does not see it."""
    s = pplab.one_f_one_b(2, 4)
    t = simulate(s, Costs(forward=1.0, backward=2.0, hop=0.1))
    start, end = (np.stack([x, 3 * x, x]) for x in (t.start, t.end))
    r = RunResult(s, Emulated(1000, 1000, 1000), "rows", "CPU", start, end, (1.0,) * 3, {}, None, 2)
    assert makespan(simulate(s, r.fit_costs())) == pytest.approx(makespan(t))
    assert r.prediction_error(r.fit_costs())["median"] == pytest.approx(0, abs=1e-6)
    assert r.prediction_error()["median"] == pytest.approx(15 / makespan(t) - 1)  # (M + 1)(F + B), without hops


def test_one_op_and_a_simulated_timeline():
    t = simulate(pplab.gpipe(1, 1), Costs(forward=1.0, backward=2.0))
    fitted = fit_costs(Timeline(t.schedule, t.start, t.end, measured=True))
    assert makespan(simulate(t.schedule, fitted)) == pytest.approx(3)
    with pytest.raises(ValueError, match="this timeline is simulated: fit_costs wants a measured one"):
        fit_costs(t)
