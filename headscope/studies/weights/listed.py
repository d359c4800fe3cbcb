"""Lists of related words as the tokens of one model: those that it spells in one token each."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Int
from numpy import ndarray

from headscope.corpus.controlled.forms import FormQuestion, WordRelation, word_relations
from headscope.models.load import Model
from headscope.stimuli.prompts import Spelling

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
    spelled = Spelling(model.tokenizer)
    relations, counts = [], {}
    for name, relation in word_relations().items():
        listed = _listed(name, relation, spelled)
        if len(listed.sources) < FEWEST:
            counts[name] = len(listed.sources)
        else:
            relations.append(listed)
    return relations, counts


def _listed(name: str, relation: WordRelation, spelled: Spelling) -> Listed:
    token_of_word = {}
    for word in {entry for query_words in relation.words for entry in _words(query_words)}:
        token = spelled.only(word)
        if token is not None:
            token_of_word[word] = token
    query_words = [
        entry
        for entry in relation.words
        if entry.word in token_of_word
        and all(rival in token_of_word for rival in entry.rivals)
        and any(word in token_of_word and word != entry.word for word in entry.right)
    ]
    candidates = sorted(
        {
            token_of_word[word]
            for entry in query_words
            for word in _words(entry)
            if word in token_of_word
        }
    )
    index_of_token = {token: i for i, token in enumerate(candidates)}

    def marked(words: Sequence[Sequence[str]]) -> Bool[ndarray, "word candidate"]:
        mask = np.zeros((len(query_words), len(candidates)), bool)
        for row, some in enumerate(words):
            mask[
                row, [index_of_token[token_of_word[word]] for word in some if word in token_of_word]
            ] = True
        return mask

    kinds = [[entry.word for entry in query_words]]
    kinds += [[entry.rivals[kind] for entry in query_words] for kind in range(len(relation.rivals))]
    return Listed(
        name,
        relation.meaning,
        np.array([token_of_word[entry.word] for entry in query_words], np.int64),
        np.array(candidates, np.int64),
        marked([entry.right for entry in query_words]),
        np.stack([marked([[word] for word in words]) for words in kinds]),
        ("the word itself", *relation.rivals),
    )


def _words(entry: FormQuestion) -> tuple[str, ...]:
    return (entry.word, *entry.right, *entry.rivals)
