"""What a table's last sentence says of it, on tables that are made by hand."""

from __future__ import annotations

import io

import pandas as pd
from rich.console import Console

from headscope.studies.sweep.languages.across import HEAD_COLUMNS
from headscope.studies.sweep.languages.languages_result import Languages
from headscope.studies.sweep.languages.languages_view import languages_lines
from headscope.studies.sweep.sweep_result import emergence_lines


def printed(what: object) -> str:
    drawn = io.StringIO()
    Console(file=drawn, width=300).print(what)
    return drawn.getvalue()


def test_emergence_says_when_each_type_is_first_held():
    counts = {"induction": (0, 2, 5), "positional": (1, 1, 1), "coreference": (0, 0, 0)}
    rows = [
        ("m", "c", revision, step, name, count, count, 8)
        for step, revision in enumerate(("step1", "step2", "step4"))
        for name, count in ((name, counts[name][step]) for name in counts)
    ]
    columns = ["model", "corpus", "revision", "step", "type", "heads", "primary", "all_heads"]
    said = printed(emergence_lines(pd.DataFrame(rows, columns=columns)))
    first = next(line for line in said.splitlines() if line.startswith("first held"))
    assert set(first.removeprefix("first held ").strip().split("; ")) == {
        "at step2: induction", "at step1: positional", "never: coreference",
    }  # fmt: skip


def languages(lift: float, *, decidable: bool) -> Languages:
    key = {"layer": 3, "head": 1, "type": "syntactic", "relation": "nsubj:dep>head"}
    numbers = {"lift": lift, "ci_low": lift - 0.1, "ci_high": lift + 0.1}
    rows = [key | numbers | {"language": name, "decidable": decidable} for name in ("de", "en")]
    rows[1]["lift"] += 0.2
    evidence = pd.DataFrame([row | {"tagged": False, "n": 30} for row in rows])
    heads = pd.DataFrame(
        [key | numbers | {"tagged": 0, "decidable": 2, "highest_lift": lift + 0.2}]
        if decidable
        else [],
        columns=HEAD_COLUMNS,
    )
    return Languages("m", heads, evidence, evidence, ("de", "en"))


def test_languages_in_which_no_head_holds_anything_say_what_came_closest_and_what_is_next():
    said = printed(languages_lines(languages(0.05, decidable=True)))
    assert "no head holds a relation in any of them" in said
    assert "closest: L3H1 syntactic/nsubj:dep>head in en, lift 0.25" in said
    assert "next: --types" in said


def test_languages_whose_texts_can_decide_nothing_say_how_little_they_hold():
    said = printed(languages_lines(languages(0.05, decidable=False)))
    assert "the most frequent has 30 queries; read more text" in said
    assert "closest" not in said
