"""Tables of the terminal: lines break between words, and nothing is wider than the terminal."""

from __future__ import annotations

import io

import pytest
from rich.console import Console

from headscope.views.terminal_tables import plain_table

WORDS = ("granitemoehybrid", "syntactic/argument:dep>head", "hybrid, latent attention")


def lines_of(width: int) -> list[str]:
    table = plain_table("head", "relation", "attention", "n")
    table.add_row("L10H1", "positional/offset-1-random", "all", "10,000")
    table.add_row(*WORDS, "3")
    drawn = io.StringIO()
    Console(file=drawn, width=width).print(table)
    return drawn.getvalue().splitlines()


@pytest.mark.parametrize("width", [120, 90, 80, 66])
def test_no_word_is_broken_where_the_longest_fit_beside_each_other(width):
    lines = lines_of(width)
    text = " ".join(lines)
    assert all(word in text for cell in WORDS for word in cell.split())
    assert max(map(len, lines)) <= width
