"""The results of a model's stacks as one: layers counted through, relations told apart."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
from jaxtyping import Float
from numpy import ndarray

from headscope.evidence.columns import EVIDENCE_COLUMNS, HEAD_COLUMNS
from headscope.evidence.result import Result
from headscope.evidence.tags import UNCLASSIFIED
from headscope.heads import ASKED_OF, STACKS, Stacks
from headscope.relations.contested import is_part
from headscope.relations.relation import Rule


def join(
    parts: Mapping[str, Result | str], naming: Stacks, heads: int, info: dict[str, Any]
) -> Result:
    """One result of all stacks.

    A relation that is asked of several is told by its stack from the second on, as in
    `obj:dep>head@D`: it is not the same question, as an encoder's words see those after them.

    Args:
        parts: of each stack its result, or the reason why nothing could be asked of it.
        naming: the stacks and their layers.
        heads: of each layer.
        info: what `run.json` says of all of it.
    """
    tables, evidence, examples = [], [], []
    rules: dict[str, Rule] = {}
    facts: dict[str, dict[str, Any]] = {"simple_rules": {}, "reliability": {}}
    summed: list[str] = []
    found = {letter: part for letter, part in parts.items() if isinstance(part, Result)}
    for letter, start, stop in naming.starts():
        part = found.get(letter)
        if part is None:
            tables.append(_unasked(start, stop, heads, str(parts.get(letter, ""))))
            continue
        names = _names(part.rules, rules, letter)
        rules |= {names[name]: _renamed(rule, names) for name, rule in part.rules.items()}
        tables.append(_moved(part.heads, start, names))
        evidence.append(_moved(part.evidence, start, names))
        for key, own in facts.items():
            own |= {names[name]: said for name, said in part.info.get(key, {}).items()}
        summed += [_of_part(name, names) for name in part.info.get("parts", ())]
        examples += [
            replace(
                each,
                layer=each.layer + start,
                relation=names.get(each.relation, each.relation),
            )
            for each in part.examples
        ]
    first = next(iter(found.values()))
    info = info | facts | {"parts": summed} | _summed(list(found.values()))
    info["notes"] = [f"{STACKS[k]}: {note}" for k, part in found.items() for note in _notes(part)]
    info["thresholds"] = first.info["thresholds"]
    joined = pd.concat(tables, ignore_index=True)[HEAD_COLUMNS]
    table = pd.concat(evidence, ignore_index=True)[EVIDENCE_COLUMNS]
    means = _means(found, naming)
    return Result(joined, table, rules, info, examples=tuple(examples), means=means)


def _means(
    found: Mapping[str, Result], naming: Stacks
) -> Float[ndarray, "layer head query key"] | None:
    """The mean patterns of all stacks; empty ones where a stack has none."""
    known = {letter: part.means for letter, part in found.items() if part.means is not None}
    if not known:
        return None
    shape = next(iter(known.values())).shape[1:]
    own = [known.get(k, np.zeros((stop - start, *shape))) for k, start, stop in naming.starts()]
    return np.concatenate(own)


def _notes(part: Result) -> list[str]:
    notes: list[str] = part.info.get("notes", [])
    return notes


def _names(own: Mapping[str, Rule], taken: Mapping[str, Rule], letter: str) -> dict[str, str]:
    return {name: f"{name}{ASKED_OF}{letter}" if name in taken else name for name in own}


def _of_part(name: str, names: Mapping[str, str]) -> str:
    """The name of what is summed beside a relation."""
    relation, _, part = name.rpartition("/")
    return f"{names[relation]}/{part}" if is_part(name.partition("/")[2]) else name


def _renamed(rule: Rule, names: Mapping[str, str]) -> Rule:
    if rule.companion is None:
        return rule
    return replace(rule, companion=names.get(rule.companion, rule.companion))


def _moved(table: pd.DataFrame, start: int, names: Mapping[str, str]) -> pd.DataFrame:
    """With the layers counted from `start`, and the relations by their new names."""
    moved = table.reset_index(drop=True)
    new = {name.partition("/")[2]: other.partition("/")[2] for name, other in names.items()}
    if "type" in moved:
        ids = moved["type"] + "/" + moved["relation"]
        moved["relation"] = ids.map(names).str.partition("/")[2]
    else:
        moved["relation"] = moved["relation"].map(lambda name: new.get(name, name))
    moved["layer"] += start
    return moved


def _unasked(start: int, stop: int, heads: int, why: str) -> pd.DataFrame:
    """Rows of heads of which nothing is known."""
    places = [(layer, head) for layer in range(start, stop) for head in range(heads)]
    table = pd.DataFrame(places, columns=["layer", "head"])
    for name in HEAD_COLUMNS[2:]:
        table[name] = np.nan
    return table.assign(
        primary=UNCLASSIFIED, tags="", relation="", reason=why, shape="", kv_group=table["head"]
    )


def _summed(parts: Sequence[Result]) -> dict[str, Any]:
    """What the stacks read in all."""
    provenance = dict(parts[0].info["provenance"])
    provenance["tokens"] = sum(part.info["provenance"]["tokens"] for part in parts)
    laps: dict[str, float] = {}
    files: dict[str, str] = {}
    for part in parts:
        for name, seconds in part.info["provenance"]["seconds"].items():
            laps[name] = laps.get(name, 0) + seconds
        files |= part.info["corpora"]["files"]
    provenance["seconds"] = laps
    read = [part.info["text_read"] for part in parts]
    changes = [each["expected_changes"] for each in read if each["expected_changes"] is not None]
    return {
        "provenance": provenance,
        "corpora": {**parts[0].info["corpora"], "files": files},
        "types": sorted({name for part in parts for name in part.info["types"]}),
        "text_read": {
            "tokens": sum(each["tokens"] for each in read),
            "of": sum(each["of"] for each in read),
            "looks": max(each["looks"] for each in read),
            "expected_changes": sum(changes) if changes else None,
        },
    }
