"""Coreference heads: from a mention to an earlier mention of the same entity.

Queries and keys are the mentions' head words. Antecedents with the same surface ("he" … "he") are
excluded from `pronoun` and `nominal`: a duplicate-token head finds them. In an encoder, mentions
after the query count too.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np
from jaxtyping import Bool, Int
from numpy import ndarray

from headscope.attention_kind import BIDIRECTIONAL
from headscope.corpus.window import MentionTable, Window
from headscope.relations.head_type import HeadType
from headscope.relations.pairs import Pairs, distinct, span_pairs, without
from headscope.relations.relation import (
    Baseline,
    Relation,
    above_surrogate,
    draws_nothing,
)

_Table = Bool[ndarray, "mention mention"]
Antecedents = Callable[[MentionTable], _Table]


def pronoun(mentions: MentionTable) -> _Table:
    """A personal pronoun's query may go to a mention that is not a pronoun and has another form."""
    surface = mentions.surface
    differs = surface[:, None] != surface[None, :]
    is_noun = ~mentions.pronoun
    may_go = mentions.personal[:, None] & is_noun[None, :]
    return np.asarray(may_go & differs)


def nominal(mentions: MentionTable) -> _Table:
    """A name's or noun's query may go to another that shares no word with it.

    "Margit Solheim" does not count for "Solheim": a head for duplicates finds it.
    """
    is_noun = ~mentions.pronoun
    return np.asarray(is_noun[:, None] & is_noun[None, :] & ~mentions.shared)


def same_lemma(mentions: MentionTable) -> _Table:
    """A mention's query may go to a mention with the same head word."""
    return np.asarray(mentions.lemma[:, None] == mentions.lemma[None, :])


def chain(mentions: MentionTable) -> _Table:
    """Any mention's query may go to any other: "Tom" … "he" … "him" … "he"."""
    return np.ones((len(mentions),) * 2, bool)


def antecedents(window: Window, rule: Antecedents) -> Pairs:
    """Each mention with all eligible earlier mentions of its entity; in an encoder later too."""
    return _pairs(window, _antecedent_table(window, rule))


@draws_nothing
def other_mentions(
    window: Window, targets: Pairs, rng: np.random.Generator, *, rule: Antecedents
) -> Pairs:
    """Same query, mentions of other entities: for each antecedent the next one nearer and farther.

    They agree with the query in number, gender and person if these are known. If there are
    pronouns among them, a pronoun's distractors are pronouns.
    """
    mentions = window.mentions
    table = _antecedent_table(window, rule)
    is_asked = np.isin(mentions.last, targets.owner)
    query, antecedent = np.nonzero(table & is_asked[:, None])
    # candidates of the other entities, as the rule of the relation would take them
    is_other = mentions.entity[:, None] != mentions.entity[None, :]
    same_form = mentions.pronoun[:, None] == mentions.pronoun[None, :]
    if rule is same_lemma:
        # the same word rarely names two entities: any other mention of the kind is a distractor
        candidates = _seen(window) & is_other & same_form
    else:
        candidates = _eligible(window, rule) & is_other & mentions.agrees
    of_query = candidates[query]
    of_its_kind = _neighbours(mentions, of_query & same_form[antecedent], antecedent)
    any_kind = _neighbours(mentions, of_query, antecedent)
    has_kind = np.asarray(of_its_kind.any(1))[:, None]
    is_distractor = np.zeros_like(candidates)
    np.logical_or.at(is_distractor, query, np.where(has_kind, of_its_kind, any_kind))
    # a distractor's head word can be the antecedent's own ("Tom" in "Tom and Ann")
    return without(_pairs(window, is_distractor), targets)


def _neighbours(
    mentions: MentionTable,
    candidates: Bool[ndarray, "pair mention"],
    antecedent: Int[ndarray, " pair"],
) -> Bool[ndarray, "pair mention"]:
    """Candidates next to each pair's antecedent: the next one nearer, and the next farther."""
    antecedent_first = mentions.first[antecedent][:, None]
    antecedent_last = mentions.last[antecedent][:, None]
    nearer = candidates & (mentions.first > antecedent_last)
    farther = candidates & (mentions.last < antecedent_first)
    is_first = nearer & (nearer.cumsum(1) == 1)
    from_the_right = farther[:, ::-1].cumsum(1)[:, ::-1]
    is_last = farther & (from_the_right == 1)
    return np.asarray(is_first | is_last)


