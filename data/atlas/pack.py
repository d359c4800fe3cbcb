"""Runs as a folder of atlases: a packed file each, a table of them, and a data set card."""

from __future__ import annotations

import gzip
import io
import lzma
import re
import tarfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from jaxtyping import Bool
from jinja2 import Environment, StrictUndefined
from numpy import ndarray

from headscope.corpus.read import file_sha256
from headscope.corpus.shipped import named_corpora
from headscope.models.packaged import PACKAGED
from headscope.resolve import load, run_names
from headscope.runs.atlas import MEMBERS, SUFFIX, TABLE
from headscope.runs.contents import run_files
from headscope.runs.recorded_paths import PLACES, lies
from headscope.runs.site import new_site
from headscope.runs.tables import table_to_csv
from headscope.runs.write import write_file
from headscope.statistics.conditions import failures
from headscope.statistics.result import Result
from headscope.statistics.tags import NO_TYPE, verdicts, with_thresholds
from headscope.views.gallery import Card, card_of, folder_names

CARD = "README.md"
HEADS, EVIDENCE, SCHEMA = "heads.csv", "evidence.csv.gz", "schema.csv"
"""Tables of all models together for pandas and `datasets`, and the meaning of their columns."""
COLUMNS_PAGE = Path(__file__).parents[2] / "docs" / "reference" / "columns.md"
STEPS_OF_ATTENTION = 100
"""Equal steps from 0 to 1 in which an atlas keeps the attention of examples: as fine as what a
report draws, and a fifth of the bytes of half precision."""
DECIMALS = 4
"""Decimals of masses, rates and intervals in an atlas: one more than `why` prints."""
FINER = {"chance": 6, "mass_error": 6, "control_error": 6}
"""Decimals of columns with values far below 0.1."""
Q_DIGITS = 3
"""Significant digits of q values."""
_PERSONAL = ("time", "seconds")
"""Provenance that another machine would have otherwise."""


def export_atlases(runs: Sequence[Path], out: Path, *, with_tables: bool = True) -> Path:
    """Pack runs into a folder that can be published as a data set.

    Args:
        runs: the run folders.
        out: the folder, which is replaced.
        with_tables: write the heads and the evidence of all models as tables too, with the meaning
            of their columns; those that ship with headscope are read from the atlases alone.

    Returns:
        The data set card, `README.md`; `atlases.csv` next to it has a row per atlas.
    """
    cards, rows = [], list[dict[str, Any]]()
    with new_site(out, overwrite=True) as new:
        for run, name in zip(runs, folder_names(run_names(runs)), strict=True):
            result = load(run)
            file = pack(result, new / f"{name}{SUFFIX}")
            cards.append(card_of(result, name, file.name))
            rows.append(_row(result, cards[-1], file))
        table = pd.DataFrame(rows)
        write_file(new / TABLE, table_to_csv(table))
        write_file(new / CARD, atlas_card(cards, table, with_tables=with_tables))
        if with_tables:
            for file_name, content in tables(runs).items():
                write_file(new / file_name, content)
    return out / CARD


def tables(runs: Sequence[Path]) -> dict[str, bytes]:
    """The heads and the evidence of all runs as files, with a column `model`, and their schema.

    Rows of `schema.csv` name the table, the column, its type in pandas, and what
    docs/reference/columns.md says of it.
    """
    heads, evidence = list[pd.DataFrame](), list[pd.DataFrame]()
    for name, run in zip(folder_names(run_names(runs)), map(load, runs), strict=True):
        heads.append(run.heads.rename_axis("name").reset_index())
        evidence.append(run.evidence)
        for frame in (heads[-1], evidence[-1]):
            frame.insert(0, "model", name)
    whole = {HEADS: pd.concat(heads), EVIDENCE: pd.concat(evidence)}
    meanings = _column_meanings()
    schema = [
        (file, column, str(dtype), *meanings[column])
        for file, frame in whole.items()
        for column, dtype in frame.dtypes.items()
    ]
    columns = ["table", "column", "dtype", "unit and range", "meaning"]
    files = {file: table_to_csv(frame).encode() for file, frame in whole.items()}
    files[SCHEMA] = table_to_csv(pd.DataFrame(schema, columns=columns)).encode()
    # without the time of packing, so that equal runs give equal bytes
    files[EVIDENCE] = gzip.compress(files[EVIDENCE], mtime=0)
    return files


def _column_meanings() -> dict[str, tuple[str, str]]:
    """Unit and meaning of each column, from the tables of docs/reference/columns.md."""
    meanings = {"model": ("a name", "name of the model's atlas without its suffix")}
    for line in COLUMNS_PAGE.read_text("utf-8").splitlines():
        cells = [cell.strip() for cell in line.strip("| ").split(" | ")]
        if line.startswith("| `") and len(cells) == 3:
            for column in re.findall(r"`(\w+)`", cells[0]):
                meanings.setdefault(column, (cells[1], cells[2]))
    return meanings


