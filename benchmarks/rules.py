"""Rules of two halves of the documents: `python benchmarks/rules.py mini`."""

from __future__ import annotations

import sys

from headscope.corpus.window import Window
from headscope.measure.progress_steps import Steps
from headscope.relations import relations_of
from headscope.runs.resolve import the_model
from headscope.studies.explain.catalogue import Catalogue
from headscope.studies.explain.explanation import fit_rules
from headscope.studies.explain.feature import TokenFacts
from headscope.studies.explain.fit import Texts
from headscope.studies.explain.split_windows import read_split_windows, resting_tokens


def every_second(windows: tuple[Window, ...], half: int) -> tuple[Window, ...]:
    """Windows of every second document."""
    documents = set(sorted({w.document for w in windows})[half::2])
    return tuple(w for w in windows if w.document in documents)


def halves(name: str, count: int = 56) -> None:
    """Rules of the even and of the odd documents, for heads with half of their bits explained."""
    model = the_model(name, longest=128)
    split = read_split_windows(model, (), windows=2 * count, seed=0)
    found = []
    for half in (0, 1):
        parts = [every_second(part, half) for part in split[:3]]
        resting = resting_tokens(model, parts[0])
        catalogue = Catalogue(TokenFacts.of(parts[0], resting), relations_of(["all"]))
        steps = Steps(lambda done, total: None, model.layers)
        rules = fit_rules(model, Texts.of(catalogue, parts), 8, resting, steps)
        found.append([head for layer in rules.values() for head in layer])
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
