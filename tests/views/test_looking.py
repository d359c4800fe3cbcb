"""Attention views of a model and of a run's examples, on a page and in a notebook."""

from __future__ import annotations

import re

import numpy as np

import headscope as hs
from headscope.views import show
from headscope.views.show import AttentionView

VIEW = AttentionView(
    "L0H0 </script>$x$",
    ("<bos>", "a", "$b</script>"),
    np.array([[1, 0, 0], [0.4, 0.6, 0], [0, 1, 0]]),
)


def test_show_gives_the_models_own_pattern_and_spells_the_text(gpt2_folder, tmp_path):
    view = hs.show(str(gpt2_folder), "L1H3", "the old keys")
    assert view.tokens[0] == "<|endoftext|>"
    assert "".join(view.tokens[1:]) == "the old keys"
    np.testing.assert_allclose(view.pattern.sum(-1), 1, atol=1e-5)
    asked = {"types": ["positional"], "max_tokens": 300, "out": tmp_path / "run"}
    run = hs.classify(str(gpt2_folder), "gold", **asked)
    assert np.array_equal(hs.show(tmp_path / "run", "1.3", "the old keys").pattern, view.pattern)
    assert np.array_equal(run.show("L1H3", "the old keys").pattern, view.pattern)


def test_a_view_holds_its_script_and_nothing_that_ends_it():
    page = VIEW.html()
    assert page.count("</script>") == 1
    assert not re.search(r"<(script|link|img|iframe)\b[^>]*(src|href)", page)
    assert "<title>L0H0 &lt;/script&gt;$x$</title>" in page


def test_one_output_of_a_notebook_brings_the_script_that_draws_all(browser, monkeypatch):
    monkeypatch.setattr(show, "_brought", False)
    outputs = [VIEW._repr_html_(), VIEW._repr_html_()]
    assert len(outputs[0]) > 1_000_000 > 200 * len(outputs[1])
    views = """
      const isDrawn = (view) => view.querySelectorAll("canvas, img").length > 0;
      const views = $$('[id^="headscope-view"]');
      {wait}
      return views.map((view) => [isDrawn(view), view.querySelectorAll("rect").length]);
    """
    drawn = views.replace("{wait}", "await settled(() => views.every(isDrawn));")
    page = "<html><head></head><body>{}</body></html>"
    seen = browser.visit(page.format("".join(outputs)), drawn)
    assert seen.errors == []
    assert seen.found == [[True, 0], [True, 0]]
    # its first output was cleared
    alone = browser.visit(page.format(outputs[1]), views.replace("{wait}", "await tick(1500);"))
    assert alone.errors == []
    assert alone.found == [[False, 5]]  # four cells and what is behind them
