"""Pictures for papers: as wide as was asked, fonts embedded, all text on the page."""

from __future__ import annotations

import re

import pytest
from typer.testing import CliRunner

import headscope as hs
from headscope.cli import app
from headscope.views.figures import FIGURES, picture
from tests.helpers.hand_built import run_of
from tests.helpers.layout import outside


@pytest.fixture(scope="module")
def run() -> hs.Run:
    """12 layers × 12 heads: the first layer looks back, L11H0 is an induction head."""
    layers = ["P" * 12, *["S" * 12] * 10, "I" + "S" * 11]
    return run_of(*layers, name="a model with a $long$ name, 12 × 12", size=12)


def media_width(pdf: bytes) -> float:
    box = re.search(rb"/MediaBox \[ 0 0 ([\d.]+) ([\d.]+) \]", pdf)
    assert box
    return float(box[1]) / 72


def figures(run, width):
    """Every picture of a run."""
    for kind in FIGURES:
        yield kind, run.figure(kind, width=width)


@pytest.mark.parametrize("width", [3.3, pytest.param(6.9, marks=pytest.mark.slow)])
def test_every_picture_has_the_width_and_its_fonts_and_all_its_text_on_the_page(run, width):
    for kind, figure in figures(run, width):
        assert outside(figure) < 0.04, kind
        pdf = picture(figure, ".pdf")
        assert media_width(pdf) == pytest.approx(width, abs=0.005), kind
        assert b"/FontFile2" in pdf, kind  # TrueType, the file itself
        assert b"/Type3" not in pdf, kind
        svg = picture(figure, ".svg").decode()
        assert svg.count("<text") > 5, kind
        assert f'width="{width * 72:g}pt"' in svg, kind


def test_the_legend_names_every_letter_on_the_atlas(run):
    figure = run.figure("atlas")
    (legend,) = figure.legends
    named = {text.get_text().split(" ")[0] for text in legend.get_texts()}
    drawn = {text.get_text().rstrip("*") for text in figure.axes[0].texts}
    assert drawn == {"P", "·", "I"}
    assert drawn <= named


def test_a_picture_keeps_its_own_width_unless_asked_and_is_drawn_alike_again(run):
    own = run.figure("atlas").get_size_inches()
    assert own[0] > 4
    for suffix in (".pdf", ".svg"):
        first, second = (picture(run.figure("atlas", width=3.3), suffix) for _ in range(2))
        assert first == second


def test_the_command_draws_at_the_width_that_it_is_asked(run, tmp_path):
    def draw(*more: str) -> object:
        out = ["--out", str(tmp_path / "a.pdf"), "--overwrite"]
        return CliRunner().invoke(app, ["draw", "atlas", str(tmp_path / "run"), *out, *more])

    run.save(tmp_path / "run")
    assert draw("--kind", "layers", "--width", "3.3").exit_code == 0
    assert media_width((tmp_path / "a.pdf").read_bytes()) == pytest.approx(3.3, abs=0.005)
    before = (tmp_path / "a.pdf").read_bytes()
    for bad in ("wide", "nan", "-3", "0.1"):
        assert draw("--width", bad).exit_code
    assert (tmp_path / "a.pdf").read_bytes() == before
