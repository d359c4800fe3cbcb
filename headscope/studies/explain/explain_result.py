"""Heads as rules, how much of them that explains, and what the model is worth on rules."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import astuple, dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar

import pandas as pd

from headscope.errors import RunError
from headscope.heads import head_name
from headscope.statistics.columns import EXPLAINED_COLUMNS, HEAD_COLUMNS, RULE_COLUMNS
from headscope.statistics.result import Result, by_name
from headscope.statistics.tags import UNCLASSIFIED
from headscope.studies.explain.clusters import clusters_of, proposals
from headscope.studies.explain.feature import KINDS
from headscope.studies.explain.layer_fit import Fitting, sizes_below
from headscope.studies.explain.patterns import (
    ALL,
    COLUMNS,
    LAST_STATES,
    LOSS,
    RULE,
    UNIFORM,
    Patterns,
    smaller_rule,
)
from headscope.studies.explain.surrogate import LayerSurrogates, Surrogate
from headscope.views.study import Study

if TYPE_CHECKING:
    from matplotlib.figure import Figure

BY_HEAD = ["layer", "head", "primary", "bits", "position", "explained", "ci_low", "ci_high"]
BY_HEAD += ["with_content", "features", "first", "rule"]
CURVE_COLUMNS = ["features", "explained", "recovered"]
EXPLAINED_FLOOR, LOSS_CEILING = 0.8, 0.5
"""Of a head's bits that a rule explains, and of its effect that the rule recovers."""


@dataclass(frozen=True, eq=False)
class Explanation(Study):
    """A rule for each head; `table` is `rules`, a row per head × feature.

    Bits are those between uniform attention and the head's own, KL(head ‖ uniform); the share of
    them that is explained is 1 − KL(head ‖ rule) / KL(head ‖ uniform) on documents that neither
    fitted nor chose: 1 for a rule that is the head, 0 for one that is no better than uniform.
    """

    main_table: ClassVar[str] = "rules"

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
    """The loss with heads on rules; see `headscope.studies.explain.patterns.run_losses`. None where
    nothing was run."""
    remainders: pd.DataFrame
    """The queries that each head's rule says least about: `layer`, `head`, `window`, the `text`
    with the query in [[ ]], what the head `looks_at`, what `rule_says`, and the `bits` between."""
    curve: pd.DataFrame
    """What rules of each size explain and recover, the smallest first: their `features`, at most;
    the share of bits `explained`, the mean over heads of what is judged on held-out documents; and
    the share of the loss `recovered` with all heads on such rules, NaN where they were not run."""
    clusters: pd.DataFrame
    """Heads that go by much the same rule; see `headscope.studies.explain.clusters`."""
    twin: pd.DataFrame | None
    """As `heads`, of some layers of the twin, whose attention weights are shuffled; None where it
    was not asked."""
    rank: int
    """Of the content term; 0 for none."""
    measure: str = LOSS
    """What heads on rules change: the loss of the next token; of an encoder, which predicts none,
    its last states, whose distance from the untouched ones stands in the place of a loss."""
    notes: tuple[str, ...] = ()

    @classmethod
    def of(
        cls,
        patterns: Patterns,
        fitting: Fitting,
        losses: pd.DataFrame | None,
        *,
        twin: Mapping[int, LayerSurrogates] | None,
        primary: Mapping[tuple[int, int], str],
        notes: tuple[str, ...],
    ) -> Explanation:
        """The tables of a model's rules.

        Args:
            patterns: its rules.
            fitting: how large they may be.
            losses: from `run_losses`.
            twin: the twin's rules.
            primary: the primary type of each head; empty without a run.
            notes: what is to be known of the text.
        """
        heads = _heads(patterns.rules)
        table = pd.DataFrame([row for rule in heads for row in _rows(rule)], columns=RULE_COLUMNS)
        remainders = [
            {"layer": rule.layer, "head": rule.head} | vars(row)
            for rule in heads
            for row in rule.remainders
        ]
        by_head = _table(heads, primary)
        return cls(
            patterns.model.name,
            table,
            by_head,
            _coverage(heads),
            losses,
            pd.DataFrame(remainders),
            _curve(heads, losses, fitting.features),
            clusters_of(table, by_head),
            None if twin is None else _table(_heads(twin), {}),
            fitting.rank,
            LOSS if patterns.model.attention_kind.predicts_next else LAST_STATES,
            notes,
        )

    @property
    def explained(self) -> float:
        """The mean over heads of the share that rules explain, in (−∞, 1]."""
        return float(self.heads["explained"].mean())

    @property
    def unclassified(self) -> pd.DataFrame:
        """The rows of `heads` that are unclassified, the most bits first; none without a run."""
        unclassified = self.heads[self.heads["primary"] == UNCLASSIFIED]
        return unclassified.sort_values("bits", ascending=False, ignore_index=True)

    @property
    def at_odds(self) -> pd.DataFrame:
        """Heads whose rule explains their bits but not their effect, after `each="head"`.

        `layer`, `head`, `explained` (with the content term, where there is one), `recovered` and
        its interval: what the rule says at least `EXPLAINED_FLOOR` of, while in the head's place it
        surely recovers less than `LOSS_CEILING` of what uniform attention costs there.
        """
        names = map(head_name, self.heads["layer"], self.heads["head"])
        bits = self.heads.assign(name=list(names))
        if self.rank:
            bits = bits.assign(explained=bits["with_content"])
        run = pd.DataFrame(columns=COLUMNS) if self.losses is None else self.losses
        run = run[run["how"] != UNIFORM][["replaced", "recovered", "ci_low", "ci_high"]]
        both = bits[["layer", "head", "name", "explained"]].merge(
            run, left_on="name", right_on="replaced"
        )
        contradictory = both[
            (both["explained"] >= EXPLAINED_FLOOR) & (both["ci_high"].astype(float) < LOSS_CEILING)
        ]
        return contradictory.drop(columns=["name", "replaced"]).reset_index(drop=True)

    def proposals(self) -> str:
        """Relation files for what many heads look at and no relation of the table names."""
        return proposals(self.rules)

    def put_into(self, run: Result) -> Result:
        """The run with `rules` as its accounts, and `explained` and `rule` in its heads."""
        explained = by_name(self.heads)[EXPLAINED_COLUMNS]
        heads = run.heads[HEAD_COLUMNS].join(explained)
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
        """Bars of what attention goes by, per layer and for all; see `view.coverage_figure`."""
        from headscope.studies.explain.explain_view import coverage_figure

        return coverage_figure(self)

    def __repr__(self) -> str:
        return f"<headscope rules of {self.model}: {self.explained:.0%} of the bits explained>"


