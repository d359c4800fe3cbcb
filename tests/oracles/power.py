"""Power and error of tags: oracles that are found, and lazy heads that are tagged.

`python -m tests.oracles.power smollm2 8000 /tmp/sums` reads once and judges; the sums stay in the
folder, so that another set of conditions is judged in seconds.
"""

from __future__ import annotations

import pickle
import sys
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pandas as pd

from headscope.measure.bootstrap import estimate
from headscope.measure.shadow import NO_SHADOW, ShadowScore
from headscope.statistics.judge_heads import weigh_run
from headscope.statistics.result import RunInfo
from headscope.statistics.tags import NARROW, NO, TAGGED, UNIDENTIFIABLE
from tests.oracles.annotation_heads import KINDS
from tests.oracles.baseline_heads import KnownHead
from tests.oracles.power_sums import WIDTH, Sums, read_heads


def judge(sums: Sums) -> pd.DataFrame:
    """Verdicts of the conditions as they are now.

    Returns:
        The evidence, a row per head × relation, and `number`, `kind`, `name` and `asked` (relation
        that an oracle answers) of the head, `id` of the relation, and `false`: True for a tag that is not
        true of a lazy head, or that an oracle has for another relation.
    """
    info = RunInfo(
        model={"name": sums.model, "layers": sums.tally.layers, "heads": sums.tally.heads},
        types=["all"],
        settings={"seed": sums.seed},
        engine="given patterns",
        **sums.record,
    )
    relations = sums.relations
    weighed = weigh_run(sums.tally, relations, seed=sums.seed, info=info)
    compared = dict(tuple(sums.shadows.groupby(["number", "relation"])))
    scores = []
    for want in weighed.shadow_requests:
        key = (want.layer * WIDTH + want.head, relations[want.relation].id)
        scores.append(shadow_score(compared.get(key), sums.seed))
    return of_known_heads(weighed.judge(scores).evidence, sums.heads, sums.lazy)


def of_known_heads(
    evidence: pd.DataFrame, heads: pd.DataFrame, lazy: Mapping[str, KnownHead]
) -> pd.DataFrame:
    """Evidence on known heads; the columns that are added are those of `judge`.

    Args:
        evidence: of a run of `Bench`.
        heads: its heads.
        lazy: the lazy ones by name.
    """
    number = evidence["layer"] * WIDTH + evidence["head"]
    table = evidence.assign(number=number).join(
        heads.rename(columns={"relation": "asked"}), on="number"
    )
    table["id"] = table["type"] + "/" + table["relation"]
    table = table[table["kind"] != ""].copy()
    is_true = [
        relation == asked if asked else lazy[name].true(relation)
        for name, asked, relation in table[["name", "asked", "id"]].itertuples(index=False)
    ]
    table["false"] = (table["verdict"] == TAGGED) & ~np.array(is_true, bool)
    return table


def shadow_score(compared: pd.DataFrame | None, seed: int) -> ShadowScore:
    """The score of a surrogate from its rows of `Sums.shadows`."""
    if compared is None:
        return NO_SHADOW
    wrong = compared[~compared["right"]]
    beyond = (wrong["mass"] - wrong["targets"] * wrong["pick"]).groupby(wrong["block"]).sum()
    counts = wrong.groupby("block").size()
    mean, low, high, _ = estimate(beyond.to_numpy(float), counts.to_numpy(), seed=seed)
    return ShadowScore(
        float(compared["shadow_mass"].mean()), float(compared["right"].mean()), mean, low, high
    )


def oracle_table(verdicts: pd.DataFrame) -> pd.DataFrame:
    """Number of relations by kind of oracle and verdict."""
    asked = verdicts[verdicts["id"] == verdicts["asked"]]
    table = pd.crosstab(asked["kind"], asked["verdict"])
    kinds = [kind.name for kind in KINDS]
    return table.reindex(kinds).reindex(columns=[TAGGED, NARROW, UNIDENTIFIABLE, NO], fill_value=0)


def false_tags(verdicts: pd.DataFrame) -> pd.DataFrame:
    """False tags of lazy heads: `kind`, relation `id`, `name`, and the numbers behind them."""
    columns = ["kind", "id", "name", "n", "mass", "control", "contested_n", "contested_hit_rate"]
    columns += ["contested_rule_rate", "beyond_shadow", "beyond_shadow_low"]
    lazy = verdicts[verdicts["false"] & (verdicts["asked"] == "")]
    return lazy.sort_values(["kind", "id", "name"])[columns].reset_index(drop=True)


def summary(sums: Sums, verdicts: pd.DataFrame) -> str:
    """Tables of oracles and of lazy heads as text."""
    asked = verdicts[verdicts["id"] == verdicts["asked"]]
    false = false_tags(verdicts)
    sizes = sums.heads.loc[sums.heads["kind"].isin(["old", "new"]), "kind"].value_counts()
    open_relations = asked.pivot_table(
        index="id", columns="kind", values="verdict", aggfunc="first"
    ).reindex(columns=[kind.name for kind in KINDS])
    others = verdicts[verdicts["false"] & (verdicts["asked"] != "")]
    return "\n\n".join(
        [
            f"{asked['id'].nunique()} relations asked, {sums.model}",
            oracle_table(verdicts).to_string(),
            open_relations.to_string(),
            f"lazy heads: {sizes.to_dict()}; false tags: {len(false)} of "
            f"{false['name'].nunique()} heads",
            false["id"].value_counts().to_string(),
            false.round(3).to_string(),
            f"tags of oracles for other relations: {len(others)}",
            others.groupby(["asked", "id"]).size().to_string(),
        ]
    )


def main(model: str, max_tokens: str, folder: str, step: str = "1") -> None:
    """Read what has not been read, judge, and print the tables."""
    file = Path(folder) / f"{model}-{max_tokens}.pickle"
    if not file.exists():
        sums = read_heads(model, int(max_tokens), step=int(step))
        file.write_bytes(pickle.dumps(sums, protocol=5))
    print(summary(sums := load(file), judge(sums)))


def load(file: Path) -> Sums:
    """Sums that `main` kept."""
    sums = pickle.loads(file.read_bytes())
    assert isinstance(sums, Sums)
    return sums


if __name__ == "__main__":
    main(*sys.argv[1:])
