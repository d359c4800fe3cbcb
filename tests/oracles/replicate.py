"""Agreement of the tags that two texts give which share nothing.

`python -m tests.oracles.replicate smollm2 15000` reads two halves of the text that ships, each with
half of the challenge set. A third argument, such as a folder of UD EWT, is read in place of the
second half, and the whole text that ships in place of the first. With a fourth argument the runs
are kept there, and are not made again. `python -m tests.oracles.replicate RUN OTHER` compares two
runs that exist, such as those of two seeds.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from unittest.mock import patch

import numpy as np
import pandas as pd

import headscope as hs
from headscope.corpus.shipped import shipped_corpora
from headscope.corpus.window import Window
from headscope.measure import text as text_of_run
from headscope.run import Run
from headscope.statistics.conditions import ANOTHER_TEXT, LEAST_REPLICATES, failures
from headscope.statistics.result import Result
from headscope.statistics.tags import NO, TAGGED
from headscope.stimuli.challenge import challenge_windows
from headscope.stimuli.stimulus import TextTokenizer

ROW = ["layer", "head", "id"]
STRUCTURE = "syntactic", "coreference"
PREDICTED = (LEAST_REPLICATES, 0.6, 0.7, 0.8, 0.9, 1.001)
"""Limits of the predictions of a row of the calibration; the last one includes 1."""
TYPES = (
    *("sink", "positional", "delimiter", "lexical", "induction", "duplicate-token"),
    *("syntactic", "coreference", "semantic"),
)


def judged_rows(run: Result) -> pd.DataFrame:
    """A row per head × relation: its tag, `replicates`, and for each condition whether it fails."""
    table = run.evidence_with_thresholds
    return pd.concat([table[[*ROW, "type", "verdict", "replicates"]], failures(table)], axis=1)


def beside(first: pd.DataFrame, second: pd.DataFrame) -> pd.DataFrame:
    """Rows that both runs measured, the columns of the second with `_b`."""
    return first.merge(second.drop(columns="type"), on=ROW, suffixes=("", "_b"))


def jaccard(first: pd.Series, second: pd.Series) -> float:
    """Share of the rows of either that are in both; NaN if neither has any."""
    union = int((first | second).sum())
    return float((first & second).sum() / union) if union else float("nan")


def agreement(rows: pd.DataFrame) -> pd.DataFrame:
    """Tags of both runs by type: counts, Jaccard indices, and verdicts of the other run.

    Args:
        rows: of `beside`.
    """
    table = {}
    for kind, of_type in rows.groupby("type", sort=False):
        first = of_type["verdict"] == TAGGED
        second = of_type["verdict_b"] == TAGGED
        if not (first | second).any():
            continue
        by_head = pd.DataFrame({"first": first, "second": second})
        heads = by_head.groupby([of_type["layer"], of_type["head"]]).any()
        rejected = (first & (of_type["verdict_b"] == NO)) | (second & (of_type["verdict"] == NO))
        table[kind] = {
            "first": int(first.sum()),
            "second": int(second.sum()),
            "both": int((first & second).sum()),
            "Jaccard of tags": jaccard(first, second),
            "of heads": jaccard(heads["first"], heads["second"]),
            "no in the other": int(rejected.sum()),
        }
    return pd.DataFrame(table).T


def without_condition(
    rows: pd.DataFrame, condition: str, conditions: Sequence[str]
) -> pd.DataFrame:
    """The rows of `beside`, tagged where no other condition fails."""
    others = [name for name in conditions if name != condition]
    verdicts = {}
    for end in ("", "_b"):
        fails = rows[[f"{name}{end}" for name in others]].any(axis=1)
        verdicts[f"verdict{end}"] = rows[f"verdict{end}"].mask(~fails, TAGGED)
    return rows.assign(**verdicts)


def came_again(rows: pd.DataFrame) -> pd.DataFrame:
    """Tags of either run by the `replicates` that it predicts: their number, and the share of them
    that the other run gives.

    Args:
        rows: of `beside`.
    """
    ends = ("", "_b"), ("_b", "")
    tables = []
    for own, other in ends:
        tags = rows[(rows[f"verdict{own}"] == TAGGED) & rows[f"replicates{own}"].notna()]
        again = tags[f"verdict{other}"] == TAGGED
        tables.append(pd.DataFrame({"predicted": tags[f"replicates{own}"], "again": again}))
    both = pd.concat(tables)
    grades = pd.cut(both["predicted"], PREDICTED, right=False)
    grouped = both["again"].groupby(grades, observed=False)
    return pd.DataFrame({"tags": grouped.size(), "came again": grouped.mean()})


def chain(rows: pd.DataFrame, conditions: Sequence[str]) -> pd.DataFrame:
    """Jaccard index of the rows that meet a condition and all before it, by type."""
    table = {}
    for kind, of_type in rows.groupby("type", sort=False):
        first = pd.Series(True, index=of_type.index)
        second = first.copy()
        so_far = {}
        for condition in conditions:
            first &= ~of_type[condition]
            second &= ~of_type[f"{condition}_b"]
            so_far[condition] = jaccard(first, second)
        table[kind] = so_far
    return pd.DataFrame(table).T


def flips(rows: pd.DataFrame, conditions: Sequence[str]) -> pd.DataFrame:
    """Tags of one run alone, by type and the first condition that fails in the other."""
    in_first = (rows["verdict"] == TAGGED) & (rows["verdict_b"] != TAGGED)
    in_second = (rows["verdict"] != TAGGED) & (rows["verdict_b"] == TAGGED)
    of_second = rows.loc[in_first, [f"{condition}_b" for condition in conditions]]
    of_first = rows.loc[in_second, list(conditions)]
    failed = pd.DataFrame(
        np.concatenate([of_second.to_numpy(bool), of_first.to_numpy(bool)]), columns=conditions
    )
    kinds = pd.concat([rows.loc[in_first, "type"], rows.loc[in_second, "type"]])
    counts = pd.crosstab(kinds.to_numpy(), failed.idxmax(axis=1).to_numpy())
    return counts.reindex(columns=[name for name in conditions if name in counts])


def summary(first: Result, second: Result) -> str:
    """All tables as text."""
    rows = beside(judged_rows(first), judged_rows(second))
    conditions = first.info["thresholds"]["conditions"]
    of_structure = rows["type"].isin(STRUCTURE)
    tables = {
        "Tags": agreement(rows),
        f"Tags without the condition {ANOTHER_TEXT}": agreement(
            without_condition(rows, ANOTHER_TEXT, conditions)
        ),
        f"Tags of {' and '.join(STRUCTURE)} by replicates": came_again(rows[of_structure]),
        "Tags of other types by replicates": came_again(rows[~of_structure]),
        "Jaccard index of what meets a condition and all before it": chain(rows, conditions),
        "Tags of one text, by the first condition that fails on the other": flips(rows, conditions),
    }
    return "\n\n".join(f"{title}\n{table.round(2).to_string()}" for title, table in tables.items())


def half_of_challenge(half: int) -> Callable[[TextTokenizer, int, int], list[Window]]:
    """The function `challenge_windows` for every other window."""

    def every_other(tokenizer: TextTokenizer, max_length: int, max_tokens: int) -> list[Window]:
        return challenge_windows(tokenizer, max_length, 2 * max_tokens)[half::2]

    return every_other


def run_on(files: Sequence[Path], half: int, model: str, max_tokens: int) -> Run:
    """A run on files with half of the challenge set."""
    with patch.object(text_of_run, "challenge_windows", half_of_challenge(half)):
        return hs.classify(
            model,
            files,
            types=TYPES,
            max_tokens=max_tokens,
            all=True,
            examples=False,
            dtype="float32",
            progress=False,
        )


def main(model: str, max_tokens: str, other: str = "", folder: str = "") -> None:
    """Run a model on two texts, or load two runs, and print the tables."""
    if not max_tokens.isdigit():
        print(summary(hs.load(model), hs.load(max_tokens)))
        return
    documents = sorted(path for root in shipped_corpora() for path in root.rglob("*.conllu*"))
    texts = (documents, [Path(other)]) if other else (documents[::2], documents[1::2])
    runs = []
    for half, files in enumerate(texts):
        kept = Path(folder) / f"{model}-{max_tokens}-{Path(other).stem or 'half'}-{half}"
        if folder and kept.exists():
            runs.append(hs.load(kept))
            continue
        run = run_on(files, half, model, int(max_tokens))
        if folder:
            run.save(kept)
        runs.append(run)
    print(summary(*runs))


if __name__ == "__main__":
    main(*sys.argv[1:])
