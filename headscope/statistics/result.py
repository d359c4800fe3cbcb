"""A run's plain data, evidence and heads as DataFrames, and its record as in `run.json`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any

import pandas as pd
from jaxtyping import Float
from numpy import ndarray

from headscope.heads import head_name
from headscope.measure.example import Example, Picture
from headscope.measure.tally import Tally
from headscope.relations.relation import Threshold
from headscope.statistics.columns import PRELIMINARY
from headscope.statistics.tags import with_thresholds


@dataclass(frozen=True, eq=False)
class Result:
    """Findings about each head of a model, and how sure they are.

    `heads` has a row per head and `evidence` a row per head × relation; their columns are
    described in `headscope.measure.profile.describe`, `headscope.statistics.head_table` and
    `headscope.statistics.estimates.weigh`.
    """

    heads: pd.DataFrame
    """Heads by name, such as `L5H1`."""
    evidence: pd.DataFrame
    thresholds: Mapping[str, Threshold]
    info: dict[str, Any] = field(default_factory=dict)
    """Content of `run.json`, which suffices to repeat the run."""
    tally: Tally | None = None
    """The sums; not read back when a run is loaded for reading."""
    examples: Sequence[Example] = ()
    """Queries of the tagged heads with their patterns."""
    causes: pd.DataFrame | None = None
    """Effects of ablating heads; see `headscope.studies.ablate`. None before `ablate`."""
    feature_models: pd.DataFrame | None = None
    """Feature models, a row per head × feature. None before `explain`; after it `heads` has
    the columns `explained` and `feature_model`."""
    effects: pd.DataFrame | None = None
    """Direct effects of heads, a row per head × effect; see `headscope.statistics.estimates.weigh`.
    None if it was not measured."""
    means: Float[ndarray, "layer head query key"] | None = None
    """The heads' mean patterns on the first tokens of texts; see
    `headscope.measure.mean_pattern.mean_patterns`. None if no text was read."""
    source: Any = None
    """The model in memory that the run was made from; kept while the run is, and never written."""
    pictures: Mapping[tuple[int, int], Picture] = field(default_factory=dict)
    """Mean patterns by layer and head, of heads whose primary relation is read on another
    stimulus than text, on which they are drawn."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "heads", by_name(self.heads))

    @property
    def evidence_with_thresholds(self) -> pd.DataFrame:
        """The evidence with each relation's thresholds, by which it is judged and put into words.

        Made at each access, as the rows of a large model take as much memory again.
        """
        return with_thresholds(self.evidence, self.thresholds)

    @property
    def name(self) -> str:
        """The run's name of its model."""
        return str(self.info.get("model", {}).get("name", "?"))

    @property
    def preliminary(self) -> str:
        """Sentence on a quick run, whose verdicts are preliminary; empty for any other run."""
        added = self.info.get("preliminary")
        if not added:
            return ""
        return f"{PRELIMINARY} (--quick): the full run would add {'; '.join(added)}"


def layers_of(run: Result) -> list[int]:
    """The layers of a run by their numbers in the model: of a hybrid those with heads, in order."""
    return [int(layer) for layer in sorted(run.heads["layer"].unique())]


def by_name(rows: pd.DataFrame) -> pd.DataFrame:
    """Rows with a `layer` and a `head` each, indexed by the names of their heads.

    >>> by_name(pd.DataFrame({"layer": [5], "head": [1]})).index.tolist()
    ['L5H1']
    """
    names = [head_name(row.layer, row.head) for row in rows.itertuples()]
    return rows.set_index(pd.Index(names, name="name"))


@dataclass(frozen=True, kw_only=True)
class RunInfo:
    """The content of `run.json` but for the thresholds of relations and the checksums of files.

    A step that knows more makes a new record with `dataclasses.replace`. What is None is not said.
    """

    model: Mapping[str, Any]
    types: Sequence[str] | None = None
    """Head types that were scored."""
    bos: str | None = None
    """The text of the beginning-of-text token."""
    chat: Mapping[str, str] | None = None
    """The chat template around each document: its text `before` and `after` the message."""
    corpora: Mapping[str, Any] | None = None
    """Corpora as they were named (`asked`), and the sha256 of each file that was read (`files`)."""
    language: Mapping[str, Any] | None = None
    """Whether the text is known to be English; see `headscope.corpus.language`."""
    places: Mapping[str, Any] | None = None
    """Paths of the model and the corpora; see `headscope.runs.recorded_paths`."""
    engine: str | None = None
    precision: Mapping[str, Any] | None = None
    """The choice of `--dtype auto`; see `headscope.measure.precision_check`."""
    command: str | None = None
    """The command that repeats the run."""
    notes: Sequence[str] = ()
    settings: Mapping[str, Any] | None = None
    baselines: Mapping[str, Mapping[str, Any]] | None = None
    """Baselines by relation; see `headscope.measure.fit_baselines`."""
    parts: Sequence[str] | None = None
    """Names of the sums beside those of the relations."""
    text_loss: Mapping[str, Any] | None = None
    """The model's loss on the run's text; see `headscope.measure.loss_check`."""
    text_read: Mapping[str, Any] | None = None
    """Amounts of text read; see `headscope.statistics.early_stopping`."""
    decidable: Mapping[str, int] | None = None
    """Number of `relations` that the text can decide, `of` those that give tags."""
    effects: Mapping[str, Mapping[str, Any]] | None = None
    """Effects on logits that were measured, each with its thresholds."""
    preliminary: Sequence[str] | None = None
    """Additions of a full run to a quick run, whose verdicts are preliminary."""
    thresholds: Mapping[str, Any] | None = None
    provenance: Mapping[str, Any] | None = None
    """Versions of packages, the time, the tokens that were read, and the seconds that it took."""

    @property
    def interim_tests(self) -> int:
        """Rounds after which the run tested if it could stop: `looks` of `run.json`.

        Q values are multiplied by this number.
        """
        return int((self.text_read or {}).get("looks", 1))

    def with_notes(self, *notes: str) -> RunInfo:
        """The record with further notes for the reader of the results."""
        return replace(self, notes=[*self.notes, *notes])

    def to_json(self) -> dict[str, Any]:
        """The content of `run.json`.

        >>> RunInfo(model={"name": "mini"}, engine="fused").with_notes("short text").to_json()
        {'model': {'name': 'mini'}, 'engine': 'fused', 'notes': ['short text']}
        """
        content: dict[str, Any] = {}
        for entry in fields(self):
            value = getattr(self, entry.name)
            if value is not None:
                content[entry.name] = value
        content["notes"] = list(self.notes)
        return content
