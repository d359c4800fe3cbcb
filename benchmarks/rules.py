"""How far rules can be trusted: planted heads, and two halves of the documents.

python benchmarks/rules.py planted          # oracles of relations, with noise: is each named first?
python benchmarks/rules.py halves mini      # do two halves of the documents begin with one feature?
"""

from __future__ import annotations

import sys

import numpy as np
import torch

from headscope.corpus.shipped import mini_folder, shipped_corpora
from headscope.corpus.window import Window
from headscope.models.tokenizer import Tokenizer, load_tokenizer
from headscope.relations import relations_of
from headscope.runs.resolve import the_model
from headscope.stimuli.text import TextWindows
from headscope.studies.explain.catalogue import Catalogue
from headscope.studies.explain.explanation import resting_tokens
from headscope.studies.explain.feature import TokenFacts
from headscope.studies.explain.fitting import Read, fit_rules, fitting_of, read_split_windows
from headscope.studies.explain.layer_fit import explain_layer
from headscope.studies.explain.surrogate import Surrogate
from headscope.studies.validation.heuristic_benchmark.oracles import NOISES, noisy, oracles
from headscope.studies.validation.heuristic_benchmark.reading import WindowFeatures

FEWEST = 50
"""Queries of a relation in the text that is fitted, as for a tag."""


def read_windows(count: int) -> Read:
    encoder = Tokenizer(load_tokenizer("mini", mini_folder()), name="mini")
    text = TextWindows(shipped_corpora(), encoder, max_tokens=count * 400, max_length=128, seed=0)
    found = [w for w in text if len(w) > 16]
    numbers = sorted({w.document for w in found})
    part = {number: i % 4 for i, number in enumerate(numbers)}

    def some(parts: tuple[int, ...], size: int) -> tuple[Window, ...]:
        own = [w for w in found if part[w.document] in parts]
        return tuple(own[i] for i in np.linspace(0, len(own) - 1, min(size, len(own))).astype(int))

    return Read(some((0, 1), count // 2), some((2,), count // 4), some((3,), count // 4), (), ())


def planted(count: int = 320) -> None:
    """Each relation of the zoo that the text holds often enough, at every level of noise."""
    read = read_windows(count)
    relations = relations_of()
    catalogue = Catalogue(TokenFacts.of(read.fitted), relations)
    fitting = fitting_of(catalogue, read, 8, 0)
    rows = fitting.texts.rows
    heads = oracles(rows.windows, {each.id for each in relations})
    readings = [WindowFeatures(window) for window in rows.windows]
    parts = {head.name: [head.parts(reading) for reading in readings] for head in heads}
    names = [each.name for each in fitting.texts.packed.features]
    fitted = fitting.texts.fitted * rows.width
    for noise in [each for each in NOISES if each <= 0.2]:
        asked, right, wrong = 0, 0, []
        for head in heads:
            if head.name not in names:
                continue
            cell, _ = fitting.texts.packed.cells_of(names.index(head.name))
            if len(np.unique(cell[cell < fitted] // rows.width)) < FEWEST:
                continue
            attention = torch.zeros(1, len(rows), rows.width)
            for i, part in enumerate(parts[head.name]):
                pattern = noisy(part, noise)
                own = torch.nonzero(rows.window == i)[:, 0]
                attention[0, own, : len(pattern)] = torch.from_numpy(pattern)[rows.query[own]]
            rule = explain_layer(fitting, 0, attention, None).heads[0]
            asked += 1
            first = first_named(rule)
            right += first == head.name
            if first != head.name:
                named = [
                    f"{e.feature.name} {e.weight:+.1f} {e.unique.value:.3f}" for e in rule.terms
                ]
                wrong.append(f"  {head.name} ({rule.explained.value:.2f}): {'; '.join(named)}")
        print(f"noise {noise}: {right} of {asked} named first ({right / max(asked, 1):.1%})")
        print("\n".join(wrong), flush=True)


def first_named(rule: Surrogate) -> str:
    """The feature with the most unique bits that is no resting place."""
    return next((e.feature.name for e in rule.terms if e.kind != "sink"), "")


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
        catalogue = Catalogue(lexicon, relations_of())
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
    planted() if sys.argv[1] == "planted" else halves(sys.argv[2])
