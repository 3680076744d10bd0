"""Accelerators and links: published figures with their sources, and the least time that they allow.

Datasheet figures are ceilings. How much of the peak a real kernel reaches is ``efficiency``, which the caller states:
it is never guessed here. Link presets have no latency, since no datasheet gives that of a whole hop: measure yours
and put it in with ``dataclasses.replace(LINKS["NVLink 3"], latency=5e-6)``.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from pplab.model import Layer, TransformerModel
from pplab.partition import uniform
from pplab.presets import Presets, check_number, check_whole


@dataclass(frozen=True)
class Accelerator:
    """One device that computes.

    peak_flops : dense bf16 FLOP/s (fp16 for the V100), without sparsity. memory_bytes : bytes, the datasheet's GB read
    as 10⁹. memory_bandwidth : bytes/s. source : the document that states them. Raises ValueError unless positive.
    """

    name: str
    peak_flops: float
    memory_bytes: float
    memory_bandwidth: float
    source: str = field(default="", repr=False)

    def __post_init__(self) -> None:
        for key in ("peak_flops", "memory_bytes", "memory_bandwidth"):
            check_number(key, getattr(self, key), positive=True)

    def time(self, flops: float, bytes_moved: float, *, efficiency: float) -> float:
        """Seconds at least: max(flops / (efficiency · peak), bytes moved / memory bandwidth), the roofline.

        efficiency : share of the peak that the kernels reach, above 0 and at most 1. Williams et al. 2009 (CACM 52:4).
        """
        check_number("flops", flops)
        check_number("bytes_moved", bytes_moved)
        return max(flops / (_efficiency(efficiency) * self.peak_flops), bytes_moved / self.memory_bandwidth)

    def layer_time(self, layer: Layer, *, efficiency: float) -> float:
        """Seconds of a layer's forward pass over the micro-batch that it was made for; see ``time``."""
        return self.time(layer.forward_flops, layer.bytes_moved, efficiency=efficiency)

    def bound(self, layer: Layer, *, efficiency: float) -> str:
        """What limits the layer: "compute", or "memory" where its bytes take longer than its FLOPs."""
        compute = layer.forward_flops / (_efficiency(efficiency) * self.peak_flops)
        return "compute" if compute >= layer.bytes_moved / self.memory_bandwidth else "memory"


@dataclass(frozen=True)
class Link:
    """What carries a message from one device to another.

    bandwidth : bytes/s one way, which is what a message gets. Datasheets of NVLink print the sum of both directions:
    ``both_ways_bandwidth``, twice as much. latency : seconds until the first byte arrives. source : the document.
    Raises ValueError for a bandwidth that is not positive or a negative latency.
    """

    name: str
    bandwidth: float
    latency: float = 0.0
    source: str = field(default="", repr=False)

    def __post_init__(self) -> None:
        check_number("bandwidth", self.bandwidth, positive=True)
        check_number("latency", self.latency)

    @property
    def both_ways_bandwidth(self) -> float:
        """Bytes/s of both directions together; no single message travels that fast."""
        return 2 * self.bandwidth

    def time(self, num_bytes: float, num_links: int = 1) -> float:
        """Seconds that a message takes one way, cut evenly over num_links such links: latency + bytes / bandwidth."""
        check_number("num_bytes", num_bytes)
        check_whole(num_links=num_links)
        return self.latency + num_bytes / (num_links * self.bandwidth)


def layer_times(
    model: TransformerModel,
    accelerator: Accelerator,
    micro_batch_size: int,
    *,
    efficiency: float,
    seq_len: int | None = None,
    bytes_per_element: int = 2,
) -> np.ndarray:
    """Forward seconds of each layer, (num_layers + 2): what ``partition.optimal`` cuts into stages."""
    layers = model.layers(micro_batch_size, seq_len, bytes_per_element)
    return np.array([accelerator.layer_time(layer, efficiency=efficiency) for layer in layers])


class StageAndMessage(NamedTuple):
    """Seconds of one micro-batch: ``forward`` on a stage, and ``message`` over the link to the next one."""

    forward: float
    message: float

    @property
    def ratio(self) -> float:
        """The message in forwards: below 1 it is there before the sender has computed the next one."""
        return self.message / self.forward

    @property
    def hides(self) -> bool:
        """Whether the message takes less time than a forward, so that a link keeps up with what a stage makes."""
        return self.message < self.forward


def stage_and_message_time(
    model: TransformerModel,
    accelerator: Accelerator,
    link: Link,
    num_devices: int,
    micro_batch_size: int = 1,
    *,
    efficiency: float,
    tensor_parallel: int = 1,
    seq_len: int | None = None,
) -> StageAndMessage:
    """Seconds of a stage's forward pass and of the message after it, in bf16, at an equal share of the blocks a device.

    Embedding and head are left out, and num_layers / num_devices blocks need not be whole. tensor_parallel : devices
    that share each block evenly, without the time that they take to agree. All B · T · H · 2 bytes go over one link.
    Raises ValueError for more devices than blocks and for sizes that make no sense.
    """
    check_whole(num_devices=num_devices, tensor_parallel=tensor_parallel)
    if num_devices > model.num_layers:
        raise ValueError(
            f"num_devices is {num_devices}, but {model.name or 'the model'} has {model.num_layers} blocks and each "
            f"device needs one: use at most {model.num_layers} devices"
        )
    block = model.layers(micro_batch_size, seq_len)[1]
    share = model.num_layers / num_devices / tensor_parallel
    forward = share * accelerator.layer_time(block, efficiency=efficiency)
    return StageAndMessage(forward, link.time(block.boundary_bytes))


