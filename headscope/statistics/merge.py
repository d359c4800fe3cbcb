"""The results of a model's stacks as one: layers counted through, relations told apart."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
from jaxtyping import Float
from numpy import ndarray

from headscope.heads import ASKED_OF, STACKS, HeadNames
from headscope.measure.example import Picture
from headscope.relations.contested import is_part
from headscope.relations.relation import TagThresholds
from headscope.statistics.columns import EVIDENCE_COLUMNS, HEAD_COLUMNS
from headscope.statistics.result import Result, RunInfo
from headscope.statistics.tags import UNCLASSIFIED


def join(
    parts: Mapping[str, Result | str], head_names: HeadNames, heads: int, info: RunInfo
) -> Result:
    """One result of all stacks.

    A relation that is asked of several is told by its stack from the second on, as in
    `obj:dep>head@D`: it is not the same question, as an encoder's words see those after them.

    Args:
        parts: of each stack its result, or the reason why nothing could be asked of it.
        head_names: the stacks and their layers.
        heads: of each layer.
        info: the record of the input; its notes stand behind those of the stacks.
    """
    tables, evidence, examples = [], [], []
    pictures: dict[tuple[int, int], Picture] = {}
    rules: dict[str, TagThresholds] = {}
    facts: dict[str, dict[str, Any]] = {"simple_rules": {}, "reliability": {}}
    summed: list[str] = []
    results = {letter: part for letter, part in parts.items() if isinstance(part, Result)}
    for letter, start, stop in head_names.starts():
        part = results.get(letter)
        if part is None:
            tables.append(_unasked(start, stop, heads, str(parts.get(letter, ""))))
            continue
        names = _names(part.rules, rules, letter)
        rules |= {names[name]: _renamed(rule, names) for name, rule in part.rules.items()}
        tables.append(_moved(part.heads, start, names))
        evidence.append(_moved(part.evidence, start, names))
        for key, values in facts.items():
            values |= {names[name]: value for name, value in part.info.get(key, {}).items()}
        pictures |= {(at + start, head): picture for (at, head), picture in part.pictures.items()}
        summed += [_of_part(name, names) for name in part.info.get("parts", ())]
        examples += [
            replace(
                example,
                layer=example.layer + start,
                relation=names.get(example.relation, example.relation),
            )
            for example in part.examples
        ]
    first = next(iter(results.values()))
    notes = [f"{STACKS[k]}: {note}" for k, part in results.items() for note in _notes(part)]
    info = replace(
        info,
        simple_rules=facts["simple_rules"],
        reliability=facts["reliability"],
        **_summed(list(results.values())),
        parts=summed,
        notes=[*notes, *info.notes],
        thresholds=first.info["thresholds"],
    )
    joined = pd.concat(tables, ignore_index=True)[HEAD_COLUMNS]
    table = pd.concat(evidence, ignore_index=True)[EVIDENCE_COLUMNS]
    means = _means(results, head_names)
    return Result(
        joined,
        table,
        rules,
        info.to_json(),
        examples=tuple(examples),
        means=means,
        pictures=pictures,
    )


def _means(
    results: Mapping[str, Result], head_names: HeadNames
) -> Float[ndarray, "layer head query key"] | None:
    """The mean patterns of all stacks; empty ones where a stack has none."""
    known = {letter: part.means for letter, part in results.items() if part.means is not None}
    if not known:
        return None
    shape = next(iter(known.values())).shape[1:]
    patterns = [
        known.get(k, np.zeros((stop - start, *shape))) for k, start, stop in head_names.starts()
    ]
    return np.concatenate(patterns)


def _notes(part: Result) -> list[str]:
    notes: list[str] = part.info.get("notes", [])
    return notes


def _names(
    rules: Mapping[str, TagThresholds], known: Mapping[str, TagThresholds], letter: str
) -> dict[str, str]:
    return {name: f"{name}{ASKED_OF}{letter}" if name in known else name for name in rules}


def _of_part(name: str, names: Mapping[str, str]) -> str:
    """The name of what is summed beside a relation."""
    relation, _, part = name.rpartition("/")
    return f"{names[relation]}/{part}" if is_part(name.partition("/")[2]) else name


def _renamed(rule: TagThresholds, names: Mapping[str, str]) -> TagThresholds:
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
    """Sums over what the stacks read."""
    provenance = dict(parts[0].info["provenance"])
    provenance["tokens"] = sum(part.info["provenance"]["tokens"] for part in parts)
    tokens = Counter[str]()
    for part in parts:
        tokens.update(part.info["provenance"].get("stimulus_tokens", {}))
    provenance["stimulus_tokens"] = dict(tokens)
    laps: dict[str, float] = {}
    files: dict[str, str] = {}
    for part in parts:
        for name, seconds in part.info["provenance"]["seconds"].items():
            laps[name] = laps.get(name, 0) + seconds
        files |= part.info["corpora"]["files"]
    provenance["seconds"] = laps
    read = [part.info["text_read"] for part in parts]
    changes = [
        read_part["expected_changes"]
        for read_part in read
        if read_part["expected_changes"] is not None
    ]
    decidable = [part.info["decidable"] for part in parts]
    return {
        "provenance": provenance,
        "decidable": {name: sum(counts[name] for counts in decidable) for name in decidable[0]},
        "corpora": {**parts[0].info["corpora"], "files": files},
        "types": sorted({name for part in parts for name in part.info["types"]}),
        "text_read": {
            "tokens": sum(read_part["tokens"] for read_part in read),
            "of": sum(read_part["of"] for read_part in read),
            "looks": max(read_part["looks"] for read_part in read),
            "expected_changes": sum(changes) if changes else None,
        },
    }
