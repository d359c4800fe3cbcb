"""README's commands and Python run, and its numbers are those measured."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import tomllib
from pathlib import Path

import pytest

import headscope as hs
from docs import pictures

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")


FIRST_COMMANDS = re.search(r"```shell\n(.*?)```", README, flags=re.DOTALL)[1]
TARGETS = re.findall(r"^make (\S+)", FIRST_COMMANDS, flags=re.MULTILINE)
FAKE = """#!/bin/sh
echo "called: $*" >> {calls}
case "$*" in check*) exit {fetched};; esac
"""


def make(*words: str, venv: Path, cwd: Path = ROOT) -> subprocess.CompletedProcess[str]:
    """Run make with the tools of an environment that is complete, as far as make can see."""
    for name in ("installed-plain", "installed"):
        venv.mkdir(exist_ok=True)
        (venv / name).touch()
    clean = {name: value for name, value in os.environ.items() if not name.startswith("MAKE")}
    command = ["make", "--no-print-directory", f"VENV={venv}", *words]
    return subprocess.run(command, cwd=cwd, env=clean, capture_output=True, text=True, check=False)


def test_the_readme_opens_with_a_way_to_a_result_and_to_passing_tests(tmp_path):
    assert TARGETS == ["demo", "test"]
    assert README.index(FIRST_COMMANDS) <= README.index("pip install")
    demo, test = (make("--dry-run", target, venv=tmp_path / "venv") for target in TARGETS)
    assert demo.returncode == test.returncode == 0
    assert "headscope classify" in demo.stdout
    for tool in ("bin/ruff check", "bin/mypy", "-m pytest"):
        assert tool in test.stdout


@pytest.mark.parametrize(("fetched", "model"), [(0, "smollm2"), (2, "mini")])
def test_the_demo_classifies_smollm2_or_else_mini_and_ends_with_its_report(
    fetched, model, tmp_path
):
    venv, calls = tmp_path / "venv", tmp_path / "calls"
    (venv / "bin").mkdir(parents=True)
    command = venv / "bin" / "headscope"
    command.write_text(FAKE.format(calls=calls, fetched=fetched))
    command.chmod(0o755)
    done = make("demo", venv=venv)
    assert done.returncode == 0
    fetch, classify = calls.read_text().splitlines()
    assert fetch.split()[1:] == ["check", "models", "--fetch", "smollm2"]
    words = classify.split()[1:]
    assert words[:2] == ["classify", model]
    folder = words[words.index("--out") + 1]
    assert done.stdout.splitlines()[-1].endswith(str(ROOT / folder / "report.html"))
    assert ("mini" in done.stdout.split("The command")[0]) == (model == "mini")
    if model == "smollm2":
        assert f"{folder}/report.html" in FIRST_COMMANDS
        assert {*pictures.DEMO} <= {*words}  # README's picture is of this run


def test_a_demo_that_fails_says_so(tmp_path):
    command = tmp_path / "venv" / "bin" / "headscope"
    command.parent.mkdir(parents=True)
    command.write_text("#!/bin/sh\ncase $1 in classify) exit 3;; esac\n")
    command.chmod(0o755)
    done = make("demo", venv=tmp_path / "venv")
    assert done.returncode != 0
    assert "report.html" not in done.stdout


@pytest.mark.slow
def test_the_demo_of_a_fresh_clone_ends_with_a_report(tmp_path):
    if not shutil.which("git") or not (ROOT / ".git").exists():
        pytest.skip("needs a checkout")
    clone = tmp_path / "clone"
    subprocess.run(["git", "clone", "--quiet", str(ROOT), str(clone)], check=True)
    environment = {k: v for k, v in os.environ.items() if not k.startswith(("MAKE", "PYTHON"))}
    command = ["make", "demo"]
    done = subprocess.run(
        command, cwd=clone, env=environment, capture_output=True, text=True, check=True
    )
    report = Path(done.stdout.splitlines()[-1].split()[-1])
    assert report.is_relative_to(clone)
    assert "<!doctype html>" in report.read_text(encoding="utf-8")


def test_the_prose_of_the_readme_is_short():
    prose = re.sub(r"```.*?```|<!--.*?-->|!\[.*?\]\(.*?\)", "", README, flags=re.DOTALL)
    prose = re.sub(r"\]\([^)]*\)", "]", prose)
    lines = [line for line in prose.splitlines() if not line.startswith(("|", "#"))]
    words = [word for word in " ".join(lines).split() if re.search(r"\w", word)]
    assert len(words) <= 400


def test_the_python_prints_what_the_readme_shows(capsys):
    block = re.search(r"```python\n(.*?)```", README, flags=re.DOTALL)[1]
    printed = re.search(r"```text\n(.*?)```", README, flags=re.DOTALL)[1]
    exec(block, {"hs": hs})
    assert capsys.readouterr().out == printed


def test_the_cost_is_what_was_measured():
    stated = (
        r"cores with AMX: (\d+) s, ([\d.]+) × a bare forward pass, in bfloat16; (\d+) s in float32"
    )
    seconds, times, wide_seconds = re.search(stated, README).groups()
    path = ROOT / "benchmarks" / "results" / "whole.json"
    rows = json.loads(path.read_text(encoding="utf-8"))["rows"]
    measured, wide = (rows[f"smollm2, 8000 tokens: {mode}"] for mode in ("full", "full, float32"))
    assert wide_seconds == f"{wide['seconds']:.0f}"
    assert seconds == f"{measured['seconds']:.0f}"
    assert times == f"{measured['÷ bare']['seconds']:.1f}"


def test_the_citation_is_that_of_the_project():
    import yaml

    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert citation["version"] == project["version"]
