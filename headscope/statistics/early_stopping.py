"""Early stopping: reading ends when the rest of a text is expected to change few tags.

Every condition of a tag is a ratio of sums that lies above a threshold or below it. By the
variance over blocks of documents (Cochran 1977, 2.11 and 6.4) the ratio of the whole text will
differ from that of the part read so far by about N(0, error² · (1 − share read)), so that each
condition changes sides with a known probability. This is stochastic curtailment (Lan, Simon and
Halperin 1982): it asks what the planned reading would still say, not what is significant by now.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float
from numpy import ndarray
from scipy.special import ndtr, ndtri

from headscope.corpus.window import Window
from headscope.measure.rounds import ROUND_DOCUMENTS, Stopped
from headscope.measure.tally import Tally
from headscope.relations import all_stimuli
from headscope.relations.relation import MIN_QUERIES, Relation
from headscope.statistics.condition import Numbers
from headscope.statistics.conditions import (
    HARD_QUERIES,
    MAX_Q,
    ON_THIS_TEXT,
    Q_VALUE,
    has_no_interval,
)
from headscope.statistics.estimates import NO_RATES, BaselineRates, weigh
from headscope.statistics.ratio import Z_95
from headscope.statistics.tags import with_thresholds
from headscope.stimuli.natural_text import TEXT

TOLERATED = 0.02
"""Share of the tags that may be expected to change when reading ends early."""
TOLERATED_BESIDE = 0.005
"""Share of all tags of the run that another stimulus may be expected to change when it ends."""
EXPECTED_AT_MOST = 0.02
"""Tags that a stimulus may be expected to give when it ends because no head comes near one."""
SHARES = (0.25, 0.5, 0.75)
"""Shares of the text after which the rule is applied."""
LEAST_TOKENS = 10_000
"""Tokens of text before which the rule is not applied."""
_LEAST_ERROR = 1e-9


class ExpectedTagChanges(NamedTuple):
    """The tags that the rest of a text is expected to change, by the sums so far."""

    tags: int
    """Head × relation for which all conditions hold so far."""
    changes: float
    """Tags that the rest of the text is expected to add or to take."""
    decidable: int
    """Relations that the whole text can decide."""

    @property
    def should_stop(self) -> bool:
        """True if so few tags would change that reading may end."""
        return self.tags > 0 and self.changes <= TOLERATED * self.tags


class StoppingRule:
    """Stops reading a text, or another stimulus, when the rest would change few tags."""

    def __init__(
        self,
        relations: Sequence[Relation],
        rates: BaselineRates,
        tokens: int,
        synthetic: Sequence[Window] = (),
        *,
        read_all: bool = False,
    ) -> None:
        """Before anything is read."""
        self._relations, self._rates, self._tokens = relations, rates, tokens
        # a short text has too few queries to foresee by them what the rest will say
        self._shares = [s for s in SHARES if s * tokens >= LEAST_TOKENS and not read_all]
        # documents of each other stimulus, the last of which has the largest number
        self._documents = {
            name: 1 + max(max(0, w.document) for w in synthetic if w.stimulus == name)
            for name in sorted({w.stimulus for w in synthetic})
            if all_stimuli()[name].build is not None
        }
        self.rounds = {TEXT.name: [0.0, *self._shares, 1.0]} | {
            name: [1.0] if read_all else [end / count for end in _round_ends(name, count)]
            for name, count in self._documents.items()
        }
        """Share of each stimulus that is read after each round; text begins in the second."""

    @property
    def interim_tokens(self) -> list[int]:
        """Tokens of text after which a round of reading ends."""
        return [int(share * self._tokens) for share in self._shares]

    def should_stop(self, tally: Tally, number: int, stopped: Stopped) -> dict[str, float]:
        """The stimuli whose rest would change few tags by the sums after a round.

        Args:
            tally: the sums so far.
            number: of the round, counted from 0.
            stopped: stimuli that were stopped before.

        Returns:
            Each with the tags that the rest of it is expected to change.
        """
        unfinished = [
            name
            for name, shares in self.rounds.items()
            if name not in stopped and number + 1 < len(shares)
        ]
        if not unfinished:
            return {}
        # before the text is read a stimulus can only be found to give no tag
        if not number:
            tags_to_come = {}
            for name in unfinished:
                relations = [r for r in self._relations if name in r.stimuli]
                share = self.rounds[name][0]
                # a stimulus that no relation reads, or that begins later, cannot be judged
                if relations and share:
                    evidence = PartialEvidence(tally, relations)
                    tags_to_come[name] = evidence.expected_tags(relations, share)
            return {
                name: round(count, 2)
                for name, count in tags_to_come.items()
                if count <= EXPECTED_AT_MOST
            }
        # later each stimulus is judged by the tags of its own relations
        evidence = PartialEvidence(
            tally, self._relations, rates=self._rates, interim_tests=max(1, number)
        )
        expected = {
            name: evidence.tag_changes(
                [r for r in self._relations if name in r.stimuli],
                self.rounds[name][min(number, len(self.rounds[name]) - 1)],
            )
            for name in self.rounds
        }
        # another stimulus may also end when it changes few of all tags of the run
        share = self.rounds[TEXT.name][min(number, len(self._shares) + 1)]
        all_tags = evidence.tag_changes(self._relations, share).tags
        return {
            name: round(expected[name].changes, 2)
            for name in unfinished
            if expected[name].should_stop
            or (
                name != TEXT.name
                and expected[name].decidable
                and expected[name].changes <= TOLERATED_BESIDE * all_tags
            )
        }

    def record(self, tokens: int, documents: int, stopped: Stopped) -> dict[str, Any]:
        """`text_read` of `run.json`, when so many tokens and documents of text were read."""
        text = stopped.get(TEXT.name)
        rounds = max(self._rounds_read(stimulus, stopped) for stimulus in self.rounds)
        # the first round, before any text, can only end a stimulus and give no tag, so that it is
        # no interim test
        interim_tests = max(1, rounds - 1)
        record: dict[str, Any] = {
            "tokens": tokens,
            "of": self._tokens,
            "looks": interim_tests,
            "documents": documents,
            "expected_changes": None if text is None else text.expected_changes,
        }
        # a stimulus that was stopped has read the documents up to the round of its stop
        for stimulus, count in self._documents.items():
            stop = stopped.get(stimulus)
            last_round = self._rounds_read(stimulus, stopped) - 1
            record[stimulus] = {
                "documents": round(count * self.rounds[stimulus][last_round]),
                "of": count,
                "expected_changes": None if stop is None else stop.expected_changes,
            }
        return record

    def _rounds_read(self, stimulus: str, stopped: Stopped) -> int:
        stop = stopped.get(stimulus)
        return len(self.rounds[stimulus]) if stop is None else stop.rounds


def _round_ends(stimulus: str, documents: int) -> Iterator[int]:
    """Documents of a stimulus after which each of its rounds ends.

    >>> list(_round_ends("repeat", 26)), list(_round_ends("pairs", 26))
    ([8, 16, 26], [0, 16, 26])
    """
    first = min(all_stimuli()[stimulus].before_text, documents)
    yield first
    yield from range(ROUND_DOCUMENTS, documents, ROUND_DOCUMENTS)
    if first < documents:
        yield documents


class _Margin(NamedTuple):
    """Distance of a condition's number above its threshold, and its error on the whole text."""

    above: Float[ndarray, " head"]
    error: Float[ndarray, " head"]

    @property
    def changes(self) -> Float[ndarray, " head"]:
        """The probability that the rest of the text brings it to the other side."""
        error = np.maximum(self.error, _LEAST_ERROR)
        distance = np.abs(self.above) / error
        return np.asarray(ndtr(-distance))

    @property
    def holds(self) -> Float[ndarray, " head"]:
        """The probability that it holds on the whole text."""
        error = np.maximum(self.error, _LEAST_ERROR)
        return np.asarray(ndtr(self.above / error))


