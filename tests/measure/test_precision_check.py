"""`--dtype auto`: when half precision is tried, when it is kept, and that a run says so."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from transformers import AutoModelForCausalLM

import headscope as hs
from headscope.measure import precision_check
from headscope.measure.precision_check import compare_precisions
from headscope.measure.tally import Tally
from headscope.models import last_model, load
from headscope.models import model as module
from headscope.models.model import Model
from headscope.models.plain_network import plain_network_of
from headscope.resolve import model_of
from tests.helpers.models import save_model

ASKED = {"types": ["positional", "induction"], "max_tokens": 900, "examples": False}


@pytest.fixture(scope="module")
def narrow_folder(tokenizer, tmp_path_factory) -> Path:
    """A model whose heads spread their attention widely, stored as bfloat16."""
    folder = tmp_path_factory.mktemp("narrow") / "model"
    save_model("llama", tokenizer, folder, spread=0.12)
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    model.to(torch.bfloat16).save_pretrained(folder)
    return folder


@pytest.fixture
def native(monkeypatch) -> None:
    """A processor that multiplies bfloat16, whatever this one does."""
    monkeypatch.setattr(module, "multiplies_natively", lambda device: True)


def classified(folder: Path, dtype: str, out: Path | None = None) -> hs.Run:
    return hs.classify(str(folder), "gold", dtype=dtype, out=out, progress=False, **ASKED)


def sums(target: np.ndarray, queries: np.ndarray) -> Tally:
    tally = Tally.zeros(tuple(f"t/r{i}" for i in range(target.shape[1])), 1, target.shape[-1])
    blocks = len(target)
    tally.target[:blocks], tally.queries[:blocks] = target, queries
    return tally


@pytest.mark.parametrize(
    ("everywhere", "once", "dtype"),
    [
        (0.0, 0.0, "bfloat16"),
        (0.001, 0.0, "bfloat16"),
        (0.002, 0.0, "float32"),
        (0.0, 0.06, "float32"),
        (0.0, np.nan, "float32"),
    ],
)
def test_rounding_is_tolerated_up_to_both_bounds(everywhere, once, dtype):
    queries = np.full((4, 30), 10)
    wide = np.random.default_rng(0).uniform(0.2, 0.6, (4, 30, 1, 50)) * 10
    narrow = wide + 10 * everywhere
    narrow[:, 7, 0, 9] += 10 * once
    check = compare_precisions(sums(wide, queries), sums(narrow, queries), 512)
    assert (check.dtype, check.tokens, check.masses) == (dtype, 512, 30 * 50)
    assert ("overflow" in check.reason) == np.isnan(once)
    assert ("mean_difference" in check.record) == (not np.isnan(once))
    differences = np.array([everywhere + once / 1500, everywhere + once])
    measured = [check.mean_difference, check.largest_difference]
    np.testing.assert_allclose(measured, differences, atol=1e-9)


def test_it_is_the_run_that_bfloat16_gives_and_gives_it_again(narrow_folder, native, tmp_path):
    runs = [classified(narrow_folder, "auto", tmp_path / f"auto{i}") for i in range(2)]
    asked = classified(narrow_folder, "bfloat16", tmp_path / "asked")
    facts = runs[0].info["precision"]
    assert runs[0].info["model"]["dtype"] == facts["dtype"] == "bfloat16"
    assert facts["tokens"] >= precision_check.TOKENS
    assert 0 < facts["mean_difference"] <= facts["mean_bound"]
    assert facts["mean_difference"] <= facts["largest_difference"] <= facts["largest_bound"]
    assert "precision" not in asked.info
    for name in ("evidence.csv.gz", "heads.csv"):
        one, again, other = (
            (tmp_path / f / name).read_bytes() for f in ("auto0", "auto1", "asked")
        )
        assert one == again == other


def test_single_precision_is_kept_where_rounding_is_too_large(
    narrow_folder, native, monkeypatch, tmp_path
):
    monkeypatch.setattr(precision_check, "MEAN_DIFFERENCE", 1e-9)
    opened: list[Model] = []

    def open_model(*args: object, **options: object) -> Model:
        # both need not fit into memory
        for model in opened:
            assert all(weight.is_meta for weight in plain_network_of(model).parameters())
        opened.append(load.open_model(*args, **options))
        return opened[-1]

    with monkeypatch.context() as patched:
        patched.setattr(last_model, "open_model", open_model)
        run = classified(narrow_folder, "auto", tmp_path / "auto")
    classified(narrow_folder, "float32", tmp_path / "asked")
    assert len(opened) == 2
    assert run.info["model"]["dtype"] == "float32"
    assert run.info["precision"]["reason"] == "rounding is too large"
    for name in ("evidence.csv.gz", "heads.csv"):
        assert (tmp_path / "auto" / name).read_bytes() == (tmp_path / "asked" / name).read_bytes()


@pytest.mark.parametrize(
    ("folder", "changes", "is_native", "reason"),
    [
        ("gpt2_folder", {}, True, "its weights are stored in 32 bits"),
        ("narrow_folder", {}, False, "this cpu has no instructions for bfloat16"),
        ("narrow_folder", {"engine": "lens"}, True, "the lens engine keeps a model as it is"),
    ],
)
def test_half_precision_is_not_even_tried(request, monkeypatch, folder, changes, is_native, reason):
    monkeypatch.setattr(module, "multiplies_natively", lambda device: is_native)
    path = str(request.getfixturevalue(folder))
    run = hs.classify(path, "gold", dtype="auto", progress=False, **ASKED | changes)
    assert run.info["precision"] == {"dtype": "float32", "reason": reason}
    assert run.info["model"]["dtype"] == "float32"


@pytest.mark.parametrize(("asked", "again"), [("auto", "float32"), ("bfloat16", "bfloat16")])
def test_the_model_of_a_run_that_chose_is_read_again_in_single_precision(
    narrow_folder, native, tmp_path, asked, again
):
    run = classified(narrow_folder, asked, tmp_path / "run")
    assert run.info["model"]["dtype"] == "bfloat16"
    assert model_of(hs.load(tmp_path / "run")).dtype == again
