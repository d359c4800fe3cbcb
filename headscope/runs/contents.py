"""The files of a run: their contents, made from its results and read back, by name.

All are written at once when the run ends, by `RunFolder.save`; until then a checkpoint keeps the
sums (`headscope.runs.checkpoint`). Studies such as `ablate` save the run again with their table.

======================= ============================================ ==================
file                    content                                      written by
======================= ============================================ ==================
`heads.csv`             a row per head                               `runs.tables`
`evidence.csv`          a row per head × relation; compressed        `runs.tables`
`effects.csv`           direct effects, if they were measured        `runs.tables`
`causal.csv`            causes, by `headscope ablate`                `runs.tables`
`feature_model.csv`     feature models, by `headscope explain`       `runs.tables`
`patterns/examples.*`   examples, if there are any                   `runs.patterns`
`patterns/mean.*`       mean patterns and pictures of heads          `runs.patterns`
`sums.npz`              the tally, with `--keep-sums`                `runs.sums_file`
`report.html`           the report                                   `views.report`
`run.json`              the record; checksums of all but the report  `runs.record`
======================= ============================================ ==================
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from itertools import chain, product
from pathlib import Path
from typing import Any, NamedTuple, NoReturn

import pandas as pd

from headscope.attention_kind import BIDIRECTIONAL, CAUSAL
from headscope.errors import HeadscopeError, RunError, first_line
from headscope.paths import RUN_RECORD
from headscope.relations import head_types, relations_of
from headscope.relations.relation import Threshold
from headscope.runs.patterns import (
    example_files,
    means_file,
    read_examples,
    read_means,
)
from headscope.runs.record import (
    FORMAT_VERSION,
    SHA256,
    VERSION,
    Record,
    record_json,
    record_sha256,
)
from headscope.runs.recorded_paths import inward, outward
from headscope.runs.sums_file import read_sums, sums_file
from headscope.runs.tables import EVIDENCE_TABLE, HEAD_TABLE, TABLES
from headscope.runs.write import utf8
from headscope.statistics.columns import (
    EFFECT_COLUMNS,
    EVIDENCE_COLUMNS,
    HEAD_COLUMNS,
    PRELIMINARY,
    REPLICATES,
)
from headscope.statistics.head_table import with_cautions, with_replicates
from headscope.statistics.replication import replicates
from headscope.statistics.result import Result, layers_of
from headscope.statistics.tags import is_preliminary, tags_in_order

RECORD, REPORT = RUN_RECORD, "report.html"
SUMS = "sums.npz"
PATTERNS, INDEX = "patterns/examples.safetensors", "patterns/examples.json"
MEANS = "patterns/mean.safetensors"
CHECKED = (*(table.file for table in TABLES), PATTERNS, INDEX, MEANS, SUMS)
"""Files that are read back, each with the sha256 of its content in `run.json`."""

AGAIN = "copy the folder again, or write it again with headscope classify --overwrite"


@contextmanager
def reading(path: Path) -> Iterator[None]:
    """Turn any error into a RunError that names the file.

    Raises:
        RunError: the file cannot be read, or is not what a run writes.
    """
    try:
        yield
    except HeadscopeError:
        raise
    except Exception as error:  # a file that was altered can make a library raise anything
        of_key = first_line(error) if isinstance(error, KeyError) else error
        reason = f"{getattr(error, 'strerror', None) or of_key}"
        raise RunError(f"{path}: this file of the run cannot be read: {reason:.300}") from error


def run_files(run: Result, folder: Path, report: str) -> dict[str, bytes]:
    """The files of a run that is written to this folder, by name."""
    # tables that the run has
    files: dict[str, bytes] = {}
    for table in TABLES:
        rows = getattr(run, table.attribute)
        if rows is not None:
            files[table.file] = utf8(table.csv(rows))
    # patterns of examples, mean patterns, and sums if they are kept
    if run.examples:
        patterns, index = example_files(run.examples)
        files |= {PATTERNS: patterns, INDEX: utf8(index)}
    if run.means is not None or run.pictures:
        files[MEANS] = means_file(run.means, run.pictures)
    if run.tally is not None and run.info.get("settings", {}).get("keep_sums"):
        files[SUMS] = sums_file(run.tally)
    # the record comes last, with the checksums of the other files
    info = {
        VERSION: FORMAT_VERSION,
        **outward(run.info, folder),
        "relations": {name: limits.record() for name, limits in run.thresholds.items()},
        "files": {name: _sha256(files[name]) for name in CHECKED if name in files},
    }
    return {**files, REPORT: utf8(report), RECORD: utf8(record_json(info))}


def run_from_files(
    content: Callable[[str], bytes], folder: Path, *, with_tally: bool = False
) -> Result:
    """The run whose files are given.

    Raises:
        RunError: a file is missing, or is not the one that was written.
    """
    info, record = _read_record(content(RECORD), folder)
    # files are checked against the record before any is parsed
    files = {}
    for name, sha256 in record.files.items():
        if name in CHECKED and (with_tally or name != SUMS):
            files[name] = content(name)
            if _sha256(files[name]) != sha256:
                _refuse_altered(folder / name)
    # tables and patterns as they were in memory
    parts: dict[str, Any] = {}
    for table in TABLES:
        if table.file in files:
            with reading(folder / table.file):
                parts[table.attribute] = table.read(files[table.file])
    if INDEX in files:
        with reading(folder / PATTERNS):
            parts["examples"] = read_examples(files[PATTERNS], files[INDEX])
    if MEANS in files:
        with reading(folder / MEANS):
            parts["means"], parts["pictures"] = read_means(files[MEANS])
    with reading(folder):
        thresholds = in_current_words(record.relations)
        run = Result(**parts, thresholds=thresholds, info=inward(info, folder))
        model = run.info["model"]
        layers: Sequence[int] = model.get("attention_layers") or range(model["layers"])
        count = len(layers) * model["heads"]
        # a forged number of layers must not be counted through
        expected: set[tuple[int, int]] = set()
        if count == len(run.heads):
            expected = set(product(layers, range(model["heads"])))
        faults = chain(_table_faults(run, expected, count), _pattern_faults(run, expected))
        fault = next(faults, None)
        if fault is not None:
            raise RunError(f"{folder / fault.file}: {fault.reason}; {AGAIN}")
    # runs of older versions lack some columns
    run = _with_columns_since_0_2_0(run)
    if SUMS in files:
        with reading(folder / SUMS):
            relations = (*run.thresholds, *run.info.get("parts", ()))
            shape = layers_of(run), int(run.heads["head"].max()) + 1
            run = replace(run, tally=read_sums(files[SUMS], relations, shape))
    return run


def in_current_words(thresholds: Mapping[str, Threshold]) -> dict[str, Threshold]:
    """Thresholds as a run has them, with the meanings that this version's relations state."""
    meanings = {}
    for kind in (BIDIRECTIONAL, CAUSAL):
        for relation in relations_of([*head_types()], kind):
            meanings[relation.id] = relation.thresholds.meaning
    return {
        name: replace(limits, meaning=meanings.get(name, limits.meaning))
        for name, limits in thresholds.items()
    }


