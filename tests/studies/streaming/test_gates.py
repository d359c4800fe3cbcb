"""Published gates: read in both forms, held against the order by change, and refused where odd."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from rich.console import Console

import headscope as hs
from headscope.errors import HeadscopeError
from headscope.studies.streaming.gates import METRIC, read_gates
from headscope.studies.streaming.streaming_curve import DRAWS, STEPS
from headscope.studies.streaming.streaming_result import CHANGE, GATE, streaming_lines

GATES = np.array([[0.5, 0.1, 0.0], [0.9, -0.001, 0.2]])


def as_table(model: str, gates: np.ndarray = GATES) -> pd.DataFrame:
    layer, head = np.indices(gates.shape)
    columns = {"layer": layer.ravel(), "head": head.ravel(), "value": gates.ravel()}
    return pd.DataFrame({"model": model, "revision": "main", "metric": METRIC, **columns})


@pytest.mark.parametrize("apart", ["\t", ","])
def test_a_matrix_is_read_as_it_is_published(tmp_path, apart):
    np.savetxt(tmp_path / "gates.tsv", GATES, delimiter=apart)
    assert read_gates(tmp_path / "gates.tsv", "model", 2, 3).tolist() == GATES.ravel().tolist()


def test_of_a_table_the_rows_of_the_model_count(tmp_path):
    path = tmp_path / "scores.csv"
    other = as_table("meta/other", GATES + 1)
    score = as_table("meta/own").assign(metric="retrieval_score", value=7.0)
    pd.concat([other, score, as_table("meta/own")[::-1]]).to_csv(path, index=False)
    assert read_gates(path, "folder/OWN", 2, 3).tolist() == GATES.ravel().tolist()
    with pytest.raises(HeadscopeError, match="has gates of meta/other, meta/own, none of third"):
        read_gates(path, "third", 2, 3)


def test_a_table_of_one_other_model_is_refused_and_one_without_a_name_is_not(tmp_path):
    path = tmp_path / "scores.csv"
    as_table("meta/other").to_csv(path, index=False)
    with pytest.raises(HeadscopeError, match="has gates of meta/other, none of hub/model;") as told:
        read_gates(path, "hub/model", 2, 3)
    assert "keep its rows without the column model" in str(told.value)
    assert "\n" not in str(told.value)
    # what the sentence says would do
    as_table("meta/other").drop(columns="model").to_csv(path, index=False)
    assert read_gates(path, "hub/model", 2, 3).tolist() == GATES.ravel().tolist()
    as_table("").to_csv(path, index=False)
    assert read_gates(path, "hub/model", 2, 3).tolist() == GATES.ravel().tolist()
    # one model's own name is its last part, in any case
    as_table("Meta/Model").to_csv(path, index=False)
    assert read_gates(path, "hub/model", 2, 3).tolist() == GATES.ravel().tolist()


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "holds 0 gates"),
        ("1\t2\n3\t4\n", "holds 2 × 2 gates, and model has 2 layers × 3 key/value heads"),
        ("1\t2\t3\n4\t5\n", "a row per layer with a number per key/value head"),
        ("1\t2\t3\n4\t5\tsix\n", "could not convert"),
        ("1\t2\t3\n4\t5\tnan\n", "no finite number"),
        ("layer,head,value\n0,0,1\n0,0,2\n", "a head has two gates"),
        ("\0\xff", "give a row per layer"),
    ],
)
def test_odd_files_are_refused_in_one_line(tmp_path, text, said):
    path = tmp_path / "gates.tsv"
    path.write_bytes(text.encode("latin-1"))
    with pytest.raises(HeadscopeError, match=said) as error:
        read_gates(path, "model", 2, 3)
    assert str(path) in str(error.value)
    assert "\n" not in str(error.value)


def test_a_file_that_is_not_there_is_named_before_anything_is_measured(gpt2_folder, story):
    with pytest.raises(HeadscopeError, match=r"gone\.tsv: cannot be read"):
        hs.streaming(str(gpt2_folder), story, gates="gone.tsv", max_length=64, recent=6)


def test_gates_that_rank_as_change_does_make_its_curve(gpt2_folder, story, tmp_path):
    how = {"max_length": 64, "recent": 6, "sinks": 2}
    alone = hs.streaming(str(gpt2_folder), story, **how)
    place = alone.heads["place"].to_numpy(float).reshape(2, -1)
    np.savetxt(tmp_path / "gates.tsv", place / 10, delimiter="\t")
    seen: list[tuple[int, int]] = []
    found = hs.streaming(
        str(gpt2_folder), story, gates=tmp_path / "gates.tsv",
        progress=lambda done, total: seen.append((done, total)), **how,
    )  # fmt: skip
    rises = {order: own["rise"].tolist() for order, own in found.curve.groupby("order")}
    assert rises[GATE] == rises[CHANGE]
    assert len(found.curve) == len(STEPS) * (3 + DRAWS)
    assert found.table["gate"].tolist() == pytest.approx(place.ravel() / 10)
    assert seen[-1][0] == seen[-1][1]
    console = Console(width=120)
    with console.capture() as said:
        console.print(streaming_lines(found))
    assert "rank correlation of change with the published gates: 1.00" in said.get()
    assert found.best.equals(alone.best)