def _row(run: Result, card: Card, file: Path) -> dict[str, Any]:
    model, versions = run.info["model"], run.info["provenance"]["versions"]
    return {
        "file": file.name,
        "model": card.model,
        "revision": card.revision,
        "architecture": model.get("architecture", ""),
        "licence": _licence(card.model),
        "layers": card.layers,
        "heads": card.total,
        "tagged": sum(share.heads for share in card.shares if share.type not in NO_TYPE),
        "corpus": card.text,
        "tokens": card.tokens,
        "command": run.info.get("command", ""),
        "headscope": versions.get("headscope", ""),
        "bytes": file.stat().st_size,
        "sha256": file_sha256(file),
    }


def _licence(model: str) -> str:
    """The licence of a model that has a name of headscope's; of others their pages say it."""
    if model in PACKAGED:
        return PACKAGED[model].licence
    return "MIT" if model == "mini" else ""


def atlas_card(cards: Sequence[Card], table: pd.DataFrame, *, with_tables: bool) -> str:
    """The card of a data set of atlases, as Markdown with the header that a hub reads.

    Args:
        cards: of the atlases.
        table: a row for each.
        with_tables: the tables of all models lie beside it.
    """
    text = Path(__file__).with_name("card.md").read_text("utf-8")
    atlases = list(zip(cards, table.itertuples(), strict=True))
    template = Environment(undefined=StrictUndefined, keep_trailing_newline=True).from_string(text)
    return template.render(
        atlases=atlases,
        decimals=DECIMALS,
        step=f"{1 / STEPS_OF_ATTENTION:g}",
        with_tables=with_tables,
    )


def pack(run: Result, path: Path) -> Path:
    """Write a run as an atlas.

    Heads, evidence, mean patterns, examples and the tables of studies are in it; the sums and the
    report are not, nor when and how fast the run was made. The file states nothing of its machine,
    and the same run gives the same bytes. Its name ends in `.tar.xz`.

    Raises:
        WriteError: the file is there already, or cannot be written.
    """
    files = run_files(_smaller(run), path.parent, report="")
    stream = io.BytesIO()
    with (
        lzma.open(stream, "wb", preset=lzma.PRESET_EXTREME | 9) as compressed,
        tarfile.open(fileobj=compressed, mode="w", format=tarfile.USTAR_FORMAT) as archive,
    ):
        for name in MEMBERS:
            if name in files:
                member = tarfile.TarInfo(name)
                member.size, member.mode = len(files[name]), 0o644
                archive.addfile(member, io.BytesIO(files[name]))
    return write_file(path, stream.getvalue())


def _smaller(run: Result) -> Result:
    """The run as an atlas keeps it."""
    examples = []
    for example in run.examples:
        steps = np.round(example.pattern.astype(np.float64) * STEPS_OF_ATTENTION)
        coarse = (steps / STEPS_OF_ATTENTION).astype(np.float16)
        examples.append(replace(example, pattern=coarse))
    heads, evidence = _rounded(run.heads), rounded_evidence(run)
    info = _impersonal(run.info)
    note = (
        "an atlas: a run without its sums; attention of examples is rounded to "
        f"{1 / STEPS_OF_ATTENTION:g}, and any other text needs the model, which show and serve load"
    )
    notes = [*dict.fromkeys([*info.get("notes", ()), note])]
    info = info | {"notes": notes}
    return replace(run, heads=heads, evidence=evidence, examples=examples, info=info, tally=None)


def rounded_evidence(run: Result) -> pd.DataFrame:
    """The evidence with fewer digits, but for rows that rounding would move over a threshold.

    Verdicts are not judged again, and must follow from the numbers beside them: each row fails the
    same conditions as before.
    """
    before = run.evidence_with_thresholds
    after = with_thresholds(_rounded(run.evidence), run.thresholds)
    is_moved = (failures(before) != failures(after)).any(axis=1)
    is_moved |= verdicts(before) != verdicts(after)
    # a condition may be on the paired relation of the same head
    exact = set[tuple[int, int, str]]()
    for name in ("id", "paired_relation"):
        columns = before.loc[is_moved, ["layer", "head", name]]
        exact.update(columns.itertuples(index=False, name=None))
    rows = before[["layer", "head", "id"]].itertuples(index=False, name=None)
    return _rounded(run.evidence, exact=np.array([row in exact for row in rows], bool))


def _rounded(table: pd.DataFrame, exact: Bool[ndarray, " row"] | bool = False) -> pd.DataFrame:
    """A table with fewer digits, which are most of the bytes of an atlas, but for exact rows."""
    rounded = table.copy()
    for column in table.select_dtypes("float").columns:
        if column == "q_value":
            fewer = [float(f"{value:.{Q_DIGITS}g}") for value in table[column]]
        else:
            fewer = table[column].round(FINER.get(column, DECIMALS))
        rounded[column] = np.where(exact, table[column], fewer)
    return rounded


def _impersonal(info: dict[str, Any]) -> dict[str, Any]:
    """The record of a run without times, and without paths of the machine that made it."""
    provenance = {key: v for key, v in info["provenance"].items() if key not in _PERSONAL}
    if PLACES not in info:
        return info | {"provenance": provenance}
    shipped = {lies(path) for path in named_corpora().values()}
    places = {name: None for name in info[PLACES] if name != "corpora"}
    corpora = [path if path in shipped else None for path in info[PLACES].get("corpora", ())]
    return info | {"provenance": provenance, PLACES: {**places, "corpora": corpora}}