def _rows(rule: Surrogate) -> Iterator[tuple[Any, ...]]:
    for rank, term in enumerate(rule.terms, start=1):
        yield (
            rule.layer,
            rule.head,
            rule.explained.value,
            rank,
            term.feature.name,
            term.kind,
            term.queries,
            term.weight,
            term.with_content,
            *astuple(term.unique),
        )


def _heads(rules: Mapping[int, LayerSurrogates]) -> list[Surrogate]:
    return [rule for layer in rules.values() for rule in layer.heads]


def _table(heads: list[Surrogate], primary: Mapping[tuple[int, int], str]) -> pd.DataFrame:
    rows = [
        (
            rule.layer,
            rule.head,
            primary.get((rule.layer, rule.head), ""),
            rule.bits,
            rule.position.value,
            *astuple(rule.explained),
            float("nan") if rule.content is None else rule.content.value,
            len(rule.terms),
            rule.terms[0].feature.name if rule.terms else "",
            rule.sentence,
        )
        for rule in heads
    ]
    return pd.DataFrame(rows, columns=BY_HEAD)


def _curve(heads: list[Surrogate], losses: pd.DataFrame | None, features: int) -> pd.DataFrame:
    """A row per size of rules."""
    recovered = {}
    if losses is not None:
        recovered = losses[losses["replaced"] == ALL].set_index("how")["recovered"].to_dict()
    rows = []
    for size in [*sizes_below(features), features]:
        shares = pd.Series([head.explained_by(size) for head in heads])
        way = RULE if size == features else smaller_rule(size)
        rows.append((size, float(shares.mean()), recovered.get(way, float("nan"))))
    return pd.DataFrame(rows, columns=CURVE_COLUMNS)


def _coverage(heads: list[Surrogate]) -> pd.DataFrame:
    """Shares weighed by bits: a head that is nearly uniform has little to explain."""
    further_kinds = sorted({kind for rule in heads for kind in rule.kinds} - {*KINDS})
    columns = [*KINDS, *further_kinds, "content", "unexplained"]
    rows = []
    layers = dict.fromkeys(rule.layer for rule in heads)
    for name, layer_heads in [
        *((str(layer), [rule for rule in heads if rule.layer == layer]) for layer in layers),
        ("all", heads),
    ]:
        bits = sum(rule.bits for rule in layer_heads) or float("nan")
        shares = {
            kind: sum(rule.bits * rule.kinds.get(kind, 0.0) for rule in layer_heads) / bits
            for kind in columns[:-2]
        }
        shares["content"] = sum(rule.bits * _added(rule) for rule in layer_heads) / bits
        shares["unexplained"] = 1 - sum(shares.values())
        rows.append({"layer": name} | shares)
    return pd.DataFrame(rows, columns=["layer", *columns])


def _added(rule: Surrogate) -> float:
    return 0.0 if rule.content is None else rule.content.value - rule.explained.value
