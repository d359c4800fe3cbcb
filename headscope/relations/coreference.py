"""Coreference heads: from a mention to an earlier mention of the same entity.

Queries and keys are the mentions' head words. Antecedents with the same surface ("he" … "he")
are scored apart: a head that looks for duplicates finds those without knowing who is meant.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np
from jaxtyping import Bool, Int
from numpy import ndarray

from headscope.corpus.window import MentionTable, Window
from headscope.relations.pairs import Pairs, distinct, no_pairs, span_pairs, without
from headscope.relations.relation import Baseline, Relation, Rule
from headscope.relations.types import HeadType

FLOOR = 0.1
SOURCE = (
    "ours: a tenth of a head's attention on mentions of the right entity, beside the nearest "
    "mention plus 10 points; Clark et al. 2019 (4.3) report arg-max accuracy only"
)

BEAT_RULE_BY = 0.10
"""As for syntax: a head for subjects finds a pronoun's antecedent now and then, and so does the
nearest mention."""

_Table = Bool[ndarray, "mention mention"]
Antecedents = Callable[[MentionTable], _Table]


def pronoun(mentions: MentionTable) -> _Table:
    """A personal pronoun's query may go to a mention that is no pronoun and looks different."""
    differs = mentions.surface[:, None] != mentions.surface[None, :]
    return np.asarray(mentions.personal[:, None] & ~mentions.pronoun[None, :] & differs)


def nominal(mentions: MentionTable) -> _Table:
    """A name's or noun's query may go to another that shares no word with it.

    "Margit Solheim" is no other word for "Solheim": a head that looks for duplicates finds it.
    """
    return np.asarray(~mentions.pronoun[:, None] & ~mentions.pronoun[None, :] & ~mentions.shared)


def same_word(mentions: MentionTable) -> _Table:
    """A mention's query may go to a mention with the same head word."""
    return np.asarray(mentions.lemma[:, None] == mentions.lemma[None, :])


def antecedents(window: Window, rule: Antecedents) -> Pairs:
    """Each mention with all eligible earlier mentions of its entity."""
    return _pairs(window.mentions, _antecedent_table(window.mentions, rule))


def rivals(window: Window, targets: Pairs, rng: np.random.Generator, *, rule: Antecedents) -> Pairs:
    """Same query, mentions of other entities: for each antecedent the next one nearer and farther.

    A head that likes nouns gains nothing, and a head that likes near mentions gains nothing on
    average, because the rivals lie on both sides of the antecedent.
    """
    mentions = window.mentions
    other = mentions.entity[:, None] != mentions.entity[None, :]
    candidates = _eligible(mentions, rule) & other
    if rule is same_word:
        # the same word rarely names two entities: any other mention of the kind is a rival
        candidates = _earlier(mentions) & other & (mentions.pronoun[:, None] == mentions.pronoun)
    chosen = np.zeros_like(candidates)
    for query, antecedent in zip(*np.nonzero(_antecedent_table(mentions, rule)), strict=True):
        places = np.flatnonzero(candidates[query])
        nearer = places[mentions.first[places] > mentions.last[antecedent]]
        farther = places[mentions.last[places] < mentions.first[antecedent]]
        chosen[query, nearer[:1]] = chosen[query, farther[-1:]] = True
    drawn = _pairs(mentions, chosen)
    # a rival's head word can be the antecedent's own ("Tom" in "Tom and Ann")
    return without(drawn, targets)


def nearest_mention(window: Window, *, rule: Antecedents) -> Int[ndarray, " position"]:
    """At each mention the nearest eligible one (Clark et al. 2019, 4.3); −1 where there is none."""
    mentions = window.mentions
    found = np.full(len(window), -1)
    eligible = _eligible(mentions, rule)
    for row in np.flatnonzero(eligible.any(1)):
        found[mentions.last[row]] = mentions.last[np.flatnonzero(eligible[row])[-1]]
    return found


def _earlier(mentions: MentionTable) -> _Table:
    """Key mentions that have been read wholly before the query mention's head word begins."""
    return np.asarray(mentions.last[None, :] < mentions.first[:, None])


def _eligible(mentions: MentionTable, rule: Antecedents) -> _Table:
    return _earlier(mentions) & rule(mentions)


def _antecedent_table(mentions: MentionTable, rule: Antecedents) -> _Table:
    same_entity = mentions.entity[:, None] == mentions.entity[None, :]
    return np.asarray(_eligible(mentions, rule) & same_entity)


def _pairs(mentions: MentionTable, table: _Table) -> Pairs:
    query, key = np.nonzero(table)
    if not len(query):
        return no_pairs()
    return distinct(span_pairs(mentions.last[query], mentions.first[key], mentions.last[key]))


def _row(name: str, rule: Antecedents, meaning: str, taggable: bool = True) -> Relation:
    return Relation(
        "coreference",
        name,
        partial(antecedents, rule=rule),
        partial(rivals, rule=rule),
        Rule(FLOOR, SOURCE, meaning, taggable, beat_baseline_by=BEAT_RULE_BY),
        baseline=Baseline(partial(nearest_mention, rule=rule)),
    )


RELATIONS = [
    _row("pronoun", pronoun, "what the pronoun refers to"),
    _row("nominal", nominal, "an earlier mention by another word"),
    # reported apart: these are duplicates, which a duplicate-token head finds as well
    _row("same-word", same_word, "an earlier mention by the same word", taggable=False),
]

TYPE = HeadType(
    name="coreference",
    letter="C",
    colour="#cc79a7",
    marker="v",
    relations=tuple(RELATIONS),
    looks_at="earlier mentions of the same entity by another word",
    rivals="same query, mentions of other entities nearer and farther; the nearest mention",
    behaviour="pronoun",
)
