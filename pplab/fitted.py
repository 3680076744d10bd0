"""fit_costs: the costs that explain measured times best, for a prediction of other runs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from pplab.costs import Costs
from pplab.schedule import Schedule
from pplab.simulate import simulate
from pplab.timeline import Timeline

if TYPE_CHECKING:
    from pplab.distributed.result import RunResult

_NAMES = {"F": "forward", "I": "backward_input", "W": "backward_weight", "B": "backward"}


def fit_costs(measured: Timeline | RunResult) -> Costs:
    """Costs, in seconds, from a measured timeline or from all steps of a run.

    A pass costs its median over micro-batches and steps, stage by stage, and a little more: between two ops of a
    device some time goes by even where nothing is waited for (a message is handed over, a receive is posted). This
    gap, one for all ops, and the hop between two devices are those two numbers with which ``simulate`` comes
    nearest to the measured ends of the ops, by least squares.
    Raises ValueError for a timeline that is not measured.
    """
    if isinstance(measured, Timeline):
        if not measured.measured:
            raise ValueError("this timeline is simulated: fit_costs wants a measured one, from pplab.distributed.run")
        start, end, s = measured.start[None], measured.end[None], measured.schedule
    else:
        start, end, s = measured.start, measured.end, measured.schedule
    took = _typical(s, end - start)
    ends = np.median(end - start.min(axis=1, keepdims=True), axis=0)
    gap = hop = 0.0
    if s.num_ops > 1:
        gap, hop = _nearest(s, took, ends)
    return _costs(s, took, gap, hop)


def _typical(s: Schedule, took: np.ndarray) -> dict[str, np.ndarray]:
    """The median of each kind on each stage; NaN where a stage has none of a kind. Of a pair, half goes to each op."""
    half = np.ones(s.num_ops)
    half[s.paired] = half[np.flatnonzero(s.paired) + 1] = 0.5
    took = took * half
    out = {}
    for kind in _NAMES:
        columns = [s.is_kind(kind) & (s.stage == k) for k in range(s.num_stages)]
        out[kind] = np.array([np.median(took[:, c]) if c.any() else np.nan for c in columns])
    return out


def _costs(s: Schedule, took: dict[str, np.ndarray], gap: float, hop: float) -> Costs:
    """Costs with the gap in each pass. A kind that no stage runs is left out; one that some lack costs the mean."""
    given: dict[str, Any] = {
        name: np.where(np.isnan(took[kind]), np.nanmean(took[kind]), took[kind]) + gap
        for kind, name in _NAMES.items()
        if not np.isnan(took[kind]).all()
    }
    return Costs(**given, hop=hop)


def _nearest(s: Schedule, took: dict[str, np.ndarray], ends: np.ndarray) -> tuple[float, float]:
    """Gap and hop by Gauss–Newton steps, each halved until it helps: ends depend on both almost linearly."""
    typical = float(np.nanmean(np.concatenate(list(took.values()))))
    x, step = np.zeros(2), 1e-3 * max(typical, 1e-9)

    def away(x: np.ndarray) -> np.ndarray:
        t = simulate(s, _costs(s, took, *x.tolist()))
        return t.end - x[0] - ends  # the step is measured from its first op on, without the gap before it

    error = away(x)
    for _ in range(20):
        slope = np.stack([(away(x + step * unit) - error) / step for unit in np.eye(2)], axis=1)
        move = np.linalg.lstsq(slope, -error, rcond=None)[0]
        for share in 0.5 ** np.arange(8):
            trial = np.maximum(x + share * move, 0.0)
            found = away(trial)
            if found @ found < error @ error:
                break
        else:
            break
        x, error = trial, found
    return float(x[0]), float(x[1])
