"""LLMVis' prompts: only those, and its scores as its own loops count them."""

from __future__ import annotations

import math
from importlib import import_module
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

import headscope as hs
from headscope.errors import ChoiceError, HeadscopeError, RunError
from headscope.studies.validation import short_prompts
from headscope.studies.validation.verify import verify

NATURAL = ["The king lost his ring.", "In the beginning there was a long and quiet night."]
REPEATING = ["the cat sat. the cat sat. the cat", "red blue red blue red", "no copy"]


@pytest.fixture
def prompts(tmp_path, monkeypatch) -> Path:
    """A file like LLMVis', with prompts of our own that stand for its forty."""
    text = "\n".join([*NATURAL, *REPEATING])
    digest = short_prompts.sha256(text.encode()).hexdigest()
    monkeypatch.setattr(short_prompts, "PROMPTS_SHA256", digest)
    file = tmp_path / "analyze_heads.py"
    file.write_text(
        "raise RuntimeError('this is run')\n"
        f"def inputs():\n    natural_prompts = {NATURAL!r}\n    repetitive_prompts = {REPEATING!r}\n"
    )
    return file


def slow_scores(folder: Path) -> dict[str, np.ndarray]:
    """The five scores in plain loops over Hugging Face's own patterns."""
    plain = AutoModelForCausalLM.from_pretrained(folder, attn_implementation="eager").eval()
    words = AutoTokenizer.from_pretrained(folder)
    sums: dict[str, list[np.ndarray]] = {}
    for prompt in [*NATURAL, *REPEATING]:
        ids = [words.bos_token_id, *words(prompt, add_special_tokens=False)["input_ids"]]
        with torch.inference_mode():
            found = plain(torch.tensor([ids]), output_attentions=True).attentions
        pattern, n = torch.stack(found)[:, 0].double().numpy(), len(ids)
        rows = pattern + 1e-10
        of = {
            "previous_token": [pattern[:, :, i, i - 1] for i in range(1, n)],
            "positional": [pattern[:, :, i, 0] for i in range(n)],
            "diffuse": [-(rows * np.log(rows)).sum(-1)[:, :, i] / math.log(n) for i in range(n)],
        }
        if prompt in REPEATING:
            zero = np.zeros(pattern.shape[:2])
            pairs = [(i, j) for i in range(n) for j in range(i) if ids[i] == ids[j]]
            of["duplicate_token"] = [pattern[:, :, i, j] for i, j in pairs] or [zero]
            of["induction"] = [pattern[:, :, i, j + 1] for i, j in pairs if j < i - 1] or [zero]
        for name, values in of.items():
            sums.setdefault(f"llmvis_{name}", []).append(np.mean(values, 0))
    return {name: np.mean(values, 0) for name, values in sums.items()}


def publish(monkeypatch, scores: dict[str, np.ndarray]) -> None:
    rows = [
        ("lab/tiny", "main", name, layer, head, value)
        for name, matrix in scores.items()
        for (layer, head), value in np.ndenumerate(matrix)
    ]
    columns = ["model", "revision", "metric", "layer", "head", "value"]
    table = pd.DataFrame(rows, columns=columns)
    verify_module = import_module("headscope.studies.validation.verify")
    monkeypatch.setattr(verify_module, "shipped_scores", lambda: table)
    monkeypatch.setattr(verify_module, "shipped_name", lambda name: "lab/tiny")


@pytest.fixture
def run(gpt2_folder) -> hs.Run:
    return hs.classify(str(gpt2_folder), types=["positional"], twin=False, max_tokens=300)


def test_the_scores_are_those_of_plain_loops_over_the_prompts(
    run, gpt2_folder, prompts, monkeypatch
):
    publish(monkeypatch, slow_scores(gpt2_folder))
    result = verify(run, model="tiny", prompts=prompts)
    assert result.measured
    assert sorted(result.scores["metric"]) == sorted(
        f"llmvis_{name}"
        for name in ("previous_token", "positional", "diffuse", "induction", "duplicate_token")
    )
    assert (result.scores["largest_difference"] < 1e-5).all(), result.scores
    assert result.holds


def test_a_published_score_that_is_off_does_not_hold(run, gpt2_folder, prompts, monkeypatch):
    scores = slow_scores(gpt2_folder)
    scores["llmvis_induction"][0, 1] += 0.02
    publish(monkeypatch, scores)
    result = verify(run, model="tiny", prompts=prompts)
    wrong = result.scores[~result.scores["within"]]
    assert wrong["metric"].tolist() == ["llmvis_induction"]
    assert wrong["at"].tolist() == ["L0H1"]
    assert not result.holds


def test_other_prompts_and_other_files_are_refused(run, tmp_path, prompts):
    prompts.write_text(prompts.read_text().replace("king", "queen"))
    with pytest.raises(RunError, match="other prompts than the scores are of; give cdpearlman/LL"):
        verify(run, prompts=prompts)
    for content in ("natural_prompts = [", "x = 1", "natural_prompts = 3\nrepetitive_prompts = 4"):
        prompts.write_text(content)
        with pytest.raises(RunError, match="no lists natural_prompts and repetitive_prompts; give"):
            verify(run, prompts=prompts)
    with pytest.raises(HeadscopeError, match="cannot be read"):
        verify(run, prompts=tmp_path / "none.py")


def test_a_model_without_such_scores_and_one_that_may_not_read_are_refused(
    run, gpt2_folder, prompts, monkeypatch
):
    publish(monkeypatch, {"prev_token_score": slow_scores(gpt2_folder)["llmvis_previous_token"]})
    with pytest.raises(ChoiceError, match="no model with LLMVis' scores named 'tiny'"):
        verify(run, model="tiny", prompts=prompts)
    with pytest.raises(RunError, match="the model has to read these prompts; leave out --no-meas"):
        verify(run, prompts=prompts, measure=False)
