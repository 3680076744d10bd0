"""The set-up itself: pins that agree, a light core, the choice of a torch build, and the Binder image."""

import re
import subprocess
import sys
import threading
import tomllib
from collections import ChainMap
from contextlib import nullcontext
from itertools import chain
from pathlib import Path
from shutil import copytree, ignore_patterns

import pytest
import yaml
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

import torch_index

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
READER = {"jupyterlab", "ipywidgets", "anywidget", "numpy", "matplotlib", "torch", "nbval"}


def read_pins(path: Path) -> dict[str, str]:
    """Read a requirements file whose every line is `name==version`."""
    lines = [line.split("#")[0].strip() for line in path.read_text().splitlines()]
    pins = {}
    for line in filter(None, lines):
        match = re.fullmatch(r"([\w.-]+)==(\d+(?:\.\d+)+)", line)
        assert match, f"{path.name}: {line!r} is no exact pin"
        pins[canonicalize_name(match[1])] = match[2]
    return pins


def conda_specs() -> dict[str, str]:
    """Read binder/environment.yml as name → version prefix, torch under its usual name."""
    environment = yaml.safe_load((ROOT / "binder/environment.yml").read_text())
    specs = dict(spec.split("=") for spec in environment["dependencies"] if "=" in spec)
    return {"torch" if name == "pytorch-cpu" else name: version.removesuffix(".*") for name, version in specs.items()}


def test_requirements_are_exact_and_a_readers_own():
    assert set(read_pins(ROOT / "requirements.txt")) == READER


@pytest.mark.parametrize("folder", ["site", "tests"])
def test_what_only_tests_and_pages_need_stands_apart(folder):
    assert not READER & set(read_pins(ROOT / folder / "requirements.txt"))


def test_ranges_admit_the_pins():
    pins = ChainMap(*(read_pins(ROOT / folder / "requirements.txt") for folder in (".", "site", "tests")))
    extras = PROJECT["optional-dependencies"]
    ranges = [Requirement(text) for text in PROJECT["dependencies"] + list(chain(*extras.values()))]
    assert {canonicalize_name(needed.name) for needed in ranges} == set(pins)
    for needed in ranges:
        assert needed.specifier.contains(pins[canonicalize_name(needed.name)]), needed


def test_light_core_needs_no_torch():
    light = {"numpy", "matplotlib", "ipywidgets", "anywidget"}
    assert {Requirement(text).name for text in PROJECT["dependencies"]} == light
    code = "import sys; sys.modules['torch'] = None; import pplab"  # None makes `import torch` fail
    subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=True, timeout=60)


def test_version_is_the_same_everywhere():
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    assert citation["version"] == PROJECT["version"]
    assert f"## [{PROJECT['version']}]" in (ROOT / "CHANGELOG.md").read_text()


def test_binder_agrees_with_the_pins():
    specs = conda_specs()
    assert Requirement(f"python{PROJECT['requires-python']}").specifier.contains(specs.pop("python"))
    pins = read_pins(ROOT / "requirements.txt")
    assert set(specs) == READER - {"nbval"}
    for name, version in specs.items():
        assert f"{pins[name]}.".startswith(f"{version}."), f"{name}: {version} on Binder, {pins[name]} pinned"


def test_binder_takes_from_conda_forge_only():
    channels = yaml.safe_load((ROOT / "binder/environment.yml").read_text())["channels"]
    assert channels == ["conda-forge", "nodefaults"]


def test_repo2docker_builds_with_conda_and_runs_post_build(tmp_path):
    copytree(ROOT, tmp_path / "repo", ignore=ignore_patterns(".*", "__pycache__", "*.egg-info", "build"))
    options = ["--no-build", "--debug", "--user-id", "1000", "--user-name", "reader"]
    command = [sys.executable, "-m", "repo2docker", *options, "."]
    run = subprocess.run(command, cwd=tmp_path / "repo", capture_output=True, text=True, timeout=120)
    assert run.returncode == 0, run.stderr
    dockerfile = run.stdout
    assert "FROM " in dockerfile
    assert re.search(r"env update -p \S+ --file \"?binder/environment.yml", dockerfile), dockerfile
    assert "RUN ./binder/postBuild" in dockerfile