class _Fault(NamedTuple):
    """A file of the run whose heads are not those of the model."""

    file: str
    reason: str


def _table_faults(run: Result, expected: set[tuple[int, int]], count: int) -> Iterator[_Fault]:
    """Tables whose heads are not those of the model."""
    # other tables may lack heads, but every head has a row of each relation in the evidence
    if _heads_of(run.heads) != expected or not expected:
        reason = f"{len(run.heads)} rows are not the {count} heads that {RECORD} states"
        yield _Fault(HEAD_TABLE.file, reason)
    for table in TABLES:
        rows = getattr(run, table.attribute)
        if rows is not None and "layer" in rows and not _heads_of(rows) <= expected:
            yield _Fault(table.file, "a row is of a head that the model does not have")
    rows_of_heads = run.evidence.groupby(["layer", "head"]).size()
    if len(rows_of_heads) != count or rows_of_heads.nunique() != 1:
        reason = f"the {count} heads do not have the same number of rows"
        yield _Fault(EVIDENCE_TABLE.file, reason)


def _pattern_faults(run: Result, expected: set[tuple[int, int]]) -> Iterator[_Fault]:
    """Files of patterns whose heads are not those of the model."""
    of_examples = {(example.layer, example.head) for example in run.examples}
    if not of_examples <= expected:
        yield _Fault(INDEX, "an example is of a head that the model does not have")
    means = run.means
    of_pictures = set(run.pictures)
    is_whole = means is None or means.shape[0] * means.shape[1] == len(expected)
    if not is_whole or not of_pictures <= expected:
        yield _Fault(MEANS, "its heads are not those of the model")


def _heads_of(rows: pd.DataFrame) -> set[tuple[int, int]]:
    pairs = rows[["layer", "head"]].dropna().itertuples(index=False, name=None)
    return {(int(layer), int(head)) for layer, head in pairs}


def _with_columns_since_0_2_0(run: Result) -> Result:
    """A run of version 0.2.0 with the columns that it lacks: cautions, and `replicates` of heads.

    Its surrogates were compared by another number: what there is now has no value. Its verdicts
    do not depend on `replicates`, which the evidence therefore lacks.
    """
    if PRELIMINARY in run.evidence:
        return run
    table = run.evidence_with_thresholds
    table = table.assign(**{PRELIMINARY: is_preliminary(table), REPLICATES: replicates(table)})
    # what can be computed from its evidence is added, and the rest is missing
    heads = with_cautions(run.heads, tags_in_order(table))
    heads = with_replicates(heads, table)
    evidence = run.evidence.assign(**{PRELIMINARY: table[PRELIMINARY].to_numpy()})
    evidence = evidence.reindex(columns=EVIDENCE_COLUMNS)
    later = [name for name in run.heads.columns if name not in HEAD_COLUMNS]
    effects = run.effects
    if effects is not None:
        effects = effects.reindex(columns=EFFECT_COLUMNS)
    return replace(run, evidence=evidence, heads=heads[[*HEAD_COLUMNS, *later]], effects=effects)


def _read_record(content: bytes, folder: Path) -> tuple[dict[str, Any], Record]:
    """The content of `run.json` as it is in memory, and the parts of it that are of the folder."""
    path = folder / RECORD
    with reading(path):
        info = json.loads(content)
        if info.pop(VERSION, None) != FORMAT_VERSION:
            raise RunError(f"{folder} was made by an earlier version of headscope: classify again")
        record = Record.model_validate(info)
        if record_sha256({VERSION: FORMAT_VERSION, **info}) != info["provenance"].pop(SHA256, None):
            _refuse_altered(path)
        del info["files"]
        return info, record


def _sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def _refuse_altered(path: Path) -> NoReturn:
    raise RunError(
        f"{path}: this file is not the one that was written (its sha256 is not that in {RECORD}): "
        f"edited, cut short or from another run; {AGAIN}"
    )
