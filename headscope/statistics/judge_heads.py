"""Judging: from the sums of a run to evidence, tags and heads.

`weigh_run` makes the evidence of a tally (`headscope.statistics.estimates.weigh`) and its verdicts
(`headscope.statistics.tags.verdicts`). `WeighedRun.surrogate_requests` are the tags that need a
surrogate; `WeighedRun.judge` adds their scores, gives the verdicts again, and makes the table of
heads (`headscope.statistics.tags.head_table`).
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from importlib.metadata import version
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from headscope.errors import CorpusError
from headscope.measure.mean_pattern import mean_patterns, stimulus_pictures
from headscope.measure.profile import describe
from headscope.measure.surrogate_rows import SurrogateRequest
from headscope.measure.tally import BLOCKS, MIN_BLOCKS, Tally, pictured
from headscope.relations.effects import Effect, effects_among, of_attention
from headscope.relations.relation import (
    MIN_QUERIES,
    PARTIAL_SINK,
    Checked,
    Relation,
    Threshold,
)
from headscope.statistics.cautions import FEWEST_DOCUMENTS, is_preliminary, types_of_heads
from headscope.statistics.columns import (
    EFFECT_COLUMNS,
    EFFECT_NAMES,
    EVIDENCE_COLUMNS,
    PRELIMINARY,
    SURROGATE_COLUMNS,
    TEXT_COLUMNS,
    strongest_effects_first,
)
from headscope.statistics.conditions import CONDITIONS, LEAST_TOP, MAX_Q, MIN_HARD
from headscope.statistics.estimates import NO_FACTS, Facts, weigh
from headscope.statistics.general_labels import TIMES_LABEL, general_labels
from headscope.statistics.ratio import LEVEL, RESAMPLES
from headscope.statistics.replication import replicates
from headscope.statistics.result import Result, RunInfo
from headscope.statistics.surrogate import SurrogateScore
from headscope.statistics.tags import (
    TAGGED,
    decidable_relations,
    head_table,
    verdicts,
    with_thresholds,
)
from headscope.statistics.wording import TIMES_CONTROL
from headscope.stimuli.natural_text import TEXT

THRESHOLDS: Mapping[str, Any] = {
    "conditions": [condition.name for condition in CONDITIONS],
    "min_queries": MIN_QUERIES,
    "max_q_value": MAX_Q,
    "min_hard_queries": MIN_HARD,
    "least_top_share": LEAST_TOP,
    "times_control": TIMES_CONTROL,
    "times_label": TIMES_LABEL,
    "partial_sink": PARTIAL_SINK,
    "blocks": BLOCKS,
    "min_blocks": MIN_BLOCKS,
    "interval": LEVEL,
    "resamples": RESAMPLES,
}
"""Thresholds that all tags share, as `run.json` states them."""
NO_SCORES: Mapping[SurrogateRequest, SurrogateScore] = MappingProxyType({})
_HEAD = ["layer", "head"]
_PACKAGES = ("headscope", "torch", "transformers", "transformer-lens", "numpy", "pandas", "scipy")


class Judging(NamedTuple):
    """Sums, and what relations are judged by."""

    tally: Tally
    seed: int
    facts: Facts = NO_FACTS
    """Rates of baselines on the text."""
    interim_tests: int = 1
    """Rounds after which the run tested if it could stop."""

    def relations(self, relations: Sequence[Relation]) -> pd.DataFrame:
        """Evidence on relations with `verdict`, `tagged` and `replicates`."""
        evidence = weigh(self.tally, relations, seed=self.seed, facts=self.facts)
        if evidence.empty:
            return evidence
        # Bonferroni's correction: a run that tested several times had as many chances
        evidence["q_value"] = np.minimum(1.0, evidence["q_value"] * self.interim_tests)
        return _with_verdicts(evidence, relations)

    def effects(self, effects: Sequence[Effect]) -> pd.DataFrame:
        """The table of effects, a row per head × effect that had a query."""
        evidence = self.relations(effects)
        return evidence.rename(columns=EFFECT_NAMES)[EFFECT_COLUMNS]


@dataclass(frozen=True, eq=False)
class WeighedRun:
    """The evidence of a run before the surrogates of its heads are known."""

    judging: Judging
    relations: Sequence[Relation]
    """Relations and effects, without the parts that are summed beside them."""
    info: RunInfo
    evidence: pd.DataFrame

    @property
    def surrogate_requests(self) -> list[SurrogateRequest]:
        """Heads whose tags are compared with a surrogate, relation by relation."""
        number = {relation.id: i for i, relation in enumerate(self.relations)}
        requests = []
        for row in self.evidence[self._is_requested].itertuples():
            relation = number[row.id]
            requests.append(SurrogateRequest(int(row.layer), int(row.head), relation))
        return requests

    @property
    def _is_requested(self) -> pd.Series:
        names = [relation.id for relation in self.relations if relation.thresholds.beats_surrogate]
        return self.evidence["tagged"] & self.evidence["id"].isin(names)

    def judge(self, surrogates: Mapping[SurrogateRequest, SurrogateScore] = NO_SCORES) -> Result:
        """Give the verdicts again with surrogates, tag the heads, and note what was decided how.

        Args:
            surrogates: the scores of `surrogate_requests`; empty for a run without surrogates.
        """
        attention = of_attention(self.relations)
        thresholds = {relation.id: relation.thresholds for relation in attention}
        evidence = self._with_scores(surrogates)
        if surrogates:
            evidence = _with_verdicts(evidence, attention)
        evidence["general"] = general_labels(evidence, attention, self.judging.tally)
        return _result(self, evidence, attention, thresholds)

    def _with_scores(self, surrogates: Mapping[SurrogateRequest, SurrogateScore]) -> pd.DataFrame:
        """The evidence with `SURROGATE_COLUMNS`, NaN in rows without a surrogate."""
        columns_by_row = {}
        for request, score in surrogates.items():
            relation = self.relations[request.relation]
            columns_by_row[request.layer, request.head, relation.id] = score.columns()
        rows = zip(self.evidence["layer"], self.evidence["head"], self.evidence["id"], strict=True)
        scores = [columns_by_row.get(row, {}) for row in rows]
        table = pd.DataFrame(scores, self.evidence.index, SURROGATE_COLUMNS, dtype=float)
        return self.evidence.assign(**{name: table[name] for name in SURROGATE_COLUMNS})


def _with_verdicts(evidence: pd.DataFrame, relations: Sequence[Relation]) -> pd.DataFrame:
    """The evidence with the columns `verdict`, `tagged`, `replicates` and `text_verdict`."""
    thresholds = {relation.id: relation.thresholds for relation in relations}
    verdict = verdicts(evidence, thresholds).to_numpy()
    probability = replicates(with_thresholds(evidence, thresholds))
    # effects have no hard queries
    of_text_alone = evidence
    if all(name in evidence for name in TEXT_COLUMNS.values()):
        of_text = {column: evidence[name] for column, name in TEXT_COLUMNS.items()}
        of_text_alone = evidence.assign(**of_text)
    text_verdict = verdicts(of_text_alone, thresholds).to_numpy()
    return evidence.assign(
        verdict=verdict,
        tagged=verdict == TAGGED,
        replicates=probability,
        text_verdict=text_verdict,
    )


def weigh_run(
    tally: Tally,
    relations: Sequence[Relation],
    *,
    seed: int,
    info: RunInfo,
) -> WeighedRun:
    """Weigh a tally: the evidence, with the verdicts before surrogates.

    Raises:
        CorpusError: no relation found a query.
    """
    facts: Facts = info.baselines or {}
    judging = Judging(tally, seed, facts, info.interim_tests)
    evidence = judging.relations(of_attention(relations))
    notes = _few_queries(relations, evidence)
    if evidence.empty:
        reason = "the corpus has no annotation that the chosen types need"
        raise CorpusError(f"no relation found a query: {notes[0] if notes else reason}")
    return WeighedRun(
        judging=judging,
        relations=relations,
        info=info.with_notes(*notes),
        evidence=evidence,
    )


def _few_queries(relations: Sequence[Relation], evidence: pd.DataFrame) -> list[str]:
    """A note for each relation of a user with too few queries, perhaps by swapped arguments."""
    queries: dict[str, int] = {}
    if not evidence.empty:
        queries = dict(zip(evidence["id"], evidence["n"], strict=True))
    notes = []
    for relation in relations:
        count = queries.get(relation.id, 0)
        if isinstance(relation.pairs, Checked) and count < MIN_QUERIES:
            notes.append(
                f"{relation.id} has {count} queries, and a tag needs {MIN_QUERIES}; hs.pairs takes "
                "queries first and leaves out keys that come later"
            )
    return notes


def _result(
    run: WeighedRun,
    evidence: pd.DataFrame,
    attention: Sequence[Relation],
    thresholds: Mapping[str, Threshold],
) -> Result:
    tally, info = run.judging.tally, run.info
    effects = effects_among(run.relations)
    few_documents = _on_few_documents(attention, info)
    is_uncertain = is_preliminary(evidence, thresholds, few_documents)
    evidence = evidence.assign(**{PRELIMINARY: is_uncertain})
    shared = tally.heads // info.model.get("key_value_heads", tally.heads)
    profile = describe(tally.profile, tally.numbers)
    heads = head_table(evidence, thresholds, profile, shared)
    effect_table, notes = _effect_table(run.judging, effects)
    info = info.with_notes(*notes)
    if effect_table is not None:
        heads = with_direct_effects(heads, effect_table)
        info = replace(info, effects=effect_facts(effects))
    info = replace(
        info,
        thresholds=THRESHOLDS,
        decidable=decidable_relations(evidence, thresholds),
        provenance={"versions": versions(), "time": time.strftime("%Y-%m-%dT%H:%M:%S%z")},
    )
    stimuli = _stimuli(heads, attention)
    return Result(
        heads,
        evidence[EVIDENCE_COLUMNS],
        thresholds,
        info.to_json(),
        tally,
        effects=effect_table,
        means=mean_patterns(tally.profile),
        pictures=stimulus_pictures(tally.profile, tally.numbers, stimuli),
    )


def _on_few_documents(relations: Sequence[Relation], info: RunInfo) -> list[str]:
    """Full names of the relations that were measured on too few documents of text."""
    documents = (info.text_read or {}).get("documents", FEWEST_DOCUMENTS)
    if documents >= FEWEST_DOCUMENTS:
        return []
    return [relation.id for relation in relations if TEXT.name in relation.stimuli]


def effect_facts(effects: Sequence[Effect]) -> dict[str, dict[str, Any]]:
    """Entries of `run.json` for the effects that a run measured."""
    facts = {}
    for effect in effects:
        limits = effect.thresholds
        facts[effect.id] = {
            "threshold": limits.threshold,
            "sign": effect.sign,
            "meaning": limits.meaning,
            "source": limits.source,
            "second": effect.second,
        }
    return facts


def with_direct_effects(heads: pd.DataFrame, effects: pd.DataFrame) -> pd.DataFrame:
    """The heads with what they write: types joined by `;`, the strongest first, and its lift."""
    tags = effects[effects["tagged"].astype(bool)]
    tags = tags.loc[strongest_effects_first(tags)].drop_duplicates([*_HEAD, "type"])
    strongest = tags.drop_duplicates(_HEAD).set_index(_HEAD)["lift"].to_dict()
    keys = zip(heads["layer"], heads["head"], strict=True)
    return heads.assign(
        direct_effects=types_of_heads(heads, tags),
        direct_effect_lift=[strongest.get(key, float("nan")) for key in keys],
    )


def _effect_table(
    judging: Judging, effects: Sequence[Effect]
) -> tuple[pd.DataFrame | None, list[str]]:
    """The table of effects, None if nothing was measured, and notes for the reader."""
    table = judging.effects(effects)
    if not len(table):
        note = "what heads write was not measured: no path from them to the logits is known here"
        return None, [note] * bool(effects)
    return table, []


def _stimuli(heads: pd.DataFrame, relations: Sequence[Relation]) -> dict[tuple[int, int], str]:
    """Stimulus made for the primary relation of each head, by layer and head; else text."""
    with_picture = pictured()
    stimulus_of = {}
    for relation in relations:
        made_for = [name for name in relation.stimuli if name in with_picture]
        stimulus_of[relation.id] = made_for[0] if made_for else TEXT.name
    ids = heads["primary"] + "/" + heads["relation"]
    stimuli = ids.map(stimulus_of).fillna(TEXT.name)
    places = zip(heads["layer"].tolist(), heads["head"].tolist(), strict=True)
    return dict(zip(places, stimuli, strict=True))


def versions() -> dict[str, str]:
    """The versions of what a run's numbers depend on."""
    return {name: _version(name) for name in _PACKAGES}


_version = cache(version)  # which reads a file each time
