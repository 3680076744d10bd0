"""search: legal, within the limit, never worse than what is named or printed, and optimal where a solver can say so."""

import json
import random
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from exact import Case, shortest
from hypothesis import given
from hypothesis import strategies as st
from reference import examples

import pplab
from pplab.placement import PLACEMENTS

TABLE5 = json.loads((Path(__file__).parent / "data" / "zero_bubble_table5.json").read_text())
SPLIT_MODELS = {model["model"]: model for model in TABLE5["models"]}


def held(t, take, keep):
    """The most that each device holds, moment by moment: what is freed at a moment goes before what is taken then."""
    changes = [[] for _ in range(t.schedule.num_devices)]
    for span in t:
        whole, left = take[span.stage], keep[span.stage]
        when = {"F": (span.start, 1), "I": (span.end, 0), "W": (span.end, 0), "B": (span.end, 0)}[span.kind]
        amount = {"F": whole, "I": left - whole, "W": -left, "B": -whole}[span.kind]
        changes[span.device].append((*when, amount))
    return [max(np.cumsum([amount for *_, amount in sorted(row)])) for row in changes]


def longest(t, over):
    """The makespan, or the longest time from a device's own first start to its last end."""
    if over == "makespan":
        return max(t.end) - min(t.start)
    return max(max(t.end[a:b]) - min(t.start[a:b]) for a, b in t.schedule.row_slices)


# ── Against the paper ─────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("name", ["ZB-1p", "ZB-2p"])
@pytest.mark.parametrize("row", TABLE5["rows"], ids=lambda row: f"{row['model']}-{row['m']}")
def test_never_worse_than_the_zero_bubble_papers_own_search(row, name):
    """Qi et al. 2024, table 5: limits of p and 2p micro-batches, of which W's part is 32sbh of sb(34h + 5as)."""
    model, p = SPLIT_MODELS[row["model"]], row["p"]
    weights = 32 * model["hidden"] / (34 * model["hidden"] + 5 * model["heads"] * model["seq"])
    costs = pplab.Costs(forward=row["T_F"], backward_input=row["T_B"], backward_weight=row["T_W"], hop=row["T_comm"])
    limit = {"ZB-1p": p, "ZB-2p": 2 * p}[name]
    s = pplab.search(costs, p, row["m"], memory_limit=limit, weight_activation=weights, over="span")
    t = pplab.simulate(s, costs)
    assert pplab.bubble_fraction(t, over="span") <= row["paper_bubble_rate"][name] + 5e-5
    assert max(held(t, [1] * p, [weights] * p)) <= limit + 1e-9
    assert s.gap < (1e-9 if name == "ZB-1p" else 0.01)  # the paper's ZB-1p, which is ZB-H1 there, cannot be beaten


# ── Against an exact solver ───────────────────────────────────────────────────────────────────────────────────────


