"""ZB-V, V-Half and V-Min: two chunks a device, placed as a V, at full, half and a third of 1F1B's memory."""

import numpy as np

from pplab.placement import Placement, check_placement
from pplab.schedule import Schedule
from pplab.schedules._block import block_times, repeat_block
from pplab.schedules._sizes import check_two_chunks

_PASSES = ("F0", "F1", "I0", "I1", "W0", "W1")  # a kind and a chunk


def zb_v(num_devices: int, num_microbatches: int, num_chunks: int = 2, placement: Placement = None) -> Schedule:
    """No device waits once it has begun, at 1F1B's memory: its two chunks turn round at the last device.

        device 0  0F0 0F1 0F2 3F0 3I0 3W0 3F1 3I1 3W1 0I0 0W0 3F2 3I2 3W2 0I1 0W1 0I2 0W2   .
        device 1    . 1F0 2F0 1F1 2F1 2I0 2W0 1F2 1I0 1W0 2F2 2I1 2W1 1I1 2I2 1I2 1W1 2W2 1W2

    At F = I = W and M ≥ 2D − 1 no device pauses, and the rows are PyTorch's; with fewer micro-batches there are pauses,
    and W runs in them (a block of pplab.schedules._block, repeated). A step takes max(D + 6M, 3D + 4M, 4D + 2M) − 1
    slots, a chunk's pass each, and no device holds more than D micro-batches, 2D chunks. Qi et al. 2024, Zero Bubble
    Pipeline Parallelism (arXiv 2401.10241), section 6.
    Raises ValueError for sizes below 1, too large ones, other chunks than 2, and a placement that is no V.
    """
    num_devices, num_microbatches = _check("zb-v", num_devices, num_microbatches, num_chunks, placement)
    if num_microbatches < 2 * num_devices - 1:
        # No two collide: modulo 3, F0 and F1 stand at 0, I1 and I0 at 1; F1 − F0 and I0 − I1 are 6(D − k) − 3 slots.
        times = block_times(num_devices, steps=(3, 3, 3, 3), gaps=(2, 0, 2))
        return repeat_block("zb-v", times, num_microbatches, most_held=2 * num_devices)
    rows = [_zb_v_row(k, num_devices, num_microbatches) for k in range(num_devices)]
    row = np.concatenate(rows)
    device = np.repeat(np.arange(num_devices), 6 * num_microbatches)
    microbatch = np.empty(len(row), int)
    for name in _PASSES:  # each in the order of the micro-batches
        microbatch[row == name] = np.tile(np.arange(num_microbatches), num_devices)
    kind, chunk = row.view("<U1").reshape(-1, 2).T
    stage = np.where(chunk == "0", device, 2 * num_devices - 1 - device)
    return Schedule.from_columns(device, stage, kind, microbatch, name="zb-v")


def _zb_v_row(k: int, num_devices: int, num_microbatches: int) -> np.ndarray:
    """Device k's passes in order, as ``F0`` for a forward of chunk 0."""
    after = num_devices - k
    phases = [
        ("F0", 2 * after - 1),  # until micro-batch 0 is back, having turned at the last device …
        ("F1 F0", k),  # … until it is back once more, now backward, having turned at device 0
        ("F1 I1 W1", after),
        ("F0 I0 W0 F1 I1 W1", num_microbatches - 2 * num_devices + k + 1),
        ("I0 W0 F1 I1 W1", after - 1),
        ("I0 I1", k),  # no forward is left: Ws wait, since other devices do not wait for them
        ("I0 W0", after),
        ("W1", k),
        ("W0", k),
    ]
    return np.concatenate([np.tile(phase.split(), count) for phase, count in phases if count])


