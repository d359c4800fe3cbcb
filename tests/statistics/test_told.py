"""Text of `why`: quoted controls, relations by name, missing numbers and general labels."""

from __future__ import annotations

import re

import numpy as np
import pandas as pd
import pytest

import headscope as hs
from headscope.relations import relations_of
from headscope.relations.heuristics import ALL_RULES
from headscope.relations.relation import TagThresholds
from headscope.statistics.reasons import explain_tags
from headscope.statistics.wording import matched_keys, rule_in_words

RULE = TagThresholds(floor=0.2, source="ours", meaning="its target", beat_baseline_by=0.1)
ROW = {
    "layer": 0, "head": 0, "type": "t", "relation": "r", "n": 80, "mass": 0.5, "control": 0.1,
    "lift": 0.4, "ci_low": 0.3, "ci_high": 0.5, "q_value": 1e-6, "hit_rate": 0.9,
    "best_offset_rate": 0.4, "twin_p999": 0.1, "chance": 0.05, "matched": 0.1, "baseline": "own",
    "baseline_rate": 0.4, "contested_n": 60.0, "contested_lift": 0.3, "contested_low": 0.2,
    "contested_high": 0.4, "contested_mass": 0.4, "rival": 0.1, "contested_hit_rate": 0.8,
    "contested_rule_rate": 0.3, "contested_rule_low": 0.3, "contested_least_p": 0.001, "verdict": "tagged", "tagged": True,
}  # fmt: skip


def told(*changes: dict) -> str:
    rows = [ROW | {"relation": f"r{i}"} | change for i, change in enumerate(changes)]
    return explain_tags(pd.DataFrame(rows), {f"t/r{i}": RULE for i in range(len(rows))}, 0, 0)


def short(text: str) -> list[str]:
    return text.split("In short:\n")[1].split("\n\n")[0].splitlines()


def test_the_first_lines_quote_the_stricter_control_of_all_that_the_verdict_uses():
    """Whichever control is larger decides, so no smaller one may stand in the short answer."""
    for control, matched, quoted in (
        (0.1, 0.3, "0.30 on other keys (matched control)."),
        (0.3, 0.1, "0.30 on control keys."),
        (0.1, np.nan, "0.10 on control keys."),
    ):
        (line,) = short(told({"control": control, "matched": matched, "tagged": True}))
        assert quoted in line


def test_every_type_with_a_matched_control_has_words_for_its_keys():
    types = {relation.type for relation in relations_of(["all"]) if relation.matched}
    assert types
    assert all(matched_keys(type) != matched_keys("none") for type in types)


def test_one_relation_can_be_asked_for_however_far_it_is_from_a_tag(tiny_run):
    evidence = tiny_run.evidence
    row = evidence.loc[evidence["lift"].idxmin()]
    name, head = f"{row['type']}/{row['relation']}", f"L{row['layer']}H{row['head']}"
    assert f"\n{name}: " not in tiny_run.why(head)
    text = tiny_run.why(head, name)
    asked = {line.split(":")[0] for line in text.splitlines() if re.match(r"[a-z-]+/", line)}
    assert name in asked
    assert all(name in each for each in asked)
    with pytest.raises(hs.HeadscopeError, match="no relation of this run has 'nosuch'"):
        tiny_run.why(head, "nosuch")


def test_no_number_that_is_missing_is_printed():
    few = {"ci_low": np.nan, "ci_high": np.nan, "q_value": np.nan}
    text = told(few | {"verdict": "tagged"})
    assert "nan" not in text
    assert "lift 0.400 (no interval: too few documents), must lie above 0" in text
    assert "q not known (too few documents), must be below 0.01" in text
    # what has no interval is no near miss
    assert "closest to nothing" in told(few | {"tagged": False, "verdict": "no"})


def test_a_simple_rule_in_words_has_no_code():
    words = {name: rule_in_words(name) for name in ALL_RULES}
    assert words["nearest-CCONJ-in-sentence"] == "nearest conjunction of the sentence"
    assert words["offset+3"] == "3 tokens ahead"
    codes = [said for said in words.values() if re.search(r"[-+_{}]|[A-Z]", said)]
    assert codes == []
    assert len(set(words.values())) == len(words)


@pytest.fixture(scope="module")
def tiny_run(gpt2_folder, tmp_path_factory) -> hs.Run:
    corpus = tmp_path_factory.mktemp("told") / "a.txt"
    corpus.write_text("Alice was very tired. She looked at the old keys again. " * 20)
    return hs.classify(str(gpt2_folder), corpus, max_tokens=600, types=["positional"], twin=False)


def test_a_general_label_stands_for_its_tags_and_is_named_in_the_first_line():
    general = "phrase:dep>head (r0, r1)"
    text = told({"general": general}, {"general": general}, {"general": ""})
    assert text.splitlines()[0] == "L0H0: t/phrase:dep>head, t/r2"
    assert text.count(f": {general}") == 2
