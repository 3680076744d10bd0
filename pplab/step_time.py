"""step_time: how long a training step takes under a layout, and what it spends it on.

The pipeline is simulated: a Schedule of D devices with Costs of its stages and hops. What a stage costs is FLOPs at a
stated efficiency plus its tensor-parallel all-reduces; the reduction of gradients over replicas follows. Left out:
the optimizer's own step, loading data, the all-reduces of embedding, logits and tied weights (a few per cent together).
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from pplab.cluster import ALL_REDUCES, Cluster
from pplab.costs import Costs
from pplab.hardware import naive_split
from pplab.layouts import Conditions, Layout, build, stage_devices
from pplab.memory import recompute_flops
from pplab.metrics import makespan
from pplab.model import TransformerModel
from pplab.parameter_bytes import device_parameters
from pplab.simulate import simulate

PARTS = ("compute", "tensor", "pipeline", "bubble", "data")
_PERIODIC = ("1f1b", "eager-1f1b", "interleaved-1f1b")


@dataclass(frozen=True)
class StepTime:
    """Seconds of a step, by cause; ``total`` is their sum.

    compute, tensor : FLOPs and all-reduces of a device, on average over the pipeline. bubble : the rest of the
    simulated step without hops, so uneven stages too. pipeline : what hops add. data : the reduction not hidden.
    """

    compute: float
    tensor: float
    pipeline: float
    bubble: float
    data: float

    @property
    def total(self) -> float:
        """Seconds of the step."""
        return sum(getattr(self, part) for part in PARTS)


def step_time(model: TransformerModel, cluster: Cluster, layout: Layout, conditions: Conditions) -> StepTime:
    """How long a step takes. Raises ValueError where the blocks do not share out evenly over the stages.

    All-reduces: 2 a layer forward and 2 backward, 2 more under full recomputation, each a ring over ``tensor`` devices
    of B · T · H · 2 bytes; with sequence parallelism a reduce-scatter and an all-gather, the same bytes.
    """
    compute, tensor = stage_times(model, cluster, layout, conditions)
    forward, backward, weight = compute + tensor
    costs = Costs(forward=forward, backward_input=backward, backward_weight=weight)
    hops = hop_times(model, cluster, layout, conditions)
    length = pipeline_time(layout, replace(costs, hop=hops))
    alone = pipeline_time(layout, costs) if np.any(hops) else length
    worked, agreed = (float(part.sum()) * layout.num_microbatches / layout.pipeline for part in (compute, tensor))
    devices = stage_devices(layout.schedule, layout.pipeline, layout.num_chunks)
    window = float(np.bincount(devices, backward + weight).min())
    reduction = data_time(model, cluster, layout, conditions)
    exposed = max(0.0, reduction - window) if conditions.overlap_data else reduction
    return StepTime(worked, agreed, length - alone, max(0.0, alone - worked - agreed), exposed)


def stage_times(
    model: TransformerModel, cluster: Cluster, layout: Layout, conditions: Conditions
) -> tuple[np.ndarray, np.ndarray]:
    """Seconds of a micro-batch by stage: compute and all-reduces, each (3, num_stages) for F, I and W.

    A backward costs two forwards, half of them for the weights; what is computed again comes before it. The head is
    on the last stage; the embedding takes no time.
    """
    size, seq_len = layout.micro_batch_size, conditions.seq_len
    parts = model.block_flops(size, seq_len)
    again = recompute_flops(model, size, seq_len, recompute=layout.recompute)
    per_second = cluster.accelerator.peak_flops * conditions.efficiency_of(layout) * layout.tensor
    blocks = blocks_per_stage(model, layout)
    flops = np.full((3, layout.num_stages), blocks * sum(parts.values()), float)
    flops[1] += blocks * again
    flops[:, -1] += model.head_flops(size, seq_len)
    ring = cluster.ring_time(message_bytes(model, layout, conditions), layout.tensor)
    rings = blocks * np.array([2, ALL_REDUCES[layout.recompute] - 2, 0])
    return flops / per_second, np.repeat(ring * rings[:, None], layout.num_stages, axis=1)


def blocks_per_stage(model: TransformerModel, layout: Layout) -> int:
    """Blocks of each stage. Raises ValueError where they do not share out evenly."""
    if model.num_layers % layout.num_stages:
        even = [k for k in range(1, model.num_layers + 1) if model.num_layers % k == 0]
        near = sorted(sorted(even, key=lambda k: abs(k - layout.num_stages))[:2])
        raise ValueError(
            f"{model.num_layers} blocks do not share out evenly over {layout.num_stages} stages, pipeline "
            f"{layout.pipeline} × num_chunks {layout.num_chunks}; nearest that do: {' and '.join(map(str, near))}"
        )
    return model.num_layers // layout.num_stages


def message_bytes(model: TransformerModel, layout: Layout, conditions: Conditions) -> int:
    """Bytes between two blocks, B · T · H · 2."""
    return layout.micro_batch_size * conditions.seq_len * model.hidden_size * 2


def hop_times(model: TransformerModel, cluster: Cluster, layout: Layout, conditions: Conditions) -> np.ndarray | float:
    """Seconds of the message after each stage but the last, the slowest of all replicas and tensor ranks.

    With scatter and gather between nodes a tensor rank sends 1/t, and t ranks gather the rest inside.
    """
    if layout.pipeline == 1:
        return 0.0
    size, tensor = message_bytes(model, layout, conditions), layout.tensor
    near, far = cluster.message_time(size, inside=True), cluster.message_time(size, inside=False)
    if conditions.scatter_gather and cluster.holds(tensor):
        gather = (tensor - 1) * cluster.inside.time(size / tensor)
        far = min(far, cluster.message_time(size / tensor, inside=False) + gather)
    node = np.arange(layout.num_devices).reshape(layout.pipeline, -1) // cluster.devices_per_node
    device = stage_devices(layout.schedule, layout.pipeline, layout.num_chunks)
    crosses = (node[device[1:]] != node[device[:-1]]).any(axis=1)
    return np.where(crosses, far, near)


def data_time(model: TransformerModel, cluster: Cluster, layout: Layout, conditions: Conditions) -> float:
    """Seconds of a ring all-reduce of the gradients over the replicas, on the device with the most parameters."""
    if layout.data == 1:
        return 0.0
    s = build(layout.schedule, layout.pipeline, 2 * layout.pipeline, layout.num_chunks)
    most = float(device_parameters(model, s, naive_split(model, layout.num_stages))[0].max())
    return cluster.ring_time(most / layout.tensor * conditions.gradient_bytes, layout.data, layout.tensor)


def pipeline_time(layout: Layout, costs: Costs) -> float:
    """Makespan of a step's passes as the simulator gives it, by a shorter way where the tests prove one exact.

    - One stage: M passes of each kind. GPipe: Σ(F + B) + 2 Σ hop + (M − 1)(max F + max B). 1F1B without hops, only the
      last stage unlike the others, and slower: Σ(F + B) + (M − 1) max(F + B).
    - 1F1B and interleaved, equal hops, only the last stage slower: once the pipeline has filled, D micro-batches more
      take D rounds more. Runs of 2D + M mod D and of D more are simulated and continued on a line; with several
      chunks, where M is a multiple of D.
    - All else is simulated whole. Its time scales with its costs, but layouts differ in ratios of costs, so it is the
      schedule that is kept from layout to layout, not the time.
    """
    forward, backward = (np.zeros(layout.num_stages) + c for c in (costs.forward, _whole_backward(costs)))
    hops, rest = np.atleast_1d(costs.hop), layout.num_microbatches - 1
    alike = all(np.ptp(part) == 0 for part in (forward[:-1], backward[:-1], hops) if len(part))
    alike = alike and forward[-1] >= forward[0] and backward[-1] >= backward[0]
    both = forward + backward
    if layout.num_stages == 1 or (layout.schedule == "1f1b" and alike and not np.any(hops)):
        return float(both.sum() + rest * both.max())
    if layout.schedule == "gpipe":
        travel = np.broadcast_to(hops, layout.num_stages - 1).sum() if len(hops) == 1 else hops.sum()
        return float(both.sum() + 2 * travel + rest * (forward.max() + backward.max()))
    return _continued(layout, costs) if alike and layout.schedule in _PERIODIC else _run(layout, rest + 1, costs)


def _whole_backward(costs: Costs) -> np.ndarray | float:
    return np.add(costs.backward_input, costs.backward_weight)


def _continued(layout: Layout, costs: Costs) -> float:
    """A step's makespan from two short runs, or of a whole one where M is not much larger than they are."""
    count, devices = layout.num_microbatches, layout.pipeline
    short = 2 * devices + count % devices
    if count <= short + devices or (layout.num_chunks > 1 and count % devices):
        return _run(layout, count, costs)
    once, more = (_run(layout, m, costs) for m in (short, short + devices))
    return once + (count - short) // devices * (more - once)


def _run(layout: Layout, count: int, costs: Costs) -> float:
    return makespan(simulate(build(layout.schedule, layout.pipeline, count, layout.num_chunks), costs))
