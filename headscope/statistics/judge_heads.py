"""Judging: from the sums of a run to evidence, tags and heads.

`weigh_run` makes the evidence of a tally (`headscope.statistics.estimates.weigh`) and its verdicts
(`headscope.statistics.tags.with_verdicts`). `WeighedRun.surrogate_requests` are the tags that need
a surrogate; `WeighedRun.judge` adds their scores, gives the verdicts again, and makes the table of
heads (`headscope.statistics.head_table.head_table`).
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
)
from headscope.statistics.columns import (
    EFFECT_COLUMNS,
    EFFECT_NAMES,
    EVIDENCE_COLUMNS,
    GENERAL,
    PRELIMINARY,
    REPLICATES,
    SURROGATE_COLUMNS,
    strongest_effects_first,
)
from headscope.statistics.conditions import (
    CONDITIONS,
    LEAST_REPLICATES,
    LEAST_TOP,
    MAX_Q,
    MIN_HARD,
    TIMES_CONTROL,
)
from headscope.statistics.estimates import NO_RATES, BaselineRates, weigh
from headscope.statistics.general_labels import TIMES_LABEL, general_labels
from headscope.statistics.head_table import head_table, types_of_heads
from headscope.statistics.ratio import LEVEL, RESAMPLES
from headscope.statistics.result import Result, RunInfo
from headscope.statistics.surrogate import SurrogateScore
from headscope.statistics.tags import (
    FEWEST_DOCUMENTS,
    decidable_relations,
    is_preliminary,
    thresholds_of,
    with_thresholds,
    with_verdicts,
)
from headscope.stimuli.natural_text import TEXT

THRESHOLDS: Mapping[str, Any] = {
    "conditions": [condition.name for condition in CONDITIONS],
    "min_queries": MIN_QUERIES,
    "max_q_value": MAX_Q,
    "min_hard_queries": MIN_HARD,
    "least_top_share": LEAST_TOP,
    "least_replicates": LEAST_REPLICATES,
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


class RunSums(NamedTuple):
    """Sums of a run, and what else its evidence depends on."""

    tally: Tally
    seed: int
    rates: BaselineRates = NO_RATES
    """Rates of baselines on the text."""
    interim_tests: int = 1
    """Rounds after which the run tested if it could stop."""

    def evidence(self, relations: Sequence[Relation]) -> pd.DataFrame:
        """Evidence on relations or effects, without verdicts."""
        evidence = weigh(self.tally, relations, seed=self.seed, rates=self.rates)
        # Bonferroni's correction: a run that tested several times had as many chances
        evidence["q_value"] = np.minimum(1.0, evidence["q_value"] * self.interim_tests)
        return evidence

    def effects(self, effects: Sequence[Effect]) -> pd.DataFrame:
        """The table of effects, a row per head × effect that had a query."""
        evidence = self.evidence(effects)
        if not evidence.empty:
            # verdicts read numbers that count upwards; the table states them as measured
            judged = with_verdicts(with_thresholds(evidence, thresholds_of(effects)))
            evidence = evidence.assign(tagged=judged["tagged"], replicates=judged[REPLICATES])
        return evidence.rename(columns=EFFECT_NAMES)[EFFECT_COLUMNS]


def weigh_run(
    tally: Tally,
    relations: Sequence[Relation],
    *,
    seed: int,
    run_info: RunInfo,
) -> WeighedRun:
    """Weigh a tally: the evidence, with the verdicts before surrogates.

    Raises:
        CorpusError: no relation found a query.
    """
    rates: BaselineRates = run_info.baselines or {}
    sums = RunSums(tally, seed, rates, run_info.interim_tests)
    attention = of_attention(relations)
    evidence = sums.evidence(attention)

    # a relation of a user has few queries perhaps by swapped arguments
    queries: dict[str, int] = dict(zip(evidence["id"], evidence["n"], strict=True))
    notes = []
    for relation in relations:
        count = queries.get(relation.id, 0)
        if isinstance(relation.pairs, Checked) and count < MIN_QUERIES:
            notes.append(
                f"{relation.id} has {count} queries, and a tag needs {MIN_QUERIES}; hs.pairs takes "
                "queries first and leaves out keys that come later"
            )
    if evidence.empty:
        reason = "the corpus has no annotation that the chosen types need"
        raise CorpusError(f"no relation found a query: {notes[0] if notes else reason}")
    evidence = with_verdicts(with_thresholds(evidence, thresholds_of(attention)))
    return WeighedRun(sums, relations, run_info.with_notes(*notes), evidence)


@dataclass(frozen=True, eq=False)
class WeighedRun:
    """The evidence of a run before the surrogates of its heads are known."""

    sums: RunSums
    relations: Sequence[Relation]
    """Relations and effects, without the parts that are summed beside them."""
    run_info: RunInfo
    evidence: pd.DataFrame
    """Evidence on attention, with thresholds and verdicts."""

    @property
    def surrogate_requests(self) -> list[SurrogateRequest]:
        """Heads whose tags are compared with a surrogate, relation by relation."""
        number = {}
        for i, relation in enumerate(self.relations):
            if relation.thresholds.beats_surrogate:
                number[relation.id] = i
        is_requested = self.evidence["tagged"] & self.evidence["id"].isin(number)
        requests = []
        for row in self.evidence[is_requested].itertuples():
            requests.append(SurrogateRequest(int(row.layer), int(row.head), number[row.id]))
        return requests

    def judge(self, surrogates: Mapping[SurrogateRequest, SurrogateScore] = NO_SCORES) -> Result:
        """Give the verdicts again with surrogates, tag the heads, and note what was decided how.

        Args:
            surrogates: the scores of `surrogate_requests`; empty for a run without surrogates.
        """
        tally, run_info = self.sums.tally, self.run_info
        attention = of_attention(self.relations)
        thresholds = thresholds_of(attention)

        # surrogates are known only for what all other conditions tag: verdicts come twice
        evidence = self._with_scores(surrogates)
        if surrogates:
            evidence = with_verdicts(evidence)
        evidence[GENERAL] = general_labels(evidence, attention, tally)

        # an interval over few documents of text is of these documents alone
        few_documents = []
        if (run_info.text_read or {}).get("documents", FEWEST_DOCUMENTS) < FEWEST_DOCUMENTS:
            few_documents = [relation.id for relation in attention if TEXT.name in relation.stimuli]
        evidence[PRELIMINARY] = is_preliminary(evidence, few_documents)

        # the table of heads, with what they write if that was measured
        heads_of_group = tally.heads // run_info.model.get("key_value_heads", tally.heads)
        profile = describe(tally.profile, tally.numbers)
        heads = head_table(evidence, profile, heads_of_group)
        effects = effects_among(self.relations)
        effect_table = self.sums.effects(effects)
        if len(effect_table):
            heads = with_direct_effects(heads, effect_table)
            run_info = replace(run_info, effects=effect_records(effects))
        elif effects:
            run_info = run_info.with_notes(
                "what heads write was not measured: no path from them to the logits is known here"
            )

        run_info = replace(
            run_info,
            thresholds=THRESHOLDS,
            decidable=decidable_relations(evidence, thresholds),
            provenance={"versions": versions(), "time": time.strftime("%Y-%m-%dT%H:%M:%S%z")},
        )
        return Result(
            heads,
            evidence[EVIDENCE_COLUMNS],
            thresholds,
            run_info.to_json(),
            tally,
            effects=effect_table if len(effect_table) else None,
            means=mean_patterns(tally.profile),
            pictures=stimulus_pictures(tally.profile, tally.numbers, _stimuli(heads, attention)),
        )

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


def effect_records(effects: Sequence[Effect]) -> dict[str, dict[str, Any]]:
    """Entries of `run.json` for the effects that a run measured."""
    records = {}
    for effect in effects:
        limits = effect.thresholds
        records[effect.id] = {
            "threshold": limits.threshold,
            "sign": effect.sign,
            "meaning": limits.meaning,
            "source": limits.source,
            "second": effect.second,
        }
    return records


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
