"""Run folders: written whole or not at all, readable without headscope."""

from __future__ import annotations

import json
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
from safetensors.numpy import load_file, save_file

from headscope.cache import StoredExamples, write_examples
from headscope.causal import read_causes
from headscope.errors import RunError
from headscope.relations.relation import Rule
from headscope.run import Run
from headscope.tally import Profile, Tally

if TYPE_CHECKING:
    from numpy import ndarray

RUN, EVIDENCE, HEADS, TALLY = "run.json", "evidence.csv", "heads.csv", "tally.safetensors"
REPORT = "report.html"
_FORMAT = "%.6g"  # far below the width of any interval


def check_free(folder: Path, *, overwrite: bool) -> None:
    """Refuse a folder that holds something that a run must not replace.

    Raises:
        RunError: a run is there already (and `overwrite` is off), or other files are, or it
            cannot be written.
    """
    if folder.exists() and not folder.is_dir():
        raise RunError(f"{folder} is a file; --out names a folder")
    if folder.is_dir() and any(folder.iterdir()):
        if not (folder / RUN).is_file():
            raise RunError(f"{folder} holds other files and no run; choose an empty or new folder")
        if not overwrite:
            raise RunError(
                f"{folder} holds a run already; choose another --out, or add --overwrite"
            )
    try:
        with _beside(folder):
            pass
    except OSError as error:
        raise RunError(f"{folder} cannot be written: {error.strerror}") from error


def save(run: Run, folder: Path, *, overwrite: bool = False) -> Path:
    """Write the tables, the sums, the examples' patterns and the report.

    The files are written beside the folder and then moved into place, so that a run folder is
    either complete or absent.

    Raises:
        RunError: see `check_free`.
    """
    check_free(folder, overwrite=overwrite)
    if run.tally is None and (folder / TALLY).is_file():
        raise RunError(
            f"{folder} holds the sums of its run, and this one was loaded without them; "
            "load it with_tally=True, or save it elsewhere"
        )
    try:
        with _beside(folder) as new:
            _write(run, new)
            if folder.exists():
                old = new.with_name(new.name + ".old")
                folder.rename(old)
                new.rename(folder)
                shutil.rmtree(old)
            else:
                new.rename(folder)
    except OSError as error:
        raise RunError(f"{folder} cannot be written: {error.strerror or error}") from error
    return folder


def load(folder: str | Path, *, with_tally: bool = False) -> Run:
    """Read a run folder back.

    Args:
        folder: the folder that `save` wrote.
        with_tally: read the sums too, which only merging needs.

    Raises:
        RunError: no run there, or one that is damaged.
    """
    folder = Path(folder)
    if not (folder / RUN).is_file():
        raise RunError(
            f"{folder}: no run here ({RUN} is missing); write one with headscope classify"
        )
    try:
        info = json.loads((folder / RUN).read_text(encoding="utf-8"))
        rules = {name: Rule(**rule) for name, rule in info["relations"].items()}
        evidence = _read_table(folder / EVIDENCE, _SCORES)
        heads = _read_table(folder / HEADS, _NUMBERS)
        tally, twin = _read_tallies(folder / TALLY, tuple(rules)) if with_tally else (None, None)
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise RunError(f"{folder}: this run is damaged: {error}") from error
    causes = read_causes(folder)
    return Run(heads, evidence, rules, info, tally, twin, StoredExamples(folder), causes)


_NAMES = dict.fromkeys(("type", "relation", "primary", "tags", "shape", "reason"), str)
_SCORES = (
    "mass", "control", "lift", "ci_low", "ci_high", "q_value", "hit_rate", "best_offset_rate",
    "twin_p999", "chance",
)  # fmt: skip


def _read_table(path: Path, numbers: tuple[str, ...]) -> pd.DataFrame:
    # a relation may be called "1", "null" or "NA": only numbers can be missing
    missing = dict.fromkeys(numbers, "")
    return pd.read_csv(path, dtype=_NAMES, keep_default_na=False, na_values=missing)


_NUMBERS = (
    "score", "control", "lift", "ci_low", "ci_high", "q_value", "first_token_mass", "entropy",
    "mean_distance", "variability",
)  # fmt: skip


def _write(run: Run, folder: Path) -> None:
    rules = {name: asdict(rule) for name, rule in run.rules.items()}
    info = {**run.info, "relations": rules}
    text = json.dumps(info, indent=1, ensure_ascii=False, allow_nan=False)
    (folder / RUN).write_text(text + "\n", encoding="utf-8")
    run.evidence.to_csv(folder / EVIDENCE, index=False, float_format=_FORMAT, lineterminator="\n")
    run.heads.to_csv(folder / HEADS, index=False, float_format=_FORMAT, lineterminator="\n")
    if run.examples:
        write_examples(run.examples, folder)
    (folder / REPORT).write_text(run.report(), encoding="utf-8")
    if run.tally is not None:
        arrays = dict(run.tally.arrays())
        if run.twin is not None:
            arrays |= {f"{_TWIN}{name}": array for name, array in run.twin.arrays().items()}
        save_file({name: np.asarray(a, order="C") for name, a in arrays.items()}, folder / TALLY)


_TWIN = "twin."


def _read_tallies(path: Path, relations: tuple[str, ...]) -> tuple[Tally, Tally | None]:
    arrays: dict[str, ndarray] = load_file(path)
    twin = {n.removeprefix(_TWIN): a for n, a in arrays.items() if n.startswith(_TWIN)}
    own = {n: a for n, a in arrays.items() if not n.startswith(_TWIN)}
    return _tally(own, relations), _tally(twin, relations) if twin else None


def _tally(arrays: dict[str, ndarray], relations: tuple[str, ...]) -> Tally:
    parts: dict[str, Any] = {n: a for n, a in arrays.items() if not n.startswith("profile.")}
    profile = {n.split(".", 1)[1]: a for n, a in arrays.items() if n.startswith("profile.")}
    return Tally(relations=relations, profile=Profile(**profile), **parts)


@contextmanager
def _beside(folder: Path) -> Iterator[Path]:
    """A new folder next to the final one, removed unless it was moved away."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    new = Path(tempfile.mkdtemp(prefix=f".{folder.name}.", dir=folder.parent))
    new.chmod(0o755)  # mkdtemp makes it private
    try:
        yield new
    finally:
        shutil.rmtree(new, ignore_errors=True)
