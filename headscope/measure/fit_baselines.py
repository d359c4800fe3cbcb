"""Baselines of relations on a text, and the rates that baselines reach at hard and easy queries."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from headscope.corpus.window import Window
from headscope.measure.baseline_hits import BaselineHits, ComparedRates
from headscope.relations.effects import effects_among, of_attention, sum_names
from headscope.relations.hard_queries import ChosenBaseline
from headscope.relations.parts import is_part, with_parts
from headscope.relations.reference_baselines import ReferenceBaseline
from headscope.relations.relation import Relation
from headscope.relations.window_pairs import KeptPairs
from headscope.stimuli.challenge import CHALLENGE

MUCH_WORSE = 0.1
"""A run notes each fixed baseline whose rate is lower than another baseline's by this much."""
OTHER_RATE = 0.1
"""Distance of the fixed baseline's rate on a text from its rate in the reference above which the
rates of the reference do not fit the text."""
ENOUGH_TO_DIFFER = 100
"""Queries of a relation from which on such a distance is more than chance: half the width of a
rate's 95 % interval is at most 0.098."""
ENOUGH = 200
"""Queries of a relation from which on the text says which baseline is better."""


@dataclass(frozen=True, eq=False)
class FittedBaselines:
    """The baselines of relations on a text, and the rates of all baselines."""

    choices: dict[str, ChosenBaseline]
    """The chosen baseline of each relation; relations without a baseline or a query are absent."""
    rates: dict[str, dict[str, Any]]
    """Facts by relation: `baseline`, the name of the one that is taken at most queries;
    `baseline_rate`, the share of the text's queries that it gets right; `reference_rate`, the same
    share of the text that it was chosen on, absent if that is this text; `best_offset_rate`; the
    number of `hard_queries`; and `baselines`, the rates at easy and at hard queries that no
    baseline exceeds, see `ComparedRates.frontier`."""
    notes: tuple[str, ...] = ()
    """Notes on fixed baselines that do not fit the text."""

    def summed(self, relations: Sequence[Relation]) -> list[Relation]:
        """The relations and what is summed beside them; see `with_parts`. Effects are last."""
        return [*with_parts(of_attention(relations), self.choices), *effects_among(relations)]

    def record(self, relations: Sequence[Relation]) -> dict[str, Any]:
        """Fields of the run's record: the baselines, and the names of the sums beside relations."""
        scored = {r.id for r in of_attention(relations) if not is_part(r.name)}
        parts = [name for name in sum_names(relations) if name not in scored]
        return {"baselines": self.rates, "parts": parts}


def fit_baselines(
    windows: Sequence[Window],
    relations: Sequence[Relation],
    challenge: Sequence[Window] = (),
    *,
    fixed: Mapping[str, ReferenceBaseline] | None = None,
    pairs: KeptPairs | None = None,
) -> FittedBaselines:
    """Measure all baselines at hard and easy queries; choose those that are not fixed.

    Args:
        windows: natural text, or a large part of it, and other stimuli.
        relations: relations of the run.
        challenge: windows that are read only for hard and easy queries.
        fixed: fixed baselines by relation; the others are chosen on these windows. None for text
            that is not known to be English.
        pairs: keeps the pairs of the windows, which are read later.
    """
    pairs = pairs or KeptPairs()
    reference = fixed or {}
    tested = [relation for relation in relations if relation.baseline is not None]
    free = [relation for relation in tested if relation.id not in reference]
    # baselines that are not fixed are those that are right most often on this text
    free_hits = {relation.id: BaselineHits(relation) for relation in free}
    for window in windows if free else ():
        window_pairs = pairs.of(window)
        for relation in free:
            if window.stimulus in relation.stimuli:
                free_hits[relation.id].add(window_pairs, window_pairs.targets(relation))
    choices = {name: counted.choose() for name, counted in free_hits.items() if counted.count}
    # of the others the choice is fixed
    for name, row in reference.items():
        choices[name] = row.choice
    tested = [relation for relation in tested if relation.id in choices]
    # all baselines at hard and easy queries, beside the choice
    hits: dict[str, BaselineHits] = {}
    compared: dict[str, ComparedRates] = {}
    for relation in tested:
        choice = choices[relation.id]
        hits[relation.id] = BaselineHits(relation, choice.target_classes)
        # in the reference a chain ("this rule, else that one") may pick any key; chosen on the
        # text it picks among targets and candidates
        compared[relation.id] = ComparedRates(relation, choice, only_compared=fixed is None)
    for window in (*windows, *challenge):
        window_pairs = pairs.of(window)
        for relation in tested:
            if window.stimulus in relation.stimuli:
                hits[relation.id].add(window_pairs, window_pairs.targets(relation))
            if window.stimulus in (*relation.stimuli, CHALLENGE.name):
                compared[relation.id].add(window_pairs)
    # a relation without a query on this text has no baseline
    tested = [relation for relation in tested if hits[relation.id].count]
    return FittedBaselines(
        choices={relation.id: choices[relation.id] for relation in tested},
        rates={
            relation.id: _rates(
                hits[relation.id], compared[relation.id], reference.get(relation.id)
            )
            for relation in tested
        },
        notes=_notes(hits, choices, reference),
    )


