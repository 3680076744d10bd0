"""Cluster: nodes of devices and two kinds of links; mesh: which ranks talk to each other, how often and over which.

Ranks are laid out as Megatron-LM does, tensor innermost, then data, then pipeline: rank = (p · data + d) · tensor + t.
Tensor peers, which talk most, so are neighbours in a node; a node is devices_per_node ranks in a row.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from pplab.hardware import ACCELERATORS, LINKS, Accelerator, Link
from pplab.presets import check_whole

ALL_REDUCES = {"none": 4, "selective": 4, "full": 6}  # a layer and micro-batch: 2 forward, 2 backward, 2 once more


@dataclass(frozen=True)
class Cluster:
    """Equal nodes of equal devices.

    accelerator, inside, between : presets or their names. ``inside`` joins the devices of a node, each with its own;
        ``between`` is one of the links_per_node network links of a node, as many as devices unless given, which its
        devices share. Raises ValueError for sizes below 1, UnknownPresetError (it lists the known) for another name.
    """

    accelerator: Accelerator
    num_nodes: int
    devices_per_node: int = 8
    inside: Link = field(default_factory=lambda: LINKS["NVLink 3"])
    between: Link = field(default_factory=lambda: LINKS["InfiniBand HDR"])
    links_per_node: int = None  # type: ignore[assignment]  # devices_per_node, once built

    def __post_init__(self) -> None:
        for key, presets, kind in (
            ("accelerator", ACCELERATORS, Accelerator),
            ("inside", LINKS, Link),
            ("between", LINKS, Link),
        ):
            if isinstance(value := getattr(self, key), str):
                object.__setattr__(self, key, presets[value])
            elif not isinstance(value, kind):
                raise ValueError(f"{key} is {value!r:.40}: give a {kind.__name__}, or one of {', '.join(presets)}")
        check_whole(num_nodes=self.num_nodes, devices_per_node=self.devices_per_node)
        if self.links_per_node is None:
            object.__setattr__(self, "links_per_node", self.devices_per_node)
        check_whole(links_per_node=self.links_per_node)

    @property
    def num_devices(self) -> int:
        """How many devices all nodes have together."""
        return self.num_nodes * self.devices_per_node

    def message_time(self, num_bytes: float, inside: bool) -> float:
        """Seconds of a message between two devices while all others of their nodes send one too."""
        if inside:
            return self.inside.time(num_bytes)
        return self.between.time(num_bytes * max(1.0, self.devices_per_node / self.links_per_node))

    def ring_time(self, num_bytes: float, size: int, stride: int = 1) -> float:
        """Seconds of a ring all-reduce of num_bytes by each ``size`` devices whose ranks are ``stride`` apart.

        2 · (size − 1)/size · num_bytes / bandwidth, and 2 · (size − 1) latencies. Groups that a node holds whole run
        over ``inside``; others share the node's network links evenly, but none is faster than ``inside``.
        """
        check_whole(size=size, stride=stride)
        link, rate = self.inside, self.inside.bandwidth
        if not self.holds(size * stride):
            groups = min(stride, self.devices_per_node)  # that cross the node's edge side by side
            rate = min(rate, self.between.bandwidth * self.links_per_node / groups)
            link = self.between
        return 2 * (size - 1) * (num_bytes / size / rate + link.latency)

    def holds(self, span: int) -> bool:
        """Whether blocks of ``span`` ranks in a row all lie within a node."""
        return self.devices_per_node % span == 0 or (self.num_nodes == 1 and span <= self.devices_per_node)


class Peers(NamedTuple):
    """Those that a rank talks to for one reason.

    kind : "tensor" (all-reduces of a layer's output), "next stage" (activations that it sends), "previous stage"
        (gradients that it sends) or "data" (the all-reduce of its gradients). ranks : the peers. inside : which of them
        share its node. times : how often a step.
    """

    kind: str
    ranks: tuple[int, ...]
    inside: tuple[bool, ...]
    times: int

    @property
    def link(self) -> str:
        """Over which link the slowest message goes: "inside" or "between"; "" where there is nobody to talk to."""
        return "" if not self.ranks else "inside" if all(self.inside) else "between"


@dataclass(frozen=True)
class Mesh:
    """tensor × pipeline × data ranks on nodes of devices_per_node. Raises ValueError for sizes below 1."""

    tensor: int
    pipeline: int
    data: int
    devices_per_node: int = 8

    def __post_init__(self) -> None:
        check_whole(tensor=self.tensor, pipeline=self.pipeline, data=self.data, devices_per_node=self.devices_per_node)

    @property
    def num_devices(self) -> int:
        """tensor · pipeline · data."""
        return self.tensor * self.pipeline * self.data

    @property
    def ranks(self) -> np.ndarray:
        """Every rank at its place, (pipeline, data, tensor)."""
        return np.arange(self.num_devices).reshape(self.pipeline, self.data, self.tensor)

    @property
    def nodes(self) -> np.ndarray:
        """The node of every rank, (pipeline, data, tensor)."""
        return self.ranks // self.devices_per_node

    def place(self, rank: int) -> tuple[int, int, int]:
        """Where a rank is: its tensor, pipeline and data index. Raises ValueError for a rank that there is not."""
        if isinstance(rank, bool) or not isinstance(rank, (int, np.integer)) or not 0 <= rank < self.num_devices:
            raise ValueError(f"rank is {rank!r:.40}: ranks are numbered 0 to {self.num_devices - 1}")
        p, d, t = (int(i) for i in np.unravel_index(int(rank), (self.pipeline, self.data, self.tensor)))
        return t, p, d

    def peers(
        self,
        rank: int,
        num_layers: int | None = None,
        num_microbatches: int = 1,
        num_chunks: int = 1,
        recompute: str = "none",
    ) -> tuple[Peers, Peers, Peers, Peers]:
        """Whom a rank talks to: tensor peers, the next and the previous stage, data peers.

        num_layers : those of the model, shared out evenly; one a stage unless given. Tensor: 2 all-reduces forward and
        2 backward for each layer that the rank has and each micro-batch, 2 more under full recomputation. Stages: a
        message for each micro-batch and chunk; with several chunks the last device sends to the first. Data: one
        reduction a step. Raises ValueError for a rank that there is not and layers that do not divide.
        """
        t, p, d = self.place(rank)
        num_layers = self.pipeline if num_layers is None else num_layers
        check_whole(num_layers=num_layers, num_microbatches=num_microbatches, num_chunks=num_chunks)
        check_recompute(recompute)
        if num_layers % self.pipeline:
            raise ValueError(
                f"num_layers {num_layers} is not a multiple of pipeline {self.pipeline}: "
                f"the nearest that is, is {nearest_multiple(num_layers, self.pipeline)}"
            )
        layers, wrap = num_layers // self.pipeline, num_chunks - 1
        after, before = (num_chunks if ok else wrap for ok in (p < self.pipeline - 1, p > 0))
        grid = self.ranks
        onward, back = (grid[(p + step) % self.pipeline, d, t] for step in (1, -1))
        return (
            self._peers("tensor", rank, grid[p, d], ALL_REDUCES[recompute] * layers * num_microbatches),
            self._peers("next stage", rank, onward, after * num_microbatches),
            self._peers("previous stage", rank, back, before * num_microbatches),
            self._peers("data", rank, grid[p, :, t], 1),
        )

    def _peers(self, kind: str, rank: int, ranks: np.ndarray, times: int) -> Peers:
        others = tuple(int(r) for r in ranks.ravel() if r != rank) if times else ()
        inside = tuple(r // self.devices_per_node == rank // self.devices_per_node for r in others)
        return Peers(kind, others, inside, times if others else 0)


def mesh(tensor: int, pipeline: int, data: int, devices_per_node: int = 8) -> Mesh:
    """Who talks to whom: ``mesh(8, 12, 32).peers(0)``. Raises ValueError for sizes below 1.

    3,072 devices are 8 × 12 × 32 in the chapter, and were 8 × 64 × 6 for the 1T model of Narayanan et al. 2021.
    """
    return Mesh(tensor, pipeline, data, devices_per_node)


def check_recompute(value: object) -> None:
    """Raise ValueError for anything but "none", "selective" or "full"."""
    if value not in ALL_REDUCES:
        raise ValueError(f"recompute is {value!r:.40}: choose {', '.join(map(repr, ALL_REDUCES))}")


def nearest_multiple(number: int, step: int) -> int:
    """The multiple of step, 1 · step or more, that is nearest to number; of two as near, the smaller."""
    below = max(step, number // step * step)
    return below if number - below <= below + step - number else below + step
