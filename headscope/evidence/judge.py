"""From sums to a finished run: evidence, tags, heads, and the thresholds they were judged by."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace
from importlib.metadata import version
from typing import Any

import numpy as np

from headscope.errors import NothingAskedError
from headscope.evidence.columns import EVIDENCE_COLUMNS
from headscope.evidence.conditions import MAX_Q, TIMES_CONTROL
from headscope.evidence.effects import weigh_effects
from headscope.evidence.halves import agreement, confirmed, tags_of_halves
from headscope.evidence.result import Result
from headscope.evidence.tags import TAGGED, head_table, verdicts
from headscope.evidence.weigh import (
    TWIN_PERCENTILE,
    TWIN_QUERIES,
    Facts,
    weigh,
)
from headscope.evidence.write_tags import effect_facts, with_writes
from headscope.measure.bootstrap import LEVEL, RESAMPLES
from headscope.measure.mean_pattern import mean_patterns
from headscope.measure.profile import describe
from headscope.measure.tally import BLOCKS, MIN_BLOCKS, Tally
from headscope.relations.relation import MIN_QUERIES, RELIABLE, Relation
from headscope.relations.writes.effect import Effect

_PACKAGES = ("headscope", "torch", "transformers", "transformer-lens", "numpy", "pandas", "scipy")
THRESHOLDS = {
    "min_queries": MIN_QUERIES,
    "max_q_value": MAX_Q,
    "times_control": TIMES_CONTROL,
    "blocks": BLOCKS,
    "min_blocks": MIN_BLOCKS,
    "interval": LEVEL,
    "resamples": RESAMPLES,
    "reliable": RELIABLE,
    "twin_percentile": TWIN_PERCENTILE,
    "twin_queries": TWIN_QUERIES,
}


def judge(
    tally: Tally,
    relations: Sequence[Relation],
    *,
    seed: int,
    info: dict[str, Any],
    twin: Tally | None = None,
    effects: Sequence[Effect] = (),
) -> Result:
    """Weigh a tally, tag its heads, and note what was decided how.

    Args:
        tally: the sums.
        relations: the relations of the tally, without the parts that are summed beside them.
        seed: seeds the bootstrap.
        info: what `run.json` says of the model, the corpora, the settings and the simple rules.
        twin: the sums of the shuffled twin; without it no tag is tested against chance.
        effects: what was asked of what heads write.

    Raises:
        NothingAskedError: no relation found a query.
    """
    rules = {relation.id: relation.rule for relation in relations}
    facts: Facts = info.get("simple_rules", {})
    evidence = weigh(tally, relations, seed=seed, facts=facts, twin=twin)
    # Bonferroni's correction: a run that looked several times had as many chances
    looks = info.get("text_read", {}).get("looks", 1)
    evidence["q_value"] = np.minimum(1.0, evidence["q_value"] * looks)
    if evidence.empty:
        raise NothingAskedError(
            "no relation found a query: the corpus has no annotation that the asked types need"
        )
    evidence["verdict"] = verdicts(evidence, rules).to_numpy()
    evidence["tagged"] = evidence["verdict"] == TAGGED
    halves = tags_of_halves(tally, relations, seed=seed, facts=facts, twin=twin)
    evidence["confirmed"] = confirmed(evidence, halves)
    untested = evidence[evidence["tagged"] & evidence["twin_p999"].isna()]
    if twin is not None and len(untested):
        names = (untested["type"] + "/" + untested["relation"]).unique()
        note = f"{len(untested)} tags were not tested against the twin, which read too few queries"
        info = {**info, "notes": [*info.get("notes", ()), f"{note}: {', '.join(names)}"]}
    shared = tally.heads // info.get("model", {}).get("key_value_heads", tally.heads)
    heads = head_table(evidence, rules, describe(tally.profile, tally.numbers), shared)
    written = weigh_effects(tally, effects, seed=seed, twin=twin, looks=looks)
    if effects and not len(written):
        note = "what heads write was not measured: no path from them to the logits is known here"
        info = {**info, "notes": [*info.get("notes", ()), note]}
    of_keys = {each.type for each in effects if each.of_keys}
    if len(written) and (left := of_keys - set(written["type"])):
        note = (
            f"{', '.join(sorted(left))} was not measured: it needs the fused engine, queries that "
        )
        note += "are no norm's output, and prompts whose names the tokenizer tells apart"
        info = {**info, "notes": [*info.get("notes", ()), note]}
    if len(written):
        heads = with_writes(heads, written)
        info = {**info, "effects": effect_facts(effects)}
    provenance = {
        "versions": versions(),
        "time": time.strftime("%Y-%m-%dT%H:%M:%S%z"),
    }
    judged = {"thresholds": THRESHOLDS, "reliability": agreement(halves), "provenance": provenance}
    result = Result(heads, evidence[EVIDENCE_COLUMNS], rules, {**info, **judged}, tally, twin)
    result = replace(result, means=mean_patterns(tally.profile))
    return replace(result, effects=written) if len(written) else result


def versions() -> dict[str, str]:
    """The versions of what a run's numbers depend on."""
    return {name: version(name) for name in _PACKAGES}
