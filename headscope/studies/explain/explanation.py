"""Explain each head as a rule: a softmax over keys of a few weighted features of the text."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any, Literal, Unpack

import pandas as pd
from matplotlib.figure import Figure

from headscope.arguments import NAME, Default, either, takes, whole
from headscope.errors import ChoiceError
from headscope.heads import head_name
from headscope.measure.batches import give_back
from headscope.measure.progress import Progress, progress_bar
from headscope.measure.progress_steps import Steps
from headscope.models.batching import ALL_TOGETHER
from headscope.models.load import Model
from headscope.models.loss import TextLoss, network_of
from headscope.models.stream import LayerAttention, stream_attention, whole_patterns
from headscope.relations import relations_of
from headscope.relations.types import ALL
from headscope.runs.reopen_model import model_or_run, text_of
from headscope.runs.resolve import A_MODEL, A_RUN, Named, run_named
from headscope.statistics.columns import EXPLAINED_COLUMNS, HEAD_COLUMNS, RULE_COLUMNS
from headscope.statistics.result import Result, by_name
from headscope.studies.explain.catalogue import Catalogue
from headscope.studies.explain.feature import KINDS, TokenFacts
from headscope.studies.explain.fit import Texts
from headscope.studies.explain.judge import HeadRule, explain_layer
from headscope.studies.explain.losses import (
    POSITION,
    RULES,
    UNIFORM,
    UNTOUCHED,
    recovered,
    run_losses,
)
from headscope.studies.explain.split_windows import LENGTH, read_split_windows, resting_tokens
from headscope.views.colours import colour
from headscope.views.study import StudyResult

FEATURES, WINDOWS = 8, 56
BY_HEAD = ["layer", "head", "bits", "position", "explained", "ci_low", "ci_high", "rule"]
TYPE_OF_KIND = {"position": "positional"}
"""Head types that have another name than the kind of features."""


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class Explanation(StudyResult):
    """Rules of all heads; `table` has a row per head and feature, as in rules.csv."""

    heads: pd.DataFrame
    """A row per `layer` and `head`: its `bits` per query, the shares of them that sinks and
    distance alone (`position`) and the rule (`explained`) explain, and the `rule` as text."""
    coverage: pd.DataFrame
    """By layer and for `all`: the share of all bits that each kind of feature adds to the simpler
    kinds, and the `unexplained` share; rows sum to 1."""

    def figure(self) -> Figure:
        """The coverage as stacked bars, one per layer and one for all."""
        return coverage_figure(self.coverage)

    def put_into(self, run: Result) -> Result:
        """The run with the rules as its accounts, and `explained` and `rule` in its heads."""
        explained = by_name(self.heads)[EXPLAINED_COLUMNS]
        return replace(run, heads=run.heads[HEAD_COLUMNS].join(explained), accounts=self.table)


class ExplainOptions(Named, total=False):
    """Options of `explain`."""

    each: Annotated[
        Literal["none", "all"], NAME, Default("all", "Heads that run on their rules for the loss.")
    ]


@takes(model=either(A_RUN, A_MODEL), features=whole(1, 64), windows=whole(8))
def explain(
    model: Any,
    corpus: str | Path | Sequence[str | Path] | None = None,
    *,
    features: int = FEATURES,
    windows: int = WINDOWS,
    seed: int = 0,
    progress: Progress = True,
    **options: Unpack[ExplainOptions],
) -> Explanation:
    """Fit a rule to each head, judge it, and measure the model's loss on its rules.

    A rule is a softmax over keys of a weighted sum of named features of query and key. It is fitted
    to the head's attention by cross-entropy on half of the documents; its features are chosen on a
    quarter, and what it explains is measured on the rest: 1 − KL(head ‖ rule) / KL(head ‖ uniform),
    1 for a rule that equals the head and 0 for one that is no better than uniform attention.

    The table has a row per head × feature, the feature with the most unique bits first; its columns
    are those of rules.csv.

    Args:
        model: a run or its folder, a name as for `classify`, or a loaded model.
        corpus: files or folders of text; those of the run, or the corpus that ships, if None.
        features: largest number of features of a rule.
        windows: windows of text to fit, choose and judge on together.
        seed: seeds the choice of files.
        progress: True for a progress bar on a terminal, False for none, or a function that is
            called with the steps done and the steps in all.
        options: `each`, the heads that run on their rules for the loss: `all` together (the
            default) or `none`; `revision`, a branch, tag or commit on the hub; `device`, `cpu`,
            `cuda` or `auto`.

    Raises:
        ModelError: the model cannot be loaded, or its loss cannot be measured.
        CorpusError: the text cannot be read, or is too short.
        ChoiceError: `each` is neither `none` nor `all`.
    """
    each, revision = options.get("each", "all"), options.get("revision")
    if each not in ("none", "all"):
        raise ChoiceError("heads to run on rules", each, ("none", "all"))
    run = run_named(model, revision=revision)
    corpora = text_of(run, corpus, seed=seed)
    with progress_bar(progress, "explaining heads", unit="steps") as bar:
        device = options.get("device", "auto")
        loaded, _ = model_or_run(run or model, longest=LENGTH, revision=revision, device=device)
        has_loss = each == "all" and loaded.attention_kind.predicts_next
        if has_loss:
            network_of(loaded)  # fails before any text is read
        split = read_split_windows(loaded, corpora, windows=windows, seed=seed)
        resting = resting_tokens(loaded, split.fitting)
        relations = relations_of([ALL], loaded.attention_kind)
        catalogue = Catalogue(TokenFacts.of(split.fitting, resting), relations)
        texts = Texts.of(catalogue, (split.fitting, split.choosing, split.judging))
        steps = Steps(bar, len(loaded.attention_layers) + 4 * has_loss)
        rules = fit_rules(loaded, texts, features, resting, steps)
        losses: dict[str, TextLoss] = {}
        if has_loss:
            losses = run_losses(loaded, catalogue, rules, split.loss, steps.advance)
    heads = [rule for layer in rules.values() for rule in layer]
    by_head = pd.DataFrame(map(_head_row, heads), columns=BY_HEAD)
    mean = by_head[["position", "explained"]].mean()
    names = list(map(head_name, by_head["layer"], by_head["head"]))
    return Explanation(
        title=f"{loaded.name}: rules explain {mean['explained']:.2f} of a head's bits (sinks and "
        f"distance alone {mean['position']:.2f}), mean over {len(heads)} heads",
        table=_rules_table(heads),
        terminal_table=by_head.assign(head=names).drop(columns="layer"),
        summary=_loss_lines(losses) if losses else (),
        notes=split.notes,
        values=mean.to_dict() | {f"{way} loss": text.mean for way, text in losses.items()},
        heads=by_head,
        coverage=_coverage(heads),
    )


def fit_rules(
    model: Model,
    texts: Texts,
    features: int,
    resting: Mapping[int, frozenset[int]],
    steps: Steps,
) -> dict[int, list[HeadRule]]:
    """Fit the rules of every layer in one forward pass over all windows."""
    rows = texts.rows
    rules: dict[int, list[HeadRule]] = {}

    def explain_heads(attention: LayerAttention) -> None:
        layer = attention.layer
        pattern = next(attention.probabilities()).cpu()
        of_rows = pattern[rows.window, :, rows.query].permute(1, 0, 2).float()
        of_rows = of_rows / of_rows.sum(-1, keepdim=True)
        tokens = resting.get(layer, frozenset())
        rules[layer] = explain_layer(texts, layer, of_rows, features=features, resting=tokens)
        give_back()
        steps.advance()

    stream_attention(model, rows.windows, whole_patterns, explain_heads, batch_tokens=ALL_TOGETHER)
    return rules


def _rules_table(heads: Sequence[HeadRule]) -> pd.DataFrame:
    rows = [
        (rule.layer, rule.head, rule.explained.value, rank, term.feature.name, term.kind,
         term.queries, term.weight, *term.unique)
        for rule in heads
        for rank, term in enumerate(rule.terms, start=1)
    ]  # fmt: skip
    return pd.DataFrame(rows, columns=RULE_COLUMNS)


def _head_row(rule: HeadRule) -> tuple[Any, ...]:
    shares = rule.position.value, *rule.explained
    return rule.layer, rule.head, rule.bits, *shares, rule.sentence


def _coverage(heads: Sequence[HeadRule]) -> pd.DataFrame:
    """Shares of each kind, weighted by bits: a head that is nearly uniform has few."""
    kinds = [*KINDS, *sorted({kind for rule in heads for kind in rule.kinds} - {*KINDS})]
    rows = []
    layers = dict.fromkeys(rule.layer for rule in heads)
    for name, members in [
        *((str(layer), [rule for rule in heads if rule.layer == layer]) for layer in layers),
        ("all", heads),
    ]:
        bits = sum(rule.bits for rule in members) or float("nan")
        shares = {
            kind: sum(rule.bits * rule.kinds.get(kind, 0.0) for rule in members) / bits
            for kind in kinds
        }
        rows.append({"layer": name} | shares | {"unexplained": 1 - sum(shares.values())})
    return pd.DataFrame(rows)


def _loss_lines(losses: Mapping[str, TextLoss]) -> list[str]:
    lines = [
        f"loss in nats per token: {losses[UNTOUCHED].mean:.4f} untouched, "
        f"{losses[UNIFORM].mean:.4f} with uniform attention in all heads"
    ]
    for way, name in ((POSITION, "sinks and distance"), (RULES, "their rules")):
        share = recovered(losses, way)
        lines.append(
            f"all heads on {name}: loss {losses[way].mean:.4f}, {share.value:.3f} of the "
            f"difference recovered (95 % interval {share.low:.2f} to {share.high:.2f})"
        )
    return lines


def coverage_figure(rows: pd.DataFrame) -> Figure:
    """Stacked bars of the bits that each kind of feature explains, per layer and for all."""
    figure = Figure(figsize=(2.8 + 0.26 * len(rows), 3.6), layout="constrained")
    axes = figure.subplots()
    position = [i + (name == "all") * 0.8 for i, name in enumerate(rows["layer"])]
    below = rows["sink"] * 0.0
    for kind in rows.columns[1:]:
        share = rows[kind].clip(lower=0)
        fill = "white" if kind == "unexplained" else colour(TYPE_OF_KIND.get(kind, kind))
        axes.bar(position, share, bottom=below, color=fill, edgecolor="0.4", lw=0.3, label=kind)
        below = below + share
    axes.set_xticks(position, rows["layer"], fontsize=7)
    axes.set_xlabel("layer")
    axes.set_ylabel("share of the bits above uniform attention")
    axes.legend(fontsize=7, loc="center left", bbox_to_anchor=(1.0, 0.5))
    return figure
