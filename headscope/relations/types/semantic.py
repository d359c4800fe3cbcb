"""Semantic heads: from a word to an earlier word of related meaning.

Pairs are found by lemma, in annotated text and in sentences made around them. Voita et al. 2019
and Clark et al. 2019 report no such heads; whether a model has them is an open question.
"""

from __future__ import annotations

from functools import partial

import numpy as np
from jaxtyping import Int
from numpy import ndarray

from headscope.corpus.window import Window, WordTable
from headscope.relations.controls import WordPairs, nearest_others, word_cells
from headscope.relations.head_type import HeadType
from headscope.relations.pairs import Pairs
from headscope.relations.relation import Baseline, Label, Relation, above_surrogate, draws_nothing
from headscope.stimuli.natural_text import TEXT
from headscope.stimuli.word_pairs import PAIRS, shipped_pairs

SENTENCES_BACK = 1
"""Related words count when they stand in one sentence or in two neighbouring ones."""

_CLASSES = {"NOUN": "NOUN", "PROPN": "NOUN", "VERB": "VERB", "ADJ": "ADJ"}


def related_words(window: Window, name: str) -> Pairs:
    """Each word with all sub-tokens of the earlier words that are related to it.

    In an encoder of the later ones too.
    """
    related = _related_rows(window.words, name)
    # what is related to a word, the word is related to
    query = np.append(related.query, related.key)
    key = np.append(related.key, related.query)
    return word_cells(window, query, key)


@draws_nothing
def unrelated_words(window: Window, targets: Pairs, rng: np.random.Generator) -> Pairs:
    """Same query, unrelated words of the key's class: for each key the next nearer and farther.

    A head that prefers nouns has lift 0. A head that prefers near words has a positive lift if no
    word is nearer than the related one: a tag must also exceed the nearest word of the class.
    """
    words = window.words
    lexicon = shipped_pairs()

    def unrelated_to(query: int, key: int) -> Int[ndarray, " word"]:
        related = lexicon.any_relation(str(words.lemma[query]))
        before_query = words.last[[query]] - 1
        is_seen = window.attention_kind.sees(before_query, words.last)
        is_of_class = words.upos == words.upos[key]
        is_related = np.isin(words.lemma, list(related))
        return np.flatnonzero(is_seen & is_of_class & ~is_related)

    return nearest_others(window, targets, unrelated_to)


def nearest_of_class(window: Window) -> Int[ndarray, " position"]:
    """Nearest earlier word of the class of each content word, names counting as nouns.

    In an encoder the nearest on either side.
    """
    words = window.words
    pick = np.full(len(window), -1)
    names = [_CLASSES.get(upos, "") for upos in words.upos.tolist()]
    class_of_word = np.array(names, "U4")
    for name in sorted(set(_CLASSES.values())):
        last = words.last[class_of_word == name]
        query = last[1:]
        pick[query] = last[:-1]
        if window.attention_kind.sees_future and len(last) > 1:
            first = last[0]
            pick[first] = last[1]
            gap = np.diff(last)
            # of the words between the first and the last those whose next word is nearer
            is_ahead = gap[1:] < gap[:-1]
            between = last[1:-1][is_ahead]
            pick[between] = last[2:][is_ahead]
    return pick


def _related_rows(words: WordTable, name: str) -> WordPairs:
    """Words with the earlier words that are related to them."""
    related = shipped_pairs().related[name]
    seen: dict[tuple[str, str], list[int]] = {}
    query_rows: list[int] = []
    key_rows: list[int] = []
    for row, lemma in enumerate(words.lemma.tolist()):
        word_class = _CLASSES.get(words.upos[row])
        if word_class is None:
            continue
        for partner in sorted(related.get(lemma, ())):
            # "drinking coffee" does not relate coffee and drink
            for earlier in seen.get((partner, word_class), ()):
                sentences_back = words.sentence[row] - words.sentence[earlier]
                if sentences_back <= SENTENCES_BACK:
                    query_rows.append(row)
                    key_rows.append(earlier)
        seen.setdefault((lemma, word_class), []).append(row)
    return WordPairs(np.array(query_rows, np.int64), np.array(key_rows, np.int64))


_MEANINGS = {
    "synonym": "a word of similar meaning",
    "antonym": "a word of opposite meaning",
    "hypernym": "the kind of thing that the word is, or a thing of its kind",
    "category": "another member of the word's category",
    "part-whole": "a part of what the word names, or the whole that it is a part of",
}

RELATED = "related-word"
"""General label of a head that does not distinguish semantic relations."""

TYPE = HeadType(
    name="semantic",
    letter="M",
    order=80,
    colour="#e69f00",
    relations=tuple(
        Relation(
            "semantic",
            name,
            partial(related_words, name=name),
            unrelated_words,
            above_surrogate(
                0.1,
                "ours: a tenth of a head's attention on one earlier word, which is what syntactic "
                "and coreference heads must have",
                meaning,
            ),
            (TEXT.name, PAIRS.name),
            Baseline(nearest_of_class),
            label=Label(name, (RELATED,)),
        )
        for name, meaning in _MEANINGS.items()
    ),
    stimuli=(PAIRS,),
    looks_at="an earlier synonym, antonym, kind, co-member, part or whole",
    control_keys="unrelated words of the same class, nearer and farther; the nearest one",
    on_request=True,
    behaviour=PAIRS.name,
)
