"""The pipeline's arithmetic on NumPy arrays: what a stage does to a micro-batch, forward and backward."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np


@dataclass
class MicroBatch:
    """One micro-batch on its way: ``activations`` (samples, hidden_size), and ``gradients`` alike on the way back."""

    batch_id: int
    activations: np.ndarray
    gradients: np.ndarray | None = None


class PipelineStage:
    """One stage with one weight matrix (hidden_size, hidden_size); counts what it has done.

    ``forward_count``, ``backward_count``, ``active_steps`` and ``idle_steps`` count passes. ``weights`` are drawn
    from NumPy's global generator, so ``np.random.seed`` fixes them.
    """

    def __init__(self, stage_id: int, num_layers: int, hidden_size: int) -> None:
        self.stage_id, self.num_layers, self.hidden_size = stage_id, num_layers, hidden_size
        self.weights = 0.01 * np.random.randn(hidden_size, hidden_size)
        self.forward_count = self.backward_count = self.idle_steps = self.active_steps = 0

    def forward(self, micro_batch: MicroBatch) -> MicroBatch:
        """Activations · weights, as a new micro-batch."""
        self.forward_count += 1
        self.active_steps += 1
        return MicroBatch(micro_batch.batch_id, micro_batch.activations @ self.weights)

    def backward(self, micro_batch: MicroBatch) -> MicroBatch:
        """Gradients for the stage's input, gradients · weightsᵀ; raises ValueError where there are none."""
        if micro_batch.gradients is None:
            raise ValueError(
                f"micro-batch {micro_batch.batch_id} brings no gradients to stage {self.stage_id}: run the next stage "
                "backward first, or set its gradients"
            )
        self.backward_count += 1
        self.active_steps += 1
        return MicroBatch(micro_batch.batch_id, micro_batch.activations, micro_batch.gradients @ self.weights.T)
