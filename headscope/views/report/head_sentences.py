"""Lines of plain words on what a head writes, whether it matters and what its account is.

And the conditions that a tag asks for, one by one, with the numbers of a head.
"""

from __future__ import annotations

from typing import Any

import pandas as pd

from headscope.statistics.causes import BEHAVIOURS, BREAKS, EDGES, IDLE, NO_CAUSE
from headscope.statistics.columns import GENERAL, rows_of_head
from headscope.statistics.conditions import CONDITIONS, Numbers
from headscope.statistics.head_lists import partial_sink_lines
from headscope.statistics.result import Result
from headscope.statistics.tags import with_rules

_MATTERS = {
    BREAKS: "It matters",
    IDLE: "It writes, but does not matter",
    NO_CAUSE: "No cause is shown",
}


def head_sentences(run: Result) -> dict[tuple[int, int], list[str]]:
    """The lines of each head: general labels and partial rest, and of what the run measured more.

    Args:
        run: a run; with `effects` for what heads write, `causes` for whether it matters, and
            `accounts` for the rule that stands in for a head's attention.

    Returns:
        By layer and head.
    """
    rests = partial_sink_lines(run.evidence, run.rules)
    general = _general(run.evidence[run.evidence["tagged"].astype(bool)])
    lines: dict[tuple[int, int], list[str]] = {}
    for row in run.heads.to_dict("records"):
        key = row["layer"], row["head"]
        lines[key] = [*general.get(key, ()), *filter(None, [rests.get(key)])]
        lines[key] += [*_writes(run, row), *_matters(run.causes, row), *_account(run, row)]
    return lines


def _general(tags: pd.DataFrame) -> dict[tuple[int, int], list[str]]:
    """Sentences on the general labels of heads' tags, each once, by layer and head."""
    sentences: dict[tuple[int, int], dict[str, None]] = {}
    for layer, head, kind, name in tags[["layer", "head", "type", GENERAL]].to_numpy().tolist():
        if not pd.isna(name) and name:
            sentence = f"General tag {kind}/{name}: the head does not tell these labels apart."
            sentences.setdefault((layer, head), {})[sentence] = None
    return {key: list(once) for key, once in sentences.items()}


def _writes(run: Result, row: dict[Any, Any]) -> list[str]:
    if run.effects is None:
        return []
    effects = rows_of_head(run.effects, row["layer"], row["head"])
    tested = effects[effects["ci_low"].notna()]
    if tested.empty:
        return []
    tagged = tested[tested["tagged"].eq(True)]
    if tagged.empty:
        return [f"What it writes earned no tag ({_kinds(len(tested))} of write measured)."]
    order = tagged["lift"].abs().sort_values(ascending=False).index
    return [_write(run, effect) for effect in tagged.loc[order].to_dict("records")]


def _write(run: Result, effect: dict[Any, Any]) -> str:
    name = f"{effect['type']}/{effect['effect']}"
    facts = run.info.get("effects", {}).get(f"writes/{name}", {})
    meaning = facts.get("meaning", name)
    return (
        f"What it writes {meaning}: by {abs(effect['lift']):.2f} logits against control tokens "
        f"(the difference lies between {effect['ci_low']:+.2f} and {effect['ci_high']:+.2f}, over "
        f"{effect['n']} queries; {effect['type']})."
    )


def _matters(causes: pd.DataFrame | None, row: dict[Any, Any]) -> list[str]:
    if causes is None:
        return []
    head_causes = rows_of_head(causes, row["layer"], row["head"])
    tested = head_causes[
        head_causes["kind"].isin(["head", "tag"]) & head_causes["verdict"].isin(list(_MATTERS))
    ]
    return [_cause(cause) for cause in tested.to_dict("records")]


def _cause(cause: dict[Any, Any]) -> str:
    """One verdict; the control's effect stands beside it, where there is one."""
    what, unit = BEHAVIOURS[cause["behaviour"]]
    if cause["behaviour"] == EDGES:
        done = (
            f"without its attention on the targets of {cause['type']}/{cause['relation']}, {what}"
        )
        change = f"moves by {cause['effect']:.4f} nats"
        other = f"{cause['control']:.4f} where as much attention is moved from control keys"
    else:
        done = f"without the head, {what}"
        change = f"changes by {cause['effect']:+.3f} {unit}"
        other = f"{cause['control']:+.3f} without a head of its depth and size"
    control_note = "" if pd.isna(cause["control"]) else f", {other}"
    return f"{_MATTERS[cause['verdict']]}: {done} {change}{control_note}."


def _account(run: Result, row: dict[Any, Any]) -> list[str]:
    if run.accounts is None or pd.isna(row.get("explained")):
        return []
    return [f"Its account (the rule explains {row['explained']:.0%} of its bits): {row['rule']}"]


def _kinds(count: int) -> str:
    return f"{count} kind{'' if count == 1 else 's'}"


def ladders(run: Result) -> list[dict[str, Any]]:
    """Relations that each head has a tag by or is shown by, with their conditions.

    A condition is its name, what it says of the head, and whether it holds.
    """
    examples_of = {(e.layer, e.head, e.relation) for e in run.examples if e.relation}
    evidence = run.evidence
    table = with_rules(evidence, run.rules)  # of all rows: some conditions are of another's
    places = zip(table["layer"].tolist(), table["head"].tolist(), table["id"], strict=True)
    with_examples = pd.Series(
        [row_id in examples_of for row_id in places], index=table.index, dtype=bool
    )
    table = table[with_examples | table["tagged"].astype(bool)]
    if table.empty:
        return []
    table = table.sort_values(["tagged", "lift"], ascending=False, kind="stable")
    numbers = Numbers(table)
    applicable = {c.name: None if c.applies is None else c.applies(numbers) for c in CONDITIONS}
    fails = {c.name: c.fails(numbers).tolist() for c in CONDITIONS}
    margins = {c.name: None if c.margin is None else c.margin(numbers) for c in CONDITIONS}
    return [
        {
            "layer": int(row["layer"]),
            "head": int(row["head"]),
            "relation": row["id"],
            "steps": [
                [
                    c.name,
                    c.account(row, margins[c.name], i) if fails[c.name][i] else c.say(row),
                    int(not fails[c.name][i]),
                ]
                for c in CONDITIONS
                if (where := applicable[c.name]) is None or where[i]
            ],
        }
        for i, row in enumerate(table.to_dict("records"))
    ]
