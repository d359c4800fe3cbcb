"""The README's Python runs as it stands, on a small model and a small corpus."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import headscope as hs
from tests.helpers.texts import SENTENCES

README = (Path(__file__).parents[1] / "README.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"```python\n(.*?)```", README, flags=re.DOTALL)


@pytest.mark.parametrize("block", BLOCKS, ids=["use"])
def test_the_python_blocks_run(block, gpt2_folder, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "few.conllu").write_text(SENTENCES)
    # a smaller model and text than the README's, for speed
    block = block.replace('"mini"', f"{str(gpt2_folder)!r}, corpus='few.conllu'")
    block = block.replace("L5H3", "L1H3")
    names = {"hs": hs}
    exec(block, names)
    assert "run" in names
    assert len(names["run"].heads) == 8
    assert set(names["mine"].evidence["relation"]) == {"two-back"}
    assert capsys.readouterr().out.startswith("L1H3: ")


def test_the_readme_is_short():
    assert len(README.splitlines()) <= 120


def test_every_folder_in_the_readme_exists():
    root = Path(__file__).parents[1]
    for path in re.findall(r"`((?:headscope|data|tests|benchmarks)/[\w/]*)`", README):
        assert (root / path).is_dir(), path
