"""Plans for devices with several stages: one micro-batch's passes at fixed times, and the same again every period.

The building blocks of Qi et al. 2024, Pipeline Parallelism with Controllable Memory (arXiv 2405.15362, section 3), and
between them. The slower the forwards go down the devices and the backwards come up, the more is held, and the more
room there is for other passes. W has no place in a plan: it runs where a device would wait, or has no room.
"""

from __future__ import annotations

from itertools import pairwise, product

from pplab._search.greedy import Policy
from pplab._search.problem import F, I, Problem

_STEPS = (1, 2, 3)  # slots from a device to the next, of even chunks and of odd ones
_GAPS = ((0, 0, 0), (0, 0, 1), (2, 0, 2), (3, 0, 4))  # slots more at a turn: forward, at the last stage, backward


def plans(p: Problem) -> list[Policy]:
    """A plan for all steps and gaps; none where each device has one stage: list scheduling does as well there."""
    if p.num_stages == len(p.on):
        return []
    return [_plan(p, steps, gaps) for steps in product(_STEPS, repeat=2) for gaps in _GAPS]


def _plan(p: Problem, steps: tuple[int, ...], gaps: tuple[int, ...]) -> Policy:
    """Each device's forwards and backwards by the times of their micro-batch and the period between two of them."""
    stages, devices = range(p.num_stages), len(p.on)
    chain = [*((F, s) for s in stages), *((I, s) for s in reversed(stages))]
    at = {chain[0]: 0.0}
    for here, there in pairwise(chain):
        first = min(here[1], there[1])
        if here[0] != there[0]:
            step = 1 + gaps[1]
        elif p.device[here[1]] == p.device[there[1]]:
            step = 1 + gaps[0 if here[0] == F else 2]
        else:
            step = steps[first // devices % 2]
        at[there] = at[here] + step
    # A device of V stages works 3V slots a micro-batch; it must wait longer where it could not hold that many.
    held = [sum((at[I, s] - at[F, s] + 1) * p.take[s] for s in row) / (p.limit[d] or 1.0) for d, row in enumerate(p.on)]
    period = max(3 * p.num_stages / devices, *held)
    order = []
    for row in p.on:
        times = [(at[k, s] + period * m, k, s) for k in (F, I) for s in row for m in range(p.num_microbatches)]
        order.append([(k, s) for _, k, s in sorted(times)])
    return Policy((), "F", 0.0, True, order)