class PartialEvidence:
    """The evidence on a part of the input, and how its conditions will stand on the whole."""

    def __init__(
        self,
        tally: Tally,
        relations: Sequence[Relation],
        *,
        rates: BaselineRates = NO_RATES,
        interim_tests: int = 1,
    ) -> None:
        """Weigh the sums so far as a run that ends here would.

        Args:
            tally: the sums.
            relations: every relation of the run, as all of them count for q values.
            rates: of the baselines on the text.
            interim_tests: rounds after which the run tested if it could stop.
        """
        thresholds = {relation.id: relation.thresholds for relation in relations}
        # resamples only narrow the interval of the lift, which no margin below reads
        evidence = weigh(tally, relations, seed=0, rates=rates)
        evidence["q_value"] = np.minimum(1.0, evidence["q_value"] * interim_tests)
        table = with_thresholds(evidence, thresholds)
        self._rows_of = dict(iter(table.groupby("id", sort=False)))
        self._rates = rates

    def tag_changes(self, relations: Iterable[Relation], share: float) -> ExpectedTagChanges:
        """The tags that the rest of the text is expected to change.

        Relations that the whole text cannot decide, or only by few hard queries, are left out.

        Args:
            relations: some of the relations.
            share: of the text that was read.
        """
        tags = 0
        changes = 0.0
        decidable = 0
        for relation in relations:
            margins = list(self.margins(relation, share).values())
            if not margins:
                continue
            decidable += 1
            holds = np.stack([margin.above >= 0 for margin in margins])
            change_chance = np.stack([margin.changes for margin in margins])
            # a tag goes when a condition stops holding; it comes when all that fail come to hold
            # and all others stay, as if conditions were independent
            stays = np.where(holds, 1 - change_chance, 1).prod(0)
            comes = np.where(holds, 1, change_chance).prod(0)
            is_tagged = holds.all(0)
            changes_of_heads = np.where(is_tagged, 1 - stays, stays * comes)
            tags += int(is_tagged.sum())
            changes += float(changes_of_heads.sum())
        return ExpectedTagChanges(tags, changes, decidable)

    def expected_tags(self, relations: Iterable[Relation], share: float) -> float:
        """The tags that relations are expected to give on the whole text, at most.

        Hard queries are left out, as few are known at first. Infinite if a relation lies in
        too few blocks to say how sure it is.
        """
        tags = 0.0
        for relation in relations:
            if not relation.thresholds.taggable:
                continue
            rows = self._decidable_rows(relation, share)
            if rows is None:
                return float("inf")
            margins = _margins(rows, share)
            # as if conditions were independent
            holds = [margin.holds for name, margin in margins.items() if name != HARD_QUERIES]
            all_hold = np.stack(holds).prod(0)
            tags += float(all_hold.sum())
        return tags

    def margins(self, relation: Relation, share: float) -> dict[str, _Margin]:
        """Margins of the conditions of a tag, by their names; none if no text can decide it."""
        rows = self._decidable_rows(relation, share)
        if rows is None:
            return {}
        if relation.thresholds.beat_baseline_by is not None:
            # so few change too easily to be waited for
            hard_queries = self._rates.get(relation.id, {}).get("hard_queries", 0)
            if hard_queries < MIN_QUERIES or not rows.has("hard_low").all():
                return {}
        return _margins(rows, share)

    def _decidable_rows(self, relation: Relation, share: float) -> Numbers | None:
        """The relation's rows; None if the whole text will have too few queries, or if the blocks
        so far are too few for an interval.
        """
        table = self._rows_of.get(relation.id)
        if table is None or not relation.thresholds.taggable:
            return None
        rows = Numbers(table)
        has_queries = rows["n"] >= MIN_QUERIES * share
        return rows if (has_queries & ~has_no_interval(rows)).all() else None


def _margins(rows: Numbers, share: float) -> dict[str, _Margin]:
    """Margins of the conditions that apply to a relation, as the whole text will have them."""
    margins = {}
    for condition in ON_THIS_TEXT:
        if condition.margin is None:
            continue
        if condition.name == Q_VALUE:
            # the normal deviation that has q as its p value, which grows with the root of the text
            q_value = np.nan_to_num(rows["q_value"], nan=1.0).clip(1e-300, 1 - 1e-12)
            above = ndtri(MAX_Q) * share**0.5 - ndtri(q_value)
            error = np.ones_like(above)
        else:
            value, low, high = condition.margin(rows)
            above = value
            error = (high - low) / (2 * Z_95)
            if condition.tests_low:
                # the interval narrows with the root of the text
                above = value - (value - low) * share**0.5
        if condition.applies is not None:
            # what does not apply holds for certain
            applies = condition.applies(rows)
            if not applies.any():
                continue
            above = np.where(applies, above, 1.0)
            error = np.where(applies, error, 0.0)
        margins[condition.name] = _Margin(above, error * (1 - share) ** 0.5)
    return margins
