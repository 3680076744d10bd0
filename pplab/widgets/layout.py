"""The explorer of layouts: lay out a cluster by hand, see what a step takes and holds, and ask the planner."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import ipywidgets as w

from pplab.choices import Choices, layouts
from pplab.cluster import ALL_REDUCES, Cluster
from pplab.hardware import ACCELERATORS
from pplab.layouts import Conditions, Efficiency
from pplab.model import MODELS, TransformerModel
from pplab.planner import PlannedLayout, evaluate, plan
from pplab.presets import check_whole
from pplab.time_bars import seconds, time_bars
from pplab.widgets.controls import choice, first_and_more, preset, switch
from pplab.widgets.memory import gigabytes
from pplab.widgets.tables import note, table

NODES = tuple(str(2**k) for k in range(10))
SIZES = ("1", "2", "4", "8")  # of tensor parallelism and of a micro-batch
_COUNTED = [name for name, model in MODELS.items() if model.num_experts == 1]  # the planner refuses mixtures
_HEAD = ("layout", "t × p × d", "schedule", "V", "micro-batch", "M", "recomputation", "step time", "MFU")


class LayoutExplorer(w.VBox):
    """t, p, V and recomputation; below, where a step's time goes, and its numbers, beside the planner's if asked.

    Under "more": the model, the nodes of 8 devices, the micro-batch and sequence parallelism.
    All devices are used: d is what t and p leave. The schedule is 1F1B, interleaved with V of 2 or more.
    Set ``model.value``, ``nodes.value``, ``tensor.value``, ``pipeline.value``, ``micro_batch_size.value``,
    ``num_chunks.value`` (texts such as "8"), ``recompute.value`` or ``sequence_parallel.value`` to move a control from
    code, and call ``ask.click()`` for the planner's answer, which stays beside what is shown while model, nodes and
    sequence parallelism are those that it is for. ``planned`` holds the layout that is shown, None where it is refused,
    and ``answer`` the planner's best, None before it is asked and where nothing fits.
    Raises ValueError for a name that is not known, and for sizes that the controls do not reach.
    """

    def __init__(
        self,
        model: str = "GPT-3 175B",
        accelerator: str = "A100 80GB",
        num_nodes: int = 128,
        global_batch: int = 1536,
        tensor: int = 8,
        pipeline: int = 8,
        micro_batch_size: int = 1,
        num_chunks: int = 1,
        recompute: str = "selective",
        efficiency: Efficiency = 0.55,
        sequence_parallel: bool = True,
    ) -> None:
        check_whole(global_batch=global_batch)
        Conditions(efficiency, 1, sequence_parallel=sequence_parallel)  # refuses what makes no sense
        self.accelerator = preset(ACCELERATORS, accelerator)
        self.global_batch, self.efficiency = global_batch, efficiency
        self.model, self.nodes = choice("model", model, _COUNTED), choice("nodes of 8 devices", str(num_nodes), NODES)
        self.tensor = choice("tensor t", str(tensor), SIZES)
        self.pipeline = choice("pipeline p", str(pipeline), divisors(self._model.num_layers))
        self.micro_batch_size = choice("micro-batch size", str(micro_batch_size), SIZES)
        self.num_chunks = choice("chunks V", str(num_chunks), self._legal_chunks())
        self.recompute = choice("recomputation", recompute, ALL_REDUCES)
        self.sequence_parallel = switch(
            "sequence parallel: tensor ranks share norms and dropouts too", sequence_parallel
        )
        self.ask = w.Button(description="let the planner answer", layout=w.Layout(width="200px"))
        self.progress = w.IntProgress(description="layouts", layout=w.Layout(visibility="hidden"))
        self.picture, self.numbers = w.HTML(), w.HTML()
        self.planned: PlannedLayout | None = None
        self._answers: dict[tuple[str, str, bool], PlannedLayout | str] = {}  # or why there is none
        self._busy = False
        self._show()
        first = [self.tensor, self.pipeline, self.num_chunks, self.recompute]
        more = [self.model, self.nodes, self.micro_batch_size, self.sequence_parallel]
        self._controls = [*first, *more]
        for control in self._controls:
            control.observe(self._moved, names="value")
        self.ask.on_click(self._answer)
        asking = w.HBox([self.ask, self.progress])
        super().__init__([*first_and_more(first, more), asking, self.picture, self.numbers])

    @property
    def answer(self) -> PlannedLayout | None:
        """The planner's best layout for what the controls say, if it was asked and found one."""
        found = self._answers.get(self._question)
        return found if isinstance(found, PlannedLayout) else None

    @property
    def _model(self) -> TransformerModel:
        return MODELS[self.model.value]

    @property
    def _cluster(self) -> Cluster:
        return Cluster(self.accelerator, int(self.nodes.value))

    @property
    def _question(self) -> tuple[str, str, bool]:
        """What the planner's answer depends on."""
        return self.model.value, self.nodes.value, self.sequence_parallel.value

    def _legal_chunks(self) -> list[str]:
        """V that cut a device's blocks evenly; 1 alone on a pipeline of one device."""
        pipeline = int(self.pipeline.value)
        return divisors(self._model.num_layers // pipeline) if pipeline > 1 else ["1"]

    def _moved(self, _change: Any) -> None:
        """A control was moved: offer the pipelines and chunks that the blocks now allow."""
        if self._busy:
            return
        self._busy = True
        try:
            _offer(self.pipeline, divisors(self._model.num_layers))
            _offer(self.num_chunks, self._legal_chunks())
        finally:
            self._busy = False
        self._show()

    def _evaluate(self) -> PlannedLayout:
        """The layout that the controls say. Raises ValueError, the planner's, where its sizes do not divide."""
        model, cluster, split = self._model, self._cluster, self.sequence_parallel.value
        names = ("tensor", "pipeline", "num_chunks", "micro_batch_size")
        sizes = {name: int(getattr(self, name).value) for name in names}
        schedule = "1f1b" if sizes["num_chunks"] == 1 else "interleaved-1f1b"
        choices = Choices(**sizes, recompute=self.recompute.value, schedules=schedule)  # type: ignore[arg-type]
        layout = next(layouts(model, cluster, self.global_batch, model.seq_len, choices, split))
        conditions = Conditions(self.efficiency, model.seq_len, sequence_parallel=split)
        return evaluate(model, cluster, layout, conditions)

    def _show(self) -> None:
        """Evaluate what the controls say, and put it, with the planner's answer, in place; or say why not."""
        try:
            self.planned, refusal = self._evaluate(), ""
        except ValueError as error:
            self.planned, refusal = None, str(error)
        found = self._answers.get(self._question)
        rows = {"yours": self.planned, "planner's": self.answer}
        shown = {name: row for name, row in rows.items() if row is not None}
        times = {name: row.time for name, row in shown.items() if row.time is not None}
        title = f"{self.model.value} on {self._cluster.num_devices:,} × {self.accelerator.name}"
        self.picture.value = time_bars(times, title=title) if times else ""
        says = [note(refusal)] * bool(refusal)
        says += [self._table(shown)] * bool(shown)
        says += [note(f"The planner: {found}")] * isinstance(found, str)
        self.numbers.value = "".join(says)

    def _table(self, rows: dict[str, PlannedLayout]) -> str:
        head = (*_HEAD, f"fullest device, of {gigabytes(self.accelerator.memory_bytes)} GB", "fits")
        return table(head, [_numbers(name, row) for name, row in rows.items()])

    def _answer(self, _button: Any) -> None:
        """Let the planner search, and show its best layout beside the reader's."""
        question, self.ask.disabled = self._question, True
        self.progress.value, self.progress.layout.visibility = 0, "visible"
        try:
            found = plan(
                self._model, self._cluster, self.global_batch, efficiency=self.efficiency,
                sequence_parallel=self.sequence_parallel.value, progress=self._report,
            )  # fmt: skip
            self._answers[question] = found.best
        except ValueError as error:
            self._answers[question] = str(error)
        finally:
            self.ask.disabled, self.progress.layout.visibility = False, "hidden"
        self._show()

    def _report(self, done: int, count: int) -> None:
        if done % 16 == 0 or done == count:  # each change is a message to the browser
            self.progress.max, self.progress.value = max(1, count), done

    def __repr__(self) -> str:
        return "[explorer of layouts: run this cell to move its controls]"


def divisors(number: int) -> list[str]:
    """Those of a number as texts, for a dropdown."""
    return [str(k) for k in range(1, number + 1) if number % k == 0]


def _offer(control: w.Widget, options: Sequence[str]) -> None:
    """Give a dropdown of numbers other options: it keeps its value if it can, and falls to the next below if not."""
    if control.options != tuple(options):
        value = int(control.value)
        control.options = tuple(options)
        control.value = [option for option in options if int(option) <= value][-1]


def _numbers(name: str, row: PlannedLayout) -> tuple[str, ...]:
    x, over = row.layout, row.memory_bytes - row.room
    sizes = (f"{x.tensor} × {x.pipeline} × {x.data}", x.schedule, x.num_chunks, x.micro_batch_size, x.num_microbatches)
    time, mfu = ("–", "–") if row.time is None or row.mfu is None else (seconds(row.time.total), f"{row.mfu:.1%}")
    fits = "yes" if row.fits else f"no, {gigabytes(over)} GB too much"
    return (name, *map(str, sizes), x.recompute, time, mfu, f"{gigabytes(row.memory_bytes)} GB", fits)
