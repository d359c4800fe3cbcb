"""Heads that rest, and heads that a text cannot tell, are drawn as what they are, everywhere."""

from __future__ import annotations

import io
from dataclasses import replace

import numpy as np
import pytest
from matplotlib.colors import to_rgb
from rich.console import Console

import headscope as hs
from headscope.runs.listing import clearest_head
from headscope.statistics.head_lists import alternatives, undecided
from headscope.statistics.tags import with_no_type
from headscope.views.colours import colour, legend_groups
from headscope.views.figures import atlas_figure
from headscope.views.report import report_html
from headscope.views.summary import head_lines
from tests.browser import visit

N, DOCUMENTS = 30, 10
ROLES = ("positional", "rests", "untold", "nothing")


def made() -> hs.Run:
    """One layer: the token before, the first token, every token, and every token again.

    The verdict of the third is set by hand: the evidence of a run with a text that cannot tell.
    """
    a = np.zeros((1, 4, 2 * N + 1, 2 * N + 1))
    place = np.arange(1, 2 * N + 1)
    a[0, 0, place, place - 1] = 0.9
    a[0, 1, :, 0] = 1
    a[0, 2:] = np.tril(np.ones((2 * N + 1, 2 * N + 1))) / np.arange(1, 2 * N + 2)[:, None]
    a[..., 0] += 1 - a.sum(-1)
    tokens = [["<bos>", *[f"w{i}-{j}" for j in range(2 * N)]] for i in range(DOCUMENTS)]
    run = hs.score_patterns([a] * DOCUMENTS, None, tokens, name="four heads")
    evidence = run.evidence.copy()
    row = (evidence["head"] == 2) & (evidence["relation"] == "offset-2")
    columns = ["verdict", "baseline", "contested_n"]
    evidence.loc[row, columns] = ["not identifiable", "nearest-VERB", 7.0]
    return replace(run, heads=with_no_type(run.heads, evidence), evidence=evidence)


@pytest.fixture(scope="module")
def run() -> hs.Run:
    return made()


def printed(what, width: int = 100) -> str:
    out = io.StringIO()
    Console(file=out, width=width).print(what)
    return out.getvalue()


def test_a_head_is_drawn_as_what_it_does_or_rests_or_cannot_be_told(run):
    assert run.heads["primary"].to_dict() == {
        "L0H0": "positional",
        "L0H1": "sink",
        "L0H2": "not identifiable",
        "L0H3": "unclassified",
    }


def test_a_head_with_a_tag_is_no_question_whatever_else_cannot_be_told(run):
    evidence = run.evidence.copy()
    row = (evidence["head"] == 0) & (evidence["relation"] == "offset-2")
    evidence.loc[row, "verdict"] = "not identifiable"
    assert undecided(run.heads, evidence).index.tolist() == ["L0H2"]
    assert with_no_type(run.heads, evidence)["primary"].equals(run.heads["primary"])


@pytest.mark.parametrize(
    ("relation", "rule", "said"),
    [
        ("obj:dep>head", "nearest-VERB", "obj → its head, or nearest verb"),
        (
            "nsubj:pass:head>dep",
            "second-nominal",
            "head → its nsubj:pass, or second nearest nominal",
        ),
        ("pronoun", "own", "pronoun, or its own simple rule, such as the nearest of its kind"),
    ],
)
def test_what_a_head_may_be_doing_is_said_in_words(relation, rule, said):
    assert alternatives(relation, rule) == said


def test_a_legend_has_what_rests_and_what_has_no_type_apart():
    names = ["sink", "unclassified", "syntactic", "not identifiable", "my-own"]
    assert legend_groups(names) == {
        "looks at": ["syntactic", "my-own"],
        "rests": ["sink"],
        "no tag": ["not identifiable", "unclassified"],
    }


def test_the_atlas_shows_rest_faintly_and_a_question_in_a_frame(run):
    axes = atlas_figure(run).axes[0]
    assert [text.get_text() for text in axes.texts] == ["P", "R", "?", "·"]
    image = axes.images[0].get_array()
    darkness = 1 - np.asarray(image)[0].mean(-1)
    assert darkness[0] > 2 * darkness[1] > 2 * darkness[3]
    assert darkness[1] < 0.5 * (1 - np.mean(to_rgb(colour("sink")))) + 1e-9
    frames = [patch for patch in axes.patches if not patch.get_fill()]
    assert [round(patch.get_x() + patch.get_width() / 2) for patch in frames] == [2]
    labels = [text.get_text() for text in axes.get_legend().get_texts()]
    assert labels[-5:] == ["rests", "sink", "no tag", "not identifiable", "unclassified"]


