"""Costs: how long an op takes on its stage, and how long a message travels."""

from __future__ import annotations

from dataclasses import InitVar, dataclass, fields
from typing import Any

import numpy as np

from pplab.schedule import Schedule, check_schedule

_PASSES = ("forward", "backward_input", "backward_weight", "backward")
_BOUNDARIES = ("hop", "transfer", "message_bytes", "bandwidth")
Cost = Any  # a number, or one value a stage (a boundary for hop): anything that NumPy reads as such


@dataclass(frozen=True, eq=False)
class Costs:
    """Time of each pass and hop, in seconds or slots: one unit throughout, and times come out in it.

    A scalar holds for all stages; a sequence gives one value a stage (``hop`` and ``transfer``: one a boundary
    between stages k and k + 1, so num_stages − 1 of them). A pass may also be given as a table, a row a
    stage and a column a micro-batch: layers that route their tokens do not always cost the same.

    Parameters
    ----------
    forward, backward_input, backward_weight : what F, I and W take.
    backward : what B takes; I + W unless given. Given alone, I and W take half of it each.
    pair : what a pair of ops that run as one takes, by the stage of its first op; the sum of both unless given.
    hop : how long a message travels between two devices. It keeps neither busy; between two stages
        of one device nothing travels.
    message_bytes, bandwidth : bytes of a message, and bytes a second (or a slot) that the link
        carries one way; their quotient is ``transfer``, and is added to ``hop``.
    blocking : a hop keeps both ends busy instead. The sender is busy for it right after its op; the
        receiver takes it, for as long, before the op that needs it, and may begin as soon as the
        sender does. The sender does not wait for the receiver. This time is communication, not work.
    links : messages queue instead. There is one link a direction between two devices; it carries one message
        at a time, in the order in which they were made, and a message occupies it for ``transfer``, all of
        ``hop`` unless given. What ``hop`` is longer than that is latency, and keeps nothing busy.

    Raises
    ------
    ValueError : a cost that is negative, not finite or no number; a bandwidth without message_bytes,
        or of 0; blocking and links together; a transfer longer than the hop; a sequence whose length is not the
        schedule's number of stages (when it is used).
    """

    forward: Cost = 1.0
    backward_input: Cost = None
    backward_weight: Cost = None
    hop: Cost = 0.0
    backward: Cost = None
    pair: Cost = None
    blocking: bool = False
    links: bool = False
    transfer: Cost = None
    message_bytes: InitVar[float | None] = None
    bandwidth: InitVar[float | None] = None

    def __post_init__(self, message_bytes: float | None, bandwidth: float | None) -> None:
        half = 1.0 if self.backward is None else _numbers("backward", self.backward, 2) / 2
        for name in ("backward_input", "backward_weight"):
            if getattr(self, name) is None:
                object.__setattr__(self, name, half)
        for field in fields(self):
            value = getattr(self, field.name)
            if field.name in ("blocking", "links"):
                if not isinstance(value, (bool, np.bool_)):
                    raise ValueError(f"{field.name} must be True or False, not {value!r:.60}")
            elif value is not None or field.name in ("forward", "hop"):
                object.__setattr__(self, field.name, _numbers(field.name, value, 2 if field.name in _PASSES else 1))
        if message_bytes is not None or bandwidth is not None:
            if self.transfer is not None:
                raise ValueError("transfer is message_bytes / bandwidth: pass these two, or transfer, not both")
            transfer = _travel(message_bytes, bandwidth)
            _check_as_many("message_bytes / bandwidth", transfer, self.hop)
            object.__setattr__(self, "transfer", transfer)
            object.__setattr__(self, "hop", _numbers("hop", self.hop + transfer))
        if self.blocking and self.links:
            raise ValueError("blocking and links are two ways to send a message: choose one of them")
        if self.transfer is not None:
            _check_as_many("transfer", self.transfer, self.hop)
        if self.transfer is not None and np.any(self.transfer > self.hop):
            raise ValueError(
                "transfer is longer than hop: it is the part of the hop in which a message occupies its link"
            )

    @classmethod
    def per_device(
        cls,
        schedule: Schedule,
        forward: float = 1.0,
        backward: float | None = None,
        backward_input: float | None = None,
        backward_weight: float | None = None,
        **others: Any,
    ) -> Costs:
        """Equal stages, given what one micro-batch costs a device in all its stages.

        A stage costs total · num_devices / num_stages, so schedules with several chunks a device compare
        fairly. ``backward`` is I + W unless given; ``others`` are passed on as they are.
        """
        check_schedule(schedule)
        share = schedule.num_devices / schedule.num_stages
        totals = dict(
            forward=forward, backward=backward, backward_input=backward_input, backward_weight=backward_weight
        )
        if backward is None:
            totals |= {k: 1.0 for k in ("backward_input", "backward_weight") if totals[k] is None}
        scaled: dict[str, Any] = {k: _numbers(k, v) * share for k, v in totals.items() if v is not None}
        return cls(**scaled, **others)

    def of_ops(self, schedule: Schedule) -> np.ndarray:
        """What each op takes alone, one entry an op. Raises ValueError where a cost does not fit the stages."""
        names = {"F": "forward", "I": "backward_input", "W": "backward_weight"}
        if self.backward is not None:
            names = {"B": "backward"} | names  # first, since I and W may be halves of it
        each = {k: self._table(name, getattr(self, name), schedule) for k, name in names.items()}
        each.setdefault("B", each["I"] + each["W"])
        out = np.empty(schedule.num_ops)
        for kind, cost in each.items():
            chosen = schedule.is_kind(kind)
            out[chosen] = cost[schedule.stage[chosen], schedule.microbatch[chosen] * (cost.shape[1] > 1)]
        return out

    def of_nodes(self, schedule: Schedule) -> np.ndarray:
        """What each op, or pair of ops that run as one, takes: one entry a node."""
        alone = self.of_ops(schedule)
        node = schedule.nodes.of_op
        out = np.bincount(node, weights=alone) if schedule.paired.any() else alone
        if self.pair is not None:
            pair = _per("pair", self.pair, schedule.num_stages, "stage")
            out[node[schedule.paired]] = pair[schedule.stage[schedule.paired]]
        return out

    def of_hops(self, schedule: Schedule) -> np.ndarray:
        """How long the message travels that each op waits for; 0 where none comes from another device."""
        return self._of_messages("hop", self.hop, schedule)

    def of_transfers(self, schedule: Schedule) -> np.ndarray:
        """How long the message that each op waits for occupies its link (with ``links``); 0 where there is none."""
        return self._of_messages("transfer", self.hop if self.transfer is None else self.transfer, schedule)

    def _of_messages(self, name: str, cost: float | np.ndarray, schedule: Schedule) -> np.ndarray:
        each = _per(name, cost, schedule.num_stages - 1, "boundary between stages")
        boundary = schedule.stage - schedule.is_kind("F")
        return np.where(schedule.hops, np.append(each, 0.0)[boundary], 0.0)

    def _table(self, name: str, cost: float | np.ndarray, schedule: Schedule) -> np.ndarray:
        """A pass's cost as a table with a row a stage, and one column or one a micro-batch."""
        stages, microbatches = schedule.num_stages, schedule.num_microbatches
        if np.ndim(cost) < 2:
            return _per(name, cost, stages, "stage")[:, None]
        if np.shape(cost) != (stages, microbatches):
            raise ValueError(
                f"{name} is a table of {np.shape(cost)}, but the schedule has {stages} stages and {microbatches} "
                f"micro-batches: give a row a stage and a column a micro-batch"
            )
        return np.asarray(cost)


