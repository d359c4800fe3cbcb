"""A head's page: what it writes, whether it matters, its account; and the keyboard alone."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

import headscope as hs
from headscope.statistics.causes import BREAKS, CAUSE_COLUMNS
from headscope.views.report import report_html
from tests.browser import visit
from tests.views.hand_built import run_of


@pytest.fixture(scope="module")
def run():
    """2 layers × 2 heads on repeats: L1H1 is an induction head."""
    return run_of("SS", "SI", name="four heads")


def measured(run):
    """The run with effects and a cause of L1H1, and an account of every head."""
    effect = {
        "layer": 1, "head": 1, "type": "induction", "effect": "repeat", "n": 210, "lift": 2.5,
        "ci_low": 2.25, "ci_high": 2.75, "tagged": True,
    }  # fmt: skip
    untagged = {**effect, "head": 0, "lift": 0.01, "tagged": False}
    cause = dict.fromkeys(CAUSE_COLUMNS, np.nan) | {
        "kind": "head", "layer": 1, "head": 1, "type": "induction", "behaviour": "repeat",
        "how": "mean", "clean": -2.0, "ablated": -3.5, "effect": -1.5, "ci_low": -1.75,
        "ci_high": -1.25, "control": -0.125, "verdict": BREAKS,
    }  # fmt: skip
    meaning = {"meaning": "raises what followed the current token before"}
    heads = run.heads.assign(
        explained=[0.1, 0.2, 0.3, 0.91], rule=[f"rule {i} <b>" for i in range(4)]
    )
    return replace(
        run,
        heads=heads,
        effects=pd.DataFrame([effect, untagged]),
        causes=pd.DataFrame([cause]),
        accounts=pd.DataFrame([(0, 0, 0.1)], columns=["layer", "head", "explained"]),
        info={**run.info, "effects": {"writes/induction/repeat": meaning}},
    )


SAID = """
  const said = {};
  for (const name of ["L1H1", "L1H0", "L0H0"]) {
    await go(name); said[name] = $$(".deeds li").map((li) => li.textContent);
  }
  await go("L1H1");
  return { said, bottom: $(".deeds")?.getBoundingClientRect().bottom, high: innerHeight, bold: $$(".deeds b").length };
"""


def test_what_a_head_writes_and_whether_it_matters_stands_in_its_first_screen(run, tmp_path):
    seen = visit(report_html(measured(run)), SAID, tmp_path)
    assert seen.errors == []
    assert seen.found["said"]["L1H1"] == [
        "What it writes raises what followed the current token before: by 2.50 logits against "
        "control tokens (the difference lies between +2.25 and +2.75, over 210 queries; induction).",
        "It matters: without the head, the log-probability of repeated tokens changes by "
        "-1.500 nats per token, -0.125 without a head of its depth and size.",
        "Its account (the rule explains 91% of its bits): rule 3 <b>",
    ]
    assert seen.found["said"]["L1H0"][0].startswith("What it writes earned no tag (1 kind")
    assert len(seen.found["said"]["L0H0"]) == 1  # its account
    assert seen.found["bottom"] < seen.found["high"]
    assert seen.found["bold"] == 0


def test_nothing_is_said_of_what_was_not_measured(run, tmp_path):
    seen = visit(report_html(run), SAID, tmp_path)
    assert seen.errors == []
    assert seen.found["said"] == {"L1H1": [], "L1H0": [], "L0H0": []}


def test_the_conditions_of_the_primary_relation_stand_open_and_first(tmp_path):
    """A head that rests more than it acts: the tag that it is named after comes first all the same."""
    n, documents = 30, 20
    rng = np.random.default_rng(0)
    patterns, tokens = [], []
    for document in range(documents):
        repeat, size = document % 2, 2 * n + 1
        a = np.zeros((1, 2, size, size))
        second = np.arange(n + 1, size)
        if repeat:
            a[0, 1, second, second - n + 1] = rng.uniform(0.7, 0.8, n)
        a[..., 0] += 1 - a.sum(-1)
        patterns.append(a)
        words = [f"w{document}-{i}" for i in range(n if repeat else 2 * n)]
        tokens.append(["<s>", *(words * 2 if repeat else words)])
    run = hs.score_patterns(patterns, None, tokens)
    assert run.heads.loc["L0H1", ["primary", "tags"]].tolist() == ["induction", "induction;sink"]
    by_lift = run.evidence[(run.evidence["head"] == 1) & run.evidence["tagged"]]
    assert by_lift.loc[by_lift["lift"].idxmax(), "type"] == "sink"
    script = """
      await go("L0H1");
      const codes = (q) => $$(q).map((own) => own.querySelector(".code").textContent);
      return { all: codes(".ladders summary"), open: codes(".ladders details[open] summary"), bars: codes(".relation .name")[0] };
    """
    seen = visit(report_html(run), script, tmp_path)
    assert seen.errors == []
    assert seen.found["open"] == ["induction/repeat"]
    assert seen.found["all"][0] == "induction/repeat"
    assert "sink/first-token" in seen.found["all"]
    assert seen.found["bars"] == "induction/repeat"
