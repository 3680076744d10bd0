"""What every builder checks first."""

from pplab.presets import is_size

MEANING = {
    "num_devices": "how many devices the model is spread over",
    "num_microbatches": "how many micro-batches one step runs",
    "num_chunks": "how many stages each device holds",
    "num_stages": "into how many stages the model is cut",
    "micro_batch_size": "how many sequences a micro-batch has",
    "seq_len": "how many tokens a sequence has",
    "hidden_size": "how wide the model is",
    "bytes_per_element": "how many bytes a number takes",
}
_MOST_PASSES = 2**24  # forwards of a schedule: some GB and half a minute
_MOST_DEVICES = 2**16


def check_sizes(**sizes: object) -> tuple[int, ...]:
    """The sizes as Python's ints, whose products cannot overflow; raises ValueError unless each is whole, from 1."""
    for name, value in sizes.items():
        if not is_size(value):
            raise ValueError(f"{name} is {value!r:.40}: it says {MEANING[name]}, so give a whole number of 1 or more")
    return tuple(int(value) for value in sizes.values())  # type: ignore[call-overload]


def check_schedule_sizes(num_devices: object, num_microbatches: object, num_chunks: object = 1) -> tuple[int, int, int]:
    """A builder's sizes as ints; raises ValueError as check_sizes does, and for a schedule that no memory holds."""
    devices, microbatches, chunks = check_sizes(
        num_devices=num_devices, num_microbatches=num_microbatches, num_chunks=num_chunks
    )
    if devices > _MOST_DEVICES:
        raise ValueError(
            f"num_devices is {_short(devices)}: a schedule has at most {_MOST_DEVICES:,} devices; give fewer"
        )
    if devices * microbatches * chunks > _MOST_PASSES:
        raise ValueError(
            f"num_devices · num_microbatches · num_chunks is {_short(devices * microbatches * chunks)}: a schedule "
            f"has at most {_MOST_PASSES:,} forwards, more do not fit into memory; give smaller sizes"
        )
    return devices, microbatches, chunks


def check_one_chunk(name: str, num_devices: object, num_microbatches: object, num_chunks: object) -> tuple[int, int]:
    """As check_schedule_sizes for a schedule of one stage a device; raises ValueError for other numbers of chunks."""
    devices, microbatches, chunks = check_schedule_sizes(num_devices, num_microbatches, num_chunks)
    if chunks != 1:
        raise ValueError(f"{name} holds one stage a device, {_only(1, chunks, devices, microbatches)}")
    return devices, microbatches


def check_two_chunks(name: str, num_devices: object, num_microbatches: object, num_chunks: object) -> tuple[int, int]:
    """As check_schedule_sizes for a schedule of two stages a device; raises ValueError for other numbers of chunks."""
    devices, microbatches, chunks = check_schedule_sizes(num_devices, num_microbatches, num_chunks)
    if chunks != 2:
        raise ValueError(f"{name} holds two stages a device, {_only(2, chunks, devices, microbatches)}")
    return devices, microbatches


def check_even(name: str, why: str, nearest: str | None = None, **sizes: int) -> None:
    """Raise ValueError, with the nearest that are unless others are given, for a size that is not even."""
    for size, value in sizes.items():
        if value % 2:
            near = nearest or (f"{value - 1} or {value + 1}" if value > 1 else "2")
            raise ValueError(f"{size} must be even for {name}, not {value}: {why}; take {near}")


def _only(right: int, chunks: int, devices: int, microbatches: int) -> str:
    way = f"take V = {right} with these D = {devices} and M = {microbatches}"
    return f"so num_chunks can only be {right}, not {chunks}: {way}"


def _short(number: int) -> str:
    return f"{number:,}" if number < 10**18 else f"about 10^{len(str(number)) - 1}" if number < 10**999 else "huge"
