"""README's Python runs, its answers are what the command prints, its numbers those measured."""

from __future__ import annotations

import json
import re
import tomllib
from pathlib import Path

import headscope as hs

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")


def test_the_python_prints_what_the_readme_shows(capsys):
    block = re.search(r"```python\n(.*?)```", README, flags=re.DOTALL)[1]
    printed = re.search(r"```text\n(.*?)```", README, flags=re.DOTALL)[1]
    exec(block, {"hs": hs})
    assert capsys.readouterr().out == printed


def test_the_cost_is_what_was_measured():
    stated = r"two cores: (\d+) s, ([\d.]+) × a bare forward pass, in bfloat16; (\d+) s in float32"
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
    entry = README.split("```bibtex\n")[1]
    assert f"title = {{{citation['title']}}}" in entry
    assert f"version = {{{citation['version']}}}" in entry
