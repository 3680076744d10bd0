"""key_numbers: one page that predicts a step from its key parameters: bubble, seconds, bytes held, messages."""

from __future__ import annotations

from dataclasses import dataclass, replace
from html import escape

import numpy as np

from pplab.cluster import Cluster
from pplab.costs import Costs
from pplab.hardware import ACCELERATORS, LINKS, Accelerator, Link
from pplab.layouts import Conditions, Layout, build
from pplab.memory import estimate_memory
from pplab.metrics import bubble_fraction, makespan, messages_sent
from pplab.model import MODELS, TransformerModel
from pplab.simulate import simulate
from pplab.step_time import hop_times, message_bytes, stage_times


@dataclass(frozen=True, eq=False)
class KeyNumbers:
    """What a step of one pipeline takes, holds and sends.

    seconds : of the whole step; hop_share : the share of it that messages add. memory : bytes on each device at its
    fullest moment, (num_devices,); room : bytes that an accelerator has. messages : sent in a step by each device,
    (num_devices,), of ``message_bytes`` each. ``str`` and a notebook show them as a page.
    """

    title: str
    bubble: float
    seconds: float
    hop_share: float
    memory: np.ndarray
    room: float
    messages: np.ndarray
    message_bytes: int

    @property
    def sent_bytes(self) -> np.ndarray:
        """Bytes that each device sends in a step, (num_devices,)."""
        return self.messages * self.message_bytes

    def lines(self) -> dict[str, str]:
        """Each number in words, by what it is."""
        fullest, busiest = int(np.argmax(self.memory)), int(np.argmax(self.messages))
        held, room = self.memory[fullest] / 1e9, self.room / 1e9
        sent = f"{self.messages[busiest]} of {self.message_bytes / 1e6:.4g} MB, {self.sent_bytes[busiest] / 1e9:.4g} GB"
        return {
            "step": f"{self.seconds:.4g} s, {self.hop_share:.1%} of it for messages",
            "bubble": f"{self.bubble:.1%}",
            "held by the fullest device": f"{held:.4g} of {room:.4g} GB" + (", too much" if held > room else ""),
            "messages": f"{self.messages.sum()} in all; device {busiest} sends {sent}",
        }

    def __str__(self) -> str:
        return "\n".join([self.title, *(f"  {name:27} {words}" for name, words in self.lines().items())])

    def _repr_html_(self) -> str:
        rows = (f'<tr><th scope="row">{name}</th><td>{escape(words)}</td></tr>' for name, words in self.lines().items())
        return f"<table><caption>{escape(self.title)}</caption>{''.join(rows)}</table>"


def key_numbers(
    model: TransformerModel | str,
    accelerator: Accelerator | str,
    link: Link | str,
    schedule: str,
    num_devices: int,
    num_microbatches: int,
    micro_batch_size: int = 1,
    num_chunks: int = 1,
    *,
    tensor_parallel: int = 1,
    recompute: str = "selective",
    efficiency: float = 0.5,
    seq_len: int | None = None,
) -> KeyNumbers:
    """Predict a step of one replica's pipeline, in which ``tensor_parallel`` accelerators together are a device.

    Messages of B · T · H · 2 bytes go over ``link``, shared by those devices; the head is on the last stage. Made of
    step_time's costs, the simulator and estimate_memory ("megatron" bytes a parameter; with tensor parallelism
    sequence parallel too).
    Raises ValueError for sizes that a schedule refuses or that do not divide, and for names that are not known.
    """
    model = MODELS[model] if isinstance(model, str) else model
    link = LINKS[link] if isinstance(link, str) else link
    accelerator = ACCELERATORS[accelerator] if isinstance(accelerator, str) else accelerator
    layout = Layout(
        tensor_parallel, num_devices, 1, num_chunks, micro_batch_size, num_microbatches, recompute, schedule
    )
    conditions = Conditions(efficiency, seq_len or model.seq_len, sequence_parallel=tensor_parallel > 1)
    cluster = Cluster(accelerator, num_devices, tensor_parallel, between=link)  # a stage a node: every hop leaves it
    s = build(schedule, num_devices, num_microbatches, num_chunks)
    forward, backward, weight = np.add(*stage_times(model, cluster, layout, conditions))
    costs = Costs(forward=forward, backward_input=backward, backward_weight=weight)
    t = simulate(s, replace(costs, hop=hop_times(model, cluster, layout, conditions)))
    memory = estimate_memory(
        model, s, micro_batch_size=micro_batch_size, seq_len=conditions.seq_len, recompute=recompute,
        tensor_parallel=tensor_parallel, sequence_parallel=conditions.sequence_parallel,
    )  # fmt: skip
    seconds = makespan(t)
    each = f"{num_devices}" + (f" × {tensor_parallel}" if tensor_parallel > 1 else "")
    title = (
        f"{model.name or 'a model'} on {each} {accelerator.name} over {link.name}: {schedule}, D = {num_devices}, "
        f"M = {num_microbatches}, B = {micro_batch_size}, V = {num_chunks}"
    )
    return KeyNumbers(
        title, bubble_fraction(t), seconds, 1 - makespan(simulate(s, costs)) / seconds, memory.total,
        accelerator.memory_bytes, messages_sent(s), message_bytes(model, layout, conditions),
    )  # fmt: skip