def v_half(num_devices: int, num_microbatches: int, num_chunks: int = 2, placement: Placement = None) -> Schedule:
    """Half of 1F1B's activations, for about half of its bubble: two chunks a device, placed as a V.

        device 0  0F0 0F1   .   .   . 5F0 5I0 0F2 5W0 5F1 5I1 5W1 0I0 0W0   . 5F2 5I2 0I1 5W2 0W1   . 0I2 0W2
        device 1    . 1F0   .   . 4F0 1F1   . 4I0 4F1 4W0 1F2 1I0 4I1 1W0 4F2 4W1 1I1 4I2 1W1 4W2 1I2 1W2   .
        device 2    .   . 2F0 3F0   .   . 2F1 3F1 3I0 2I0 3W0 2F2 2W0 3F2 3I1 2I1 3W1 2W1 3I2 2I2 3W2 2W2   .

    Qi et al. 2024, Pipeline Parallelism with Controllable Memory (arXiv 2405.15362), section 4: no device holds more
    than (D + 2) // 2 micro-batches of two chunks, and at F = I = W about a share D/2M of the time is lost. Made
    from one block, repeated (see pplab.schedules._block), of steps 1, 2, 1, 2: modulo 3, F0, F1, I1 and I0 stand at
    k, k + 1, k + 2 and k + 1 on device k, so only F1 and I0 can meet, 3D (odd D) or 3D + 3 (even D) slots apart, which
    is 3 modulo 6. At other costs the order stays. Raises ValueError as ``zb_v`` does.
    """
    num_devices, num_microbatches = _check("v-half", num_devices, num_microbatches, num_chunks, placement)
    times = block_times(num_devices, steps=(1, 2, 1, 2), gaps=(0, 0, 1) if num_devices % 2 else (3, 0, 4))
    return repeat_block("v-half", times, num_microbatches, most_held=2 * ((num_devices + 2) // 2))


def v_min(num_devices: int, num_microbatches: int, num_chunks: int = 2, placement: Placement = None) -> Schedule:
    """A third of 1F1B's activations, for about two thirds of its bubble: two chunks a device, placed as a V.

        device 0  0F0 0F1   .   .   .   .   . 7F0 7I0 7W0   .   .   . 7F1 7I1 0I0 7W1 0W0   .   .   . 0I1 0W1
        device 1    . 1F0   .   .   .   . 6F0 1F1   . 6I0 6W0   . 6F1   . 1I0 6I1 1W0 6W1   .   . 1I1 1W1   .
        device 2    .   . 2F0   .   . 5F0   .   . 2F1   . 5I0 5F1 5W0 2I0 2W0   . 5I1 5W1   . 2I1 2W1   .   .
        device 3    .   .   . 3F0 4F0   .   .   .   . 3F1 4F1 4I0 3I0 4W0 3W0   .   . 4I1 3I1 4W1 3W1   .   .

    Qi et al. 2024, Pipeline Parallelism with Controllable Memory (arXiv 2405.15362), section 4: no device holds more
    than (D + 4) // 3 micro-batches of two chunks, and at F = I = W about a share 2D/3M of the time is lost. Made
    from one block, repeated (see pplab.schedules._block), whose steps are all 1, the shortest there are: F0 and I1
    stand in slots of one parity, F1 and I0 in the other, and each two of them 2D slots apart, or, where 3 divides D,
    2D + 2: no multiple of 6. At other costs the order stays. Raises ValueError as ``zb_v`` does.
    """
    num_devices, num_microbatches = _check("v-min", num_devices, num_microbatches, num_chunks, placement)
    times = block_times(num_devices, steps=(1, 1, 1, 1), gaps=(0, 0, 0) if num_devices % 3 else (2, 0, 2))
    return repeat_block("v-min", times, num_microbatches, most_held=2 * ((num_devices + 4) // 3))


def _check(
    name: str, num_devices: object, num_microbatches: object, num_chunks: object, placement: Placement
) -> tuple[int, int]:
    devices, microbatches = check_two_chunks(name, num_devices, num_microbatches, num_chunks)
    check_placement(name, placement, "v", devices, 2)
    return devices, microbatches
