"""Minimal pairs: two sentences that differ in one word."""

from __future__ import annotations

from headscope.corpus.controlled.prompts import agreement_pairs, anaphor_pairs


def test_minimal_pairs_differ_in_one_word_and_are_balanced():
    for pairs in (agreement_pairs(40, seed=3), anaphor_pairs(40, seed=3)):
        for pair in pairs:
            words = [(a, b) for a, b in zip(pair.good.split(), pair.bad.split(), strict=True)
                     if a != b]  # fmt: skip
            assert len(words) == 1
    ends = [pair.good.split()[-1] for pair in anaphor_pairs(40, seed=3)]
    assert ends.count("herself.") == 20
