"""How many tags the rest of a text may still change: whether to read on is worth its while.

Every condition of a tag is a ratio of sums that lies above a threshold or below it. By the
variance over blocks of documents (Cochran 1977, 2.11 and 6.4) the ratio of the whole text will
differ from that of the part read so far by about N(0, error² · (1 − share read)), so that each
condition changes sides with a known probability. This is stochastic curtailment (Lan, Simon and
Halperin 1982): it asks what the planned reading would still say, not what is significant by now.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float
from numpy import ndarray
from scipy.special import ndtr

from headscope.corpus.window import Window
from headscope.evidence.conditions import TIMES_CONTROL
from headscope.evidence.weigh import NO_FACTS, Facts, rule_rate
from headscope.measure.bootstrap import ratio_error
from headscope.measure.schedule import IN_PORTIONS, PORTION
from headscope.measure.tally import MIN_BLOCKS, Ended, Tally
from headscope.relations.contested import BUILT, MATCHED, NATURAL, part_name
from headscope.relations.relation import MIN_QUERIES, Relation

TOLERATED = 0.02
"""Share of the tags that may be expected to change when reading ends early."""
TOLERATED_BESIDE = 0.005
"""Share of all tags of the run that another stimulus may be expected to change when it ends."""
SHARES = (0.25, 0.5, 0.75)
"""Of the text: when to ask."""
LEAST_TOKENS = 10_000
"""Of text, before which one does not ask."""
_LEAST_ERROR = 1e-9
_NORMAL_95 = 1.96
_NONE: Mapping[str, Ended] = MappingProxyType({})


class Outlook(NamedTuple):
    """What the rest of a text would change, as far as the sums so far say."""

    tags: int
    """Head × relation for which all conditions hold so far; the twin has not been read yet."""
    changes: float
    """Tags that the rest of the text is expected to add or to take."""
    asked: int
    """Relations that the whole text can decide."""

    @property
    def enough(self) -> bool:
        """Whether so few tags would change that reading may end."""
        return self.tags > 0 and self.changes <= TOLERATED * self.tags


class Looks:
    """When reading a text, or what is read beside it, may end before there is no more of it."""

    def __init__(
        self,
        relations: Sequence[Relation],
        facts: Facts,
        tokens: int,
        beside: Sequence[Window] = (),
        *,
        ended: Mapping[str, Ended] = _NONE,
        all: bool = False,
    ) -> None:
        """Before anything is read.

        Args:
            relations: those that give tags.
            facts: what the whole text says of the simple rules.
            tokens: of the whole text.
            beside: windows of other stimuli.
            ended: what has ended so far; it may grow.
            all: whether all is read in one round.
        """
        self._relations, self._facts, self._of = relations, facts, tokens
        self._ended = ended
        self._shares = [s for s in SHARES if s * tokens >= LEAST_TOKENS and not all]
        self._documents = {
            name: 1 + max(max(0, w.document) for w in beside if w.stimulus == name)
            for name in sorted({w.stimulus for w in beside} & {*IN_PORTIONS})
        }
        self.rounds = {"text": [*self._shares, 1.0]} | {
            name: [1.0] if all else [*np.arange(PORTION, count, PORTION) / count, 1.0]
            for name, count in self._documents.items()
        }
        """Of each stimulus the share that has been read after each round."""

    @property
    def tokens(self) -> list[int]:
        """Tokens of text after which to look."""
        return [int(share * self._of) for share in self._shares]

    def enough(self, tally: Tally, number: int) -> dict[str, float]:
        """The stimuli that the sums of so many rounds, counted from 0, leave so little to change.

        Returns:
            Each with the tags that the rest of it is expected to change.
        """
        left = [
            name
            for name, shares in self.rounds.items()
            if name not in self._ended and number + 1 < len(shares)
        ]
        if not left:
            return {}
        expected = {
            name: outlook(
                tally,
                [r for r in self._relations if name in r.stimuli],
                self.rounds[name][min(number, len(self.rounds[name]) - 1)],
                self._facts,
            )
            for name in self.rounds
        }
        share = self.rounds["text"][min(number, len(self._shares))]
        tags = outlook(tally, self._relations, share, self._facts).tags
        return {
            name: round(expected[name].changes, 2)
            for name in left
            if expected[name].enough
            or (
                name != "text"
                and expected[name].asked
                and expected[name].changes <= TOLERATED_BESIDE * tags
            )
        }

    def facts(self, tokens: int) -> dict[str, Any]:
        """What `run.json` says of it, when so many tokens of text were read."""
        text = self._ended.get("text")
        looks = max(self._read(stimulus) for stimulus in self.rounds)
        changes = None if text is None else text.expected_changes
        found: dict[str, Any] = {"tokens": tokens, "of": self._of, "looks": looks}
        found["expected_changes"] = changes
        for stimulus, count in self._documents.items():
            ended = self._ended.get(stimulus)
            found[stimulus] = {
                "documents": round(count * self.rounds[stimulus][self._read(stimulus) - 1]),
                "of": count,
                "expected_changes": None if ended is None else ended.expected_changes,
            }
        return found

    def _read(self, stimulus: str) -> int:
        """In how many rounds a stimulus was read."""
        ended = self._ended.get(stimulus)
        return len(self.rounds[stimulus]) if ended is None else ended.rounds


class _Margin(NamedTuple):
    """How far above its threshold a condition's number lies, and its error on the whole text."""

    above: Float[ndarray, " head"]
    error: Float[ndarray, " head"]

    @property
    def changes(self) -> Float[ndarray, " head"]:
        """The probability that the rest of the text brings it to the other side."""
        return np.asarray(ndtr(-np.abs(self.above) / np.maximum(self.error, _LEAST_ERROR)))