@pytest.mark.parametrize("script", [".ci/run", "binder/postBuild"])
def test_scripts_are_executable_bash_that_stops_at_errors(script):
    path = ROOT / script
    assert path.stat().st_mode & 0o111
    assert path.read_text().startswith("#!/usr/bin/env bash\n")
    assert "set -euo pipefail\n" in path.read_text()
    subprocess.run(["bash", "-n", path], check=True)


CPU_BUILD = ["--extra-index-url", "https://download.pytorch.org/whl/cpu"]
PLAIN: list[str] = []


@pytest.mark.parametrize(
    ("system", "gpu", "answers", "wanted", "arguments"),
    [
        ("Linux", False, True, "", CPU_BUILD),
        ("Linux", False, False, "", PLAIN),
        ("Linux", False, True, "cuda", PLAIN),
        ("Linux", True, True, "", PLAIN),
        ("Linux", True, True, "cpu", CPU_BUILD),
        ("Linux", True, False, "cpu", PLAIN),
        ("Darwin", False, True, "", PLAIN),
        ("Darwin", False, True, "cpu", PLAIN),
        ("Windows", True, True, "", PLAIN),
    ],
)
def test_choice_of_a_torch_build(monkeypatch, system, gpu, answers, wanted, arguments):
    monkeypatch.setattr(torch_index.platform, "system", lambda: system)
    monkeypatch.setattr(torch_index, "has_nvidia_gpu", lambda: gpu)
    monkeypatch.setattr(torch_index, "index_answers", lambda: answers)
    assert torch_index.choose(wanted)[0] == arguments


@pytest.mark.parametrize(("system", "wanted"), [("Darwin", ""), ("Linux", "cuda")])
def test_index_is_asked_only_where_it_matters(monkeypatch, system, wanted):
    monkeypatch.setattr(torch_index.platform, "system", lambda: system)
    monkeypatch.setattr(torch_index, "index_answers", lambda: pytest.fail("asked the index"))
    torch_index.choose(wanted)


def test_index_answers_when_it_does(monkeypatch):
    monkeypatch.setattr(torch_index.urllib.request, "urlopen", lambda *_args, **_options: nullcontext())
    assert torch_index.index_answers()


def test_index_that_refuses_the_connection_does_not_answer():
    assert not torch_index.index_answers("http://127.0.0.1:9/")


def test_silent_index_is_not_waited_for(monkeypatch):
    released = threading.Event()

    def silent(*_args, **_options):
        released.wait()
        raise OSError

    monkeypatch.setattr(torch_index.urllib.request, "urlopen", silent)
    assert not torch_index.index_answers(patience=0.1)  # returns while nobody has answered
    released.set()


@pytest.mark.parametrize(("exit_code", "found"), [(0, True), (9, False)])
def test_gpu_is_found_by_a_working_nvidia_smi(monkeypatch, tmp_path, exit_code, found):
    if Path("/dev/nvidia0").exists():
        pytest.skip("this machine has an NVIDIA GPU")
    tool = tmp_path / "nvidia-smi"
    tool.write_text(f"#!/bin/sh\nexit {exit_code}\n")
    tool.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert torch_index.has_nvidia_gpu() is found


def test_script_prints_what_pip_reads(monkeypatch, capsys):
    monkeypatch.setenv("TORCH", "")
    monkeypatch.setattr(torch_index, "choose", lambda _wanted: (CPU_BUILD, "why"))
    torch_index.main()
    printed = capsys.readouterr()
    assert printed.out == "--extra-index-url https://download.pytorch.org/whl/cpu\n"
    assert printed.err == "PyTorch: why\n"


def test_unknown_choice_is_named_with_a_way_out(monkeypatch):
    monkeypatch.setenv("TORCH", "gpu")
    with pytest.raises(SystemExit, match=r"TORCH=gpu is unknown: use TORCH=cpu, TORCH=cuda"):
        torch_index.main()
