"""Looking at heads: examples, the pattern cache, views, pictures and the commands for them."""

from __future__ import annotations

import re
from dataclasses import replace
from functools import partial

import numpy as np
import pandas as pd
import pytest
from rich.console import Console
from typer.testing import CliRunner

import headscope as hs
from headscope.cli import app
from headscope.corpus.shipped import data_folder
from headscope.errors import HeadscopeError, PatternError, RunError
from headscope.measure.example_reader import Sample
from headscope.measure.examples import find_examples
from headscope.measure.run_windows import windows_of
from headscope.models.load import load_model
from headscope.relations import relations_of
from headscope.run import load
from headscope.statistics.head_lists import wanted_examples
from headscope.views import show
from headscope.views.html_page import atlas_html
from headscope.views.show import AttentionView
from tests.browser import visit

TYPES = ["positional", "delimiter"]


@pytest.fixture(scope="module")
def made(gpt2_folder, tmp_path_factory):
    """A run whose evidence is tagged by hand, so that random weights have examples to show."""
    folder = tmp_path_factory.mktemp("looking")
    corpus = data_folder() / "corpora" / "gold.conllu"
    run = hs.classify(
        str(gpt2_folder), corpus, types=TYPES, max_tokens=2000, max_length=64, out=folder / "run"
    )
    model = load_model(str(gpt2_folder))
    relations = relations_of(TYPES)
    text, synthetic = windows_of(
        model, relations_of(["all"]), [corpus], hs.Settings(max_tokens=2000, max_length=64)
    )
    windows = [*text, *synthetic]
    evidence = run.evidence.assign(tagged=False)
    chosen = (evidence["layer"] == 1) & (evidence["head"] == 2)
    evidence.loc[chosen & evidence["relation"].isin(["offset-2", "sentence-end"]), "tagged"] = True
    wanted = wanted_examples(pd.DataFrame(evidence), relations)
    every = set(zip(run.heads["layer"], run.heads["head"], strict=True))
    assert {(want.layer, want.head) for want in wanted} == every
    wanted = [want for want in wanted if (want.layer, want.head) == (1, 2)]
    examples = find_examples(
        partial(Sample(seed=0).patterns, model), windows, relations, wanted, seed=0
    )
    shown = hs.Run(run.heads, evidence, run.rules, run.info, run.tally, run.twin, examples)
    shown.save(folder / "shown")
    return folder, shown, model, windows


def test_examples_are_the_best_query_and_one_of_each_further_tenth(made):
    _, run, _, _ = made
    own = [e for e in run.examples if e.relation == "positional/offset-2"]
    assert [e.kind for e in own] == ["best", *(f"decile {k}" for k in range(2, 11))]
    masses = [e.mass for e in own]
    assert masses[0] == max(masses)
    assert masses == sorted(masses, reverse=True)
    assert len({(e.window, e.tokens, e.query) for e in own}) == 10
    assert [e.kind for e in run.examples if not e.relation] == ["ordinary"]
    assert {(e.layer, e.head) for e in run.examples} == {(1, 2)}


def test_a_run_read_without_its_sums_does_not_overwrite_them(made):
    folder = made[0] / "shown"
    with pytest.raises(RunError, match="loaded without them"):
        load(folder).save(folder, overwrite=True)
    load(folder, with_tally=True).save(folder, overwrite=True)
    assert (folder / "sums.npz").is_file()


def test_the_examples_are_read_back_as_they_were(made):
    folder, run, _, _ = made
    back = load(folder / "shown").examples
    assert len(back) == len(run.examples)
    for one, two in zip(back, run.examples, strict=True):
        for name in vars(two).keys() - {"pattern", "mass", "left_out"}:
            assert getattr(one, name) == getattr(two, name)
        assert one.left_out == pytest.approx(two.left_out, abs=1e-6)
        assert np.array_equal(one.pattern, two.pattern)


def test_show_gives_the_models_own_pattern_and_spells_the_text(made, gpt2_folder):
    view = hs.show(str(gpt2_folder), "L1H3", "the old keys")
    assert view.tokens[0] == "<|endoftext|>"
    assert "".join(view.tokens[1:]) == "the old keys"
    np.testing.assert_allclose(view.pattern.sum(-1), 1, atol=1e-5)
    again = hs.show(str(made[0] / "shown"), "1.3", "the old keys")
    assert np.array_equal(view.pattern, again.pattern)
    assert np.array_equal(made[1].show("L1H3", "the old keys").pattern, view.pattern)


