"""From sums to a finished run: evidence, tags, heads, and the thresholds they were judged by."""

from __future__ import annotations

import time
from collections.abc import Sequence
from importlib.metadata import version
from typing import Any

from headscope.errors import CorpusError
from headscope.evidence.columns import EVIDENCE_COLUMNS
from headscope.evidence.reliability import split_half
from headscope.evidence.result import Result
from headscope.evidence.tags import MAX_Q, TIMES_CONTROL, head_table, tag
from headscope.evidence.weigh import (
    TWIN_PERCENTILE,
    TWIN_QUERIES,
    weigh,
)
from headscope.measure.bootstrap import LEVEL, RESAMPLES
from headscope.measure.profile import describe
from headscope.measure.tally import BLOCKS, MIN_BLOCKS, Tally
from headscope.relations.relation import MIN_QUERIES, RELIABLE, Relation

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
    kv_group_size: int = 1,
    twin: Tally | None = None,
) -> Result:
    """Weigh a tally, tag its heads, and note what was decided how.

    Args:
        tally: the sums.
        relations: the relations of the tally, in its order.
        seed: seeds the bootstrap.
        info: what `run.json` says of the model, the corpora and the settings.
        kv_group_size: query heads that share a key/value head.
        twin: the sums of the shuffled twin; without it no tag is tested against chance.

    Raises:
        CorpusError: no relation found a query.
    """
    rules = {relation.id: relation.rule for relation in relations}
    evidence = weigh(tally, relations, seed=seed, twin=twin)
    if evidence.empty:
        raise CorpusError(
            "no relation found a query: the corpus has no annotation that the asked types need"
        )
    evidence["tagged"] = tag(evidence, rules).to_numpy()
    untested = evidence[evidence["tagged"] & evidence["twin_p999"].isna()]
    if twin is not None and len(untested):
        names = (untested["type"] + "/" + untested["relation"]).unique()
        note = f"{len(untested)} tags were not tested against the twin, which read too few queries"
        info = {**info, "notes": [*info.get("notes", ()), f"{note}: {', '.join(names)}"]}
    heads = head_table(evidence, rules, describe(tally.profile), kv_group_size)
    provenance = {
        "versions": versions(),
        "time": time.strftime("%Y-%m-%dT%H:%M:%S%z"),
    }
    judged = {"thresholds": THRESHOLDS, "reliability": split_half(tally), "provenance": provenance}
    return Result(heads, evidence[EVIDENCE_COLUMNS], rules, {**info, **judged}, tally, twin)


def versions() -> dict[str, str]:
    """The versions of what a run's numbers depend on."""
    return {name: version(name) for name in _PACKAGES}
