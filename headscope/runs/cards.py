"""Head cards: a run as one JSON file that can be cited, with each head's tags and near misses.

A card holds what `run.json` records of the run but for paths, a BibTeX entry, and a record per
head. It lacks the relations that a head has not nearly earned, so that studies need the run itself.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import pandas as pd
from pydantic import BaseModel, ConfigDict

from headscope.errors import RunError
from headscope.heads import head_name
from headscope.paths import given_file
from headscope.relations.relation import Threshold
from headscope.runs.contents import in_current_words, reading
from headscope.runs.recorded_paths import PLACES
from headscope.runs.tables import (
    CAUSE_TABLE,
    EFFECT_TABLE,
    EVIDENCE_TABLE,
    HEAD_TABLE,
    RunTable,
    table_to_csv,
)
from headscope.statistics.columns import EXPLAINED_COLUMNS, HEAD_COLUMNS, rows_of_head
from headscope.statistics.head_lists import partial_sinks
from headscope.statistics.head_table import closest_rows
from headscope.statistics.reasons import rows_to_report
from headscope.statistics.result import Result
from headscope.user_tables import json_content

VERSION = "card_version"
LISTS = (EVIDENCE_TABLE, EFFECT_TABLE, CAUSE_TABLE)
"""Tables whose rows are lists of a head's record, by the tables' attributes."""
HEAD = ["layer", "head"]
OMITTED = (PLACES, "baselines", "parts")
"""Keys of `run.json` that cards lack: paths, and what each head's evidence states."""
REPOSITORY = "https://github.com/headscope/headscope"
_HEAD_COLUMNS = (*HEAD_COLUMNS, *EXPLAINED_COLUMNS)
CHECKSUM_DIGITS = 12
"""Digits of a checksum in the BibTeX entry."""


class CardFile(BaseModel):
    """The part of a card that is read back; every other key is one of `run.json`."""

    model_config = ConfigDict(extra="allow")

    card_version: Literal[1]
    model: dict[str, Any]
    corpora: dict[str, Any] | None = None
    provenance: dict[str, Any] | None = None
    settings: dict[str, Any] | None = None
    text_loss: dict[str, Any] | None = None
    text_read: dict[str, Any] | None = None
    relations: dict[str, Threshold]
    """Thresholds of the relations that the heads' evidence names."""
    heads: list[dict[str, Any]]


def card_json(run: Result) -> str:
    """The card of a run.

    >>> from headscope.resolve import load
    >>> card = json.loads(card_json(load("atlas:mini")))
    >>> card["heads"][-1]["name"], card["heads"][-1]["evidence"][0]["relation"]
    ('L5H7', 'in-word')
    """
    # of each head its tags, near misses and undecided relations, and their paired relations
    table = run.evidence_with_thresholds
    singles = pd.concat([closest_rows(table), partial_sinks(table)])
    places: list[int] = []
    for (layer, head), rows in table.groupby(HEAD, sort=True):
        reported = rows_to_report(rows, layer, head)
        reported_names = dict.fromkeys(reported.all["id"])
        reported_names |= dict.fromkeys(rows_of_head(singles, layer, head)["id"])
        for name in list(reported_names):
            pair = run.thresholds[name].paired_relation
            if pair is not None:
                reported_names[pair] = None
        place_of = dict(zip(rows["id"], rows.index, strict=True))
        places += [place_of[name] for name in reported_names if name in place_of]
    evidence = run.evidence.iloc[places][EVIDENCE_TABLE.columns]
    # provenance and text, but no paths of this machine
    card: dict[str, Any] = {VERSION: 1, "bibtex": bibtex(run)}
    for key, value in run.info.items():
        if key not in OMITTED:
            card[key] = value
    # thresholds, without which the evidence has no verdicts
    thresholds = {}
    for name in sorted(set(evidence["type"] + "/" + evidence["relation"])):
        thresholds[name] = run.thresholds[name].record()
    card["relations"] = thresholds
    card["heads"] = _head_records(replace(run, evidence=evidence))
    return json.dumps(card, indent=1, ensure_ascii=False, allow_nan=False) + "\n"


def read_card(path: str | Path) -> Result:
    """The run of a card: all heads, and the evidence on tags and near misses.

    Raises:
        RunError: the file is no card.
        HeadscopeError: there is no such file.
    """
    raw = given_file(path, "a head card, as headscope export cards writes it")
    with reading(Path(path)):
        content = json_content(raw, str(path), RunError)
        card = CardFile.model_validate(content)
        # the rows of a table are lists of its heads; a run without the table has none of them
        tables: dict[str, Any] = dict.fromkeys([table.attribute for table in LISTS])
        for table in LISTS:
            if not any(table.attribute in record for record in card.heads):
                continue
            rows: list[dict[str, Any]] = []
            for record in card.heads:
                layer_and_head = {column: record[column] for column in HEAD}
                rows += [{**layer_and_head, **row} for row in record[table.attribute]]
            tables[table.attribute] = _table(table, rows)
        # a record also has a name, the lists, and what a later version adds
        heads = [
            {name: value for name, value in record.items() if name in _HEAD_COLUMNS}
            for record in card.heads
        ]
        info = {name: value for name, value in content.items() if name != "heads"}
        return Result(
            heads=_table(HEAD_TABLE, heads),
            evidence=tables["evidence"],
            effects=tables["effects"],
            causes=tables["causes"],
            thresholds=in_current_words(card.relations),
            info=info,
        )


