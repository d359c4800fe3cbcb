"""Packed sums are the sums, to the last bit, and no file of them fills the memory."""

from __future__ import annotations

import io
import tracemalloc
import zipfile
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import headscope as hs
from headscope.measure.tally import GRAIN, Tally
from headscope.relations import relations_of
from headscope.run import load
from headscope.runs.sums_file import from_npz, read_sums, sums_file, to_npz
from headscope.runs.tables import table_to_csv
from headscope.statistics.columns import SURROGATE_COLUMNS
from headscope.statistics.judge_heads import weigh_run
from headscope.statistics.result import Result
from tests.helpers.run_folders import record_of
from tests.limits import no_hang

TYPES = ["positional", "induction", "syntactic"]
NAMES = ("positional/a", "syntactic/b", "syntactic/b/hard")
SHAPE = ((0, 2), 3)
AFTER_SURROGATES = [*SURROGATE_COLUMNS, "verdict", "tagged", "replicates"]
"""Columns that need the model once more."""


def drawn(seed: int = 0) -> Tally:
    """Sums in some blocks, of some relations; one is below 0, as effects are."""
    rng, tally = np.random.default_rng(seed), Tally.zeros(NAMES, *SHAPE)
    for block, relation in ((0, 0), (7, 0), (63, 1), (7, 2)):
        for sums in (tally.target, tally.control):
            sums[block, relation] = np.rint(rng.normal(0, 300, (2, 3)) / GRAIN) * GRAIN
        tally.hits[block, relation] = rng.integers(0, 300, (2, 3))
        tally.queries[block, relation] = 300
    tally.profile.entropy[:] = np.rint(rng.random((2, 3)) / GRAIN) * GRAIN
    return tally


def test_each_sum_is_read_back_as_it_was():
    tally = drawn()
    read = read_sums(sums_file(tally), NAMES, SHAPE)
    for name, array in tally.arrays().items():
        assert np.array_equal(read.arrays()[name], array), name
    assert read.numbers == (0, 2)


@pytest.fixture(scope="module")
def classified(gpt2_folder, tmp_path_factory) -> hs.Run:
    out = tmp_path_factory.mktemp("packed") / "run"
    asked = {"types": TYPES, "max_tokens": 2_000, "examples": False, "keep_sums": True}
    return hs.classify(str(gpt2_folder), "gold", out=out, **asked)


@pytest.fixture(scope="module")
def folder(classified, tmp_path_factory) -> Path:
    return next(tmp_path_factory.getbasetemp().glob("packed*/run"))


def judged(run: Result) -> Result:
    """The run's sums, judged again."""
    assert run.tally is not None
    info = record_of(run)
    return weigh_run(run.tally, relations_of(TYPES), seed=0, run_info=info).judge()


def test_evidence_from_what_is_kept_is_the_evidence_that_was_written(classified, folder):
    again = judged(load(folder, with_tally=True))
    assert table_to_csv(again.evidence) == table_to_csv(judged(classified).evidence)
    table = pd.read_csv(io.StringIO(table_to_csv(again.evidence)), dtype=str)
    kept = pd.read_csv(folder / "evidence.csv.gz", dtype=str)
    assert len(kept) > 300
    assert kept[["ci_low", "hard_rate", "matched_control"]].notna().any().all()
    pd.testing.assert_frame_equal(
        table.drop(columns=AFTER_SURROGATES), kept.drop(columns=AFTER_SURROGATES)
    )
    # each head is described as it was, too
    columns = ["entropy", "variability", "shape", "mean_distance", "first_token_mass"]
    assert again.heads[columns].equals(classified.heads[columns])


def archive(**files: bytes) -> bytes:
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w", zipfile.ZIP_DEFLATED) as packed:
        for name, array in files.items():
            packed.writestr(f"{name}.npy", array)
    return content.getvalue()


def npy(shape: tuple[int, ...], body: bytes) -> bytes:
    text = f"{{'descr': '|u1', 'fortran_order': False, 'shape': {shape}}}\n".encode()
    return b"\x93NUMPY\x01\0" + len(text).to_bytes(2, "little") + text + body


@pytest.mark.parametrize(
    ("files", "message"),
    [
        ({"target": npy((60 * 2**20,), bytes(60 * 2**20))}, "62,914,"),
        ({f"a{i}": npy((60_000,), bytes(60_000)) for i in range(99)}, "5,9"),
    ],
)
def test_a_file_that_would_fill_the_memory_is_refused_before_it_does(files, message):
    content = archive(**files)
    assert len(content) < 2**20
    tracemalloc.start()
    with no_hang(), pytest.raises(ValueError, match=message):
        read_sums(content, NAMES, SHAPE)
    assert tracemalloc.get_traced_memory()[1] < 20 * 2**20
    tracemalloc.stop()


@pytest.mark.parametrize(
    ("name", "array"),
    [
        ("block", np.array([0, 7, 64, 7], np.int32)),
        ("relation", np.array([0, 0, 1, 3], np.int32)),
        ("target", np.zeros((4, 2, 4))),
        ("hits", None),
    ],
)
def test_sums_of_another_run_are_refused(name, array):
    arrays = from_npz(sums_file(drawn()), 2**30)
    arrays[name] = array
    if array is None:
        del arrays[name]
    with pytest.raises((ValueError, IndexError, KeyError)):
        read_sums(to_npz(arrays), NAMES, SHAPE)
