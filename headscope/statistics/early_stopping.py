"""Early stopping: reading ends when the rest of a text is expected to change few tags.

Every condition of a tag is a ratio of sums that lies above a threshold or below it. By the
variance over blocks of documents (Cochran 1977, 2.11 and 6.4) the ratio of the whole text will
differ from that of the part read so far by about N(0, error² · (1 − share read)), so that each
condition changes sides with a known probability. This is stochastic curtailment (Lan, Simon and
Halperin 1982): it asks what the planned reading would still say, not what is significant by now.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float
from numpy import ndarray
from scipy.special import ndtr

from headscope.corpus.window import Window
from headscope.measure.rounds import ROUND_DOCUMENTS, Stopped
from headscope.measure.tally import MIN_BLOCKS, Tally
from headscope.relations import all_stimuli
from headscope.relations.parts import EASY, HARD, MATCHED_CONTROL, part_name
from headscope.relations.relation import MIN_QUERIES, Relation
from headscope.statistics.bootstrap import ratio_error
from headscope.statistics.conditions import HARD_QUERIES
from headscope.statistics.estimates import NO_FACTS, Facts
from headscope.statistics.intervals import Z_95
from headscope.statistics.wording import TIMES_CONTROL
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
        facts: Facts,
        tokens: int,
        synthetic: Sequence[Window] = (),
        *,
        read_all: bool = False,
    ) -> None:
        """Before anything is read."""
        self._relations, self._facts, self._tokens = relations, facts, tokens
        self._shares = [s for s in SHARES if s * tokens >= LEAST_TOKENS and not read_all]
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
        if not number:
            tags = {name: self._tags_to_come(name, tally) for name in unfinished}
            return {
                name: round(count, 2) for name, count in tags.items() if count <= EXPECTED_AT_MOST
            }
        expected = {
            name: expected_tag_changes(
                tally,
                [r for r in self._relations if name in r.stimuli],
                self.rounds[name][min(number, len(self.rounds[name]) - 1)],
                self._facts,
            )
            for name in self.rounds
        }
        share = self.rounds[TEXT.name][min(number, len(self._shares) + 1)]
        all_tags = expected_tag_changes(tally, self._relations, share, self._facts).tags
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

    def _tags_to_come(self, stimulus: str, tally: Tally) -> float:
        """The tags that its first documents say it will give; infinite where they cannot."""
        relations = [r for r in self._relations if stimulus in r.stimuli]
        share = self.rounds[stimulus][0]
        return expected_tags(tally, relations, share) if relations and share else float("inf")

    def record(self, tokens: int, documents: int, stopped: Stopped) -> dict[str, Any]:
        """`text_read` of `run.json`, when so many tokens and documents of text were read."""
        text = stopped.get(TEXT.name)
        rounds = max(self._rounds_read(stimulus, stopped) for stimulus in self.rounds)
        # in the first round, before the text, a stimulus can lose tags and win none: no test
        interim_tests = max(1, rounds - 1)
        record: dict[str, Any] = {
            "tokens": tokens,
            "of": self._tokens,
            "looks": interim_tests,
            "documents": documents,
            "expected_changes": None if text is None else text.expected_changes,
        }
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


def expected_tag_changes(
    tally: Tally, relations: Sequence[Relation], share: float, facts: Facts = NO_FACTS
) -> ExpectedTagChanges:
    """The tags that the rest of the text is expected to change.

    Relations that the whole text cannot decide, or only by few hard queries, are left out.
    """
    sums = PartialSums(tally, share)
    tags = 0
    changes = 0.0
    decidable = 0
    for relation in relations:
        margins = [margin for _, margin in projected(sums, relation, facts.get(relation.id, {}))]
        if not margins:
            continue
        decidable += 1
        holds = np.stack([margin.above >= 0 for margin in margins])
        change_chance = np.stack([margin.changes for margin in margins])
        # of the conditions that hold, all stay; of those that fail, all come to hold
        stays = np.where(holds, 1 - change_chance, 1).prod(0)
        comes = np.where(holds, 1, change_chance).prod(0)
        is_tagged = holds.all(0)
        changes_of_heads = np.where(is_tagged, 1 - stays, stays * comes)
        tags += int(is_tagged.sum())
        changes += float(changes_of_heads.sum())
    return ExpectedTagChanges(tags, changes, decidable)


def expected_tags(tally: Tally, relations: Sequence[Relation], share: float) -> float:
    """The tags that relations are expected to give on the whole text, at most.

    Hard queries are left out, as few are known at first. Infinite if a relation lies in
    too few blocks to say how sure it is.
    """
    sums = PartialSums(tally, share)
    tags = 0.0
    for relation in relations:
        if not relation.thresholds.taggable:
            continue
        if not sums.decides(relation.id, MIN_QUERIES):
            return float("inf")
        holds = [margin.holds for _, margin in _margins(sums, relation)]
        all_hold = np.stack(holds).prod(0)
        tags += float(all_hold.sum())
    return tags


def projected(
    sums: PartialSums, relation: Relation, facts: Mapping[str, Any]
) -> Iterator[tuple[str, _Margin]]:
    """Margins of the conditions of a tag, by their names; none if no text can decide it."""
    limits = relation.thresholds
    name = relation.id
    if not limits.taggable or not sums.decides(name, MIN_QUERIES):
        return
    lead = limits.beat_baseline_by
    if lead is not None and facts.get("hard_queries", 0) < MIN_QUERIES:
        return  # so few change too easily to be waited for
    yield from _margins(sums, relation)
    hard = part_name(name, HARD)
    if lead is not None and sums.decides(hard, 1):
        bound = _hard_bound(sums, part_name(name, EASY), lead, facts)
        hits = sums.block_sums(hard, "hits")
        yield HARD_QUERIES, sums.margin(hard, hits, bound, of_lower_end=True)


def _hard_bound(
    sums: PartialSums, easy: str, lead: float, facts: Mapping[str, Any]
) -> float | Float[ndarray, " head"]:
    """The rate at hard queries that a head must exceed, by its rate at easy queries."""
    easy_rates, hard_rates = np.array(facts["baselines"][::-1]).T
    if not sums.queries(easy):
        return float(hard_rates[0])
    rates = sums.mean(easy, "hits")
    return np.asarray(np.interp(rates, easy_rates, hard_rates) + lead)


def _margins(sums: PartialSums, relation: Relation) -> Iterator[tuple[str, _Margin]]:
    limits = relation.thresholds
    name = relation.id
    mass = sums.block_sums(name, "target")
    yield "mass", sums.margin(name, mass, limits.threshold)
    above_control = sums.excess(name, TIMES_CONTROL)
    yield "control", sums.margin(name, above_control)
    yield "q value", sums.margin(name, sums.excess(name), of_lower_end=True)
    matched_control = part_name(name, MATCHED_CONTROL)
    if sums.queries(matched_control):
        bound = TIMES_CONTROL * sums.mean(matched_control, "control")
        yield "control", sums.margin(name, mass, bound)
    if limits.times_chance is not None:
        bound_of_chance = limits.times_chance * sums.chance(name)
        yield "control", sums.margin(name, mass, bound_of_chance)


class PartialSums:
    """Ratios of a tally's sums, and how far those of the whole text may lie from them."""

    def __init__(self, tally: Tally, share: float) -> None:
        self.share = share
        self._tally = tally
        self._place = {name: index for index, name in enumerate(tally.relations)}

    def queries(self, name: str) -> int:
        """Number of queries so far."""
        if name not in self._place:
            return 0
        return int(self._of_blocks(name).sum())

    def _of_blocks(self, name: str) -> Float[ndarray, " block"]:
        """Number of queries in each block."""
        return self._tally.queries[:, self._place[name]]

    def decides(self, name: str, fewest: int) -> bool:
        """True if the whole text will have enough queries, and blocks are enough by now."""
        if self.queries(name) < fewest * self.share:
            return False
        blocks = int((self._of_blocks(name) > 0).sum())
        return blocks >= MIN_BLOCKS

    def mean(self, name: str, what: str) -> Float[ndarray, " head"]:
        """The sums of all blocks for each query."""
        total = self.block_sums(name, what).sum(0)
        return np.asarray(total / self.queries(name))

    def chance(self, name: str) -> float:
        """The mass of a head that spreads its attention evenly."""
        chance = self._tally.chance[:, self._place[name]]
        return float(chance.sum() / self.queries(name))

    def block_sums(self, name: str, what: str) -> Float[ndarray, "block head"]:
        """Sums of the tally: `target`, `control` or `hits`."""
        sums = getattr(self._tally, what)[:, self._place[name]]
        return np.asarray(sums.reshape(len(sums), -1))

    def excess(self, name: str, times: float = 1.0) -> Float[ndarray, "block head"]:
        """Sums on targets less so many times those on controls."""
        target = self.block_sums(name, "target")
        control = self.block_sums(name, "control")
        return np.asarray(target - times * control)

    def margin(
        self,
        name: str,
        sums: Float[ndarray, "block head"],
        threshold: float | Float[ndarray, " head"] = 0.0,
        *,
        of_lower_end: bool = False,
    ) -> _Margin:
        """Margin of sums for each query above a threshold, or of the lower end of their interval.

        Args:
            name: the relation.
            sums: see `block_sums` and `excess`.
            threshold: of the condition.
            of_lower_end: whether the interval, as wide as it will be, must lie above the threshold.
        """
        queries = self._of_blocks(name)
        is_used = queries > 0
        rate = sums.sum(0) / queries.sum()
        error = ratio_error(sums[is_used], queries[is_used, None])
        above = rate - threshold
        if of_lower_end:
            half_width = Z_95 * error * self.share**0.5
            above = above - half_width
        return _Margin(above, error * (1 - self.share) ** 0.5)
