"""Concept induction heads: from the end of a word to the end of the word that followed it before.

Feucht et al. 2025 (The dual-route model of induction, arXiv 2504.03022) find heads that copy whole
words: before a word of several tokens they attend to its last token in the earlier copy.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from jaxtyping import Int
from numpy import ndarray

from headscope.corpus.window import Window, WordTable
from headscope.relations.head_type import HeadType
from headscope.relations.pairs import Pairs, pairs, span_pairs, without
from headscope.relations.relation import Baseline, Relation, above_baseline, draws_nothing
from headscope.stimuli.words import WORDS


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
