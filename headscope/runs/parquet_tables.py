"""Tables of runs as Parquet: of one run for a notebook, of many as a data set."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pandas as pd

from headscope.models.packages import optional_package
from headscope.runs.folder import check_foreign
from headscope.runs.run_tables import RUN_TABLES
from headscope.runs.tables import table_to_parquet
from headscope.runs.write import write_files
from headscope.statistics.result import Result

SUFFIX = ".parquet"
DATA_SET = ("heads", "evidence")
"""Tables that every run has, and a data set of many."""


def check_parquet() -> None:
    """Refuse to begin what would end without a package.

    Raises:
        ModelError: pyarrow is not installed.
    """
    optional_package(f"a {SUFFIX} file", "pyarrow")


def tables_of(run: Result) -> dict[str, pd.DataFrame]:
    """The tables of a run by their names, those that it has."""
    tables = {"heads": run.heads, "evidence": run.evidence}
    others = {Path(table.file).stem: getattr(run, table.attribute) for table in RUN_TABLES}
    return tables | {name: table for name, table in others.items() if table is not None}


def write_run_tables(run: Result, folder: Path, *, overwrite: bool) -> list[Path]:
    """Write a file for each table of a run, all or none; see `headscope.run.Run.to_parquet`."""
    check_parquet()
    tables = {folder / f"{name}{SUFFIX}": table for name, table in tables_of(run).items()}
    for path in tables:
        check_foreign(path)
    contents = {path: table_to_parquet(table) for path, table in tables.items()}
    write_files(contents, overwrite=overwrite)
    return list(contents)


def joined_tables(runs: Mapping[str, Result]) -> dict[str, bytes]:
    """By file name the tables of several runs below each other, the run's name in the column `run`.

    A column that only some of the runs have is missing in the others.
    """
    contents = {}
    for name in DATA_SET:
        tables = {run: tables_of(result)[name] for run, result in runs.items()}
        joined = pd.concat([table.assign(run=run) for run, table in tables.items()])
        columns = ["run", *(column for column in joined.columns if column != "run")]
        contents[f"{name}{SUFFIX}"] = table_to_parquet(joined[columns])
    return contents
