"""Tags that rest on little text, and hit rates below the baseline's, wherever a run shows tags."""

from __future__ import annotations

import io
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from rich.console import Console

import headscope as hs
from headscope.relations import relations_of
from headscope.statistics.columns import EVIDENCE_COLUMNS
from headscope.statistics.head_table import head_table
from headscope.statistics.tags import is_preliminary, with_thresholds
from headscope.views.atlas_cells import STAR
from headscope.views.figures import atlas_figure
from headscope.views.html_page import atlas_html
from headscope.views.summary import head_lines, summary
from tests.helpers.prose import prose_windows
from tests.helpers.run_folders import signed

FIXED, OBJECT, PREVIOUS = (
    "syntactic/fixed:dep>head",
    "syntactic/obj:dep>head",
    "positional/offset-1",
)
RELATIONS = [row for row in relations_of(["all"]) if row.id in (FIXED, OBJECT, PREVIOUS)]
THRESHOLDS = {row.id: row.thresholds for row in RELATIONS}
WORDS = ("preliminary", "below baseline")
WORDS_OF_HEADS = ("preliminary", "below_baseline")


def evidence_row(name: str, head: int, hit_rate: float, hard: int) -> dict[str, object]:
    """A tag if the head has a hit rate; else a rejection."""
    kind, relation = name.split("/")
    tagged = hit_rate > 0
    row: dict[str, object] = dict.fromkeys(EVIDENCE_COLUMNS, np.nan)
    row |= {"layer": 0, "head": head, "type": kind, "relation": relation, "n": 900}
    row |= {"mass": 0.5, "control": 0.1, "lift": 0.4, "ci_low": 0.3, "ci_high": 0.5}
    row |= {"q_value": 1e-5, "chance": 0.0, "general": "", "tagged": tagged}
    row |= {"verdict": "tagged" if tagged else "no", "baseline": "nearest-VERB"}
    return row | {"baseline_rate": 0.6, "hit_rate": hit_rate, "hard_n": hard, "hard_rate": 0.9}


def made(hard: int, hit_rate: float) -> hs.Run:
    """Three heads with a tag each: the first of so many hard queries, the second right so often."""
    hit_rates = {FIXED: (0.9, 0, 0), OBJECT: (0, hit_rate, 0.6)}
    rows = []
    for name, rates in hit_rates.items():
        for head, rate in enumerate(rates):
            rows.append(evidence_row(name, head, rate, hard if name == FIXED else 300))
    evidence = pd.DataFrame(rows)
    evidence["preliminary"] = is_preliminary(with_thresholds(evidence, THRESHOLDS))
    names = ("first_token_mass", "entropy", "mean_distance", "variability", "sink_share")
    profile = pd.DataFrame({"layer": 0, "head": range(3), **dict.fromkeys(names, 0.5), "shape": ""})
    heads = head_table(with_thresholds(evidence, THRESHOLDS), profile, 1)
    model = {"name": "three heads", "layers": 1, "heads": 3}
    info = {"model": model, "provenance": {"versions": {}}, "thresholds": {}}
    return hs.Run(heads, evidence, THRESHOLDS, info)


@pytest.fixture(scope="module")
def cautious() -> hs.Run:
    return made(hard=29, hit_rate=0.59)


@pytest.fixture(scope="module")
def plain() -> hs.Run:
    return made(hard=30, hit_rate=0.61)


def printed(what: object) -> str:
    out = io.StringIO()
    Console(file=out, width=160).print(what)
    return out.getvalue()


def of_the_figure(run: hs.Run) -> str:
    return atlas_figure(run).axes[0].get_xlabel()


def of_the_accounts(run: hs.Run) -> str:
    return "\n".join(run.why(name) for name in run.heads.index)


SHOWN: dict[str, Callable[[hs.Run], str]] = {
    "summary": lambda run: printed(summary(run)),
    "heads": lambda run: printed(head_lines(run.heads)),
    "notebook": atlas_html,
    "figure": of_the_figure,
    "why --full": of_the_accounts,
    "why": lambda run: str(hs.why(run, list(run.heads.index))),
}


@pytest.mark.parametrize("name", SHOWN)
def test_a_caution_stands_wherever_the_tag_is_shown_and_nowhere_else(name, cautious, plain):
    with_cautions, without = SHOWN[name](cautious), SHOWN[name](plain)
    for word in WORDS:
        assert word in with_cautions
        assert word not in without


def test_a_star_marks_preliminary_tags_in_the_tables_of_the_terminal(cautious, plain):
    lines = printed(summary(cautious)).splitlines()
    rows = [line for line in lines if line.startswith(" L0H")]
    assert [STAR in row for row in rows] == [True, False, False]
    assert lines[-1].startswith(f"{STAR}: preliminary")
    assert STAR not in printed(summary(plain))


def test_the_tables_list_the_tags_with_a_caution(cautious, plain, tmp_path):
    folder = cautious.save(tmp_path / "run")
    heads = pd.read_csv(folder / "heads.csv", keep_default_na=False)
    assert heads["preliminary"].tolist() == ["syntactic", "", ""]
    assert heads["below_baseline"].tolist() == ["", "syntactic", ""]
    assert pd.read_csv(folder / "evidence.csv.gz")["preliminary"].tolist() == [True] + 5 * [False]
    answers = pd.read_csv(io.StringIO(hs.why(folder, "L0H0, L0H1").csv()), keep_default_na=False)
    assert answers["preliminary"].tolist() == [FIXED, ""]
    back = hs.load(folder)
    assert back.heads["preliminary"].tolist() == ["syntactic", "", ""]
    assert not plain.evidence["preliminary"].any()