def test_the_head_to_look_at_first_does_more_than_rest(run):
    heads = run.heads.set_index("head")
    assert heads.loc[1, "primary"] == "sink"
    assert clearest_head(run) == "L0H0"
    resting = replace(run, evidence=run.evidence[run.evidence["type"] == "sink"])
    assert clearest_head(resting) == "L0H1"


def test_every_view_says_that_a_head_without_a_tag_is_only_closest_to_its_relation(run):
    rows = {line[:4]: line for line in printed(head_lines(run.heads), 140).splitlines()}
    for name, row in run.heads.iterrows():
        assert ("no tag, closest to" in rows[name]) == (row["tags"] == "")
    assert "no tag, closest to …: " in printed(head_lines(run.heads), 140)
    tagged = printed(head_lines(run.heads[run.heads["tags"] != ""]), 140)
    assert "L0H0" in tagged
    assert "no tag" not in tagged
    untold = undecided(run.heads, run.evidence)["said"]
    (either,) = [line for line in printed(head_lines(run.heads, untold), 140).splitlines()
                 if line.startswith("L0H2")]  # fmt: skip
    assert "not identifiable: no tag, either" in either
    assert "\nNo tag, closest to:\n" in run.why("L0H0")
    assert "\nNo tag, closest to nothing: " in run.why("L0H3")
    assert run.heads.loc["L0H3", "reason"].startswith("closest to ")
    page = report_html(run)
    assert "no tag, closest to " in page
    assert "No tag, closest to this: it puts " in page


def test_the_report_shows_rest_faintly_and_what_cannot_be_told(run, tmp_path):
    script = """
      const cells = Object.fromEntries($$(".cell").map((c) => [c.dataset.head, c.className]));
      const letters = $$(".cell").map((c) => c.textContent);
      const groups = $$(".filters .group").map((g) => [g.firstChild.textContent, ...[...g.querySelectorAll(".filter")].map((b) => b.dataset.type)]);
      $('.filter[data-type="not identifiable"]').click(); await tick();
      const lit = $$(".cell:not(.faded)").map((c) => c.dataset.head);
      $('.filter[data-type="not identifiable"]').click(); await tick();
      const list = $$(".undecided li").map((li) => li.textContent);
      const shade = (q) => { const c = document.createElement("canvas").getContext("2d"); c.fillStyle = getComputedStyle($(q)).backgroundColor; c.fillRect(0, 0, 1, 1); return [...c.getImageData(0, 0, 1, 1).data].slice(0, 3); };
      const shades = ["L0H0", "L0H1", "L0H3"].map((h) => shade(`.cell[data-head="${h}"]`));
      await go("L0H2");
      const card = $("#main").textContent, chip = $("h2 .chip").textContent, untold = $$(".relation.untold").length;
      await go("L0H3");
      return { cells, letters, groups, lit, list, shades, card, chip, untold, other: $("#main").textContent };
    """
    seen = visit(report_html(run), script, tmp_path)
    assert seen.errors == []
    found = seen.found
    assert found["letters"] == ["P", "R", "?", ""]
    assert "resting" in found["cells"]["L0H1"]
    assert "type-undecided" in found["cells"]["L0H2"]
    assert found["groups"][1:] == [
        ["rests", "sink"],
        ["no tag", "not identifiable", "unclassified"],
    ]
    assert found["lit"] == ["L0H2"]
    assert found["list"][0].startswith("offset-2, or nearest verb (they differ at 7 of ")
    assert found["list"][0].endswith(": L0H2")
    typed, rest, none = (255 - np.mean(shade) for shade in found["shades"])
    assert typed > 2 * rest > 2 * none
    assert found["chip"] == "not identifiable"
    assert "Not identifiable: offset-2, or nearest verb: 7 contested queries," in found["card"]
    assert found["untold"] == 1
    assert "ot identifiable" not in found["other"]
