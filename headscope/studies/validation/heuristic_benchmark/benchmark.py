"""Test of tags on natural text: of heuristics they should say no more than is so."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence, Set
from pathlib import Path
from typing import Annotated, Any, TypedDict, Unpack

import numpy as np
import pandas as pd
from jaxtyping import Float
from numpy import ndarray

from headscope.arguments import ANYTHING, FLAG, Default, maybe, takes
from headscope.attention_kind import BIDIRECTIONAL, CAUSAL, AttentionKind
from headscope.corpus.shipped import MINI, listed, mini_folder, shipped_corpora
from headscope.corpus.window import Window
from headscope.errors import CorpusError
from headscope.measure.progress import Progress, progress_bar
from headscope.relations import relations_of
from headscope.relations.relation import MIN_QUERIES, Relation
from headscope.runs.from_patterns import score_patterns
from headscope.settings import TYPES
from headscope.statistics.result import Result
from headscope.stimuli import build_stimuli
from headscope.stimuli.facts import fact_windows
from headscope.stimuli.repeat import repeat_windows
from headscope.stimuli.stimulus import StimulusConfig
from headscope.stimuli.text import TEXT, TextWindows
from headscope.stimuli.word_pairs import pair_windows
from headscope.stimuli.words import word_windows
from headscope.studies.validation.heuristic_benchmark.benchmark_result import HABITS, HEADS, Zoo
from headscope.studies.validation.heuristic_benchmark.heuristics import (
    Heuristic,
    KnownHead,
    heuristics,
)
from headscope.studies.validation.heuristic_benchmark.oracles import NOISES, Oracle, noisy, oracles
from headscope.studies.validation.heuristic_benchmark.reading import Rows, WindowFeatures

MAX_TOKENS, MAX_LENGTH = 128_000, 128
"""About 60,000 words of English in the tokens of `mini`."""
WIDTH = 64
"""Heads of a layer."""
DOCUMENTS = 16
"""Documents of facts and of repeated words, enough for a tag."""


class ZooText(TypedDict, total=False):
    """The size of the text that `zoo` reads."""

    max_tokens: Annotated[int, Default(MAX_TOKENS)]
    """Tokens of text to read, to the end of a window."""
    max_length: Annotated[int, Default(MAX_LENGTH)]
    """Longest window in tokens."""


@takes(types=maybe(TYPES), tokenizer=ANYTHING, encoder=FLAG)
def zoo(
    corpus: str | Path | Sequence[str | Path] | None = None,
    *,
    types: Sequence[str] | None = None,
    encoder: bool = False,
    tokenizer: Any = None,
    seed: int = 0,
    progress: Progress = True,
    **size: Unpack[ZooText],
) -> Zoo:
    """Score heads whose answer is known on natural text: habits, and oracles with noise.

    A habit follows a simple rule ("the nearest verb") and must earn no tag but its own; an oracle
    reads the annotation and must be found. It takes minutes.

    Args:
        corpus: files or folders of CoNLL-U; what ships with headscope when None.
        types: head types to try, and their texts alone; all that a default run asks when None.
        encoder: try heads that see both ways.
        tokenizer: a fast tokenizer of transformers; that of `mini` when None.
        seed: seeds the order of files, random tokens, controls and the bootstrap.
        progress: True for a bar where a person waits, False for none, or a function that is called
            with the windows done and the windows in all.
        size: `max_tokens`, tokens of text to read, to the end of a window (128,000); `max_length`,
            the longest window in tokens (128).

    Raises:
        CorpusError: a corpus cannot be read, or has no trees.
        ModelError: the tokenizer knows no character offsets, or has no beginning-of-text token.
    """
    corpora = listed(corpus) or shipped_corpora()
    with progress_bar(progress, "scoring the zoo", unit="windows", loads=False) as bar:
        kind = BIDIRECTIONAL if encoder else CAUSAL
        relations = relations_of(types, kind)
        stimuli = None if types is None else {name for r in relations for name in r.stimuli}
        windows = _windows(corpora, tokenizer, kind, stimuli, seed, size)
        readers = oracles(windows, _testable(windows, relations))
        heads = BenchmarkHeads(heuristics(windows, kind), readers)
        run = score_patterns(heads, windows, types=types, name="zoo", seed=seed, progress=bar)
    words = sum(len(window.words) for window in windows if window.stimulus == "text")
    return Zoo(heads.table(run), heads.judged(run), words)


class BenchmarkHeads:
    """A function from a window to the pattern `[layer head query key]` of all heads.

    Heuristics come first, then all oracles at one level of noise after the other; what is left of
    the last layer rests on the first token.

    Args:
        heuristics: heads without syntax, reference and meaning.
        oracles: heads that read the annotation.
    """

    def __init__(self, heuristics: Sequence[Heuristic], oracles: Sequence[Oracle]) -> None:
        self.heuristics, self.oracles = heuristics, oracles
        self.heads: list[tuple[str, KnownHead, float]] = [
            *((HABITS[habit.held_back], habit, math.nan) for habit in heuristics),
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

    def _rows(self, reading: WindowFeatures) -> Iterator[Rows]:
        for heuristic in self.heuristics:
            yield heuristic.attention(reading)
        parts = [oracle.parts(reading) for oracle in self.oracles]
        for noise in NOISES:
            for part in parts:
                yield noisy(part, noise)

    def table(self, run: Result) -> pd.DataFrame:
        """A row per head with what it earned in a run of these patterns; see `Zoo.heads`."""
        evidence = _with_ids(run.evidence)
        evidence_by_head = dict(
            tuple(evidence.groupby(evidence["layer"] * WIDTH + evidence["head"]))
        )
        rows = [
            {"kind": kind, "name": head.name, "noise": noise}
            | _earned(head, evidence_by_head[number])
            for number, (kind, head, noise) in enumerate(self.heads)
        ]
        return pd.DataFrame(rows, columns=HEADS)

    def judged(self, run: Result) -> pd.DataFrame:
        """A row per relation that a head could have earned; see `Zoo.judged`."""
        counts = _with_ids(run.evidence).groupby("id", sort=False)["n"].max()
        rows = [
            (str(name), int(n), sum(not head.true(str(name)) for head in self.heuristics))
            for name, n in counts.items()
            if n >= MIN_QUERIES and run.rules[str(name)].taggable
        ]
        return pd.DataFrame(rows, columns=["relation", "n", "habits"])


def _with_ids(evidence: pd.DataFrame) -> pd.DataFrame:
    """The evidence with each relation's full name, and an empty verdict where there is none."""
    verdict = evidence.get("verdict", "")
    return evidence.assign(id=evidence["type"] + "/" + evidence["relation"], verdict=verdict)


