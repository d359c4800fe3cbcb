"""What heads do as rules, how much of them that explains, and what the model is worth on rules."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import pandas as pd

from headscope.errors import RunError
from headscope.evidence.columns import EXPLAINED_COLUMNS, HEAD_COLUMNS, RULE_COLUMNS
from headscope.evidence.result import Result, by_name
from headscope.evidence.tags import UNCLASSIFIED
from headscope.heads import head_name
from headscope.studies.explain.clusters import clusters_of
from headscope.studies.explain.curve import curve_of
from headscope.studies.explain.feature import KINDS
from headscope.studies.explain.losses import COLUMNS
from headscope.studies.explain.patterns import UNIFORM
from headscope.studies.explain.propose import proposals
from headscope.studies.explain.rules import HeadRule, LayerRules
from headscope.studies.explain.sentences import rule_sentence
from headscope.views.study import Study

if TYPE_CHECKING:
    from matplotlib.figure import Figure

BY_HEAD = [
    "layer",
    "head",
    "primary",
    "bits",
    "position",
    "explained",
    "ci_low",
    "ci_high",
    "with_content",
    "features",
    "first",
    "rule",
]


MOST, LEAST = 0.8, 0.5
"""Of a head's bits that a rule explains, and of its effect that the rule recovers."""


@dataclass(frozen=True, eq=False)
class Found:
    """What was found, before it is put into tables."""

    rules: Mapping[int, LayerRules]
    twin: Mapping[int, LayerRules] | None
    losses: pd.DataFrame | None
    primary: Mapping[tuple[int, int], str]
    """The primary type of each head; empty without a run."""


@dataclass(frozen=True, eq=False)
class Explanation(Study):
    """A rule for each head; `table` is `rules`, a row per head × feature.

    Bits are those between uniform attention and the head's own, KL(head ‖ uniform); the share of
    them that is explained is 1 − KL(head ‖ rule) / KL(head ‖ uniform) on documents that neither
    fitted nor chose: 1 for a rule that is the head, 0 for one that is no better than uniform.
    """

    model: str
    rules: pd.DataFrame
    """Each head's features, that with the most unique bits first: `weight` in logits, and the
    `unique` share of the bits that is lost without it, with its 95 % interval over documents."""
    heads: pd.DataFrame
    """Each head's `primary` type, empty without a run; its `bits` a query, the share that
    `position` alone and the whole rule have `explained`, the rule `with_content`, and the rule in
    words."""
    coverage: pd.DataFrame
    """By layer and for `all`: the share of all bits that each kind of feature explains beyond the
    simpler kinds, `content`, and what is `unexplained`; rows sum to 1."""
    losses: pd.DataFrame | None
    """The loss with heads on rules; see `headscope.studies.explain.losses.run_losses`. None where
    nothing was run."""
    remainders: pd.DataFrame
    """The queries that each head's rule says least about: `layer`, `head`, `window`, the `text`
    with the query in [[ ]], what the head `looks_at`, what `rule_says`, and the `bits` between."""
    curve: pd.DataFrame
    """What rules of fewer features explain and recover; see `headscope.studies.explain.curve`."""
    clusters: pd.DataFrame
    """Heads that go by much the same rule; see `headscope.studies.explain.clusters`."""
    twin: pd.DataFrame | None
    """As `heads`, of some layers of the twin, whose attention weights are shuffled; None where it
    was not asked."""
    rank: int
    """Of the content term; 0 for none."""
    notes: tuple[str, ...] = ()

    @classmethod
    def of(
        cls,
        model: str,
        found: Found,
        notes: tuple[str, ...],
        *,
        features: int,
        rank: int,
    ) -> Explanation:
        """The tables of a model's rules of at most so many features, with content of this rank."""
        heads = _heads(found.rules)
        table = pd.DataFrame([row for each in heads for row in _rows(each)], columns=RULE_COLUMNS)
        rest = pd.DataFrame(
            [
                {"layer": each.layer, "head": each.head} | vars(row)
                for each in heads
                for row in each.remainders
            ]
        )
        by_head = _table(heads, found.primary)
        return cls(
            model,
            table,
            by_head,
            _coverage(heads),
            found.losses,
            rest,
            curve_of(heads, found.losses, features),
            clusters_of(table, by_head),
            None if found.twin is None else _table(_heads(found.twin), {}),
            rank,
            notes,
        )

    @property
    def table(self) -> pd.DataFrame:
        """A row per head × feature with its weight and unique bits."""
        return self.rules

    @property
    def explained(self) -> float:
        """The mean over heads of the share that rules explain, in (−∞, 1]."""
        return float(self.heads["explained"].mean())

    @property
    def unclassified(self) -> pd.DataFrame:
        """The rows of `heads` that earned no tag, the most bits first; none without a run."""
        own = self.heads[self.heads["primary"] == UNCLASSIFIED]
        return own.sort_values("bits", ascending=False, ignore_index=True)

    @property
    def at_odds(self) -> pd.DataFrame:
        """Heads whose rule explains their bits but not their effect, after `each="head"`.

        `layer`, `head`, `explained` (with the content term, where there is one), `recovered` and
        its interval: what the rule says at least `MOST` of, while in the head's place it surely
        recovers less than `LEAST` of what uniform attention costs there.
        """
        bits = self.heads.assign(name=[head_name(*at) for at in _places(self.heads)])
        if self.rank:
            bits = bits.assign(explained=bits["with_content"])
        run = pd.DataFrame(columns=COLUMNS) if self.losses is None else self.losses
        run = run[run["how"] != UNIFORM][["replaced", "recovered", "ci_low", "ci_high"]]
        both = bits[["layer", "head", "name", "explained"]].merge(
            run, left_on="name", right_on="replaced"
        )
        kept = both[(both["explained"] >= MOST) & (both["ci_high"].astype(float) < LEAST)]
        return kept.drop(columns=["name", "replaced"]).reset_index(drop=True)

    def proposals(self) -> str:
        """Relation files for what many heads look at and no relation of the table names."""
        return proposals(self.rules)

    def put_into(self, run: Result) -> Result:
        """The run with `rules` as its accounts, and `explained` and `rule` in its heads."""
        own = by_name(self.heads)[EXPLAINED_COLUMNS]
        heads = run.heads[HEAD_COLUMNS].join(own)
        return replace(run, heads=heads, accounts=self.rules)

    def rule(self, head: str) -> str:
        """A head's rule in words.

        Raises:
            RunError: the model has no such head.
        """
        for row in self.heads.itertuples():
            if head_name(row.layer, row.head) == head:
                return str(row.rule)
        raise RunError(f"{self.model} has no head {head!r:.40}")

    def figure(self) -> Figure:
        """What attention goes by, a bar per layer and one for all; see `view.coverage_figure`."""
        from headscope.studies.explain.view import coverage_figure

        return coverage_figure(self)

    def __repr__(self) -> str:
        return f"<headscope rules of {self.model}: {self.explained:.0%} of the bits explained>"


