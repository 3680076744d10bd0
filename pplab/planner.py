"""plan: every layout of a model on a cluster that fits memory, the fastest first, and why the others lose."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache

import numpy as np

from pplab.choices import Choices, Sizes, layouts
from pplab.cluster import Cluster, Mesh, Peers, mesh
from pplab.layouts import Conditions, Efficiency, Layout, build
from pplab.memory import PARTS, BytesPerParameter, estimate_memory
from pplab.model import MODELS, TransformerModel
from pplab.plan_table import Plan, PlannedLayout
from pplab.presets import check_whole
from pplab.progress import Progress, watched
from pplab.step_time import StepTime, blocks_per_stage, step_time

__all__ = [
    "Choices", "Cluster", "Conditions", "Layout", "Mesh", "Peers", "Plan", "PlannedLayout", "StepTime", "evaluate",
    "memory_parts", "mesh", "plan", "step_time",
]  # fmt: skip
_FILLED = ("1f1b", "eager-1f1b", "interleaved-1f1b")  # hold no more once 2D micro-batches are under way


def plan(
    model: TransformerModel | str,
    cluster: Cluster,
    global_batch: int,
    seq_len: int | None = None,
    *,
    efficiency: Efficiency,
    tensor: Sizes = None,
    pipeline: Sizes = None,
    data: Sizes = None,
    num_chunks: Sizes = None,
    micro_batch_size: Sizes = None,
    recompute: str | Sequence[str] = ("none", "selective", "full"),
    schedules: str | Sequence[str] = ("gpipe", "1f1b", "interleaved-1f1b"),
    across_nodes: bool = False,
    convention: str | int | BytesPerParameter = "megatron",
    sharded_optimizer: bool = False,
    sequence_parallel: bool = False,
    scatter_gather: bool = True,
    overlap_data: bool = False,
    reserved_bytes: float = 0.0,
    progress: Progress = False,
) -> Plan:
    """Rank the layouts of a training step of global_batch sequences by time, among those that fit memory.

    Parameters
    ----------
    model : or the name of one in MODELS. seq_len : tokens a sequence, the model's unless given.
    efficiency : share of the peak that kernels reach, or a measured one as a function of (micro_batch_size, tensor).
    tensor, pipeline, data, num_chunks, micro_batch_size : one size, several, or all that divide; micro-batches of up
        to 16 sequences unless given. recompute, schedules : one or several. across_nodes : let tensor leave a node.
    convention, sharded_optimizer, sequence_parallel : of memory, as in ``estimate_memory``.
    scatter_gather, overlap_data, reserved_bytes : as in ``Conditions``.
    progress : True shows a bar where ipywidgets is installed; a function is called with (done, all).

    A search for a 175B model on 1,024 devices takes seconds: memory is worked out for one sequence a micro-batch and
    scaled, since every byte held is per sequence; only what fits is timed, with the short ways of ``pipeline_time``.

    Raises
    ------
    ValueError : sizes that do not divide, a model that no layout fits (what is closest, and what it lacks), values
        that make no sense. UnknownPresetError : a model's name that is not known.
    """
    model = _model(model)
    check_whole(global_batch=global_batch)
    if not isinstance(cluster, Cluster):
        raise ValueError(f"cluster is {cluster!r:.40}: give a Cluster")
    seq_len = model.seq_len if seq_len is None else seq_len
    conditions = Conditions(
        efficiency,
        seq_len,
        scatter_gather,
        overlap_data,
        convention,
        sharded_optimizer,
        sequence_parallel,
        reserved_bytes,
    )
    choices = Choices(tensor, pipeline, data, num_chunks, micro_batch_size, recompute, schedules, across_nodes)
    found = layouts(model, cluster, global_batch, conditions.seq_len, choices, sequence_parallel)
    ordered = sorted(found, key=lambda x: (x.schedule, x.pipeline, x.num_microbatches, x.num_chunks))
    rows = [evaluate(model, cluster, layout, conditions) for layout in watched(ordered, progress, "layouts")]
    return Plan.of(model, cluster, global_batch, rows)


def _model(model: TransformerModel | str) -> TransformerModel:
    if not isinstance(model, (TransformerModel, str)):
        raise TypeError(f"model is {model!r:.40}: give a TransformerModel, or the name of one in MODELS")
    return MODELS[model] if isinstance(model, str) else model


def evaluate(model: TransformerModel | str, cluster: Cluster, layout: Layout, conditions: Conditions) -> PlannedLayout:
    """One layout's memory, and its time and MFU if it fits.

    MFU: FLOPs of the model, without those computed again, a second and device, as a share of the peak. Raises
    ValueError for a layout that does not cut the model evenly, or has another number of devices than the cluster.
    """
    model = _model(model)
    if layout.num_devices != cluster.num_devices:
        raise ValueError(
            f"{layout.tensor} × {layout.pipeline} × {layout.data} are {layout.num_devices} devices, but the cluster "
            f"has {cluster.num_devices}: tensor · pipeline · data must be all of them"
        )
    blocks_per_stage(model, layout)
    parts = memory_parts(model, layout, conditions)
    room = cluster.accelerator.memory_bytes - conditions.reserved_bytes
    used = sum(parts.values())
    if used > room:
        return PlannedLayout(layout, None, parts, room, None)
    time = step_time(model, cluster, layout, conditions)
    batch = layout.data * layout.micro_batch_size * layout.num_microbatches
    flops = model.iteration_flops(batch, conditions.seq_len, recompute=False)
    mfu = flops / (time.total * layout.num_devices * cluster.accelerator.peak_flops)
    return PlannedLayout(layout, time, parts, room, mfu)


def memory_parts(model: TransformerModel, layout: Layout, conditions: Conditions) -> dict[str, float]:
    """Bytes on the fullest device by part; they add up to what it holds at its fullest moment.

    ``estimate_memory`` of one sequence a micro-batch, times as many as there are, since all that a pass holds is per
    sequence; of 2D micro-batches for 1F1B and interleaving, which hold no more of them (tests compare both).
    """
    count, enough = layout.num_microbatches, 2 * layout.pipeline
    if layout.schedule in _FILLED and (layout.num_chunks == 1 or count % layout.pipeline == 0):
        count = min(count, enough)
    elif layout.schedule == "gpipe":
        count = min(count, 1)
    plain = replace(conditions, efficiency=1.0, sharded_optimizer=False, reserved_bytes=0.0)
    table = memory_of_one(model, replace(layout, data=1, micro_batch_size=1, num_microbatches=count), plain).copy()
    if conditions.sharded_optimizer:
        table[PARTS.index("optimizer")] /= layout.data
    held = PARTS.index("activations")  # from here on, what passes hold
    table[held:] *= layout.micro_batch_size
    if layout.schedule == "gpipe":  # holds all of them
        table[held : held + 2] *= layout.num_microbatches
    fullest = int(np.argmax(table.sum(axis=0)))
    return dict(zip(PARTS, table[:, fullest].tolist(), strict=True))


@lru_cache(maxsize=4096)
def memory_of_one(model: TransformerModel, layout: Layout, conditions: Conditions) -> np.ndarray:
    """Bytes by part and device, (len(PARTS), num_devices), of one sequence a micro-batch."""
    schedule = build(layout.schedule, layout.pipeline, layout.num_microbatches, layout.num_chunks)
    estimate = estimate_memory(
        model, schedule, micro_batch_size=1, seq_len=conditions.seq_len, convention=conditions.convention,
        recompute=layout.recompute, tensor_parallel=layout.tensor, sequence_parallel=conditions.sequence_parallel,
    )  # fmt: skip
    return np.array([getattr(estimate, part) for part in PARTS])
