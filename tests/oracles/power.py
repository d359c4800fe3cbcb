"""Power and error of tags: oracles that are found, and lazy heads that are tagged.

`python -m tests.oracles.power smollm2 8000 FOLDER` scores the heads once, prints tables. The sums
stay in the folder, so that changed conditions are judged in seconds.
"""

from __future__ import annotations

import pickle
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path

import numpy as np
import pandas as pd
from jaxtyping import Float
from numpy import ndarray

from headscope.attention_kind import BIDIRECTIONAL, AttentionKind
from headscope.corpus.shipped import shipped_corpora
from headscope.corpus.window import Window
from headscope.from_patterns import score_patterns
from headscope.measure.text import prepare_text
from headscope.models.load import open_model
from headscope.relations import relations_of
from headscope.relations.relation import MIN_QUERIES, Relation
from headscope.settings import Settings
from headscope.statistics.columns import SURROGATE_COLUMNS
from headscope.statistics.judge_heads import weigh_run
from headscope.statistics.result import Result
from headscope.statistics.surrogate import SurrogateScore
from headscope.statistics.tags import TAGGED, VERDICTS
from tests.helpers.run_folders import record_of
from tests.oracles.annotation_heads import KINDS, Oracle, oracles
from tests.oracles.baseline_heads import BaselineHead, KnownHead, baseline_heads
from tests.oracles.lazy_heads import lazy_heads
from tests.oracles.window_features import WindowFeatures

WIDTH = 60
"""Heads of a layer; all kinds of an oracle are in one layer."""
TYPES = (
    *("syntactic", "coreference", "semantic", "retrieval", "lexical", "induction"),
    "duplicate-token",
)
"""Types whose tags a lazy head must not earn unless they are true of it."""
_NUMBERS = "n mass control hard_n hard_rate hard_low hard_baseline_rate beyond_surrogate".split()


@dataclass(frozen=True, eq=False)
class Bench:
    """A function from a window to patterns of heads; a layer has lazy heads or oracles alone."""

    layers: Sequence[Sequence[BaselineHead | Oracle]]
    heads: pd.DataFrame
    """A row per head: `kind` (of lazy heads, or the name of one of `KINDS`), `name`, and `asked`
    (relation that an oracle answers, else empty)."""

    @classmethod
    def of(cls, lazy: Mapping[str, Sequence[BaselineHead]], readers: Sequence[Oracle]) -> Bench:
        """Heads of each kind, then oracles of all of `KINDS`."""
        named = [(kind, head) for kind, members in lazy.items() for head in members]
        heads, size = [head for _, head in named], WIDTH // len(KINDS)
        layers: list[Sequence[BaselineHead | Oracle]] = [
            heads[i : i + WIDTH] for i in range(0, len(heads), WIDTH)
        ]
        rows = [(kind, head.name, "") for kind, head in named]
        rows += [("", "", "")] * (len(layers) * WIDTH - len(rows))
        rows += [(kind.name, reader.name, reader.name) for reader in readers for kind in KINDS]
        layers += [readers[i : i + size] for i in range(0, len(readers), size)]
        rows += [("", "", "")] * (len(layers) * WIDTH - len(rows))
        return cls(layers, pd.DataFrame(rows, columns=["kind", "name", "asked"]))

    def __call__(self, window: Window) -> Float[ndarray, "layer head query key"]:
        """The patterns; places without a head rest on the first token."""
        reading, size = WindowFeatures(window), len(window)
        patterns = np.zeros((len(self.layers), WIDTH, size, size), np.float32)
        patterns[..., 0] = 1
        for layer, heads in enumerate(self.layers):
            of_heads = chain.from_iterable(head.patterns(reading) for head in heads)
            for number, rows in enumerate(of_heads):
                patterns[layer, number] = rows
        return patterns


