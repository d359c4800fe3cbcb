"""Power of the tags: of heads that are right at every query, how many does a text let us find?

For each relation with a baseline heuristic a head is planted that puts a share of its attention on
the targets at every query and rests otherwise. A relation counts when the text holds enough queries
for a tag.

python benchmarks/planted_power.py                  # 8,000 and 40,000 tokens, heads that look back
python benchmarks/planted_power.py --encoder        # heads that see both ways
python benchmarks/planted_power.py --tokens 16000 --strength 0.3 --verbose
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from functools import partial
from itertools import islice

import numpy as np
from jaxtyping import Float
from numpy import ndarray

import headscope as hs
from headscope.attention_kind import BIDIRECTIONAL, CAUSAL
from headscope.corpus.shipped import mini_folder, shipped_corpora
from headscope.corpus.window import Window
from headscope.measure.fit_baselines import fit_baselines
from headscope.measure.run_windows import SEARCHED
from headscope.models.tokenizer import Tokenizer, load_tokenizer
from headscope.relations import relations_of
from headscope.relations.relation import MIN_QUERIES, Relation
from headscope.statistics.tags import VERDICTS
from headscope.stimuli.natural_text import TextWindows
from headscope.stimuli.synthetic import synthetic_windows


def planted_pattern(
    window: Window, relations: Sequence[Relation], strength: float
) -> Float[ndarray, "layer head query key"]:
    """A layer with a head for each relation; at a query without targets it rests on the first."""
    size = len(window)
    patterns = np.zeros((1, len(relations), size, size), np.float32)
    for head, relation in enumerate(relations):
        targets = relation.pairs(window)
        on_targets = patterns[0, head]
        np.add.at(on_targets, (targets.query, targets.key), targets.weight)
        total = on_targets.sum(1, keepdims=True)
        np.divide(strength * on_targets, total, out=on_targets, where=total > 0)
        on_targets[:, 0] += 1 - on_targets.sum(1)
    return patterns


def read_windows(
    tokens: int, encoder: bool, relations: Sequence[Relation], seed: int
) -> list[Window]:
    """Windows that `classify` would read: text, and what it takes for contested queries alone."""
    kind = BIDIRECTIONAL if encoder else CAUSAL
    tokenizer = Tokenizer(load_tokenizer("mini", mini_folder()), name="mini", attention_kind=kind)
    text = TextWindows(shipped_corpora(), tokenizer, max_tokens=tokens, max_length=128, seed=seed)
    windows = list(text)
    extra, synthetic = (
        islice(text.remaining(), SEARCHED * len(windows)),
        synthetic_windows(tokenizer, 128),
    )
    fitted = fit_baselines(windows, relations, extra, synthetic, budget=tokens // 4)
    return [*windows, *fitted.contested_text, *fitted.synthetic_sentences]


def power(tokens: int, strength: float, encoder: bool, seed: int) -> dict[str, list[str]]:
    """The relations that a perfect head was planted for, by the verdict on that head."""
    relations = [
        relation
        for relation in relations_of(["all"], BIDIRECTIONAL if encoder else CAUSAL)
        if relation.rule.taggable and relation.baseline is not None and relation.type != "lexical"
    ]
    windows = read_windows(tokens, encoder, relations, seed)
    plant = partial(planted_pattern, relations=relations, strength=strength)
    run = hs.score_patterns(plant, windows, relations=relations, seed=seed, progress=False)
    head_of = {relation.id: head for head, relation in enumerate(relations)}
    evidence = run.evidence.assign(id=run.evidence["type"] + "/" + run.evidence["relation"])
    planted = evidence[evidence["head"] == evidence["id"].map(head_of)]
    planted = planted[(planted["n"] >= MIN_QUERIES) & planted["ci_low"].notna()]
    return {word: planted.loc[planted["verdict"] == word, "id"].tolist() for word in VERDICTS}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tokens", type=int, nargs="*", default=[8_000, 40_000])
    parser.add_argument("--strength", type=float, default=0.6)
    parser.add_argument("--encoder", action="store_true")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--verbose", action="store_true")
    options = parser.parse_args()
    for tokens in options.tokens:
        relations = power(tokens, options.strength, options.encoder, options.seed)
        asked = sum(map(len, relations.values()))
        counts = ", ".join(f"{len(names)} {word}" for word, names in relations.items())
        print(f"{tokens:,} tokens, strength {options.strength:g}: of {asked} asked {counts}")
        if options.verbose:
            for word, names in list(relations.items())[1:]:
                print(f"  {word}: {', '.join(names)}")


if __name__ == "__main__":
    main()