def _rates(
    hits: BaselineHits, compared: ComparedRates, fixed: ReferenceBaseline | None
) -> dict[str, Any]:
    """Rates of a relation's baselines; see `FittedBaselines.rates`."""
    choice = compared.choice
    rates: dict[str, Any] = {
        "baseline": hits.most_used(choice) if fixed is None else fixed.name,
        "baseline_rate": hits.rate(choice),
    }
    # the choice of a fixed baseline was made on another text, whose rates count too
    reference = None
    if fixed is not None:
        rates["reference_rate"] = fixed.rate
        if not _differs(hits, compared.choice, fixed):
            reference = fixed.frontier
    return rates | {
        "best_offset_rate": hits.best_offset_rate(),
        "hard_queries": compared.hard_count,
        "baselines": compared.frontier(hits, reference).round(6).tolist(),
    }


def _differs(hits: BaselineHits, choice: ChosenBaseline, fixed: ReferenceBaseline) -> bool:
    """True if the fixed baseline's rate on the text is another than in the reference."""
    distance = abs(hits.rate(choice) - fixed.rate)
    return hits.count >= ENOUGH_TO_DIFFER and distance > OTHER_RATE


def _notes(
    hits: Mapping[str, BaselineHits],
    choices: Mapping[str, ChosenBaseline],
    fixed: Mapping[str, ReferenceBaseline],
) -> tuple[str, ...]:
    """Notes on fixed baselines with another rate on the text, and on those that are much worse."""
    # one note for all relations: on text of another kind dozens of them differ at once
    notes = []
    others = []
    for name, row in fixed.items():
        if name in hits and _differs(hits[name], choices[name], row):
            others.append(f"{name} ({row.rate:.2f}, here {hits[name].rate(choices[name]):.2f})")
    if others:
        notes.append(
            "the rate of the fixed baseline differs from the English reference by more than "
            f"{OTHER_RATE:g} for {len(others)} relations, whose baselines have the rates of this "
            f"text: {', '.join(others)}"
        )
    # only where the text has enough queries to tell
    worse: dict[str, float] = {}
    for name, row in fixed.items():
        if name not in hits or hits[name].count < ENOUGH:
            continue
        rate = hits[name].rate(choices[name])
        best, best_rate = hits[name].best()
        if best_rate - rate >= MUCH_WORSE:
            worse[f"{name} ({row.name} {rate:.2f}, {best} {best_rate:.2f})"] = best_rate - rate
    if not worse:
        return tuple(notes)
    first = sorted(worse, key=worse.__getitem__, reverse=True)[:3]
    notes.append(
        f"for {len(worse)} relations another baseline is right at {MUCH_WORSE:.0%} more of the "
        f"text's queries than the fixed one, most for {', '.join(first)}"
    )
    return tuple(notes)
