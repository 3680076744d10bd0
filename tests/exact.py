"""The shortest schedule there is, by a solver that knows nothing of pplab's search: OR-tools' CP-SAT, on whole numbers.

Micro-batches may run in any order here, and each pass starts whenever the rules, its device and its memory let it.
"""

from __future__ import annotations

from typing import NamedTuple

from ortools.sat.python import cp_model


class Case(NamedTuple):
    """Stages of each device; times by stage; hop by boundary; memory that F takes, what I leaves, a limit a device."""

    placement: list[list[int]]
    num_microbatches: int
    forward: list[int]
    backward_input: list[int]
    backward_weight: list[int]
    hop: list[int]
    take: list[int]
    keep: list[int]
    limit: list[int] | None
    over: str = "makespan"


def shortest(case: Case, seconds: float = 60) -> int:
    """The makespan, or the longest span with each device counted from when its first micro-batch can arrive soonest."""
    model, device = cp_model.CpModel(), {s: d for d, row in enumerate(case.placement) for s in row}
    times = {"F": case.forward, "I": case.backward_input, "W": case.backward_weight}
    longest, last = (
        sum(map(sum, times.values())) * case.num_microbatches + 2 * sum(case.hop) * case.num_microbatches,
        max(device),
    )
    hop = [0 if device[s] == device[s + 1] else t for s, t in enumerate(case.hop)]
    start = {
        (s, k, m): model.new_int_var(0, longest, f"{s}{k}{m}")
        for s in device
        for k in "FIW"
        for m in range(case.num_microbatches)
    }
    end = {op: at + times[op[1]][op[0]] for op, at in start.items()}
    for (s, k, m), at in start.items():
        if k == "F" and s > 0:
            model.add(at >= end[s - 1, "F", m] + hop[s - 1])
        if k == "I":
            model.add(at >= end[s, "F", m])
            if s < last:
                model.add(at >= end[s + 1, "I", m] + hop[s])
        if k == "W":
            model.add(at >= end[s, "I", m])
    reach = [sum(case.forward[:s]) + sum(hop[:s]) for s in range(last + 1)]
    length = model.new_int_var(0, longest, "length")
    for d, row in enumerate(case.placement):
        here = [op for op in start if op[0] in row]
        model.add_no_overlap([model.new_fixed_size_interval_var(start[op], times[op[1]][op[0]], "") for op in here])
        offset = reach[min(row)] if case.over == "span" else 0
        for op in here:
            model.add(end[op] - offset <= length)
        if case.limit is not None:
            changes = {"F": case.take, "I": [k - t for k, t in zip(case.keep, case.take, strict=True)],
                       "W": [-k for k in case.keep]}  # fmt: skip
            moments = [start[op] if op[1] == "F" else end[op] for op in here]
            model.add_reservoir_constraint(moments, [changes[op[1]][op[0]] for op in here], 0, case.limit[d])
    model.minimize(length)
    solver = cp_model.CpSolver()
    solver.parameters.num_workers, solver.parameters.random_seed = 1, 0
    solver.parameters.max_time_in_seconds = seconds
    if solver.solve(model) != cp_model.OPTIMAL:
        raise AssertionError(f"the solver did not finish: {case}")
    return round(solver.objective_value)