def check_costs(costs: object) -> Costs:
    """The costs, those of Costs() for None; raises TypeError, with the way out, for anything else."""
    if not isinstance(costs, (Costs, type(None))):
        raise TypeError(f"costs is {costs!r:.60}: give pplab.Costs(…), such as pplab.Costs(forward=1.0, backward=2.0)")
    return costs or Costs()


def _per(name: str, cost: float | np.ndarray, count: int, of_what: str) -> np.ndarray:
    if not isinstance(cost, np.ndarray):
        return np.full(count, cost)
    if len(cost) != count:
        raise ValueError(
            f"{name} has {len(cost)} values, but the schedule has {count}, one a {of_what}: "
            f"give {count} values, or one number for all"
        )
    return cost


def _check_as_many(name: str, cost: float | np.ndarray, hop: float | np.ndarray) -> None:
    if np.ndim(cost) and np.ndim(hop) and np.shape(cost) != np.shape(hop):
        raise ValueError(
            f"{name} has {np.size(cost)} values and hop has {np.size(hop)}: "
            f"both need one a boundary between stages, or one number for all"
        )


def _numbers(name: str, value: Any, most_dimensions: int = 1) -> float | np.ndarray:
    """A cost as a float, or as a read-only array; raises ValueError saying which value is wrong."""
    try:
        array = np.array(value, float)
        readable = value is not None and np.array(value).dtype.kind in "iufO"  # neither texts nor truth values
    except (TypeError, ValueError, OverflowError):
        readable = False
    if not readable or array.ndim > most_dimensions:
        more = "; or give a table, a row a stage and a column a micro-batch" if most_dimensions > 1 else ""
        more = f"; {name} has one a boundary between stages" if name in _BOUNDARIES else more
        raise ValueError(f"{name} must be a number or one number a stage, not {value!r:.60}{more}")
    bad = np.argwhere(~np.isfinite(array) | (array < 0))
    if len(bad):
        which = f"{name}[{', '.join(map(str, bad[0]))}]" if array.ndim else name
        what = {"message_bytes": "bytes", "bandwidth": "bytes a second"}.get(name, "a time")
        raise ValueError(f"{which} is {array[tuple(bad[0])]:g}: {what} must be finite and not negative")
    array.flags.writeable = False
    return array if array.ndim else float(array)


def _travel(message_bytes: float | None, bandwidth: float | None) -> float | np.ndarray:
    if message_bytes is None or bandwidth is None:
        raise ValueError("message_bytes and bandwidth give the hop together: pass both, or neither")
    size, rate = _numbers("message_bytes", message_bytes), _numbers("bandwidth", bandwidth)
    if np.any(rate == 0):
        raise ValueError("bandwidth is 0: nothing would ever arrive; give bytes a second, one way")
    return size / rate
