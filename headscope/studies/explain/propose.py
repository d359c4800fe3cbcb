"""Relation files to start from: what many heads' rules name and no relation of the table does."""

from __future__ import annotations

import re

import pandas as pd

from headscope.relations.heuristics import RULES, UPOS

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
