"""Labels of heads from other work, judged by a run beside the same labels at random heads."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
import pandas as pd
from jaxtyping import Bool, Int
from numpy import ndarray
from pydantic import Field, PlainValidator

from headscope.errors import (
    HeadscopeError,
    InvalidRow,
    RunError,
    nearest_name,
)
from headscope.options import Seed, check_path
from headscope.relations.effects import EFFECTS, WRITES
from headscope.relations.label_names import LabelMeaning, label_meanings, normalised
from headscope.resolve import RunName, the_run
from headscope.runs.recorded_paths import name_of
from headscope.statistics.columns import EFFECT_NAMES, rows_of_head
from headscope.statistics.condition import Row
from headscope.statistics.conditions import strictest_control
from headscope.statistics.general_labels import distinct_tags, tag_names
from headscope.statistics.in_words import direct_effects_in_words, findings, label_in_words
from headscope.statistics.reasons import head_in
from headscope.statistics.result import Result, by_name
from headscope.statistics.tags import (
    NO,
    OPEN,
    TAGGED,
    evidence_order,
    verdicts,
    with_thresholds,
)
from headscope.studies.study import Study, study, table_columns
from headscope.user_tables import read_csv, table_of_frame
from headscope.views.study_result import StudyResult
from headscope.views.terminal_tables import frame_table

if TYPE_CHECKING:
    from rich.console import RenderableType

FILE_COLUMNS = ("head", "label")
NOT_MEASURED = "not measured"
"""Verdict on a label for which the run has no evidence."""
SHUFFLES = 1_000
"""Random assignments of the labels to heads."""
ALL_LABELS = "all labels"

STUDY = Study(
    rows="label of a head",
    columns=table_columns("""
        layer, head | count, ≥ 0 | layer of the head, and its number there
        label | text | the label as it was given
        relation | `type/relation` | the relation or direct effect that decides; empty if the run
            has none
        verdict | as in `evidence.csv`, or `not measured` | verdict on this relation
        mass | [0, 1] | mean attention on the targets; empty for a direct effect
        control | ≥ 0 | the largest of the control masses
        hit_rate | [0, 1] | share of queries whose strongest key is a target
        baseline | a baseline's name | the best baseline; empty if none is to be beaten
        baseline_rate | [0, 1] | share of queries that it gets right
        share_of_heads | [0, 1] | share of all heads of the run for which the label is true
        tags | `type/relation`, joined by `;` | the head's tags, the primary one first
        sentence | text | finding of `headscope why` on this relation, or what would test the label
    """),
    bad_call={"labels": 3},
)


def check_labels(value: Any) -> Any:
    """A table of labels, or the path of one.

    Raises:
        ValueError: neither; the message states the allowed values.
    """
    return value if isinstance(value, pd.DataFrame) else check_path(value)


LabelSource = Annotated[
    Any,
    PlainValidator(check_labels),
    Field(
        description="CSV of labels (head,label), such as L5H1,induction; in Python also a "
        "DataFrame."
    ),
]


@study(STUDY)
def judge_labels(run: RunName, labels: LabelSource, *, seed: Seed = 0) -> JudgedLabels:
    """Judge labels of heads from other work by a run, beside the same labels at random heads.

    A label is a head type, a relation, or a name that `docs/reference/glossary.md` lists. It is
    true of a head that one of its relations or direct effects tags. Labels of one head that mean
    the same, such as `induction` and `Induction head`, are judged once.

    `summary` counts each label's verdicts, and those after the heads of the file were replaced by
    random heads of the run, and by random heads of the same layers, 1,000 times each.

    Raises:
        RunError: rows are invalid; the message lists them. Or there is no run.

    >>> labels = pd.DataFrame({"head": ["L4H3", "L0H0"], "label": "previous token"})
    >>> judged = judge_labels("atlas:mini", labels)
    >>> judged.table["verdict"].to_dict()
    {'L4H3': 'tagged', 'L0H0': 'no'}
    """
    run = the_run(run)
    judge = LabelJudge(run)
    rows = judge.read(labels)
    table = pd.DataFrame([judge.judge(row) for row in rows], columns=STUDY.names)
    summary = _summary(table, rows, judge, seed)
    return JudgedLabels(
        title=f"{name_of(run.name)}: {len(table)} labels of heads, judged",
        table=by_name(table),
        terminal_table=table.drop(columns=["baseline", "tags", "sentence"]),
        summary=summary,
        values={"summary": summary.astype(object).where(summary.notna(), None).to_dict("records")},
        notes=[run.preliminary] if run.preliminary else [],
    )


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class JudgedLabels(StudyResult):
    """Verdicts on labels, and how many labels are true of random heads."""

    summary: pd.DataFrame
    """A row per label, then one for all labels.

    - `heads`: heads with the label.
    - `tagged`, `open`, `no`, `not_measured`: numbers of verdicts; `open` counts `inconclusive` and
      `not identifiable`.
    - `shuffled`: mean number of tagged heads if the heads of the file are replaced by random heads.
    - `p_value`: share of the shuffles, with the file counted as one, in which as many are tagged.
    - `shuffled_in_layer`, `p_value_in_layer`: the same with random heads of the same layers.
    """

    def lines(self) -> RenderableType:
        """Verdicts, sentences and summary for the terminal."""
        from rich.console import Group
        from rich.text import Text

        parts = [super().lines(), Text()]
        for name, row in self.table.iterrows():
            parts.append(Text(f"{name}, {row['label']}: {row['sentence']}"))
        heading = (
            "Labels at these heads, at random heads (shuffled), and at those of the same layers:"
        )
        parts += [Text(), Text(heading, style="bold"), frame_table(self.summary)]
        return Group(*parts)


@dataclass(frozen=True)
class LabelledHead:
    """A label of a head."""

    layer: int
    head: int
    label: str
    meaning: LabelMeaning


class LabelJudge:
    """The evidence of a run, by which labels are judged."""

    def __init__(self, run: Result) -> None:
        """Prepare the evidence of a run."""
        self.run = run
        self.evidence = run.evidence_with_thresholds
        self.meanings = label_meanings(run.thresholds)
        self.effects = _effects(run)
        rows = run.heads[["layer", "head"]].itertuples(index=False, name=None)
        self.heads = [(int(layer), int(head)) for layer, head in rows]
        self.measured = {*self.evidence["id"], *self.effects["id"]}

    def read(self, labels: Any) -> list[LabelledHead]:
        """The rows of a table or of a CSV file; labels of a head that mean the same once.

        Raises:
            RunError: the table has invalid rows, or has no row.
        """
        if isinstance(labels, pd.DataFrame):
            table = table_of_frame(labels, "labels", RunError)
        else:
            table = read_csv(labels, RunError, "a CSV of labels: head,label")
        table.check_columns(RunError, FILE_COLUMNS)
        # a label that the run does not know is listed with the nearest name
        labelled_heads: dict[tuple[object, ...], LabelledHead] = {}
        invalid = []
        for number, row in table.rows.items():
            label = str(row["label"]).strip()
            meaning = self.meanings.get(normalised(label))
            if meaning is None:
                suggestion = nearest_name(normalised(label), self.meanings)
                invalid.append(InvalidRow(number, f"no label named {label!r:.80}{suggestion}"))
                continue
            try:
                layer, head = head_in(self.run, str(row["head"]).strip())
            except HeadscopeError as error:
                invalid.append(InvalidRow(number, str(error)))
                continue
            # without relations labels are the same if their names are
            means = frozenset(meaning.relations) or normalised(label)
            labelled = LabelledHead(layer, head, label, meaning)
            labelled_heads.setdefault((layer, head, means), labelled)
        table.check(RunError, invalid)
        return list(labelled_heads.values())

    def judge(self, labelled: LabelledHead) -> dict[str, Any]:
        """The row of a label in the table of `judge_labels`."""
        layer, head = labelled.layer, labelled.head
        # the head's strongest evidence comes first
        relations = labelled.meaning.relations
        of_head = rows_of_head(self.evidence, layer, head)
        of_head = of_head.loc[evidence_order(of_head)]
        tags = list(dict.fromkeys(tag_names(distinct_tags(of_head))))
        row = {
            "layer": layer,
            "head": head,
            "label": labelled.label,
            "relation": "",
            "verdict": NOT_MEASURED,
            "baseline": "",
            "share_of_heads": np.nan,
            "tags": ";".join(tags),
        }
        # evidence of the label: attention, or what the head writes
        attention = of_head[of_head["id"].isin(relations)].head(1)
        effects = rows_of_head(self.effects, layer, head)
        effects = effects[effects["id"].isin(relations)].head(1)
        if not self.measured.isdisjoint(relations):
            row["share_of_heads"] = float(self.is_true(labelled.meaning).mean())
        has_tag = bool(attention["tagged"].any())
        has_effect_alone = bool(effects["tagged"].any()) and not has_tag
        if len(attention) and not has_effect_alone:
            return row | self._attention_columns(attention, tags)
        if len(effects):
            return row | self._effect_columns(effects)
        # the run has no evidence for this label
        types = dict.fromkeys(relation.partition("/")[0] for relation in labelled.meaning.relations)
        types.pop(WRITES, None)
        # the sentence names the command that would measure it
        options = f"--types {','.join(types)}" if types else "--direct-effects"
        if labelled.meaning.test:
            sentence = (
                f"`classify` measures nothing for this label. A test: {labelled.meaning.test}."
            )
        else:
            sentence = (
                f"This run has not measured {' or '.join(labelled.meaning.relations)}: headscope "
                f"classify {name_of(self.run.name)} {options} does."
            )
        return row | {"sentence": sentence}

    def _attention_columns(self, rows: pd.DataFrame, tags: Sequence[str]) -> dict[str, Any]:
        """Columns of a label that a relation of attention decides."""
        row: Row = rows.to_dict("records")[0]
        (finding,) = findings(rows, self.run.thresholds)
        control, _ = strictest_control(row)
        sentence = label_in_words(row, finding, tags)
        columns = {name: row[name] for name in ("verdict", "mass", "hit_rate")}
        columns |= {"baseline": row["baseline"], "baseline_rate": row["baseline_rate"]}
        return columns | {"relation": row["id"], "control": control, "sentence": sentence}

    def _effect_columns(self, rows: pd.DataFrame) -> dict[str, Any]:
        """Columns of a label that a direct effect decides."""
        row: Row = rows.to_dict("records")[0]
        (line,) = direct_effects_in_words(rows, self.run.info["effects"])
        return {"relation": row["id"], "verdict": row["verdict"], "sentence": f"{line}."}

    def is_true(self, meaning: LabelMeaning) -> Bool[ndarray, " head"]:
        """True for each head of the run for which a label is true."""
        tagged: set[tuple[int, int]] = set()
        for table in (self.evidence, self.effects):
            is_tag = table["tagged"].astype(bool) & table["id"].isin(meaning.relations)
            tagged.update(table.loc[is_tag, ["layer", "head"]].itertuples(index=False, name=None))
        return np.array([head in tagged for head in self.heads])


def _effects(run: Result) -> pd.DataFrame:
    """The direct effects of a run, with full names as `id` and verdicts.

    Without rows if the run has not measured them.
    """
    if run.effects is None:
        return pd.DataFrame(columns=["layer", "head", "id", "tagged"])
    full_names = f"{WRITES}/" + run.effects["type"] + "/" + run.effects["effect"]
    effects = run.effects.assign(id=full_names)
    evidence_names = {column: name for name, column in EFFECT_NAMES.items()}
    evidence = effects.rename(columns=evidence_names)
    thresholds = {effect.id: effect.thresholds for effect in EFFECTS}
    judged = verdicts(with_thresholds(evidence, thresholds))
    return effects.assign(verdict=judged.to_numpy())


def _summary(
    table: pd.DataFrame, rows: Sequence[LabelledHead], judge: LabelJudge, seed: int
) -> pd.DataFrame:
    """Verdicts of each label and of all, beside those of the same labels at random heads."""
    # labels that mean the same are one group, under the first spelling
    spellings: dict[str, str] = {}
    for row in rows:
        spellings.setdefault(normalised(row.label), row.label)
    names = table["label"].map(normalised)
    groups = {spelling: (names == name).to_numpy() for name, spelling in spellings.items()}
    if len(groups) > 1:
        groups[ALL_LABELS] = np.ones(len(table), bool)
    # the same labels at random heads, anywhere or in the same layer
    anywhere = _shuffled(rows, judge, seed, by_layer=False)
    in_layer = _shuffled(rows, judge, seed, by_layer=True)
    lines = []
    for label, members in groups.items():
        counts = _counts(table.loc[members, "verdict"])
        is_measured = counts["not_measured"] < counts["heads"]
        tagged = counts["tagged"] if is_measured else None
        lines.append(
            {"label": label, **counts}
            | _chance("shuffled", "p_value", anywhere[:, members], tagged)
            | _chance("shuffled_in_layer", "p_value_in_layer", in_layer[:, members], tagged)
        )
    return pd.DataFrame(lines)


def _counts(verdicts_of_label: pd.Series) -> dict[str, int]:
    """Numbers of heads with a label, and of verdicts on them."""
    return {
        "heads": len(verdicts_of_label),
        "tagged": int((verdicts_of_label == TAGGED).sum()),
        "open": int(verdicts_of_label.isin(OPEN).sum()),
        "no": int((verdicts_of_label == NO).sum()),
        "not_measured": int((verdicts_of_label == NOT_MEASURED).sum()),
    }


def _chance(
    mean: str, p_value: str, shuffled: Bool[ndarray, "shuffle row"], tagged: int | None
) -> dict[str, float]:
    """The mean number of true labels at random heads, and the share of shuffles with as many.

    Both are NaN if the label is not measured.
    """
    if tagged is None:
        return {mean: np.nan, p_value: np.nan}
    counts = shuffled.sum(axis=1)
    as_many = int((counts >= tagged).sum())
    return {mean: float(counts.mean()), p_value: (1 + as_many) / (1 + SHUFFLES)}


def _shuffled(
    rows: Sequence[LabelledHead], judge: LabelJudge, seed: int, *, by_layer: bool
) -> Bool[ndarray, "shuffle row"]:
    """True for labels that hold after the heads of the file were replaced by random heads.

    Labels of one head stay together, and two heads are never replaced by the same one. With
    `by_layer` a head is replaced by a head of its layer.
    """
    # whether each label would hold at each head
    number = {head: i for i, head in enumerate(judge.heads)}
    heads = len(judge.heads)
    places: Int[ndarray, " row"] = np.array([number[row.layer, row.head] for row in rows])
    truth = np.stack([judge.is_true(row.meaning) for row in rows])
    layers = np.zeros(heads)
    if by_layer:
        layers = np.array([layer for layer, _ in judge.heads])
    # a random order of heads, within layers if these are kept
    in_order = np.argsort(layers, kind="stable")
    every_row = np.arange(len(rows))
    rng = np.random.default_rng(seed)
    shuffles = []
    for _ in range(SHUFFLES):
        random_heads = np.empty(heads, int)
        random_heads[in_order] = np.lexsort((rng.random(heads), layers))
        shuffles.append(truth[every_row, random_heads[places]])
    return np.stack(shuffles)
