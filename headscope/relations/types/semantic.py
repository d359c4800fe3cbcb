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
from headscope.relations.controls import word_cells
from headscope.relations.head_type import HeadType
from headscope.relations.pairs import Pairs, without
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
    later, earlier = _related_rows(window.words, name)
    # what is related to a word, the word is related to
    return word_cells(window, np.append(later, earlier), np.append(earlier, later))


@draws_nothing
def unrelated_words(window: Window, targets: Pairs, rng: np.random.Generator) -> Pairs:
    """Same query, unrelated words of the key's class: for each key the next nearer and farther.

    A head that prefers nouns has lift 0. A head that prefers near words has a positive lift if no
    word is nearer than the related one: a tag must also exceed the nearest word of the class.
    """
    words = window.words
    lexicon = shipped_pairs()
    is_last = targets.key == words.last[_word_at(words, targets.key)]
    query_words = _word_at(words, targets.owner[is_last]).tolist()
    key_words = _word_at(words, targets.key[is_last]).tolist()
    query_rows: list[int] = []
    key_rows: list[int] = []
    for query, key in zip(query_words, key_words, strict=True):
        related = lexicon.any_relation(str(words.lemma[query]))
        is_seen = window.attention_kind.sees(words.last[[query]] - 1, words.last)
        is_of_class = words.upos == words.upos[key]
        candidates = np.flatnonzero(is_seen & is_of_class).tolist()
        unrelated = [row for row in candidates if words.lemma[row] not in related]
        nearer = [row for row in unrelated if row > key]
        farther = [row for row in unrelated if row < key]
        neighbours = nearer[:1] + farther[-1:]
        key_rows += neighbours
        query_rows += [query] * len(neighbours)
    controls = word_cells(window, np.array(query_rows, np.int64), np.array(key_rows, np.int64))
    # two words can share a token
    return without(controls, targets)


def nearest_of_class(window: Window) -> Int[ndarray, " position"]:
    """Nearest earlier word of the class of each content word, names counting as nouns.

    In an encoder the nearest on either side.
    """
    words = window.words
    pick = np.full(len(window), -1)
    classes = [_CLASSES.get(upos, "") for upos in words.upos.tolist()]
    for name in dict.fromkeys(_CLASSES.values()):
        of_class = np.flatnonzero(np.array(classes, "U4") == name)
        last = words.last[of_class]
        pick[last[1:]] = last[:-1]
        if window.attention_kind.sees_future and len(last) > 1:
            pick[last[0]] = last[1]
            gap = np.diff(last)
            # of the words between the first and the last those whose next word is nearer
            is_ahead = gap[1:] < gap[:-1]
            pick[last[1:-1][is_ahead]] = last[2:][is_ahead]
    return pick


def _related_rows(words: WordTable, name: str) -> tuple[ndarray, ndarray]:
    related = shipped_pairs().related[name]
    seen: dict[tuple[str, str], list[int]] = {}
    query_rows, key_rows = [], []
    for row, lemma in enumerate(words.lemma.tolist()):
        word_class = _CLASSES.get(words.upos[row])
        if word_class is None:
            continue
        for partner in sorted(related.get(lemma, ())):
            # "drinking coffee" does not relate coffee and drink
            for earlier in seen.get((partner, word_class), ()):
                if words.sentence[row] - words.sentence[earlier] <= SENTENCES_BACK:
                    query_rows.append(row)
                    key_rows.append(earlier)
        seen.setdefault((lemma, word_class), []).append(row)
    return np.array(query_rows, np.int64), np.array(key_rows, np.int64)


def _word_at(words: WordTable, position: Int[ndarray, " pair"]) -> Int[ndarray, " pair"]:
    return np.asarray(np.searchsorted(words.first, position, side="right") - 1)


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
