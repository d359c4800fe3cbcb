"""Repeated random words of several tokens each (Feucht et al. 2025, arXiv 2504.03022)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from headscope.corpus.document import Document
from headscope.corpus.shipped import data_folder
from headscope.corpus.window import Window, WordTable
from headscope.stimuli.stimulus import (
    MIN_DOCUMENTS,
    Stimulus,
    StimulusConfig,
    TextTokenizer,
)

FEWEST_WORDS, MOST_WORDS = 10, 14
"""Words of a copy: more than any baseline counts back (8), and not always equally many."""
LENGTHS = range(2, 9)
"""Tokens of a word."""
KINDS = 3
"""Lengths that are drawn: of those that there are enough words of, the shortest."""
LEAST = 20
"""Words of a length without which words of this length are not drawn: each would come often."""


_SpelledWord = tuple[int, ...]


def _build(config: StimulusConfig) -> Iterator[Window]:
    """Windows `[bos, r, r]`, r of 10 to 14 words of several tokens, none twice in r.

    Each length is drawn equally often: no distance from the earlier copy leads to where words end.
    None if the tokenizer spells too few words with several tokens.
    """
    tokenizer = config.tokenizer
    frame = tokenizer.frame
    longest = config.max_length - frame.closing_tokens
    # words of at least two lengths, or the distance would give the place away
    by_length = _words_by_length(tokenizer)
    lengths = [length for length, words in by_length.items() if len(words) >= LEAST][:KINDS]
    if len(lengths) < 2:
        return
    for number in range(config.documents):
        rng = np.random.default_rng([config.seed, number])
        size = int(rng.integers(FEWEST_WORDS, MOST_WORDS + 1))
        order = rng.permutation(np.resize(lengths, size)).tolist()
        # no word twice
        repeats: list[_SpelledWord] = []
        used: set[int] = set()
        for length in order:
            word = _unused_word(by_length[length], used, rng)
            if word is not None:
                repeats.append(word)
                used.update(word)
        # both copies must fit
        while 1 + 2 * sum(map(len, repeats)) > longest:
            repeats.pop()
        if len(repeats) > 2:
            yield frame.close(_window(repeats, tokenizer, number))


def _words_by_length(tokenizer: TextTokenizer) -> dict[int, list[_SpelledWord]]:
    """The words that ship as a tokenizer spells them, by their number of tokens."""
    words = (data_folder() / "long_words.txt").read_text().split()
    by_length: dict[int, list[_SpelledWord]] = {length: [] for length in LENGTHS}
    for word in spelled_within(words, tokenizer):
        if len(word) in by_length:
            by_length[len(word)].append(tuple(word))
    return by_length


def _unused_word(
    words: Sequence[_SpelledWord], used: set[int], rng: np.random.Generator
) -> _SpelledWord | None:
    """A word drawn from those whose tokens differ from each other and from used ones."""
    for number in rng.permutation(len(words)).tolist():
        word = words[int(number)]
        tokens = set(word)
        if len(tokens) == len(word) and used.isdisjoint(tokens):
            return word
    return None


def spelled_within(words: Sequence[str], tokenizer: TextTokenizer) -> list[list[int]]:
    """The tokens of each word as within a text; words that share a token with another fall away."""
    text = " ".join(["It", *words])
    tokenized = tokenizer.encode(Document("words", text, ()))
    token_starts, token_ends = tokenized.offsets.T
    ends = np.cumsum([len(word) + 1 for word in words]) + len("It")
    starts = ends - [len(word) for word in words]
    first_tokens = np.searchsorted(token_ends, starts, side="right")
    last_tokens = np.searchsorted(token_starts, ends, side="left") - 1
    spelled = []
    for word, first, last in zip(words, first_tokens, last_tokens, strict=True):
        if first > last:
            continue
        covered = text[token_starts[first] : token_ends[last]]
        if covered.strip() == word:
            spelled.append([int(token) for token in tokenized.tokens[first : last + 1]])
    return spelled


def _window(words: list[tuple[int, ...]], tokenizer: TextTokenizer, number: int) -> Window:
    tokens = np.array([tokenizer.bos, *(token for word in words * 2 for token in word)], np.int64)
    strings = tuple(tokenizer.spell(tokens.tolist()))
    # the last and the first token of each word
    last = np.cumsum([len(word) for word in words * 2])
    first = last - [len(word) - 1 for word in words * 2]
    lemma = np.array(
        ["".join(strings[a : b + 1]).strip() for a, b in zip(first, last, strict=True)]
    )
    table = WordTable(
        first=first,
        last=last,
        sentence=np.zeros(len(last), np.int64),
        head=np.full(len(last), -1),
        deprel=np.full(len(last), ""),
        upos=np.full(len(last), "X"),
        lemma=lemma,
        tense=np.full(len(last), ""),
    )
    copied = int(last[len(words) - 1])
    return Window(
        f"words#{number}",
        tokens,
        strings,
        words=table,
        copy_length=copied,
        stimulus=WORDS.name,
        document=number,
    )


WORDS = Stimulus(
    name="words",
    title="repeated long words",
    build=_build,
    before_text=MIN_DOCUMENTS,
    picture="repeated random words: the first {start} tokens of a sequence, "
    "then the first {half} of its copy",
)