def test_show_refuses_what_it_cannot_show(gpt2_folder, made):
    model = made[2]
    with pytest.raises(RunError, match=r"no head L9H0 in .*; they go up to L1H3"):
        hs.show(model, "L9H0", "text")
    with pytest.raises(HeadscopeError, match="the text is empty"):
        hs.show(model, "L0H0", "")
    with pytest.raises(HeadscopeError, match=r"with its beginning .* reads 256 at most"):
        hs.show(model, "L0H0", "the " * 400)
    with pytest.raises(PatternError, match=r"shape \(2, 3\) for 2 tokens"):
        AttentionView("x", ("a", "b"), np.zeros((2, 3)))


VIEW = AttentionView(
    "L0H0 </script>$x$",
    ("<bos>", "a", "$b</script>"),
    np.array([[1, 0, 0], [0.4, 0.6, 0], [0, 1, 0]]),
)


def test_the_grid_shades_each_cell_and_names_each_best_key():
    console = Console(width=80, no_color=True)
    with console.capture() as capture:
        console.print(VIEW.grid())
    lines = capture.get().splitlines()
    assert lines[1].split() == ["<bos>", "██", "<bos>", "1.00"]
    assert lines[3].split()[-2:] == ["a", "1.00"]


def test_a_view_holds_its_script_and_nothing_that_ends_it():
    page = VIEW.html()
    assert page.count("</script>") == 1
    assert not re.search(r"<(script|link|img|iframe)\b[^>]*(src|href)", page)
    assert "<title>L0H0 &lt;/script&gt;$x$</title>" in page


def test_one_output_of_a_notebook_brings_the_script_that_draws_all(monkeypatch, tmp_path):
    monkeypatch.setattr(show, "_brought", False)
    outputs = [VIEW._repr_html_(), VIEW._repr_html_()]
    assert len(outputs[0]) > 1_000_000 > 200 * len(outputs[1])
    script = """await tick(1500);
      return [...$$('[id^="headscope-view"]')].map((v) => [v.querySelectorAll("canvas, img").length > 0, v.querySelectorAll("rect").length]);"""
    page = "<html><head></head><body>{}</body></html>"
    seen = visit(page.format("".join(outputs)), script, tmp_path)
    assert seen.errors == []
    assert seen.found == [[True, 0], [True, 0]]
    alone = visit(page.format(outputs[1]), script, tmp_path)  # its first output was cleared
    assert alone.errors == []
    assert alone.found == [[False, 4]]


def test_a_layer_is_shown_by_what_the_run_kept(made):
    run = made[1]
    (own,) = [e for e in run.examples if e.query < 0]
    other = replace(own, head=3, pattern=np.eye(len(own.tokens), dtype=np.float16))
    view = replace(run, examples=[own, other]).show(layer=1)
    assert view.names == ("L1H2", "L1H3")
    assert view.tokens == own.tokens
    np.testing.assert_array_equal(view.patterns[1], np.eye(len(own.tokens)))
    assert "L1H3" in view.html()
    with pytest.raises(RunError, match="no layer 7 in this run; they go up to 1"):
        run.show(layer=7)
    with pytest.raises(RunError, match="kept no text of layer 0"):
        run.show(layer=0)
    for asked in ({}, {"head": "L0H0"}, {"head": "L0H0", "layer": 1}):
        with pytest.raises(HeadscopeError, match="a head and a text, or layer=5 alone"):
            run.show(**asked)


def test_the_atlas_in_a_notebook_has_every_head_and_escapes_names(made):
    html = atlas_html(made[1])
    assert html.count("<td ") == 8
    run = hs.Run(made[1].heads, made[1].evidence, made[1].rules, {"model": {"name": "<b>x"}})
    assert "<b>x" not in atlas_html(run).replace("<b>&lt;b&gt;x", "")


def test_the_commands_write_pictures_and_pages(made, tmp_path):
    folder = made[0] / "shown"
    for arguments in (
        ["draw", "atlas", str(folder), "--out", str(tmp_path / "a.svg"), "--kind", "layers"],
        ["show", str(folder), "L0H1", "the old keys", "--out", str(tmp_path / "b.svg")],
        ["show", str(folder), "L0H1", "the old keys", "--out", str(tmp_path / "c.html")],
        ["report", str(folder), "--out", str(tmp_path / "d.html")],
    ):
        result = CliRunner().invoke(app, arguments)
        assert result.exit_code == 0, result.output
        assert (tmp_path / arguments[arguments.index("--out") + 1]).stat().st_size > 500
