"""Published lists of the heads that make words of words: does a run's model name the same ones?

MAPS (Elhelo and Geva 2024, arXiv 2412.11965) publishes for each relation the heads with the largest
scores, measured on prompts and with lists of its own. Ours are from weights alone
(`headscope weights --table related`): heads are taken in the order of `but_itself`, since MAPS
does not mind either that a head raises the word itself.
"""

from __future__ import annotations

from io import BytesIO
from pathlib import Path

import numpy as np
import pandas as pd
from jaxtyping import Float
from numpy import ndarray

from headscope.errors import RunError
from headscope.evidence.result import Result
from headscope.heads import head_name
from headscope.runs.given_file import given_file
from headscope.studies.validation.published_ranks import (
    PERMUTATIONS,
    RANK_COLUMNS,
    first_heads,
    revision_of,
)

SIGNS = {"maps_writes_": "raises", "maps_suppresses_": "lowers"}
LISTS = {
    "adj_antonym": "antonym",
    "adj_comparative": "comparative",
    "adj_superlative": "superlative",
    "country_to_capital_wikidata": "capital",
    "country_to_official_language_wikidata": "people",
    "object_superclass": "kind",
    "verb_past_tense": "past",
}
"""MAPS' names and ours. Its other lists (copying, letters, pronouns, …) have no like here."""
METRICS = {
    f"{begin}{theirs}": (ours, sign)
    for begin, sign in SIGNS.items()
    for theirs, ours in LISTS.items()
}
STIMULUS = "MAPS' own lists and prompts (Elhelo and Geva 2024); ours: other words, no text"
_NEEDED = ["layer", "head", "relation", "sign", "but_itself"]


def read_related(path: Path) -> pd.DataFrame:
    """What `headscope weights --table related --out` wrote.

    Raises:
        HeadscopeError: there is no such file, or it holds something else.
    """
    kinds = {"layer": "int64", "head": "int64", "but_itself": "float64"}
    raw = given_file(path, "what headscope weights MODEL --table related --out FILE wrote")
    try:
        table = pd.read_csv(BytesIO(raw), dtype={**dict.fromkeys(_NEEDED, "str"), **kinds})
    except (ValueError, OverflowError) as error:
        raise RunError(f"{path}: no table of related words: {error!s:.200}") from error
    missing = [name for name in _NEEDED if name not in table]
    if missing or not table["but_itself"].between(0, 1).all():
        raise RunError(
            f"{path}: no table of related words: "
            + (f"it has no column {', '.join(missing)}" if missing else "but_itself is no share")
            + "; headscope weights MODEL --table related --out FILE writes one"
        )
    return table


def compare_lists(
    run: Result, scores: pd.DataFrame, name: str, related: pd.DataFrame, *, seed: int = 0
) -> pd.DataFrame:
    """A row per published list that has a like here, as `compare_ranks` gives them.

    `top` is how many heads are published, `shared` how many of them are among as many of ours that
    come first; there is no correlation, as the scores of the other heads are not published.

    Args:
        run: the run, for the number of its layers and heads.
        scores: from `published_ranks.read_scores`.
        name: the model's name in it.
        related: from `read_related`.
        seed: seeds the permutations.

    Raises:
        RunError: the table or the list is of another number of layers or heads than the run.
    """
    shape = (int(run.heads["layer"].max()) + 1, int(run.heads["head"].max()) + 1)
    own = scores[scores["model"] == name]
    own = own[own["revision"] == revision_of(run, own)]
    rows = []
    for metric, table in own.groupby("metric"):
        relation, sign = METRICS.get(str(metric), ("", ""))
        asked = related[(related["relation"] == relation) & (related["sign"] == sign)]
        if asked.empty:
            continue
        for what, known in ((f"{metric} of {name}", table), ("the table of related words", asked)):
            if (known[["layer", "head"]].max().to_numpy() >= shape).any():
                raise RunError(
                    f"this run has {shape[0]} layers × {shape[1]} heads, and {what} has a head "
                    f"{head_name(int(known['layer'].max()), int(known['head'].max()))}"
                )
        if len(asked) != shape[0] * shape[1]:
            raise RunError(
                f"the table of related words has {len(asked)} heads for {relation}, and this run "
                f"{shape[0] * shape[1]}"
            )
        values = asked.sort_values(["layer", "head"])["but_itself"].to_numpy().reshape(shape)
        facts = (str(metric), own["revision"].iloc[0], f"related/{relation}", sign, STIMULUS)
        rows.append((*facts, values.size, np.nan, np.nan, *_shared(table, values, seed)))
    return pd.DataFrame(rows, columns=RANK_COLUMNS)


def _shared(
    published: pd.DataFrame, ours: Float[ndarray, "layer head"], seed: int
) -> tuple[int, int, float, float, str]:
    """Shared heads, and what permutations of ours within layers give."""
    rng = np.random.default_rng(seed)
    places = published["layer"] * ours.shape[1] + published["head"]
    listed = {int(place) for place in places}
    shared = len(listed & first_heads(ours, len(listed)))
    drawn = np.array(
        [
            len(listed & first_heads(rng.permuted(ours, axis=1), len(listed)))
            for _ in range(PERMUTATIONS)
        ]
    )
    p_value = (1 + int((drawn >= shared).sum())) / (1 + PERMUTATIONS)
    best = published.loc[published["value"].idxmax()]
    name = head_name(int(best["layer"]), int(best["head"]))
    return len(listed), shared, float(drawn.mean()), p_value, name
