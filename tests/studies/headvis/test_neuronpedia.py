"""An export beside Neuronpedia's own programs: their loaders, and their script's metrics."""

from __future__ import annotations

import importlib.util
import json
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any
from unittest.mock import MagicMock

import pytest
import torch

import headscope as hs
from headscope.models.load import load_model
from headscope.stimuli.text import TextWindows
from tests.helpers.headvis import METRICS, read
from tests.helpers.places import SHARED

CLIENT = SHARED.parent / "clients" / "neuronpedia_headvis"
COLUMNS = {
    "selfAttentionScore": "self_attention_score",
    "prevTokenScore": "prev_token_score",
    "patternEntropy": "pattern_entropy",
    "qkDistance": "qk_distance",
    "qkDistanceVariance": "qk_distance_variance",
    "inductionScore": "induction_score",
    "qkDistanceHistogram": "qk_distance_histogram",
    "topQueryTokens": "top_query_tokens",
    "topKeyTokens": "top_key_tokens",
    "activationHistogram": "histogram",
    "headStatistics": "statistics",
}

pytestmark = pytest.mark.skipif(
    not CLIENT.is_dir(), reason=f"needs Neuronpedia's programs in {CLIENT}"
)


def program(name: str, monkeypatch: pytest.MonkeyPatch) -> Any:
    spec = importlib.util.spec_from_file_location("theirs", CLIENT / name)
    module: Any = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, "theirs", module)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def inserted(monkeypatch) -> list[tuple[Any, ...]]:
    """Rows that a loader inserts into an empty database."""
    rows: list[tuple[Any, ...]] = []
    extras = ModuleType("psycopg2.extras")
    extras.Json = lambda value: value
    extras.execute_values = lambda cursor, query, values: rows.extend(values)
    database = MagicMock()
    cursor = database.connect.return_value.cursor.return_value.__enter__.return_value
    cursor.fetchall.return_value, cursor.fetchone.return_value = [], (0,)
    for name, module in (("psycopg2", database), ("psycopg2.extras", extras)):
        monkeypatch.setitem(sys.modules, name, module)
    monkeypatch.setitem(sys.modules, "dotenv", MagicMock())
    monkeypatch.syspath_prepend(CLIENT)
    return rows


def test_neuronpedia_s_loaders_take_an_export_as_it_is(
    run_folder, texts, tmp_path, inserted, monkeypatch
):
    folder = tmp_path / "gpt2-small" / "headvis" / "texts"
    hs.headvis(run_folder, folder, sequences=30, max_length=48)
    monkeypatch.setattr(sys, "argv", ["load", str(tmp_path)])
    metrics = program("load-head-metrics.py", monkeypatch)
    metrics.main()
    rows = [dict(zip(metrics.COLUMNS, row, strict=True)) for row in inserted]
    inserted.clear()
    loaded = program("load-head-sequences.py", monkeypatch)
    loaded.main()
    sequences = [dict(zip(loaded.COLUMNS, row, strict=True)) for row in inserted]
    scatter = read(folder / "scatter_data.json")
    assert len(scatter) == len(rows) == 8
    for row, numbers in zip(rows, scatter, strict=True):
        place = row["layer"], row["headIndex"]
        assert place == (numbers["layer"], numbers["head"])
        facts = ("modelId", "datasetName", "nSequences", "seqLen")
        assert [row[name] for name in facts] == ["gpt2-small", texts.name, 30, 48]
        file = read(folder / "heads" / "L{}H{}.json".format(*place))
        expected = {**numbers, **file}
        assert {name: row[name] for name in COLUMNS} == {
            name: expected[key] for name, key in COLUMNS.items()
        }
        own = [s for s in sequences if (s["layer"], s["headIndex"]) == place]
        assert len(own) == len(file["sequences"]) == 30
        for found, each in zip(own, file["sequences"], strict=True):
            assert found["tokens"] == each["tokens"]
            assert found["interval"] == each["interval"]
            assert found["attentionIndices"] == each["attention_indices"]
            assert found["attentionValues"] == each["attention_values"]
            assert found["maxActivation"] == each["max_activation"]


class Numbered:
    """A tokenizer for their script whose texts are the numbers of windows."""

    pad_token, pad_token_id, padding_side = "<pad>", 0, "right"

    def __init__(self, windows: list[list[int]]) -> None:
        self.windows = windows

    def __call__(self, texts: list[str], **_: Any) -> SimpleNamespace:
        rows = [self.windows[int(text)] for text in texts]
        longest = max(map(len, rows))
        ids = torch.tensor([row + [0] * (longest - len(row)) for row in rows])
        mask = torch.tensor([[1] * len(row) + [0] * (longest - len(row)) for row in rows])
        return SimpleNamespace(input_ids=ids, attention_mask=mask)

    def decode(self, ids: list[int]) -> str:
        return str(ids[0])


def test_the_metrics_are_those_of_neuronpedia_s_script(
    export, gpt2_folder, texts, tmp_path, monkeypatch
):
    theirs = program("compute-head-metrics.py", monkeypatch)
    encoder = load_model(str(gpt2_folder)).tokenizer
    text = TextWindows([texts], encoder, max_tokens=60 * 64, max_length=64, seed=0)
    windows = [w.tokens.tolist() for w in text if len(w) > 2][:60]
    monkeypatch.setattr(theirs.AutoTokenizer, "from_pretrained", lambda *_, **__: Numbered(windows))
    monkeypatch.setattr(
        theirs, "load_dataset", lambda **_: [{"text": str(i)} for i in range(len(windows))]
    )
    (tmp_path / "names.json").write_text(json.dumps({"tiny": str(gpt2_folder)}))
    options = {
        "--model-name": gpt2_folder, "--dataset-name": "texts", "--n-sequences": len(windows), "--dtype": "float32",
        "--exports-dir": tmp_path, "--np-model-map": tmp_path / "names.json", "--device": "cpu", "--seq-len": 64,
    }  # fmt: skip
    words = [str(word) for option in options.items() for word in option]
    monkeypatch.setattr(sys, "argv", ["compute-head-metrics.py", *words])
    theirs.main()
    expected = read(tmp_path / "tiny" / "headvis" / "texts" / "scatter_data.json")
    found = read(Path(export.values["folder"]) / "scatter_data.json")
    assert len(expected) == len(found) == 8
    for one, other in zip(found, expected, strict=True):
        assert {name: one[name] for name in other} == pytest.approx(other, abs=1.01e-4)
    assert list(other)[2:] == METRICS
    assert len({row["induction_score"] for row in expected}) == 8
