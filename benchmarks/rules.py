"""Rules of two halves of the documents: `python benchmarks/rules.py mini`."""

from __future__ import annotations

import sys

from headscope.corpus.window import Window
from headscope.relations import relations_of
from headscope.runs.resolve import the_model
from headscope.studies.explain.catalogue import Catalogue
from headscope.studies.explain.explanation import resting_tokens
from headscope.studies.explain.feature import TokenFacts
from headscope.studies.explain.fitting import Read, fit_rules, fitting_of, read_split_windows


def every_second(windows: tuple[Window, ...], half: int) -> set[int]:
    """Every second document of some windows."""
    return set(sorted({w.document for w in windows})[half::2])


def halves(name: str, count: int = 56) -> None:
    """Rules of the even and of the odd documents, for heads with half of their bits explained."""
    model = the_model(name, longest=128)
    read = read_split_windows(model, (), windows=2 * count, seed=0)
    found = []
    for half in (0, 1):
        dealt = (read.fitted, read.choosing, read.judging)
        parts = [tuple(w for w in part if w.document in every_second(part, half)) for part in dealt]
        lexicon = TokenFacts.of(parts[0], resting_tokens(model, parts[0]))
        catalogue = Catalogue(lexicon, relations_of(["all"]))
        fitting = fitting_of(catalogue, Read(parts[0], parts[1], parts[2], (), ()), 8, 0)
        patterns = fit_rules(model, catalogue, fitting, lambda: None)
        found.append([head for layer in patterns.rules.values() for head in layer.heads])
    same = [
        (a.terms[0].feature.name, b.terms[0].feature.name)
        for a, b in zip(*found, strict=True)
        if min(a.explained.value, b.explained.value) >= 0.5
    ]
    agree = sum(a == b for a, b in same)
    share = agree / max(len(same), 1)
    print(f"{name}: {agree} of {len(same)} heads begin with one feature in both ({share:.1%})")
    for pair in sorted({pair for pair in same if pair[0] != pair[1]}):
        print("  ", *pair, sep="  ")


if __name__ == "__main__":
    halves(sys.argv[1])