def _earned(head: KnownHead, evidence: pd.DataFrame) -> dict[str, Any]:
    """Tags of a head, which is found if it earned all that it must and that can be earned here."""
    testable = evidence[evidence["id"].isin(head.earns) & (evidence["n"] >= MIN_QUERIES)]
    tags = evidence.loc[evidence["tagged"].astype(bool), "id"].tolist()
    return {
        "relation": ";".join(testable["id"]),
        "n": int(testable["n"].min()) if len(testable) else 0,
        "verdict": ";".join(filter(None, testable["verdict"])),
        "found": bool(testable["tagged"].all()) if len(testable) else None,
        "tags": ";".join(tags),
        "false": ";".join(tag for tag in tags if not head.true(tag)),
    }


def _testable(windows: Sequence[Window], relations: Sequence[Relation]) -> set[str]:
    """The relations of which there are enough queries for a tag."""
    return {
        relation.id
        for relation in relations
        if sum(
            len(relation.pairs(window).queries)
            for window in windows
            if window.stimulus in relation.stimuli
        )
        >= MIN_QUERIES
    }


def _windows(
    corpora: Sequence[str | Path],
    tokenizer: Any,
    attention_kind: AttentionKind,
    stimuli: Set[str] | None,
    seed: int,
    size: ZooText,
) -> list[Window]:
    """Text, and what is built beside it, as `classify` reads them; of these stimuli where named.

    Raises:
        CorpusError: no word of the text has a head.
    """
    # importing transformers takes seconds
    from headscope.models.tokenizer import Tokenizer, load_tokenizer

    backend = load_tokenizer(MINI, mini_folder()) if tokenizer is None else tokenizer
    name = MINI if tokenizer is None else "the tokenizer"
    encoder = Tokenizer(backend, name=name, attention_kind=attention_kind)
    built = {"max_length": size.get("max_length", MAX_LENGTH), "seed": seed}
    max_tokens = size.get("max_tokens", MAX_TOKENS)
    text: list[Window] = []
    if stimuli is None or TEXT.name in stimuli:
        text = list(TextWindows(corpora, encoder, max_tokens=max_tokens, **built))
    if text and not any((window.words.head >= 0).any() for window in text):
        raise CorpusError("no trees in this text, and oracles read them; a corpus is CoNLL-U")
    if stimuli is not None:
        config = StimulusConfig(
            encoder, len(backend), built["max_length"], seed, documents=DOCUMENTS
        )
        return [*text, *build_stimuli(stimuli, config)]
    vocabulary = encoder.ordinary_tokens(len(backend))
    return [
        *text,
        *repeat_windows(vocabulary, encoder, **built),
        *pair_windows(encoder, **built),
        *fact_windows(encoder, count=DOCUMENTS, **built),
        *word_windows(encoder, count=DOCUMENTS, **built),
    ]