def _places(heads: pd.DataFrame) -> Iterator[tuple[int, int]]:
    return zip(heads["layer"].tolist(), heads["head"].tolist(), strict=True)


def _rows(rule: HeadRule) -> Iterator[tuple[Any, ...]]:
    for place, each in enumerate(rule.terms, start=1):
        unique = each.unique
        yield (
            rule.layer,
            rule.head,
            rule.explained.value,
            place,
            each.feature.name,
            each.kind,
            each.queries,
            each.weight,
            each.with_content,
            unique.value,
            unique.low,
            unique.high,
        )


def _heads(rules: Mapping[int, LayerRules]) -> list[HeadRule]:
    return [each for layer in rules.values() for each in layer.heads]


def _table(heads: list[HeadRule], primary: Mapping[tuple[int, int], str]) -> pd.DataFrame:
    rows = [_head(each, primary.get((each.layer, each.head), "")) for each in heads]
    return pd.DataFrame(rows, columns=BY_HEAD)


def _head(rule: HeadRule, primary: str) -> tuple[Any, ...]:
    own = rule.explained
    return (
        rule.layer,
        rule.head,
        primary,
        rule.bits,
        rule.position.value,
        own.value,
        own.low,
        own.high,
        float("nan") if rule.content is None else rule.content.value,
        len(rule.terms),
        rule.terms[0].feature.name if rule.terms else "",
        rule_sentence(rule),
    )


def _coverage(heads: list[HeadRule]) -> pd.DataFrame:
    """Shares weighed by bits: a head that is nearly uniform has little to explain."""
    own = sorted({kind for each in heads for kind in each.kinds} - {*KINDS})
    columns = [*KINDS, *own, "content", "unexplained"]
    rows = []
    layers = dict.fromkeys(each.layer for each in heads)
    for name, chosen in [
        *((str(layer), [each for each in heads if each.layer == layer]) for layer in layers),
        ("all", heads),
    ]:
        bits = sum(each.bits for each in chosen) or float("nan")
        shares = {
            kind: sum(each.bits * each.kinds.get(kind, 0.0) for each in chosen) / bits
            for kind in columns[:-2]
        }
        shares["content"] = sum(each.bits * _added(each) for each in chosen) / bits
        shares["unexplained"] = 1 - sum(shares.values())
        rows.append({"layer": name} | shares)
    return pd.DataFrame(rows, columns=["layer", *columns])


def _added(rule: HeadRule) -> float:
    return 0.0 if rule.content is None else rule.content.value - rule.explained.value