def score_heads(model_name: str, max_tokens: int, step: int = 1) -> tuple[pd.DataFrame, Result]:
    """Score lazy heads and oracles on the text that ships, as `classify` reads it.

    Args:
        model_name: model whose tokenizer and kind of attention are taken.
        max_tokens: tokens of text.
        step: 1 for all old lazy heads, 4 for every fourth.

    Returns:
        The heads (see `Bench.heads`) and the run.
    """
    model = open_model(model_name)
    kind = model.attention_kind
    relations = relations_of(TYPES, kind)
    settings = Settings(max_tokens=max_tokens)
    text = prepare_text(model, relations, shipped_corpora(), settings)
    windows = [*text.stream, *text.others]
    lazy = {"old": baseline_heads(kind)[::step], "new": lazy_heads(kind)[:: max(1, step // 4)]}
    bench = Bench.of(lazy, oracles(windows, _with_queries(windows, relations)))
    return bench.heads, score_patterns(bench, windows, relations=relations, name=model_name)


def _with_queries(windows: Sequence[Window], relations: Sequence[Relation]) -> set[str]:
    """Relations with enough queries for a tag."""
    queries = {
        relation.id: sum(
            len(relation.pairs(window).queries)
            for window in windows
            if window.stimulus in relation.stimuli
        )
        for relation in relations
    }
    return {name for name, count in queries.items() if count >= MIN_QUERIES}


def judge(run: Result, kind: AttentionKind = BIDIRECTIONAL) -> pd.DataFrame:
    """The evidence of a run by the conditions of the code as it is now.

    Tags that no head of the run had lack the surrogate.
    """
    assert run.tally is not None
    every = relations_of(TYPES, kind)
    relations = [relation for relation in every if relation.id in run.tally.relations]
    info, seed = record_of(run), run.info["settings"]["seed"]
    weighed = weigh_run(run.tally, relations, seed=seed, run_info=info)
    known = run.evidence.set_index(["layer", "head", "type", "relation"])[SURROGATE_COLUMNS]
    scores = {}
    for want in weighed.surrogate_requests:
        relation = relations[want.relation]
        row = known.loc[(want.layer, want.head, relation.type, relation.name)]
        scores[want] = SurrogateScore(*row)
    return weighed.judge(scores).evidence


def of_known_heads(
    evidence: pd.DataFrame, heads: pd.DataFrame, lazy: Mapping[str, KnownHead]
) -> pd.DataFrame:
    """Evidence on known heads.

    Args:
        evidence: of a run of `Bench`.
        heads: its heads.
        lazy: the lazy ones by name.

    Returns:
        The evidence with the columns of `heads`, the relation's full name `id`, and `false`: True
        for a tag that is not true of a lazy head, or that an oracle has for another relation.
    """
    number = evidence["layer"] * WIDTH + evidence["head"]
    table = evidence.assign(number=number).join(heads, on="number")
    table["id"] = table["type"] + "/" + table["relation"]
    table = table[table["kind"] != ""].copy()
    is_true = [
        relation == asked if asked else lazy[name].true(relation)
        for name, asked, relation in table[["name", "asked", "id"]].itertuples(index=False)
    ]
    table["false"] = (table["verdict"] == TAGGED) & ~np.array(is_true, bool)
    return table


def summary(table: pd.DataFrame) -> str:
    """Verdicts on oracles by kind and by relation, and false tags, as text.

    Args:
        table: of `of_known_heads`.
    """
    kinds = [kind.name for kind in KINDS]
    own = table[table["id"] == table["asked"]]
    counts = pd.crosstab(own["kind"], own["verdict"]).reindex(kinds)
    by_relation = own.pivot_table(index="id", columns="kind", values="verdict", aggfunc="first")
    lazy, false = table[table["asked"] == ""], table[table["false"]]
    of_lazy = false[false["asked"] == ""].sort_values(["id", "name"])
    of_oracles = false[false["asked"] != ""]
    return "\n\n".join(
        [
            f"{own['id'].nunique()} relations",
            counts.reindex(columns=list(VERDICTS), fill_value=0).to_string(),
            by_relation.reindex(columns=kinds).to_string(),
            f"{len(of_lazy)} false tags of {lazy['name'].nunique()} lazy heads",
            of_lazy[["kind", "id", "name", *_NUMBERS]].round(3).to_string(index=False),
            f"{len(of_oracles)} tags of oracles for other relations",
            of_oracles.groupby(["asked", "id"]).size().to_string(),
        ]
    )


def main(model: str, max_tokens: str, folder: str, step: str = "1") -> None:
    """Score what has not been scored, judge, and print the tables."""
    Path(folder).mkdir(parents=True, exist_ok=True)
    file = Path(folder) / f"{model}-{max_tokens}.run"
    if not file.exists():
        file.write_bytes(pickle.dumps(score_heads(model, int(max_tokens), int(step))))
    heads, run = pickle.loads(file.read_bytes())
    lazy = {
        head.name: head for head in (*baseline_heads(BIDIRECTIONAL), *lazy_heads(BIDIRECTIONAL))
    }
    kind = open_model(model).attention_kind
    print(summary(of_known_heads(judge(run, kind), heads, lazy)))


if __name__ == "__main__":
    main(*sys.argv[1:])
