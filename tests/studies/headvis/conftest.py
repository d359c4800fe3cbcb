"""A small run with text of unequal length and odd characters, and its export."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import headscope as hs

ODD = "naïve 日本 😀 <b>&amp;</b> \u202ebidi\u202c\ttab 'quoted' \"twice\" {brace} \\n ½ "


@pytest.fixture(scope="session")
def texts(tmp_path_factory) -> Path:
    """Twelve documents, each of its own length."""
    folder, rng = tmp_path_factory.mktemp("texts"), np.random.default_rng(0)
    words = "Alice told them that she was in the house and the old keys were very tired".split()
    for number in range(12):
        text = " ".join(rng.choice(words, 20 + 25 * (number % 5))) + "."
        (folder / f"{number:02d}.txt").write_text(ODD * (number == 3) + text, encoding="utf-8")
    return folder


@pytest.fixture(scope="session")
def run_folder(gpt2_folder, texts, tmp_path_factory) -> Path:
    """A run of a small model on them."""
    out = tmp_path_factory.mktemp("runs") / "run"
    types = ["positional", "induction", "lexical"]
    hs.classify(gpt2_folder, texts, out=out, max_tokens=3_000, types=types, twin=False)
    return out


@pytest.fixture(scope="session")
def export(run_folder, tmp_path_factory) -> hs.StudyResult:
    """All heads on up to 60 sequences of up to 64 tokens."""
    out = tmp_path_factory.mktemp("out") / "data"
    return hs.headvis(run_folder, out, sequences=60, max_length=64)
