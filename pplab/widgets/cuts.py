"""The explorer of cuts: where each stage begins, on sliders, and what that does to the stages and the step."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import ipywidgets as w
import numpy as np

from pplab.bars import stage_bars
from pplab.costs import Costs
from pplab.hardware import ACCELERATORS, layer_times, naive_split
from pplab.idle import idle_by_reason
from pplab.metrics import bubble_fraction, makespan
from pplab.model import MODELS
from pplab.partition import Partition, optimal, uniform
from pplab.presets import check_whole
from pplab.schedules import one_f_one_b
from pplab.simulate import simulate
from pplab.widgets.controls import choice, first_and_more, number, preset, resetter, set_range
from pplab.widgets.player import Player
from pplab.widgets.tables import MS, milliseconds, table

_MOST_STAGES = 8


class CutExplorer(w.VBox):
    """A number of stages and a slider a cut; below, the stages' times, 1F1B with them, and its numbers.

    The model is under "more". Layers are numbered from 0, the embedding; the head is the last. Blocks are shared out
    evenly at first, the embedding on the first stage and the head on the last. Set ``model.value``, ``stages.value`` or
    ``cuts[k].value`` (where stage k + 1 begins) to move a control from code, and call ``uniform.click()`` or
    ``best.click()``; ``partition`` and ``timeline`` hold what is shown, in milliseconds.
    Raises ValueError for a model or accelerator that is not known, and for sizes that make no sense.
    """

    def __init__(
        self,
        model: str = "Llama-3 8B",
        num_stages: int = 4,
        num_microbatches: int = 8,
        accelerator: str = "A100 80GB",
        efficiency: float = 0.5,
        micro_batch_size: int = 1,
    ) -> None:
        check_whole(num_microbatches=num_microbatches, micro_batch_size=micro_batch_size)
        self.num_microbatches, self.micro_batch_size = num_microbatches, micro_batch_size
        self.accelerator, self.efficiency = preset(ACCELERATORS, accelerator), efficiency
        self.model = choice("model", model, MODELS)
        stages_row, self.stages = number("stages D", num_stages, 2, _MOST_STAGES)
        made = [number(f"stage {k} from layer", k, k, k + 1) for k in range(1, _MOST_STAGES)]
        self._rows, self.cuts = [row for row, _ in made], [slider for _, slider in made]
        self._cuts_box = w.VBox()
        self.uniform, self.best = w.Button(description="uniform"), w.Button(description="best")
        self.bars, self.player, self.numbers = w.HTML(), Player(), w.HTML()
        self._busy = False
        self._restart()
        self._observe()
        buttons = w.HBox([self.uniform, self.best])
        controls = first_and_more([stages_row, self._cuts_box, buttons], [self.model])
        super().__init__([*controls, self.bars, self.player, self.numbers])

    def _observe(self) -> None:
        for control in (self.model, self.stages):
            control.observe(self._restart, names="value")
        for place, cut in enumerate(self.cuts):
            cut.observe(partial(self._moved, place), names="value")
        self._reset = resetter(self.model, self.stages)
        self.player.on_reset(self.reset)
        self.uniform.on_click(lambda _: self._set(uniform(len(self._times), self.stages.value)))
        self.best.on_click(lambda _: self._set(optimal(self._times, self.stages.value).sizes))

    def reset(self) -> None:
        """Back to the first model and number of stages, and its blocks shared out evenly."""
        self._reset()
        self._restart()

    def _restart(self, _change: Any = None) -> None:
        """Price the layers of the model that is chosen, and begin with its blocks shared out evenly."""
        model = MODELS[self.model.value]
        self._names = [layer.name for layer in model.layers()]
        seconds = layer_times(model, self.accelerator, self.micro_batch_size, efficiency=self.efficiency)
        self._times = seconds * MS
        self._cuts_box.children = self._rows[: self.stages.value - 1]
        self._set(naive_split(model, self.stages.value))

    def _moved(self, place: int, _change: Any) -> None:
        """A cut was moved: push its neighbours."""
        if not self._busy and place < self.stages.value - 1:
            cuts = [cut.value for cut in self.cuts[: self.stages.value - 1]]
            self._place(pushed(cuts, place))

    def _set(self, sizes: tuple[int, ...]) -> None:
        self._place(Partition(sizes, tuple(self._times)).bounds[1:-1])

    def _place(self, cuts: Sequence[int]) -> None:
        """Put the sliders where the cuts are, each free to move as far as every stage keeps a layer, and show them."""
        count, self._busy = len(self._times), True
        try:
            for k, cut in enumerate(cuts):
                set_range(self._rows[k], k + 1, count - len(cuts) + k, cut)
        finally:
            self._busy = False
        self.partition = Partition(tuple(np.diff([0, *cuts, count])), tuple(self._times))
        self._show()

    def _show(self) -> None:
        p = self.partition
        costs = Costs(forward=p.stage_times, backward=2 * p.stage_times)
        self.timeline = t = simulate(one_f_one_b(p.num_stages, self.num_microbatches), costs)
        notes = [layers_in_words(self._names[a:b]) for a, b in zip(p.bounds, p.bounds[1:], strict=False)]
        title = f"{self.model.value}: forward of each stage, milliseconds"
        self.bars.value = stage_bars(p.stage_times, notes, "ms", title=title)
        self.player.show(t, titles=["1f1b with these stages, milliseconds"])
        head = ("slowest stage", "mean of the stages", "step time", "bubble", 'idle due to "slower stage", all devices')
        cells = (
            f"stage {int(p.stage_times.argmax())}: {milliseconds(p.slowest)}",
            milliseconds(p.stage_times.mean()),
            milliseconds(makespan(t)),
            f"{bubble_fraction(t):.1%}",
            milliseconds(idle_by_reason(t)["slower stage"].sum()),
        )
        self.numbers.value = table(head, [cells])

    def __repr__(self) -> str:
        return "[explorer of cuts: run this cell to move its sliders]"


def pushed(cuts: Sequence[int], place: int) -> list[int]:
    """Cuts after one was moved: the others give way, so that each stage between two cuts keeps at least one layer."""
    moved = cuts[place]
    return [max(cut, moved + k - place) if k > place else min(cut, moved + k - place) for k, cut in enumerate(cuts)]


def layers_in_words(names: Sequence[str]) -> str:
    """The first and the last of some layers, such as "embedding to block 7"."""
    return names[0] if len(names) == 1 else f"{names[0]} to {names[-1]}"
