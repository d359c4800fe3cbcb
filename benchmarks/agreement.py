"""Do two runs of one model, on different text, put its heads in the same order?

    python benchmarks/agreement.py RUN RUN

For each relation with at least 50 queries in both, the rank correlation of the heads' lift, and how
many heads each run tagged.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import pandas as pd
from scipy import stats

from headscope.relations.relation import MIN_QUERIES
from headscope.resolve import load

KEY = ["type", "relation", "layer", "head"]


def main() -> None:
    parser = argparse.ArgumentParser(description="Rank correlation of two runs, by relation.")
    parser.add_argument("runs", nargs=2, type=Path)
    one, two = (load(folder) for folder in parser.parse_args().runs)
    table = agreement(one.evidence, two.evidence)
    print(table.to_string(index=False, float_format=lambda value: f"{value:.3f}"))
    print(f"\n{len(table)} relations, median {table['rho'].median():.3f}", end=", ")
    print(f"{(table['rho'] >= 0.7).sum()} at 0.7 or above")
    tagged = table[(table["tagged"] > 0) | (table["tagged 2"] > 0)]
    print(f"{len(tagged)} with a tag in either run, {(tagged['rho'] >= 0.7).sum()} at 0.7 or above")


def agreement(one: pd.DataFrame, two: pd.DataFrame) -> pd.DataFrame:
    """A row per relation that both runs could tag, the least agreement first."""
    both = one[one["n"] >= MIN_QUERIES].merge(two[two["n"] >= MIN_QUERIES], on=KEY)
    rows = []
    for (kind, relation), heads in both.groupby(["type", "relation"]):
        rho = stats.spearmanr(heads["lift_x"], heads["lift_y"]).statistic
        rows.append(
            {
                "relation": f"{kind}/{relation}",
                "rho": rho,
                "n": heads["n_x"].iloc[0],
                "n 2": heads["n_y"].iloc[0],
                "tagged": int(heads["tagged_x"].sum()),
                "tagged 2": int(heads["tagged_y"].sum()),
                "both": int((heads["tagged_x"] & heads["tagged_y"]).sum()),
            }
        )
    return pd.DataFrame(rows).sort_values("rho")


if __name__ == "__main__":
    main()
