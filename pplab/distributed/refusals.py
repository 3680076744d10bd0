"""What a real run cannot do, said before any process starts."""

from __future__ import annotations

from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path

from pplab.distributed.workloads import Workload
from pplab.schedule import Schedule
from pplab.schedules import SCHEDULES

ENGINES = ("rows", "torch-class", "by-hand")
# What PyTorch's own classes need of D and M (2.13), in words and as a test.
_CLASSES: dict[str, tuple[str, Callable[[int, int], bool]]] = {
    "gpipe": ("", lambda d, m: True),
    "1f1b": ("at least as many micro-batches as devices", lambda d, m: m >= d),
    "interleaved-1f1b": (
        "M to be a multiple of its number of rounds, max(1, M // D)",
        lambda d, m: m % max(1, m // d) == 0,
    ),
    "looped-bfs": ("", lambda d, m: True),
    "zb-h1": ("M to be a multiple of its number of rounds, max(1, M // D)", lambda d, m: m % max(1, m // d) == 0),
    "zb-v": ("", lambda d, m: True),
}
MB_PER_RANK = 100  # what PyTorch's own pages, not shared with the others, take


def check_torch() -> None:
    """Raise ImportError, with the way out, where PyTorch is missing. Does not import it."""
    if find_spec("torch") is None:
        raise ImportError(
            "a real run needs PyTorch: pip install 'torch>=2.13'; without it, a stored run can be shown, by load_run"
        )


def check_schedule(s: Schedule, engine: str) -> None:
    """Raise ValueError where processes cannot run this schedule by this engine."""
    if engine not in ENGINES:
        raise ValueError(f"engine is {engine!r:.40}: there are {', '.join(ENGINES)}")
    copies = [k for k in range(s.num_stages) if sum(k in stages for stages in s.placement) > 1]
    if copies:
        raise ValueError(
            f"{s.name} holds stage {copies[0]} on two devices, and PyTorch's runtime knows one device a stage: "
            "a real run of it is not possible; dualpipe-v is the same idea with one copy"
        )
    if not all((s.is_kind("BW") & (s.stage == k)).any() for k in range(s.num_stages)):
        raise ValueError(f"{s.name} runs forward only, so there is nothing to train: take a schedule with backwards")
    if engine == "torch-class":
        _check_class(s)
    if engine == "by-hand" and s != SCHEDULES["1f1b"](s.num_devices, s.num_microbatches):
        raise ValueError(f'the worker written by hand runs 1f1b only, not {s.name}: take engine="rows"')


def _check_class(s: Schedule) -> None:
    if s.name not in _CLASSES:
        raise ValueError(f'PyTorch has no class for {s.name}: take engine="rows", or one of {", ".join(_CLASSES)}')
    words, test = _CLASSES[s.name]
    if not test(s.num_devices, s.num_microbatches):
        raise ValueError(
            f"PyTorch's class for {s.name} needs {words}, not {s.num_microbatches} micro-batches on "
            f'{s.num_devices} devices: take engine="rows", which has no such limit'
        )
    if s.num_stages > s.num_devices and s.name in ("gpipe", "1f1b"):
        raise ValueError(f"PyTorch's class for {s.name} takes one stage a device")


def check_workload(workload: Workload, s: Schedule) -> None:
    """Raise ValueError where the workload has not the schedule's stages."""
    workload.check_stages(s.num_stages)


def check_memory(num_ranks: int, model_bytes: int = 0) -> None:
    """Raise ValueError where so many ranks, and a model of so many bytes over all of them, would not fit."""
    free = available_mb()
    if free is None:
        return
    model = model_bytes / 1e6
    if model > free:
        raise ValueError(
            f"the model needs about {model:.0f} MB, and {free:.0f} MB are free: give it fewer or smaller layers"
        )
    if num_ranks * MB_PER_RANK + model > free:
        needed = num_ranks * MB_PER_RANK + model
        raise ValueError(
            f"{num_ranks} ranks need about {needed:.0f} MB, and {free:.0f} MB are free: run on "
            f"at most {int((free - model) // MB_PER_RANK)} devices here, or close other notebooks"
        )


def available_mb() -> float | None:
    """How many MB processes can still take, by the system and by a container's limit; None where nobody tells."""
    found = []
    meminfo = Path("/proc/meminfo")
    if meminfo.exists():
        lines = dict(line.split(":") for line in meminfo.read_text().splitlines() if ":" in line)
        if "MemAvailable" in lines:
            found.append(int(lines["MemAvailable"].split()[0]) / 1e3)
    for limit, used, stat in (
        ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory.current", "/sys/fs/cgroup/memory.stat"),
        (
            "/sys/fs/cgroup/memory/memory.limit_in_bytes",
            "/sys/fs/cgroup/memory/memory.usage_in_bytes",
            "/sys/fs/cgroup/memory/memory.stat",
        ),
    ):
        try:
            most, taken = (int(Path(path).read_text()) for path in (limit, used))
            cached = dict(line.split() for line in Path(stat).read_text().splitlines())
        except (OSError, ValueError):  # there is no limit here, or it reads "max"
            continue
        found.append((most - taken + int(cached.get("inactive_file", 0))) / 1e6)  # the system gives its cache back
    return min(found) if found else None
