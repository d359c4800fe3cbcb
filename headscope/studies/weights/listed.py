"""Lists of related words as the tokens of one model: those that it spells in one token each."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Int
from numpy import ndarray

from headscope.corpus.controlled.forms import Asked, WordRelation, word_relations
from headscope.measure.prompts import Spelled
from headscope.models.load import Model

FEWEST = 15
"""Words that a relation needs: with fewer an interval of their share says little."""


@dataclass(frozen=True, eq=False)
class Listed:
    """A relation's words as tokens of one model."""

    name: str
    meaning: str
    sources: Int[ndarray, " word"]
    candidates: Int[ndarray, " candidate"]
    """Every token of the list."""
    right: Bool[ndarray, "word candidate"]
    rivals: Bool[ndarray, "rival word candidate"]
    """The word itself, and each kind of its other forms."""
    rival_names: tuple[str, ...]


def listed_relations(model: Model) -> tuple[list[Listed], dict[str, int]]:
    """The relations that a model's tokenizer spells in words of one token, and those it does not.

    Returns:
        the relations, and how many words are left of those with fewer than `FEWEST`.
    """
    spelled = Spelled(model.tokenizer)
    found, few = [], {}
    for name, relation in word_relations().items():
        listed = _listed(name, relation, spelled)
        if len(listed.sources) < FEWEST:
            few[name] = len(listed.sources)
        else:
            found.append(listed)
    return found, few


def _listed(name: str, relation: WordRelation, spelled: Spelled) -> Listed:
    own = {}
    for word in {each for asked in relation.words for each in _words(asked)}:
        token = spelled.only(word)
        if token is not None:
            own[word] = token
    asked = [
        each
        for each in relation.words
        if each.word in own
        and all(rival in own for rival in each.rivals)
        and any(word in own and word != each.word for word in each.right)
    ]
    candidates = sorted({own[word] for each in asked for word in _words(each) if word in own})
    place = {token: i for i, token in enumerate(candidates)}

    def marked(words: Sequence[Sequence[str]]) -> Bool[ndarray, "word candidate"]:
        found = np.zeros((len(asked), len(candidates)), bool)
        for row, some in enumerate(words):
            found[row, [place[own[word]] for word in some if word in own]] = True
        return found

    kinds = [[each.word for each in asked]]
    kinds += [[each.rivals[kind] for each in asked] for kind in range(len(relation.rivals))]
    return Listed(
        name,
        relation.meaning,
        np.array([own[each.word] for each in asked], np.int64),
        np.array(candidates, np.int64),
        marked([each.right for each in asked]),
        np.stack([marked([[word] for word in words]) for words in kinds]),
        ("the word itself", *relation.rivals),
    )


def _words(asked: Asked) -> tuple[str, ...]:
    return (asked.word, *asked.right, *asked.rivals)