def test_the_report_marks_cells_and_tags(browser, cautious, plain):
    script = """
      const cells = $$(".cell").map((c) => [c.querySelector(".letter").textContent,
        c.classList.contains("below-baseline"), c.getAttribute("aria-label")]);
      const legend = $(".signs").textContent;
      await go("type=syntactic");
      const table = $("table").textContent;
      const heads = [];
      for (const name of ["L0H0", "L0H1"]) { await go(name); heads.push($("article").textContent); }
      return { cells, legend, table, heads };
    """
    seen = browser.visit(cautious.report(light=True), script)
    assert seen.errors == []
    letters, outlined, labels = zip(*seen.found["cells"], strict=True)
    assert letters == ("S*", "S", "S")
    assert outlined == (False, True, False)
    assert [word in label for word, label in zip(WORDS, labels, strict=False)] == [True, True]
    assert all(word in seen.found["legend"] and word in seen.found["table"] for word in WORDS)
    assert "0.59 < 0.60" in seen.found["table"]
    assert [word in text for word, text in zip(WORDS, seen.found["heads"], strict=True)] == [
        True
    ] * 2
    clean = browser.visit(plain.report(light=True), script).found["cells"]
    assert [(sign, outline) for sign, outline, _ in clean] == [("S", False)] * 3


def test_a_type_page_says_a_caution_of_most_tags_once_and_marks_the_exceptions(browser, cautious):
    evidence = cautious.evidence.copy()
    evidence.loc[evidence["tagged"].astype(bool), ["hit_rate", "baseline_rate"]] = 0.5, 0.6
    evidence.loc[evidence["head"] == 2, "hit_rate"] = 0.7
    script = """
      await go("type=syntactic");
      const rows = $$("table")[0].querySelectorAll("tbody tr");
      return {
        common: $$(".caution").map((line) => line.textContent),
        rows: [...rows].map((row) => row.cells[1].textContent),
      };
    """
    found = browser.visit(replace(cautious, evidence=evidence).report(light=True), script).found
    (common,) = found["common"]
    assert common.startswith("2 of 3 tags: below baseline")
    assert sorted("not below baseline" in row for row in found["rows"]) == [False, False, True]
    assert sorted("preliminary" in row for row in found["rows"]) == [False, False, True]
    assert "(below baseline" not in "".join(found["rows"])


def pattern_of_the_previous_token(window) -> np.ndarray:
    pattern = np.eye(len(window), k=-1)
    pattern[0, 0] = 1
    return pattern[None, None]


@pytest.mark.parametrize(("documents", "expected"), [(1, True), (7, True), (8, False)])
def test_a_tag_on_fewer_than_eight_documents_is_preliminary(documents, expected):
    windows = prose_windows(4_000)
    windows = [replace(window, document=i % documents) for i, window in enumerate(windows)]
    run = hs.score_patterns(pattern_of_the_previous_token, windows, relations=RELATIONS[:1])
    assert run.evidence["tagged"].tolist() == [True]
    assert run.evidence["preliminary"].tolist() == [expected]
    assert run.info["text_read"] == {"documents": documents}


def test_one_document_makes_tags_on_text_preliminary_and_those_on_repeats_not(tmp_path):
    text = tmp_path / "one.txt"
    words = [f"{word} {i}" for i in range(12) for word in ("The", "old", "king", "lost", "keys")]
    text.write_text(" ".join(words) * 12)
    types = ["positional", "induction"]
    run = hs.classify("mini", text, types=types, max_tokens=2_000, examples=False, progress=False)
    tags = run.evidence[run.evidence["tagged"]]
    is_of_text = ~tags["relation"].str.endswith("-random") & (tags["type"] == "positional")
    assert is_of_text.any()
    assert not is_of_text.all()
    assert tags["preliminary"].equals(is_of_text | (tags["relation"] == "natural"))
    assert run.info["text_read"]["documents"] == 1


def test_a_run_without_the_columns_is_read_and_gets_them(cautious, tmp_path):
    """The tables have the columns of version 0.2.0."""
    folder = cautious.save(tmp_path / "run")
    heads = pd.read_csv(folder / "heads.csv", keep_default_na=False)
    heads = heads.drop(columns=[*WORDS_OF_HEADS, "replicates"])
    heads.to_csv(folder / "heads.csv", index=False)
    evidence = pd.read_csv(folder / "evidence.csv.gz", keep_default_na=False)
    later = ["preliminary", "replicates", "surrogate_wrong"]
    later += ["beyond_surrogate", "beyond_low", "beyond_high"]
    former = ["confirmed", "surrogate_margin", "surrogate_margin_low", "surrogate_margin_high"]
    evidence = evidence.drop(columns=later).assign(**dict.fromkeys(former, 1.0))
    evidence.to_csv(folder / "evidence.csv.gz", index=False)
    signed(folder)
    back = hs.load(folder)
    assert list(back.heads.columns) == list(cautious.heads.columns)
    for name in WORDS_OF_HEADS:
        assert back.heads[name].tolist() == cautious.heads[name].tolist()
    assert back.evidence["preliminary"].tolist() == [True] + 5 * [False]
