"""Concept induction heads: from the end of a word to the end of the word that followed it before.

Feucht et al. 2025 (The dual-route model of induction, arXiv 2504.03022) find heads that copy whole
words: before a word of several tokens they attend to its last token in the earlier copy. The
stimulus is repeated random words of several tokens each.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np
from jaxtyping import Int
from numpy import ndarray

from headscope.corpus.document import Document
from headscope.corpus.shipped import data_folder
from headscope.corpus.window import Window, WordTable
from headscope.relations.head_type import HeadType
from headscope.relations.pairs import Pairs, pairs, span_pairs, without
from headscope.relations.relation import Baseline, Relation, above_baseline, draws_nothing
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
    words = (data_folder() / "long_words.txt").read_text().split()
    by_length: dict[int, list[_SpelledWord]] = {length: [] for length in LENGTHS}
    for spelled in spelled_within(words, tokenizer):
        if len(spelled) in by_length:
            by_length[len(spelled)].append(tuple(spelled))
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
    # one text of all words, because a tokenizer spells a word alone in another way
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


def next_word_end(window: Window) -> Pairs:
    """The last token of each repeated word with that of the word that followed it the first time.

    Words of one token are not targets: there tokens and words are the same.
    """
    words = window.words
    query, following = _following(words)
    return pairs(words.last[query], words.last[following])


@draws_nothing
def near_word_ends(window: Window, targets: Pairs, rng: np.random.Generator) -> Pairs:
    """Same query, together the ends of the earlier copy and of the word after the right one."""
    last = window.words.last
    row = np.searchsorted(last, targets.key)
    # a head that attends to the ends of words near the earlier copy hits these as often
    rows_around = row[:, None] + np.array([-1, 1])
    # next to the first and the last word stands the last word, which is not before the query
    rows_around = np.minimum(rows_around, len(last) - 1)
    end = last[rows_around]
    query = np.broadcast_to(targets.query[:, None], end.shape)
    is_before = end < query
    return _as_one(pairs(query[is_before], end[is_before]), window)


@draws_nothing
def other_steps(window: Window, targets: Pairs, rng: np.random.Generator) -> Pairs:
    """Same query, together the other tokens behind the earlier copy, as many as the longest word.

    Token induction attends to the first of them.
    """
    words = window.words
    word = np.searchsorted(words.last, targets.key)
    start = words.first[word]
    longest = int((words.last - words.first).max())
    end = np.minimum(start + longest, targets.query)
    ends = without(span_pairs(targets.query, start, end), targets)
    return _as_one(ends, window)


def _as_one(cells: Pairs, window: Window) -> Pairs:
    """The cells of a query as one key, so that their masses are added up."""
    many = np.bincount(cells.owner, minlength=len(window))[cells.owner]
    return replace(cells, share=1 / many)


def same_step(window: Window) -> Int[ndarray, " position"]:
    """Token at the distance after the earlier copy at which most words of the text end."""
    words = window.words
    pick = np.full(len(window), -1)
    query, following = _following(words)
    if len(query):
        tokens = words.last[following] - words.first[following] + 1
        step = int(np.bincount(tokens).argmax())
        pick[words.last[query]] = words.first[following] - 1 + step
    return pick


def _following(words: WordTable) -> tuple[Int[ndarray, " query"], Int[ndarray, " query"]]:
    """Rows of words that stood before, and of what followed them there, if of several tokens."""
    seen: dict[str, int] = {}
    query, following = [], []
    for row, form in enumerate(words.lemma.tolist()):
        # only what followed the last time counts, as in token induction
        after = seen.get(form, row) + 1
        seen[form] = row
        if after >= row:
            continue
        has_several_tokens = words.first[after] < words.last[after]
        if has_several_tokens and words.last[after] < words.first[row]:
            query.append(row)
            following.append(after)
    return np.array(query, np.int64), np.array(following, np.int64)


TYPE = HeadType(
    name="concept-induction",
    letter="W",
    order=110,
    colour="#332288",
    relations=(
        Relation(
            "concept-induction",
            "next-word",
            next_word_end,
            near_word_ends,
            above_baseline(
                0.2,
                "ours: half of the threshold of token induction on random repeats; Feucht et al. "
                "2025 set no threshold",
                "the last token of the word that followed the same word before, in repeated random "
                "words of several tokens",
            ),
            stimuli=(WORDS.name,),
            baseline=Baseline(same_step, by_class=False),
            matched_control=other_steps,
        ),
    ),
    stimuli=(WORDS,),
    looks_at="the last token of the word that followed the earlier copy, in repeated random "
    "words of several tokens",
    control_keys="the ends of the words around it; the other tokens after the earlier copy; a "
    "fixed distance from the copy",
    matched_control_keys="other tokens near the earlier copy",
    on_request=True,
    behaviour=WORDS.name,
)
