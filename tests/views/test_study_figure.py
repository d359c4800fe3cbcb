"""Heat maps of studies: signs that can be read on every colour, and a legend of their letters."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from matplotlib.colors import to_rgb

from headscope.views.colours import letter
from headscope.views.study_figure import HeatMap, luminance
from tests.helpers.layout import outside

TYPES = ["induction;positional", "positional", "syntactic", "", "unclassified"]


@pytest.fixture(scope="module")
def table() -> pd.DataFrame:
    """A row per head of 6 layers × 8 heads, from the darkest blue to the darkest red, some grey."""
    value = np.linspace(-1, 1, 48)
    value[::11] = np.nan
    layer, head = np.divmod(np.arange(48), 8)
    tags = [TYPES[i % len(TYPES)] for i in range(48)]
    return pd.DataFrame(
        {"layer": layer, "head": head, "effect": value, "tags": tags, "changed": True}
    )


def contrast(one: float, other: float) -> float:
    """Contrast of two relative luminances (WCAG 2.2)."""
    high, low = max(one, other), min(one, other)
    return (high + 0.05) / (low + 0.05)


def test_letters_and_dots_can_be_read_on_every_cell(table):
    declared = HeatMap(value="effect", letters="tags", mark="changed")
    axes = declared.figure("effects", table).axes[0]
    (image,) = axes.images
    drawn = image.to_rgba(image.get_array())
    signs = [(*text.get_position(), text.get_color()) for text in axes.texts]
    signs += [(*line.get_xydata()[0], line.get_color()) for line in axes.lines]
    assert len(signs) == len(table) + (table["tags"] != "").sum()
    for head, layer, colour in signs:
        ground = drawn[int(layer), int(head)]
        assert contrast(luminance(to_rgb(colour)), luminance(ground.tolist())) >= 4.5
    assert {colour for *_, colour in signs} == {"black", "white"}


def test_the_legend_names_every_letter_and_fits_on_the_page(table):
    figure = HeatMap(value="effect", letters="tags").figure("effects", table)
    axes = figure.axes[0]
    drawn = {text.get_text() for text in axes.texts}
    legend = axes.get_xlabel().split("\n", maxsplit=1)[1]
    named = dict(
        entry.split("\N{NO-BREAK SPACE}") for entry in legend.replace("\n", " ").split(", ")
    )
    assert drawn == {*named}
    assert all(letter(name) == sign for sign, name in named.items())
    assert outside(figure) < 0.04


def test_colours_of_shares_begin_at_0_and_those_of_changes_have_both_signs(table):
    share = table.assign(effect=table["effect"].abs())
    for rows, lowest in ((table, -table["effect"].abs().max()), (share, 0)):
        figure = HeatMap(value="effect").figure("effects", rows)
        low, high = figure.axes[-1].get_ylim()
        assert (low, high) == pytest.approx((lowest, table["effect"].abs().max()))
