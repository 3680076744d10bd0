"""check_environment: is everything here that the notebooks need, and what to do if not."""

from __future__ import annotations

import os
import platform
import sys
from importlib import metadata

_NEEDS = {  # package: least version, and who needs it
    "numpy": ((2, 0), "everything"),
    "matplotlib": ((3, 9), "the stored pictures"),
    "ipywidgets": ((8, 1), "the sliders"),
    "anywidget": ((0, 9), "playing schedules"),
    "jupyterlab": ((4, 2), "opening the notebooks"),
    "torch": ((2, 13), "real runs only, from notebook 08 on"),
}


def check_environment() -> None:
    """Print versions, cores and memory, and for each thing that is missing or too old the remedy; imports nothing."""
    rows = [_row("Python", platform.python_version(), (3, 11), "everything", "install Python 3.11 or newer")]
    for package, (least, user) in _NEEDS.items():
        remedy = (
            f"run in a terminal, then restart the kernel: {sys.executable} -m pip install '{package}>={_text(least)}'"
        )
        rows.append(_row(package, _version(package), least, user, remedy))
    print("\n".join(text for text, _ in rows))
    print(f"{'cores':12} {os.cpu_count()}")
    memory = _memory_gib()
    if memory:
        print(f"{'memory':12} {memory:.0f} GiB")
    remedies = [remedy for _, remedy in rows if remedy]
    print("\n".join(["", *remedies]) if remedies else "\nAll is here: go on.")


def _row(name: str, version: str | None, least: tuple[int, ...], user: str, remedy: str) -> tuple[str, str]:
    if version is None:
        return f"{name:12} missing      needed for {user}", f"{name}: {remedy}"
    numbers = tuple(int(part) for part in version.split("+")[0].split(".")[:2] if part.isdigit())
    if numbers < least:
        return f"{name:12} {version:12} too old: {_text(least)} or newer is needed for {user}", f"{name}: {remedy}"
    return f"{name:12} {version:12} ok", ""


def _version(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def _text(version: tuple[int, ...]) -> str:
    return ".".join(map(str, version))


def _memory_gib() -> float | None:
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    except (AttributeError, ValueError, OSError):  # not on this system
        return None
