"""Tags of baseline heads, which must earn none but their own, and of heads that read annotation."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
from jaxtyping import Float
from numpy import ndarray

from headscope.attention_kind import CAUSAL, AttentionKind
from headscope.corpus.shipped import MINI, mini_folder, shipped_corpora
from headscope.corpus.window import Window
from headscope.models.tokenizer import Tokenizer, load_tokenizer
from headscope.relations import relations_of
from headscope.relations.relation import MIN_QUERIES, Relation
from headscope.runs.from_patterns import score_patterns
from headscope.statistics.result import Result
from headscope.stimuli.facts import FACTS
from headscope.stimuli.natural_text import TextWindows
from headscope.stimuli.repeat import REPEAT
from headscope.stimuli.stimulus import MAX_DOCUMENTS, StimulusConfig
from headscope.stimuli.word_pairs import PAIRS
from headscope.stimuli.words import WORDS
from tests.oracles.annotation_heads import NOISES, QUIET, Oracle, noisy, oracles
from tests.oracles.baseline_heads import BaselineHead, KnownHead, baseline_heads
from tests.oracles.window_features import Rows, WindowFeatures

MAX_TOKENS, MAX_LENGTH = 12_000, 128
WIDTH = 64
"""Heads of a layer."""
DOCUMENTS = 16
"""Documents of facts and of repeated words, enough for a tag."""


def score_known_heads(kind: AttentionKind = CAUSAL) -> tuple[pd.DataFrame, pd.DataFrame]:
    """All baseline heads and annotation heads on the text that ships, in the tokens of `mini`.

    Returns:
        `BenchmarkHeads.table` and `BenchmarkHeads.judged`.
    """
    windows = _windows(kind)
    readers = oracles(windows, _testable(windows, relations_of(["all"], kind)))
    heads = BenchmarkHeads(baseline_heads(kind), readers)
    run = score_patterns(heads, windows, types="all")
    return heads.table(run), heads.judged(run)


class BenchmarkHeads:
    """A function from a window to the pattern `[layer head query key]` of all heads.

    Baseline heads come first, then all annotation heads at each level of noise; the rest of the
    last layer attends to the first token.

    Args:
        baselines: heads without syntax, reference and meaning.
        oracles: heads that read the annotation.
    """

    def __init__(self, baselines: Sequence[BaselineHead], oracles: Sequence[Oracle]) -> None:
        self.baselines, self.oracles = baselines, oracles
        self.heads: list[tuple[str, KnownHead, float]] = [
            *(("baseline", head, math.nan) for head in baselines),
            *(("oracle", oracle, noise) for noise in NOISES for oracle in oracles),
        ]
        """Kind, head and noise, in the order of the patterns."""

    def __call__(self, window: Window) -> Float[ndarray, "layer head query key"]:
        size, layers = len(window), -(-len(self.heads) // WIDTH)
        patterns = np.zeros((layers * WIDTH, size, size), np.float32)
        for number, rows in enumerate(self._rows(WindowFeatures(window))):
            patterns[number] = rows
        patterns[len(self.heads) :, :, 0] = 1
        return patterns.reshape(layers, WIDTH, size, size)

    def _rows(self, features: WindowFeatures) -> Iterator[Rows]:
        for head in self.baselines:
            yield head.attention(features)
        parts = [oracle.parts(features) for oracle in self.oracles]
        for noise in NOISES:
            for part in parts:
                yield noisy(part, noise)

    def table(self, run: Result) -> pd.DataFrame:
        """Tags of each head in a run of these patterns.

        Returns:
            A row per head: `kind` (`baseline` or `oracle`), `name`, `noise`,
            `relation` (the tags that it must earn and that this text has queries for), `verdict`,
            `found`, `tags` and `false` (tags that are not true of it), each joined by `;`.
        """
        evidence = _with_ids(run.evidence)
        of_head = dict(tuple(evidence.groupby(evidence["layer"] * WIDTH + evidence["head"])))
        return pd.DataFrame(
            {"kind": kind, "name": head.name, "noise": noise} | _earned(head, of_head[number])
            for number, (kind, head, noise) in enumerate(self.heads)
        )

    def judged(self, run: Result) -> pd.DataFrame:
        """A row per relation that a head could have earned.

        Returns:
            `relation`, and `baselines`, the number of baseline heads of which it is not true.
        """
        counts = _with_ids(run.evidence).groupby("id", sort=False)["n"].max()
        rows = [
            (str(name), sum(not head.true(str(name)) for head in self.baselines))
            for name, n in counts.items()
            if n >= MIN_QUERIES and run.rules[str(name)].taggable
        ]
        return pd.DataFrame(rows, columns=["relation", "baselines"])


def summary(heads: pd.DataFrame, judged: pd.DataFrame) -> str:
    """False tags of baseline heads, and the share of annotation heads found, as text.

    Annotation heads count if the text can tell their relation from a baseline.
    """
    false = heads.assign(false=heads["false"].str.split(";")).explode("false")
    is_baseline = heads["kind"] == "baseline"
    false = false[(false["false"] != "") & (false["kind"] == "baseline")]
    pairs = int(judged["baselines"].sum())
    readers = heads[(heads["kind"] == "oracle") & (heads["relation"] != "")]
    readers = readers[readers["verdict"] != "not identifiable"]
    quiet = readers[readers["noise"] <= QUIET]
    missed = heads[is_baseline & heads["found"].eq(False)]
    lines = [
        f"{is_baseline.sum()} baseline heads",
        f"{len(false)} false tags of {pairs:,} baseline head × relation ({len(false) / pairs:.2%})",
        f"{quiet['found'].mean():.1%} of annotation heads found with noise up to {QUIET:g}",
        *(f"{tag}: {name}" for tag, name in false[["false", "name"]].itertuples(index=False)),
        *(f"without its own tag: {name}" for name in missed["name"]),
    ]
    return "\n".join(lines)


def _with_ids(evidence: pd.DataFrame) -> pd.DataFrame:
    verdict = evidence.get("verdict", "")
    return evidence.assign(id=evidence["type"] + "/" + evidence["relation"], verdict=verdict)


def _earned(head: KnownHead, evidence: pd.DataFrame) -> dict[str, Any]:
    testable = evidence[evidence["id"].isin(head.earns) & (evidence["n"] >= MIN_QUERIES)]
    tags = evidence.loc[evidence["tagged"].astype(bool), "id"].tolist()
    return {
        "relation": ";".join(testable["id"]),
        "verdict": ";".join(filter(None, testable["verdict"])),
        "found": bool(testable["tagged"].all()) if len(testable) else None,
        "tags": ";".join(tags),
        "false": ";".join(tag for tag in tags if not head.true(tag)),
    }


def _testable(windows: Sequence[Window], relations: Sequence[Relation]) -> set[str]:
    """Relations with enough queries for a tag."""
    queries = {
        relation.id: sum(
            len(relation.pairs(window).queries)
            for window in windows
            if window.stimulus in relation.stimuli
        )
        for relation in relations
    }
    return {name for name, count in queries.items() if count >= MIN_QUERIES}


def _windows(kind: AttentionKind) -> list[Window]:
    """Text and synthetic stimuli, as `classify` reads them."""
    backend = load_tokenizer(MINI, mini_folder())
    encoder = Tokenizer(backend, name=MINI, attention_kind=kind)
    corpora = shipped_corpora()
    few = StimulusConfig(encoder, len(backend), MAX_LENGTH, seed=0, documents=DOCUMENTS)
    many = replace(few, documents=MAX_DOCUMENTS)
    return [
        *TextWindows(corpora, encoder, max_tokens=MAX_TOKENS, max_length=MAX_LENGTH, seed=0),
        *REPEAT.windows(many),
        *PAIRS.windows(many),
        *FACTS.windows(few),
        *WORDS.windows(few),
    ]
