"""How often tags are right on natural text: of habits they should say no more than is so."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from headscope.arguments import ANYTHING, takes
from headscope.corpus.shipped import MINI, mini_folder, shipped_corpora
from headscope.corpus.window import Window
from headscope.errors import CorpusError
from headscope.measure.stimuli import TextWindows, plan_pairs, plan_repeats
from headscope.relations import relations_of
from headscope.relations.relation import MIN_QUERIES
from headscope.runs.from_patterns import score_patterns
from headscope.studies.validation.zoo.habits import habits
from headscope.studies.validation.zoo.heads import Heads
from headscope.studies.validation.zoo.oracles import oracles
from headscope.studies.validation.zoo.result import Zoo

MAX_TOKENS, MAX_LENGTH = 128_000, 128
"""About 60,000 words of English in the tokens of `mini`."""

Progress = Callable[[int, int], None]


@takes(tokenizer=ANYTHING)
def zoo(
    corpus: str | Path | Sequence[str | Path] = (),
    *,
    tokenizer: Any = None,
    max_tokens: int = MAX_TOKENS,
    max_length: int = MAX_LENGTH,
    seed: int = 0,
    progress: Progress = lambda done, total: None,
) -> Zoo:
    """Score heads whose answer is known on natural text: habits, and oracles with noise.

    A habit follows a simple rule ("the nearest verb") and must earn no tag but its own; an oracle
    reads the annotation and must be found. It takes minutes.

    Args:
        corpus: files or folders of CoNLL-U; what ships with headscope when empty.
        tokenizer: a fast tokenizer of transformers; that of `mini` when None.
        max_tokens: tokens of text to read, to the end of a window.
        max_length: longest window in tokens.
        seed: seeds the order of files, random tokens, controls and the bootstrap.
        progress: called with the windows done and the windows in all.

    Raises:
        CorpusError: a corpus cannot be read, or has no trees.
        ModelError: the tokenizer knows no character offsets, or has no beginning-of-text token.
    """
    corpora = [corpus] if isinstance(corpus, str | Path) else list(corpus) or shipped_corpora()
    windows = _windows(corpora, tokenizer, max_tokens, max_length, seed)
    heads = Heads(habits(windows), oracles(windows, _askable(windows)))
    done = 0

    def patterns(window: Window) -> Any:
        nonlocal done
        done += 1
        progress(done, len(windows))
        return heads(window)

    run = score_patterns(patterns, windows, name="zoo", seed=seed)
    words = sum(len(window.words) for window in windows if window.stimulus == "text")
    return Zoo(heads.table(run), heads.judged(run), words)


def _askable(windows: Sequence[Window]) -> set[str]:
    """The relations of which there are enough queries for a tag."""
    counts = {
        relation.id: sum(
            len(relation.pairs(window).queries)
            for window in windows
            if window.stimulus in relation.stimuli
        )
        for relation in relations_of()
    }
    return {name for name, count in counts.items() if count >= MIN_QUERIES}


def _windows(
    corpora: Sequence[str | Path], tokenizer: Any, max_tokens: int, max_length: int, seed: int
) -> list[Window]:
    """Text, repeated random tokens and sentences of related words, as `classify` reads them.

    Raises:
        CorpusError: no word of the text has a head.
    """
    # importing transformers takes seconds
    from headscope.models.tokenizer import Tokenizer, load_tokenizer

    backend = load_tokenizer(MINI, mini_folder()) if tokenizer is None else tokenizer
    encoder = Tokenizer(backend, name=MINI if tokenizer is None else "the tokenizer")
    text = list(
        TextWindows(corpora, encoder, max_tokens=max_tokens, max_length=max_length, seed=seed)
    )
    if not any((window.words.head >= 0).any() for window in text):
        raise CorpusError("no trees in this text, and oracles read them; a corpus is CoNLL-U")
    vocabulary = encoder.ordinary_tokens(len(backend))
    return [
        *text,
        *plan_repeats(vocabulary, encoder, max_length=max_length, seed=seed),
        *plan_pairs(encoder, max_length=max_length, seed=seed),
    ]
