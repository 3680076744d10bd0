"""Training without a flush: each stage updates its weights as gradients arrive, and which version a pass then meets.

A stage's version is the number of updates that it has made. Under 1F1B, micro-batch m goes forward on stage k before
the last D − 1 − k backwards are back, so with an update after each backward it meets version m − (D − 1 − k): the
first stage has the oldest weights, the last one none that are old. By the time that it comes back, the stage is
D − 1 − k updates further. MODES says what is done about that.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from pplab.costs import Costs
from pplab.machine import Machine, check_data, check_split, order_of
from pplab.presets import check_number, check_whole
from pplab.schedule import Schedule
from pplab.schedules import SCHEDULES
from pplab.schedules._sizes import check_sizes
from pplab.simulate import simulate
from pplab.stage import ACTIVATIONS, MLP, Layer
from pplab.timeline import Timeline

# Each mode, and which version a micro-batch's passes use.
MODES = {
    "synchronous": "the only one: the pipeline is flushed before each update (1F1B)",
    "stashed": "forward the newest of the stage, backward the same again, kept until then (PipeDream)",
    "unstashed": "forward the newest of the stage, backward the newest again, which is another one by then",
    "vertical": "on every stage the one that the first stage had when the micro-batch entered (vertical sync)",
    "2bw": "the last but one; an update comes once in so many micro-batches, and averages them (PipeDream-2BW)",
}
_ONE_AT_A_TIME = ("stashed", "unstashed", "vertical")


@dataclass(frozen=True, eq=False)
class Training:
    """What came of a training run: D stages, N micro-batches, U updates of each stage. Arrays are read-only.

    losses (U + 1,) : mean squared error over the whole batch, of the weights after 0, 1, … U updates on every stage;
        inf where they have outgrown floating-point numbers.
    times (U + 1,) : when stage 0, the last to do so, had made that update, in the unit of the costs.
    microbatches (U + 1,) : how many micro-batches those updates are made of.
    versions (D, N) : the version that each micro-batch met on its way forward.
    staleness (D, U) : how many updates the stage had made since, when it made the one with that micro-batch in it.
    versions_held (D,) : the most versions that each stage kept at once, the newest included.
    weights : after the last update, one array a layer. timeline : the simulated times of all passes.
    """

    mode: str
    timeline: Timeline
    losses: np.ndarray
    times: np.ndarray
    microbatches: np.ndarray
    versions: np.ndarray
    staleness: np.ndarray
    versions_held: np.ndarray
    weights: tuple[np.ndarray, ...]

    def __post_init__(self) -> None:
        for name in ("losses", "times", "microbatches", "versions", "staleness", "versions_held"):
            getattr(self, name).flags.writeable = False
        for array in self.weights:
            array.flags.writeable = False

    @property
    def diverged(self) -> bool:
        """Whether the last loss is 1,000 times the first, or more."""
        return bool(self.losses[-1] >= 1e3 * self.losses[0])

    def time_to(self, target: float, microbatches: int = 1) -> float:
        """When the mean loss over the last so many micro-batches first was ``target`` or less; inf if it never was.

        With the micro-batches of one pass over the data, a dip of a curve that still swings does not count.
        Raises ValueError for no number, and for fewer micro-batches than 1 or more than the run has.
        """
        check_number("target", target)
        check_whole(microbatches=microbatches)
        count = max(1, microbatches // int(self.microbatches[1]))
        if count >= len(self.losses):
            raise ValueError(f"microbatches is {microbatches}: this run has {self.microbatches[-1]}, so give 1 to that")
        means = np.convolve(self.losses, np.full(count, 1 / count), "valid")
        reached = self.times[count - 1 :][means <= target]
        return float(reached[0]) if len(reached) else np.inf

    def __repr__(self) -> str:
        first, last = self.losses[[0, -1]]
        return f"<Training, {self.mode}: {len(self.losses) - 1} updates, loss {first:.4g} → {last:.4g}>"


def train(
    model: MLP,
    batch: Any,
    targets: Any,
    mode: str = "synchronous",
    *,
    learning_rate: float,
    num_devices: int,
    num_microbatches: int,
    passes: int = 1,
    per_update: int | None = None,
    costs: Costs | None = None,
) -> Training:
    """Train a model on arrays by gradient descent, one stage a device, in one of MODES, and time it with costs.

    The batch is cut into equal micro-batches, which run through the pipeline ``passes`` times; the loss is the mean
    squared error. An update takes learning_rate times the mean gradient of ``per_update`` micro-batches: all of them
    unless given, where "synchronous" flushes for it; also for "2bw", which needs D or more of them; 1 in other modes.
    Under "2bw" micro-batch n, from 0, uses version max(⌊n / per_update⌋ − 1, 0); D is its paper's rule, in this order
    D − 1 would just do. An update takes no time.

    Raises ValueError for an unknown mode, sizes that do not fit, numbers that are not finite; TypeError for no model.
    Narayanan et al. 2019, PipeDream (SOSP), section 3.3; 2021, PipeDream-2BW (arXiv 2006.09503), section 3.1.
    """
    check_mode(mode)
    check_number("learning_rate", learning_rate, positive=True)
    check_sizes(num_devices=num_devices, num_microbatches=num_microbatches)
    check_whole(passes=passes)
    per_update = _check_per_update(mode, num_devices, num_microbatches, per_update)
    x, y = check_data(model, batch, targets)
    check_split(len(x), num_microbatches, unequal=False)
    count = num_microbatches * passes
    if mode == "synchronous":
        s = flushed(num_devices, per_update, count // per_update)
    else:
        s = SCHEDULES["pipedream"](num_devices, count)
    t = simulate(s, costs)
    trainer = _Trainer(s, model, x, y, mode, learning_rate, num_microbatches, per_update)
    with np.errstate(over="ignore", invalid="ignore"):  # a run that diverges is an answer, too
        for i in order_of(s, s):
            trainer.step(i)
    ends = np.sort(t.end[(t.device == 0) & s.is_kind("B")])
    return Training(
        mode,
        t,
        np.nan_to_num(trainer.losses, nan=np.inf),
        np.r_[t.start.min(), ends[per_update - 1 :: per_update]],
        per_update * np.arange(len(trainer.losses)),
        trainer.versions,
        np.array(trainer.staleness),
        np.array(trainer.most_kept),
        tuple(layer.weights for k in range(num_devices) for layer in trainer.kept[k][trainer.newest[k]]),
    )


def check_mode(mode: object) -> None:
    """Raise ValueError, which lists the modes, for what is none."""
    if not isinstance(mode, str) or mode not in MODES:
        raise ValueError(f"mode is {mode!r:.40}: choose one of {', '.join(MODES)}")


class _Trainer(Machine):
    """The machine that also updates: ``kept[stage][version]``, and ``newest[stage]``, the version it is at."""

    def __init__(
        self, s: Schedule, model: MLP, x: np.ndarray, y: np.ndarray, mode: str, rate: float, parts: int, per_update: int
    ) -> None:
        xs, ys = (np.split(array, parts) * (s.num_microbatches // parts) for array in (x, y))
        cut = model.cut(s.num_stages)
        super().__init__(s, cut, xs, ys, [1 / per_update] * s.num_microbatches)
        self.data, self.mode, self.rate, self.per_update = (x, y), mode, rate, per_update
        self.versions = versions_met(s, mode, per_update)
        self.kept = [{0: layers} for layers in cut]
        self.newest, self.most_kept = [0] * len(cut), [1] * len(cut)
        self.staleness: list[list[int]] = [[] for _ in cut]
        self.made: dict[int, list[Layer]] = {}
        self.losses = [_loss(model.cut(1)[0], x, y)]

    def step(self, i: int) -> None:
        """Run op i with the version that is its due; after a backward, update if it is time, and forget the rest."""
        k, kind, m = self.schedule.op(i)
        stage = self.stages[k, k]
        again = kind == "B" and self.mode == "unstashed"
        stage.layers = self.kept[k][self.newest[k] if again else int(self.versions[k, m])]
        super().step(i)
        if kind == "B" and (m + 1) % self.per_update == 0:
            self.staleness[k].append(self.newest[k] - int(self.versions[k, m]))
            self._update(k)
            due = () if self.mode == "unstashed" else self.versions[k, m + 1 :]
            self.kept[k] = {v: layers for v, layers in self.kept[k].items() if v == self.newest[k] or v in due}
            self.most_kept[k] = max(self.most_kept[k], len(self.kept[k]))

    def _update(self, k: int) -> None:
        """The next version of a stage; once the first stage has it, all have, and the loss can be told."""
        stage, old = self.stages[k, k], self.kept[k][self.newest[k]]
        new = [Layer(w - self.rate * g, name) for (w, name), g in zip(old, stage.gradients, strict=True)]
        stage.gradients = [np.zeros_like(layer.weights) for layer in new]
        self.newest[k] += 1
        self.kept[k][self.newest[k]] = new
        whole = self.made[self.newest[k]] = new + self.made.pop(self.newest[k], [])
        if k == 0:
            self.losses.append(_loss(whole, *self.data))
            del self.made[self.newest[k]]


def _loss(layers: list[Layer], x: np.ndarray, y: np.ndarray) -> float:
    """Mean squared error of the whole batch."""
    for layer in layers:
        x = ACTIVATIONS[layer.activation][0](x @ layer.weights)
    return float(np.mean((x - y) ** 2))


def versions_met(s: Schedule, mode: str = "stashed", per_update: int = 1) -> np.ndarray:
    """The version of each stage that each micro-batch meets on its way forward, (num_stages, num_microbatches).

    s : of one stage a device, updated after every ``per_update`` backwards. Raises ValueError for an unknown mode.
    """
    check_mode(mode)
    out = np.empty((s.num_stages, s.num_microbatches), int)
    if mode == "2bw":
        out[:] = np.maximum(np.arange(s.num_microbatches) // per_update - 1, 0)
        return out
    for k, (a, b) in enumerate(s.row_slices):
        updates, forward = np.cumsum(s.is_kind("B")[a:b]) // per_update, s.is_kind("F")[a:b]
        out[k, s.microbatch[a:b][forward]] = updates[forward]
    if mode == "vertical":
        out[:] = out[0]
    return out


def flushed(num_devices: int, num_microbatches: int, num_steps: int) -> Schedule:
    """Step after step of 1F1B as one schedule, each of so many micro-batches and with a flush behind it.

    Micro-batches are numbered on from step to step. Raises ValueError for sizes below 1.
    """
    check_whole(num_steps=num_steps)
    step = SCHEDULES["1f1b"](num_devices, num_microbatches)
    device, kind, microbatch = (
        np.concatenate([np.tile(column[a:b], num_steps) for a, b in step.row_slices])
        for column in (step.device, step.kind, step.microbatch)
    )
    before = np.tile(np.repeat(np.arange(num_steps) * num_microbatches, 2 * num_microbatches), num_devices)
    return Schedule.from_columns(device, device, kind, microbatch + before, name="1f1b, flushed")


def _check_per_update(mode: str, num_devices: int, num_microbatches: int, per_update: int | None) -> int:
    """How many micro-batches an update averages: the mode's own number unless given."""
    if per_update is None:
        per_update = 1 if mode in _ONE_AT_A_TIME else num_microbatches
    check_whole(per_update=per_update)
    if mode in _ONE_AT_A_TIME and per_update != 1:
        raise ValueError(
            f"per_update is {per_update}, but {mode} updates after every backward: leave it out, or choose 2bw"
        )
    if num_microbatches % per_update:
        whole = [n for n in range(1, num_microbatches + 1) if num_microbatches % n == 0]
        near = [*[n for n in whole if n < per_update][-1:], *[n for n in whole if n > per_update][:1]]
        raise ValueError(
            f"{num_microbatches} micro-batches do not make whole updates of per_update = {per_update}: the nearest "
            f"that do have {' and '.join(map(str, near))}"
        )
    if mode == "2bw" and per_update < num_devices:
        raise ValueError(
            f"per_update is {per_update}, but 2bw needs {num_devices} micro-batches an update or more, one a device: "
            f"its last version but one is then there in time; give per_update={num_devices} or more, and as many"
        )
    return int(per_update)
