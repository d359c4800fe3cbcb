"""README's Python runs, its answers are what the command prints, its numbers those measured."""

from __future__ import annotations

import json
import re
import shlex
import tomllib
from pathlib import Path

import pytest

import headscope as hs
from tests.helpers.shell import headscope
from tests.helpers.texts import SENTENCES

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"```python\n(.*?)```", README, flags=re.DOTALL)
ANSWERS = re.findall(r"```text\n(.*?)```", README, flags=re.DOTALL)


@pytest.mark.parametrize("block", BLOCKS, ids=["use"])
def test_the_python_blocks_run(block, gpt2_folder, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "few.conllu").write_text(SENTENCES)
    # a smaller model and text than the README's, for speed
    block = block.replace('"mini"', f"{str(gpt2_folder)!r}, corpus='few.conllu'")
    block = block.replace("L5H3", "L1H3")
    names = {"hs": hs}
    exec(block, names)
    assert len(names["run"].heads) == 8
    assert set(names["mine"].evidence["relation"]) == {"two-back"}
    assert capsys.readouterr().out.startswith("L1H3: ")


def asked() -> list[str]:
    """The `why` commands of the README, without the remarks behind them."""
    lines = re.findall(r"headscope (why smollm2 [^`\n]+)", README)
    return [line.split("  ")[0] for line in lines]


def test_the_answers_are_those_of_the_shipped_atlas():
    assert len(asked()) == len(ANSWERS) == 2
    for command, answer in zip(asked(), ANSWERS, strict=True):
        printed = headscope(*shlex.split(command)).stdout
        for line in answer.splitlines():
            assert f"{line}\n" in printed, line


def test_the_cost_is_what_was_measured():
    stated = r"two cores: (\d+) s, ([\d.]+) × a bare forward pass, by bfloat16; (\d+) s in float32"
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


def test_the_readme_is_short():
    lines = README.splitlines()
    assert len(lines) <= 90
    assert max(map(len, lines)) <= 120


def test_every_page_and_folder_in_the_readme_exists():
    for path in re.findall(r"\]\((?!http)([^)#]+)\)", README):
        assert (ROOT / path).exists(), path
    for path in re.findall(r"`((?:headscope|data|tests|benchmarks|notebooks)/[\w/]*)`", README):
        assert (ROOT / path).is_dir(), path
