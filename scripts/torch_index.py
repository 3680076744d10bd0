"""Print the extra arguments with which pip installs the right build of PyTorch; often there are none.

On Linux, plain `torch` is the CUDA build: gigabytes that are of no use without an NVIDIA GPU. PyTorch's own index also
has a CPU build, and this script points pip to it, except where

- an NVIDIA GPU is found or TORCH=cuda is set (TORCH=cpu wants the CPU build all the same);
- the system is not Linux: plain `torch` is no CUDA build there;
- PyTorch's index does not answer, as behind some firewalls: plain `torch` then, and a word about it.

Needs the standard library only, since it runs before anything is installed. The reason goes to stderr.
"""

import http.client
import os
import platform
import shutil
import subprocess
import sys
import threading
import urllib.request
from pathlib import Path

CPU_INDEX = "https://download.pytorch.org/whl/cpu"
PATIENCE = 3.0  # seconds


def has_nvidia_gpu() -> bool:
    """Tell whether the driver shows an NVIDIA GPU."""
    if Path("/dev/nvidia0").exists():
        return True
    if shutil.which("nvidia-smi") is None:
        return False
    try:
        return subprocess.run(["nvidia-smi", "-L"], capture_output=True, timeout=10).returncode == 0
    except (OSError, subprocess.TimeoutExpired):
        return False


def index_answers(url: str = f"{CPU_INDEX}/torch/", patience: float = PATIENCE) -> bool:
    """Tell whether `url` answers within `patience` seconds.

    A thread asks, because a socket's own timeout leaves out the time of the name look-up.
    """
    answers: list[bool] = []

    def ask() -> None:
        try:
            with urllib.request.urlopen(urllib.request.Request(url, method="HEAD"), timeout=patience):
                answers.append(True)
        except (OSError, http.client.HTTPException):
            pass

    asking = threading.Thread(target=ask, daemon=True)
    asking.start()
    asking.join(patience)
    return bool(answers)


def choose(wanted: str) -> tuple[list[str], str]:
    """Return pip's extra arguments and the reason, for `wanted` = "cpu", "cuda" or "" (look and see).

    Raises:
        ValueError: if `wanted` is none of these.
    """
    if wanted not in ("", "cpu", "cuda"):
        raise ValueError(f"TORCH={wanted} is unknown: use TORCH=cpu, TORCH=cuda, or leave it out")
    if platform.system() != "Linux":
        return [], "plain build, no CUDA in it on this system"
    if wanted == "cuda":
        return [], "CUDA build, as TORCH=cuda says"
    if wanted == "" and has_nvidia_gpu():
        return [], "CUDA build, for the NVIDIA GPU found (TORCH=cpu for the small one)"
    if not index_answers():
        return [], f"plain build, which may bring gigabytes of CUDA: {CPU_INDEX} does not answer"
    return ["--extra-index-url", CPU_INDEX], "CPU build (TORCH=cuda for the other one)"


def main() -> None:
    """Print the arguments for pip, and say why."""
    try:
        arguments, reason = choose(os.environ.get("TORCH", ""))
    except ValueError as error:
        sys.exit(str(error))
    print("PyTorch:", reason, file=sys.stderr)
    print(*arguments)


if __name__ == "__main__":
    main()
