"""Verdicts of runs by head type, the tags that come and go between two, and their halves.

    python benchmarks/verdicts.py RUN [RUN …]     # heads × relations of each type, by verdict
    python benchmarks/verdicts.py RUN RUN --tags  # and the tags that one of them gives alone
    python benchmarks/verdicts.py RUN --halves    # and whether two halves of its text agree
    python benchmarks/verdicts.py RUN RUN --texts # and whether two runs on other texts agree

Agreement is Jaccard's index: tags that both give, of those that either gives. Rows that one of them
leaves open, by a narrow refusal or because its text cannot tell, count neither for nor against.
`--halves` takes a run with its sums (`classify --keep-sums`).
"""

from __future__ import annotations

import argparse
from pathlib import Path

import pandas as pd

from headscope.heads import head_name
from headscope.relations import relations_of
from headscope.relations.relation import MIN_QUERIES
from headscope.runs.resolve import load
from headscope.statistics.general_labels import distinct_tags, shown_relations
from headscope.statistics.judge_heads import Judging
from headscope.statistics.result import Result
from headscope.statistics.tags import NARROW, NO, TAGGED, UNIDENTIFIABLE, is_decidable, with_rules

KEY = ["layer", "head", "type", "relation"]
SYNTAX = "syntactic"


def main() -> None:
    parser = argparse.ArgumentParser(description="Verdicts of runs, by head type.")
    parser.add_argument("runs", nargs="+", type=Path)
    parser.add_argument("--tags", action="store_true")
    parser.add_argument("--halves", action="store_true")
    parser.add_argument("--texts", action="store_true")
    asked = parser.parse_args()
    runs = [load(folder, with_tally=asked.halves) for folder in asked.runs]
    for folder, run in zip(asked.runs, runs, strict=True):
        print(f"\n{folder.name}\n{counts(run).to_string()}")
        if asked.halves:
            print(f"halves, {SYNTAX}: {jaccard(halves(run), 'first', 'second')}")
    if asked.tags:
        for name, table in changes(runs[0].evidence, runs[1].evidence).items():
            print(f"\n{name}\n{table.to_string(index=False, float_format='%.2f')}")
    if asked.texts:
        print(f"\ntexts, {SYNTAX}: {jaccard(decided_by_both(*runs[:2]), 'tagged', 'tagged 2')}")


def counts(run: Result) -> pd.DataFrame:
    """Heads × relations of each type by verdict, tags that share a general label counted once.

    Only of relations that have the queries for a tag.
    """
    evidence = with_rules(run.evidence, run.rules)
    asked = evidence[(evidence["n"] >= MIN_QUERIES) & evidence["taggable"]]
    table = asked.groupby(["type", "verdict"]).size().unstack(fill_value=0)
    table = table.reindex(columns=[TAGGED, NARROW, UNIDENTIFIABLE, NO], fill_value=0)
    heads = asked[asked["tagged"].astype(bool)].drop_duplicates(["layer", "head", "type"])
    decided = asked[is_decidable(asked)].groupby("type")["relation"].nunique()
    return table.assign(
        labels=distinct_tags(asked).groupby("type").size().reindex(table.index, fill_value=0),
        heads=heads.groupby("type").size().reindex(table.index, fill_value=0),
        relations=asked.groupby("type")["relation"].nunique(),
        decidable=decided.reindex(table.index, fill_value=0),
    )


def changes(before: pd.DataFrame, after: pd.DataFrame) -> dict[str, pd.DataFrame]:
    """The tags that one run gives alone, each with the verdict of the other."""
    tables = {}
    types = {*before["type"]} & {*after["type"]}
    before, after = (rows[rows["type"].isin(types)] for rows in (before, after))
    for name, own, other in (("came", after, before), ("went", before, after)):
        rows = own[own["tagged"].astype(bool)].assign(label=lambda tags: shown_relations(tags))
        rows = rows.merge(other[[*KEY, "verdict", "lift", "tagged"]], on=KEY, how="left",
                          suffixes=("", " other"))  # fmt: skip
        rows = rows[rows["tagged other"].ne(True)]
        names = [head_name(row.layer, row.head) for row in rows.itertuples()]
        rows = rows.assign(name=names).sort_values(["type", "lift"], ascending=[True, False])
        tables[name] = rows[["name", "type", "relation", "label", "n", "mass", "lift", "hit_rate",
                             "baseline_rate", "contested_n", "contested_hit_rate",
                             "verdict other"]]  # fmt: skip
    return tables


def halves(run: Result) -> pd.DataFrame:
    """The tags of each half of the documents, where both decide."""
    relations = [relation for relation in relations_of(["all"]) if relation.id in run.rules]
    facts = run.info.get("simple_rules", {})
    if run.tally is None:
        raise SystemExit("these runs have no sums: classify --keep-sums")
    table = Judging(run.tally, 0, facts, run.twin).tags_of_halves(relations)
    return table[table["type"] == SYNTAX]


def decided_by_both(one: Result, other: Result) -> pd.DataFrame:
    """The tags of two runs, where both decide."""
    both = one.evidence.merge(other.evidence, on=KEY, suffixes=("", " 2"))
    decided = both["type"] == SYNTAX
    for run in ("", " 2"):
        decided &= (both[f"n{run}"] >= MIN_QUERIES) & both[f"ci_low{run}"].notna()
        decided &= ~both[f"verdict{run}"].isin([NARROW, UNIDENTIFIABLE])
    return both[decided]


def jaccard(table: pd.DataFrame, first: str, second: str) -> str:
    one, two = table[first].astype(bool), table[second].astype(bool)
    shared, either = int((one & two).sum()), int((one | two).sum())
    index = f"{shared / either:.2f}" if either else "none to compare"
    return f"{index} ({shared} of {either} tags; of all {len(table)} heads × relations decided)"


if __name__ == "__main__":
    main()
