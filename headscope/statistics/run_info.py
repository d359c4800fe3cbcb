"""The record of a run: its model, text and settings, and how it was judged, as in `run.json`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any


@dataclass(frozen=True, kw_only=True)
class RunInfo:
    """The content of `run.json` but for the rules of relations and the checksums of files.

    A step that knows more makes a new record with `dataclasses.replace`. What is None is not said.
    """

    model: Mapping[str, Any]
    types: Sequence[str] | None = None
    """Head types that were scored."""
    bos: str | None = None
    """The text of the beginning-of-text token."""
    corpora: Mapping[str, Any] | None = None
    """Corpora as they were named (`asked`), and the sha256 of each file that was read (`files`)."""
    places: Mapping[str, Any] | None = None
    """Paths of the model, its adapter and the corpora; see `headscope.runs.relative_paths`."""
    engine: str | None = None
    precision: Mapping[str, Any] | None = None
    """The choice of `--dtype auto`; see `headscope.measure.precision_check`."""
    command: str | None = None
    """The command that repeats the run."""
    notes: Sequence[str] = ()
    settings: Mapping[str, Any] | None = None
    simple_rules: Mapping[str, Mapping[str, Any]] | None = None
    """Baseline heuristics by relation; see `headscope.measure.fit_baselines`."""
    parts: Sequence[str] | None = None
    """Names of the sums beside those of the relations."""
    text_loss: Mapping[str, Any] | None = None
    """The model's loss on the run's text; see `headscope.measure.loss_check`."""
    text_read: Mapping[str, Any] | None = None
    """How much was read; see `headscope.statistics.early_stopping`."""
    decidable: Mapping[str, int] | None = None
    """Number of `relations` that the text can decide, `of` those that give tags."""
    effects: Mapping[str, Mapping[str, Any]] | None = None
    """Effects on logits that were measured, each with its rule."""
    preliminary: Sequence[str] | None = None
    """Of a quick run, whose verdicts are preliminary, what a full run would add."""
    thresholds: Mapping[str, Any] | None = None
    reliability: Mapping[str, Any] | None = None
    """Agreement of two halves of the corpus, by relation."""
    provenance: Mapping[str, Any] | None = None
    """Versions of packages, the time, the tokens that were read, and the seconds that it took."""

    @classmethod
    def from_json(cls, content: Mapping[str, Any]) -> RunInfo:
        """The record of a run that was read back; unknown keys are left out."""
        names = {field.name for field in fields(cls)}
        return cls(**{name: value for name, value in content.items() if name in names})

    @property
    def interim_tests(self) -> int:
        """Times that the sums were looked at, by which q values are corrected."""
        return int((self.text_read or {}).get("looks", 1))

    def with_notes(self, *notes: str) -> RunInfo:
        """The record with further notes for the reader of the results."""
        return replace(self, notes=[*self.notes, *notes])

    def to_json(self) -> dict[str, Any]:
        """The content of `run.json`.

        >>> RunInfo(model={"name": "mini"}, engine="fused").with_notes("short text").to_json()
        {'model': {'name': 'mini'}, 'engine': 'fused', 'notes': ['short text']}
        """
        content = {field.name: getattr(self, field.name) for field in fields(self)}
        known = {name: value for name, value in content.items() if value is not None}
        return known | {"notes": list(self.notes)}