def check_no_card(run: Result) -> None:
    """Check that a run has all of its evidence.

    Raises:
        RunError: it was read from a card.
    """
    if VERSION in run.info:
        raise RunError(
            f"{run.name}: a head card has the evidence on tags and near misses alone; this needs "
            "the run folder"
        )


def bibtex(run: Result) -> str:
    """A BibTeX entry of the run: model, revision, checksum, text and version.

    >>> from headscope.resolve import load
    >>> print(bibtex(load("atlas:mini")).partition(",")[0])
    @misc{headscope-mini
    """
    # what was read, and the checksums by which it is found again
    model = run.info["model"]
    provenance = run.info.get("provenance", {})
    version = provenance.get("versions", {}).get("headscope", "")
    corpora = ", ".join(run.info.get("corpora", {}).get("asked", ())) or "synthetic stimuli"
    tokens = run.info.get("text_read", {}).get("tokens")
    notes = [f"text: {corpora}" + (f", {tokens:,} tokens" if tokens else "")]
    if model.get("revision"):
        notes.append(f"revision {model['revision']}")
    for checksum in model.get("weights_sha256", {}).values():
        notes.append(f"weights sha256 {checksum[:CHECKSUM_DIGITS]}")
    fields = {
        "title": f"Attention heads of {run.name}, tagged by headscope {version}",
        "note": "; ".join(notes),
        "howpublished": REPOSITORY,
    }
    if provenance.get("time"):
        fields["year"] = provenance["time"][:4]
    key = re.sub(r"[^A-Za-z0-9.]+", "-", run.name).strip("-")
    # for TeX, characters of its commands are escaped, and braces and backslashes left out
    lines = []
    for name, text in fields.items():
        plain = re.sub(r"[{}\\]", "", text)
        escaped = re.sub(r"([_%&#$])", r"\\\1", plain)
        lines.append(f"  {name} = {{{escaped}}},")
    return "\n".join([f"@misc{{headscope-{key},", *lines, "}"])


def _head_records(run: Result) -> list[dict[str, Any]]:
    """A record per head: the columns of heads.csv, and its rows of the other tables."""
    records = []
    for record in _records(run.heads):
        lists = {}
        for table in LISTS:
            rows = getattr(run, table.attribute)
            if rows is not None:
                rows = rows_of_head(rows, record["layer"], record["head"])
                lists[table.attribute] = _records(rows.drop(columns=HEAD))
        records.append({"name": head_name(record["layer"], record["head"]), **record, **lists})
    return records


def _table(table: RunTable, rows: Sequence[Mapping[str, Any]]) -> pd.DataFrame:
    """A table with the columns and kinds of a run folder's.

    Raises:
        ValueError: a row lacks what is never missing, such as a text.
    """
    # required fields, and the optional ones only if some row has them
    required = [name for name in table.columns if table.kinds.get(name) in ("str", "bool", "int64")]
    for number, row in enumerate(rows):
        optional = (*table.added_columns, *table.newest_columns)
        missing = [name for name in required if name not in row and name not in optional]
        if missing:
            raise ValueError(f"{table.attribute}: row {number} has no {missing[0]}")
    columns = [*table.columns]
    if any(name in row for name in table.later_columns for row in rows):
        columns += table.later_columns
    frame = pd.DataFrame(rows, columns=columns)
    # whole numbers with gaps would be written as fractions
    kinds = {name: table.kinds.get(name) for name in columns}
    count_columns = [name for name, kind in kinds.items() if kind in ("int64", "Int64")]
    frame = frame.astype(dict.fromkeys(count_columns, "Int64"))
    return table.read(table_to_csv(frame).encode())


def _records(table: pd.DataFrame) -> list[dict[str, Any]]:
    """The rows of a table with six digits of each fraction, as in a run folder.

    A number that is missing has no key.
    """
    records = []
    for row in table.to_dict("records"):
        record = {}
        for name, value in row.items():
            if not pd.isna(value):
                record[str(name)] = _plain(value)
        records.append(record)
    return records


def _plain(value: Any) -> Any:
    return float(f"{value:.6g}") if isinstance(value, float) else value