def outlook(
    tally: Tally, relations: Sequence[Relation], share: float, facts: Facts = NO_FACTS
) -> Outlook:
    """What the rest of the text is expected to change.

    Relations that the whole text cannot decide are not asked.

    Args:
        tally: the sums of a part of the text.
        relations: those that give tags.
        share: of the text, or of another stimulus, that this part is, in (0, 1).
        facts: what the whole text says of the simple rules, and how many contested queries it has.
    """
    sums = _Sums(tally, share)
    tags, changes, asked = 0, 0.0, 0
    for relation in relations:
        margins = list(_margins(sums, relation, facts.get(relation.id, {})))
        if not margins:
            continue
        asked += 1
        holds = np.stack([margin.above >= 0 for margin in margins])
        turns = np.stack([margin.changes for margin in margins])
        stays = np.where(holds, 1 - turns, 1).prod(0)
        comes = np.where(holds, 1, turns).prod(0)
        tagged = holds.all(0)
        tags += int(tagged.sum())
        changes += float(np.where(tagged, 1 - stays, stays * comes).sum())
    return Outlook(tags, changes, asked)


def _margins(sums: _Sums, relation: Relation, facts: Mapping[str, Any]) -> Iterator[_Margin]:
    """One for each condition; none where the text cannot decide the relation."""
    rule, own = relation.rule, relation.id
    if not rule.taggable or not sums.decides(own, MIN_QUERIES):
        return
    contested = part_name(own, NATURAL)
    # of what is read in portions the text knew the first alone
    known = int(facts.get("contested_queries", sums.queries(contested) / sums.share))
    coming = max(known, sums.queries(contested))
    asked, margin = rule.beat_baseline_by is not None, rule.beat_baseline_by or 0.0
    if asked and max(coming, sums.queries(part_name(own, BUILT))) < MIN_QUERIES:
        return  # in the end it cannot be told from a simple rule
    yield sums.margin(own, "target", rule.floor)
    yield sums.over_control(own)
    yield sums.lift(own)
    if sums.queries(matched := part_name(own, MATCHED)):
        yield sums.margin(own, "target", TIMES_CONTROL * sums.mean(matched, "control"))
    if rule.times_chance is not None:
        yield sums.margin(own, "target", rule.times_chance * sums.chance(own))
    if asked and sums.decides(contested, MIN_QUERIES):
        share = min(1.0, sums.queries(contested) / coming)
        rates = facts.get("natural_rules", ())
        best = rule_rate(sums.mean(own, "hits"), rates, margin)
        yield sums.over_control(contested, share)
        yield sums.lift(contested, share)
        yield sums.margin(contested, "hits", best + margin, share)


class _Sums:
    """Ratios of a tally's sums with their errors."""

    def __init__(self, tally: Tally, share: float) -> None:
        self.share = share
        self._tally = tally
        self._place = {name: index for index, name in enumerate(tally.relations)}

    def queries(self, name: str) -> int:
        """How many there are so far."""
        return int(self._tally.queries[:, self._place[name]].sum()) if name in self._place else 0

    def decides(self, name: str, fewest: int) -> bool:
        """Whether there are so many that the whole text has enough, and enough blocks by now."""
        if self.queries(name) < fewest * self.share:
            return False
        return int((self._tally.queries[:, self._place[name]] > 0).sum()) >= MIN_BLOCKS

    def mean(self, name: str, what: str) -> Float[ndarray, " head"]:
        """The sums of all blocks for each query."""
        return np.asarray(self._of(name, what).sum(0) / self.queries(name))

    def chance(self, name: str) -> float:
        """The mass of a head that spreads its attention evenly."""
        return float(self._tally.chance[:, self._place[name]].sum() / self.queries(name))

    def margin(
        self,
        name: str,
        what: str,
        threshold: float | Float[ndarray, " head"],
        share: float | None = None,
    ) -> _Margin:
        """Of `what` for each query above a threshold."""
        return self._margin(name, self._of(name, what), threshold, share)

    def over_control(self, name: str, share: float | None = None) -> _Margin:
        """Of the mass above so many times the control."""
        excess = self._of(name, "target") - TIMES_CONTROL * self._of(name, "control")
        return self._margin(name, excess, 0.0, share)

    def lift(self, name: str, share: float | None = None) -> _Margin:
        """Of the lower end of the lift's interval, as wide as it will be, above 0."""
        rate, error = self._ratio(name, self._of(name, "target") - self._of(name, "control"))
        share = self.share if share is None else share
        return _Margin(rate - _NORMAL_95 * error * share**0.5, error * (1 - share) ** 0.5)

    def _margin(
        self,
        name: str,
        sums: Float[ndarray, "block head"],
        threshold: float | Float[ndarray, " head"],
        share: float | None,
    ) -> _Margin:
        rate, error = self._ratio(name, sums)
        rest = 1 - (self.share if share is None else share)
        return _Margin(rate - threshold, error * rest**0.5)

    def _ratio(
        self, name: str, sums: Float[ndarray, "block head"]
    ) -> tuple[Float[ndarray, " head"], Float[ndarray, " head"]]:
        """Sums for each query, and their standard error."""
        queries = self._tally.queries[:, self._place[name]]
        full = queries > 0
        return sums.sum(0) / queries.sum(), ratio_error(sums[full], queries[full, None])

    def _of(self, name: str, what: str) -> Float[ndarray, "block head"]:
        sums = getattr(self._tally, what)[:, self._place[name]]
        return np.asarray(sums.reshape(len(sums), -1))