def nearest_mention(window: Window, *, rule: Antecedents) -> Int[ndarray, " position"]:
    """Nearest eligible mention that agrees with each mention; −1 if absent.

    Clark et al. 2019 (4.3), who do not require agreement; this baseline is harder to exceed.
    """
    return _nearest(window, _eligible(window, rule) & window.mentions.agrees)


def same_word_or_nearest(window: Window) -> Int[ndarray, " position"]:
    """Nearest mention by the same word for each mention, or else the nearest that agrees."""
    again = _eligible(window, same_lemma)
    nearest = _seen(window) & window.mentions.agrees
    has_again = np.asarray(again.any(1))[:, None]
    table = np.where(has_again, again, nearest)
    return _nearest(window, table)


def _nearest(window: Window, table: _Table) -> Int[ndarray, " position"]:
    last = window.mentions.last
    pick = np.full(len(window), -1)
    rows = np.flatnonzero(table.any(1))
    if not len(rows):
        return pick
    distance = np.abs(last[None, :] - last[:, None])
    far = np.where(table, distance, len(window))
    # of two that are as far the earlier: the first of all that are the least far
    nearest = far[rows].argmin(1)
    pick[last[rows]] = last[nearest]
    return pick


def _seen(window: Window) -> _Table:
    """Key mentions that have been read wholly before the query mention's head word begins.

    In an encoder those that begin after it ends, too.
    """
    first, last = window.mentions.first, window.mentions.last
    query_span = first[:, None], last[:, None]
    key_span = first[None, :], last[None, :]
    return window.attention_kind.sees_apart(query_span, key_span)


def _eligible(window: Window, rule: Antecedents) -> _Table:
    return _seen(window) & rule(window.mentions)


def _antecedent_table(window: Window, rule: Antecedents) -> _Table:
    entity = window.mentions.entity
    is_same = entity[:, None] == entity[None, :]
    may_go = _eligible(window, rule)
    return np.asarray(may_go & is_same)


def _pairs(window: Window, table: _Table) -> Pairs:
    mentions = window.mentions
    query, key = np.nonzero(table)
    places = mentions.last[query], mentions.first[key], mentions.last[key]
    return distinct(span_pairs(*places, attention_kind=window.attention_kind))


def _rows(other: str) -> tuple[Relation, ...]:
    """The relations, whose keys are called `an earlier` mention or `another`."""
    rows: tuple[tuple[str, Antecedents, str], ...] = (
        ("pronoun", pronoun, "what the pronoun refers to"),
        ("nominal", nominal, f"{other} mention by another word"),
        ("chain", chain, f"any {other.removeprefix('an ')} mention of the same entity"),
        ("same-word", same_lemma, f"{other} mention by the same word"),
    )
    return tuple(
        Relation(
            "coreference",
            name,
            partial(antecedents, rule=rule),
            partial(other_mentions, rule=rule),
            # a duplicate-token head finds mentions by the same word as well
            above_surrogate(
                0.1,
                "ours: a tenth of a head's attention on mentions of the right entity, besides the "
                "nearest mention plus 10 points; Clark et al. 2019 (4.3) report arg-max accuracy "
                "only",
                meaning,
                rule is not same_lemma,
            ),
            baseline=Baseline(
                same_word_or_nearest if rule is chain else partial(nearest_mention, rule=rule)
            ),
        )
        for name, rule, meaning in rows
    )


TYPE = HeadType(
    name="coreference",
    letter="C",
    order=70,
    colour="#cc79a7",
    relations=_rows("an earlier"),
    relations_by_kind={BIDIRECTIONAL: _rows("another")},
    looks_at="earlier mentions of the same entity by another word",
    control_keys="mentions of other entities, nearer and farther; the nearest mention",
    behaviour="pronoun",
)