def drawn(seed, chunks):
    """A small random case: stages alike or not, hops or none, limits from the tightest to none."""
    dice = random.Random(seed)
    devices, microbatches = (dice.randint(1, 3), dice.randint(1, 4)) if chunks == 1 else (2, dice.randint(1, 3))
    stages = devices * chunks
    alike = dice.random() < 0.4
    times = [[dice.randint(1, 4)] * stages if alike else [dice.randint(1, 6) for _ in range(stages)] for _ in "FIW"]
    hop = [dice.choice([0, 0, 1, 2, 3]) for _ in range(stages - 1)]
    placement = PLACEMENTS[dice.choice(["wrap", "v"]) if chunks > 1 else "wrap"](devices, chunks).tolist()
    take = [dice.randint(1, 4) for _ in range(stages)]
    keep = [dice.randint(0, x) for x in take] if dice.random() < 0.5 else take
    least = [sum(take[s] for s in row) for row in placement]
    limit = [x + dice.choice([0, 0, 1, x // 2, x, 2 * x]) for x in least] if dice.random() < 0.85 else None
    return Case(placement, microbatches, *times, hop, take, keep, limit, dice.choice(["makespan", "span"]))


@pytest.mark.parametrize("seed", range(42))
def test_as_short_as_an_exact_solver_proves_possible(seed):
    case = drawn(seed, chunks=1 if seed % 3 else 2)
    devices, chunks = np.shape(case.placement)
    costs = pplab.Costs(case.forward, case.backward_input, case.backward_weight, case.hop or 0.0)
    memory = {"memory_limit": case.limit, "activation": case.take, "weight_activation": case.keep}
    s = pplab.search(costs, devices, case.num_microbatches, chunks, placement=case.placement, over=case.over, **memory)
    best, t = shortest(case), pplab.simulate(s, costs)
    quick = pplab.search(
        costs, devices, case.num_microbatches, chunks, placement=case.placement, over=case.over, effort=0, **memory
    )
    assert s.length == longest(t, case.over) == best
    assert quick.bound <= s.bound <= best + 1e-9  # without effort nothing is proved by trying: the bound alone
    if case.limit is not None:
        assert (np.array(held(t, case.take, case.keep)) <= case.limit).all()


# ── Against what is named ─────────────────────────────────────────────────────────────────────────────────────────

TIME = st.integers(0, 24).map(lambda n: n / 4)


@given(st.data())
@examples(40)
def test_between_its_bound_and_the_best_named_schedule_that_fits(data):
    devices, microbatches, chunks = (data.draw(st.integers(1, most)) for most in (4, 7, 2))
    stages = devices * chunks
    placement = data.draw(st.sampled_from(["wrap", "v"]))
    f, i, w = (data.draw(st.lists(TIME, min_size=stages, max_size=stages)) for _ in range(3))
    costs = pplab.Costs(f, i, w, data.draw(TIME))
    limit = data.draw(st.none() | st.lists(st.integers(2, 12).map(lambda n: n / 2), min_size=devices, max_size=devices))
    over = data.draw(st.sampled_from(["makespan", "span"]))
    s = pplab.search(costs, devices, microbatches, chunks, limit, placement=placement, over=over, effort=200)
    take = [1 / chunks] * stages
    t = pplab.simulate(s, costs)
    assert s.bound <= s.length == longest(t, over)
    assert limit is None or (np.array(held(t, take, take)) <= np.array(limit) + 1e-9).all()
    for build in pplab.SCHEDULES.values():
        try:
            other = build(devices, microbatches, **({"num_chunks": 2} if chunks == 2 else {}))
        except ValueError:
            continue
        if other.placement != s.placement or not other.is_kind("BI").any() or other.paired.any():
            continue
        theirs = pplab.simulate(other, costs)
        if limit is None or (np.array(held(theirs, take, take)) <= limit).all():
            assert s.length <= longest(theirs, over) * (1 + 1e-9), other.name


def test_proved_best_where_a_closed_form_is_known():
    """F = I = W = 1: ZB-H1's 3M + D − 1 slots at D micro-batches; whole backwards take 3(M + D − 1) as in 1F1B."""
    s = pplab.search(None, 4, 8, memory_limit=4)
    assert (s.length, s.bound, s.gap) == (27, 27, 0)
    whole = pplab.search(None, 4, 8, memory_limit=4, split=False)
    assert whole.length == whole.bound == 33
    assert not whole.is_kind("IW").any()


def test_one_micro_batch_at_a_time_where_no_more_fits():
    """Each passes all forwards and backwards before device 0 has room: M(D(F + I) + W) − what W overlaps, at D = 3."""
    s = pplab.search(None, 3, 4, memory_limit=1)
    assert s.length == s.bound == 4 * (3 * 2 + 1)


# ── What the result says, and errors ──────────────────────────────────────────────────────────────────────────────


def test_says_how_far_it_is_from_the_bound():
    s = pplab.search(None, 4, 8, memory_limit=4)
    assert repr(s).endswith("96 ops; makespan 27, equal to the lower bound>")
    assert str(s).endswith("makespan 27, equal to the lower bound")
    far = pplab.search(pplab.Costs(hop=0.25), 8, 24, memory_limit=5, over="span", effort=0)
    assert far.gap == far.length / far.bound - 1 > 0.01
    assert f"longest span {far.length:g}, at most {far.gap:.2%} above the lower bound" in repr(far)
    assert isinstance(s, pplab.Schedule)
    assert s.name == "search"


def test_the_same_in_every_process():
    code = "import pplab; s = pplab.search(pplab.Costs([1, 2, 1, 3], 1.3, 0.7, 0.1), 4, 9, memory_limit=5); print(s)"
    texts = {
        subprocess.run(
            [sys.executable, "-c", code], env={"PYTHONHASHSEED": seed}, capture_output=True, text=True, check=True
        ).stdout
        for seed in ("1", "2")
    }
    assert len(texts) == 1
    assert "lower bound" in texts.pop()


def test_a_hop_that_keeps_devices_busy_counts_too():
    for how in ({"blocking": True}, {"links": True}):
        costs = pplab.Costs(hop=0.5, **how)
        s = pplab.search(costs, 3, 6, memory_limit=3)
        t = pplab.simulate(s, costs)
        assert s.bound <= s.length == pplab.makespan(t)
        assert s.length <= pplab.makespan(pplab.simulate(pplab.SCHEDULES["zb-h1"](3, 6), costs))


def test_costs_of_each_micro_batch():
    costs = pplab.Costs(forward=[[1, 2, 1], [3, 1, 1]], backward_input=1.0, backward_weight=1.0)
    s = pplab.search(costs, 2, 3)
    assert s.bound <= s.length == pplab.makespan(pplab.simulate(s, costs))


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"memory_limit": 0.5}, "memory_limit is 0.5 on device 0, but one micro-batch alone takes 1 there, since all"),
        ({"memory_limit": [4, 4, 0.25, 4]}, r"0.25 on device 2, .*: give 1 or more"),
        ({"memory_limit": -1}, "memory_limit is -1: it must be finite and not negative"),
        ({"memory_limit": float("inf")}, "memory_limit is inf: it must be finite and not negative; give None for any"),
        ({"num_microbatches": 10_000}, "num_chunks is 40,000: a search .* at most 16,384"),
        ({"memory_limit": [4, 4]}, "memory_limit has 2 values for 4 devices: give one a device, or one number"),
        ({"memory_limit": "much"}, "memory_limit is 'much': give a number, or one number a device"),
        ({"activation": [1, 2]}, "activation has 2 values for 4 stages"),
        ({"weight_activation": 2}, "weight_activation of stage 0 is 2, but its F takes 1"),
        ({"over": "all"}, "over is 'all': choose 'makespan' or 'span'"),
        ({"effort": -1}, "effort is -1: give how many moves to try"),
        ({"effort": 1.5}, "effort is 1.5"),
        ({"num_devices": 0}, "num_devices is 0"),
        ({"num_microbatches": 2.5}, "num_microbatches is 2.5"),
        ({"placement": "ring"}, "placement is 'ring': there are wrap, v, or a table of stages"),
        ({"placement": [[0, 1], [2, 3]]}, "2 devices with 2 stages each, but num_devices is 4 and num_chunks is 1"),
        ({"costs": pplab.Costs(forward=[1, 2])}, "forward has 2 values, but the schedule has 4"),
    ],
)
def test_errors_say_what_to_give(change, words):
    arguments = {"costs": None, "num_devices": 4, "num_microbatches": 8} | change
    with pytest.raises(ValueError, match=words):
        pplab.search(**arguments)


def test_costs_of_another_type_are_refused():
    with pytest.raises(TypeError, match=r"give pplab\.Costs"):
        pplab.search(3.0, 4, 8)
