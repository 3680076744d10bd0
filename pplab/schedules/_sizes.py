"""What every builder checks first."""

from numbers import Integral

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


def check_sizes(**sizes: object) -> None:
    """Raise ValueError unless each size is a whole number of at least 1."""
    for name, value in sizes.items():
        if isinstance(value, bool) or not isinstance(value, Integral) or value < 1:
            raise ValueError(f"{name} is {value!r:.40}: it says {MEANING[name]}, so give a whole number of 1 or more")


def check_one_chunk(name: str, num_chunks: object) -> None:
    """Raise ValueError for a number of chunks other than 1."""
    check_sizes(num_chunks=num_chunks)
    if num_chunks != 1:
        raise ValueError(f"{name} holds one stage a device, so num_chunks can only be 1, not {num_chunks}")
