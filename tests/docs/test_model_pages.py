"""Pages of models say what the atlases say."""

from __future__ import annotations

import pytest

import headscope as hs
from docs.generate import between_marks
from docs.model_pages import PAGES, START, overview, with_blocks
from headscope.runs.atlas import atlas_names


@pytest.mark.parametrize("name", atlas_names())
def test_generation_changes_nothing(name):
    text = (PAGES / f"{name}.md").read_text("utf-8")
    assert with_blocks(text, hs.load(f"atlas:{name}"), file=name) == text


def test_the_table_of_all_pages_is_theirs():
    text = START.read_text("utf-8")
    assert between_marks(text, "overview", overview(), file="") == text
