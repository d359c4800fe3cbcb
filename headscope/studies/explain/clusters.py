"""What the rules of many heads share: heads that go by much the same rule, and relation files to
start from, of what many rules name and no relation of the table does.
"""

from __future__ import annotations

import re

import numpy as np
import pandas as pd
from jaxtyping import Float, Int
from numpy import ndarray
from scipy.cluster.hierarchy import fcluster, linkage

from headscope.heads import head_name
from headscope.relations.heuristics import RULES, UPOS

APART = 0.6
"""Cosine distance, the mean over two clusters' heads, above which they stay apart."""
NAME_FEATURES = 2
"""Features that name a cluster, at most."""
SHARED = 0.25
"""A feature's share of the strongest one's that it must have to be in the name."""
COLUMNS = ["name", "count", "heads", "bits", "explained", "types"]


def clusters_of(rules: pd.DataFrame, heads: pd.DataFrame) -> pd.DataFrame:
    """Heads put together by what their rules look at and avoid.

    A head is a vector of its features, those at one kind of query apart: the root of their unique
    bits, negative where the weight is, times the logarithm of how rare the feature is among heads
    (inverse document frequency), for nearly all rest on token 0. Clusters come from average linkage
    of cosine distances, cut at `APART`.

    Args:
        rules: a row per head × feature.
        heads: a row per head.

    Returns:
        A row per cluster, that of most heads first: its `name`, the features that its heads
        share; the `count` of `heads`, their names joined by `;`; their mean `bits` and share
        `explained`; and their primary `types` with counts, where a run says so. Heads whose rule
        has no feature with unique bits are in none.
    """
    table = _vectors(rules)
    groups = _grouped(table.to_numpy(float))
    known = heads.set_index(["layer", "head"])
    rows = []
    for group in range(groups.max(initial=0)):
        members = table[groups == group + 1]
        mine = known.loc[list(members.index)]
        rows.append(
            (
                _name(members.mean()),
                len(members),
                ";".join(head_name(layer, head) for layer, head in members.index.tolist()),
                float(mine["bits"].mean()),
                float(mine["explained"].mean()),
                _types(mine["primary"]),
            )
        )
    clusters = pd.DataFrame(rows, columns=COLUMNS)
    return clusters.sort_values(["count", "bits"], ascending=False, ignore_index=True)


def _vectors(rules: pd.DataFrame) -> pd.DataFrame:
    """A row per head of length 1, a column per feature; heads without any are left out."""
    plain = rules["queries"] == ""
    gate = rules["queries"].where(plain, "on a " + rules["queries"] + ": ")
    columns = rules.assign(
        what=gate + rules["feature"],
        size=rules["unique"].clip(lower=0) ** 0.5 * np.sign(rules["weight"]),
    )
    table = columns.pivot_table("size", ["layer", "head"], "what", aggfunc="sum", fill_value=0.0)
    table = table * np.log((len(table) + 1) / (table != 0).sum().clip(lower=1))
    length = np.sqrt((table**2).sum(axis=1))
    return table[length > 0].div(length[length > 0], axis=0)


def _grouped(vectors: Float[ndarray, "head feature"]) -> Int[ndarray, " head"]:
    """The number of each head's cluster, from 1 on."""
    if len(vectors) < 2:
        return np.ones(len(vectors), int)
    groups: ndarray = fcluster(linkage(vectors, "average", "cosine"), APART, "distance")
    return groups


def _name(mean: pd.Series) -> str:
    size = mean.abs().sort_values(ascending=False, kind="stable")
    strong = size[size >= SHARED * size.iloc[0]].index[:NAME_FEATURES]
    return ", ".join(f"{'' if mean[feature] > 0 else 'not '}{feature}" for feature in strong)


def _types(primary: pd.Series) -> str:
    counts = primary[primary != ""].value_counts()
    return ", ".join(f"{name} {count}" for name, count in counts.items())


FREQUENT = 3
"""Heads that must have the feature for it to be proposed."""
UNIQUE = 0.02
"""Its least share of unique bits in each of them."""

_HEAD = '''"""{title}"""

import numpy as np

import headscope as hs
{imports}

@hs.relation("proposed", "{name}", control=hs.controls.other_keys, floor=hs.Floor(0.2, "proposed"))
def {function}(window: hs.Window) -> hs.Pairs:
    """{words}"""
{body}
'''
_ALL = """    query, place = np.nonzero(np.arange(len(window))[:, None] > keys[None, :])
    return hs.pairs(query, keys[place])"""
_TOKENS = """    keys = np.flatnonzero(window.tokens == {value})
    keys = keys[keys > 0]{first}
"""
_WORDS = """    words = window.words
    keys = words.last[words.upos == "{value}"]{first}
"""
_PICKED = """    key = picks(window)[RULES.index("{value}")]
    query = np.flatnonzero(key >= 0)
    return hs.pairs(query, key[query])"""
_BODIES = {
    "token": _TOKENS + _ALL,
    "first token": _TOKENS + _ALL,
    "key": _WORDS + _ALL,
    "first": _WORDS + _ALL,
    "rule": _PICKED,
}
_PICKS = "from headscope.relations.heuristics import RULES, picks\n"


def frequent(rules: pd.DataFrame) -> pd.DataFrame:
    """Features that many heads look at and that are no relation, no place and no sink.

    Args:
        rules: a row per head × feature.

    Returns:
        A row per feature: `feature`, in how many `heads`, and its mean `unique` share there; what
        is in most heads first.
    """
    attended = (rules["weight"] > 0) & (rules["unique"] >= UNIQUE)
    proposable = ~rules["kind"].isin(["sink", "position"]) & ~rules["feature"].str.contains("/")
    groups = rules[attended & proposable].groupby("feature")["unique"]
    table = groups.agg(heads="count", unique="mean").reset_index()
    table = table[table["heads"] >= FREQUENT]
    return table.sort_values(["heads", "unique"], ascending=False, ignore_index=True)


def relation_file(feature: str) -> str | None:
    """A file with the relation of a feature, which runs as it is; None for what is no plain one.

    >>> "proposed" in str(relation_file("key VERB")), relation_file("log distance")
    (True, None)
    """
    tokens = re.fullmatch(r"(token|first token) (\d+) .*", feature)
    classes = re.fullmatch(r"(key|first) (\w+)", feature)
    if feature in RULES:
        kind, value = "rule", feature
    elif tokens:
        kind, value = tokens[1], tokens[2]
    elif classes and classes[2] in UPOS:
        kind, value = classes[1], classes[2]
    else:
        return None
    name = feature if kind == "rule" else f"{kind}-{value}".replace(" ", "-")
    return _HEAD.format(
        title=f"Proposed by headscope explain: {feature}.".replace("\\", "").replace('"', "'"),
        imports=_PICKS if kind == "rule" else "",
        name=name,
        function=re.sub(r"\W", "_", f"look_at_{name}"),
        words=feature.replace("\\", "").replace('"', "'"),
        body=_BODIES[kind].format(value=value, first="[:1]" if "first" in kind else ""),
    )


def proposals(rules: pd.DataFrame) -> str:
    """All proposals as text: what each is frequent in, and its file."""
    parts = []
    for row in frequent(rules).itertuples():
        source = relation_file(row.feature)
        comment = f"# {row.feature}: {row.heads} heads, {row.unique:.1%} of their bits on average"
        parts.append(f"{comment}\n{source}" if source else f"{comment} (no plain relation)\n")
    return "\n".join(parts) or "# every frequent feature has its relation\n"