def naive_split(model: TransformerModel, num_stages: int) -> tuple[int, ...]:
    """Layers of each stage where only blocks are shared out evenly: the embedding joins the first, the head the last.

    Layers as in ``layer_times``, so ``Partition(naive_split(model, D), layer_times(model, …))`` shows what the ends
    cost. Raises ValueError where there are fewer blocks than stages.
    """
    sizes = list(uniform(model.num_layers, num_stages))
    sizes[0] += 1
    sizes[-1] += 1
    return tuple(sizes)


def traffic_per_step(
    num_microbatches: int, message_bytes: float, gradient_bytes: float, num_replicas: int = 1, num_neighbours: int = 2
) -> dict[str, float]:
    """Bytes that one device sends in a step, by cause: keys pipeline and data.

    pipeline : a message for each micro-batch and neighbour, activations onward and gradients back: 2 · M · message
        for an interior stage. num_neighbours is 1 for the first and the last stage, 0 for one device alone.
    data : a ring all-reduce of the device's gradients over R replicas, 2 · (R − 1) / R · gradient_bytes.
    Raises ValueError for sizes that make no sense.
    """
    check_whole(num_microbatches=num_microbatches, num_replicas=num_replicas)
    check_number("message_bytes", message_bytes)
    check_number("gradient_bytes", gradient_bytes)
    if num_neighbours not in (0, 1, 2):
        raise ValueError(f"num_neighbours is {num_neighbours!r:.40}: a stage of a pipeline has 0, 1 or 2")
    return {
        "pipeline": num_neighbours * num_microbatches * message_bytes,
        "data": 2 * (num_replicas - 1) / num_replicas * gradient_bytes,
    }


def _efficiency(value: float) -> float:
    check_number("efficiency", value)
    if not 0 < value <= 1:
        raise ValueError(f"efficiency is {value!r:.40}: the share of the peak that is reached is above 0 and at most 1")
    return value


def _nvlink(generation: int, one_way: float, text: str) -> Link:
    both = f"NVIDIA {text}: {2 * one_way / 1e9:g} GB/s of both directions, all links of a GPU together"
    return Link(f"NVLink {generation}", one_way, source=both)


ACCELERATORS: Presets[Accelerator] = Presets(
    "accelerator",
    [
        Accelerator("V100 32GB", 125e12, 32e9, 900e9, "NVIDIA V100 datasheet, SXM2 (fp16: it has no bf16)"),
        Accelerator("A100 40GB", 312e12, 40e9, 1555e9, "NVIDIA A100 datasheet, SXM"),
        Accelerator("A100 80GB", 312e12, 80e9, 2039e9, "NVIDIA A100 datasheet, SXM"),
        Accelerator("H100", 989.5e12, 80e9, 3350e9, "NVIDIA H100 datasheet, SXM; half of its 1,979 with sparsity"),
        Accelerator("H200", 989.5e12, 141e9, 4800e9, "NVIDIA H200 datasheet, SXM; half of its 1,979 with sparsity"),
        Accelerator(
            "B200", 2250e12, 180e9, 8000e9, "NVIDIA DGX B200 datasheet, an eighth of its 1,440 GB and 64 TB/s; "
            "NVIDIA Blackwell architecture brief, HGX B200, dense: half of its 4.5 PFLOP/s with sparsity",
        ),
    ],
)  # fmt: skip

LINKS: Presets[Link] = Presets(
    "link",
    [
        _nvlink(2, 150e9, "V100 datasheet"),
        _nvlink(3, 300e9, "A100 datasheet"),
        _nvlink(4, 450e9, "H100 datasheet"),
        _nvlink(5, 900e9, "DGX B200 datasheet"),
        Link("PCIe 4 x16", 16e9 * 16 * 128 / 130 / 8, source="PCI-SIG, PCIe 4.0: 16 GT/s a lane, 128b/130b code"),
        Link("PCIe 5 x16", 32e9 * 16 * 128 / 130 / 8, source="PCI-SIG, PCIe 5.0: 32 GT/s a lane, 128b/130b code"),
        Link("InfiniBand HDR", 200e9 / 8, source="NVIDIA ConnectX-6 datasheet: 200 Gb/s each way"),
        Link("InfiniBand NDR", 400e9 / 8, source="NVIDIA ConnectX-7 datasheet: 400 Gb/s each way"),
        Link("Ethernet 100", 100e9 / 8, source="IEEE 802.3ba: 100 Gb/s each way"),
    ],
)
