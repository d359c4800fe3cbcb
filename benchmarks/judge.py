"""From sums to a page: `judge`, the report and the list of heads of a model of 1,024 heads.

python benchmarks/judge.py [RELATIONS]

The sums are drawn: most heads like a target no more than its control, a few like it much.
"""

from __future__ import annotations

import statistics
import sys
from collections.abc import Iterator
from dataclasses import replace
from itertools import count, islice

import numpy as np
from numpy import ndarray
from side_by_side import alternate, save

from headscope.measure.tally import BLOCKS, Tally
from headscope.relations import relations_of
from headscope.relations.relation import NATURAL, Relation, part_name
from headscope.run import Run
from headscope.runs.listing import list_heads, write_heads
from headscope.statistics.judge_heads import weigh_run
from headscope.statistics.result import RunInfo

LAYERS, HEADS, RELATIONS = 32, 32, 300
QUERIES = 20
"""Of a relation in each block of documents."""
KNOWING = 0.004
"""The share of heads that look at a relation's targets."""


def main() -> None:
    wanted = int(sys.argv[1]) if len(sys.argv) > 1 else RELATIONS
    relations = list(islice(_relations(), wanted))
    names = tuple(name for relation in relations for name in _rows(relation))
    tally, twin = _drawn(names, KNOWING, seed=0), _drawn(names, 0.0, seed=1)
    rules = {
        "natural_rules": [(0.3, 0.1), (0.2, 0.2)],
        "baseline": "the nearest",
        "baseline_rate": 0.3,
    }
    info = {
        "model": {"name": "drawn", "layers": LAYERS, "heads": HEADS, "key_value_heads": HEADS},
        "simple_rules": {r.id: rules for r in relations if r.baseline is not None},
        "corpora": {"files": {}},
        "settings": {"seed": 0, "max_tokens": 0},
        "notes": [],
    }  # fmt: skip

    def judged() -> Run:
        return Run.of(
            weigh_run(tally, relations, seed=0, info=RunInfo.from_json(info), twin=twin).judge()
        )

    run = judged()
    seconds = alternate(
        judge=judged, report=run.report, heads=lambda: write_heads(list_heads(run), "csv")
    )
    each = {name: statistics.median(taken) for name, taken in seconds.items()}
    rows = {f"seconds of {name}": round(taken, 2) for name, taken in each.items()}
    save(
        "judge",
        {
            "heads": LAYERS * HEADS,
            "relations": len(relations),
            "rows of sums": len(names),
            "tags": int(run.evidence["tagged"].sum()),
            **rows,
            "seconds of all": round(sum(each.values()), 2),
        },
    )


def _relations() -> Iterator[Relation]:
    """Those of the table, and again and again under other names."""
    for turn in count():
        for relation in relations_of(["all"]):
            yield replace(relation, name=f"{relation.name}-{turn}") if turn else relation


def _rows(relation: Relation) -> Iterator[str]:
    """Of a relation in the tally: its own, and that of its contested queries."""
    yield relation.id
    if relation.baseline is not None:
        yield part_name(relation.id, NATURAL)


def _drawn(names: tuple[str, ...], knowing: float, *, seed: int) -> Tally:
    """Sums of masses that scatter, about 0.6 for heads that know a relation and 0.05 for others."""
    rng = np.random.default_rng(seed)
    tally = Tally.zeros(names, LAYERS, HEADS)
    tally.queries[:] = QUERIES
    tally.chance[:] = QUERIES * 0.02
    knows = rng.random((len(names), LAYERS, HEADS)) < knowing
    for name, place in enumerate(names):
        if place.endswith(NATURAL):
            knows[name] = knows[name - 1]
    tally.target[:] = _scattered(rng, np.where(knows, 0.6, 0.05))
    tally.control[:] = _scattered(rng, np.full(knows.shape, 0.05))
    tally.hits[:] = _scattered(rng, np.where(knows, 0.7, 0.05))
    for profile in (tally.profile.entropy, tally.profile.distance, tally.profile.first_token):
        profile[:] = rng.random(profile.shape)
    tally.profile.queries[...] = 1
    return tally


def _scattered(rng: np.random.Generator, mean: ndarray) -> ndarray:
    """Sums over the queries of each block."""
    shape = (BLOCKS, *mean.shape)
    return np.asarray(QUERIES * (mean + 0.02 * rng.standard_normal(shape)).clip(0, 1))


if __name__ == "__main__":
    main()
