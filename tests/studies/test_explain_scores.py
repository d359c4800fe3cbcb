"""Scores of explanations: slow loops, a first-token program, and programs of a user's file."""

from __future__ import annotations

import re
from math import log2, sqrt
from textwrap import dedent

import numpy as np
import pytest
import torch

import headscope as hs
from headscope.corpus.shipped import data_folder
from headscope.studies.explain.pattern_scores import PatternPair, scores

GOLD = data_folder() / "corpora" / "gold.conllu"


def causal_patterns(*, seed: int, sharpness: float, size: int = 9) -> torch.Tensor:
    logits = sharpness * torch.randn(size, size, generator=torch.Generator().manual_seed(seed))
    later = torch.ones(size, size, dtype=torch.bool).triu(1)
    return logits.masked_fill(later, -torch.inf).softmax(-1)


def slow_scores(own: np.ndarray, other: np.ndarray, first: int) -> dict[str, float]:
    """The scores by loops over cells, on the keys from `first` on."""
    bits = uniform_bits = smaller = larger = 0.0
    products = own_squares = other_squares = 0.0
    for query in range(len(own)):
        keys = range(first, query + 1)
        if len(keys) < first + 1:
            continue
        own_mass = sum(own[query][key] for key in keys)
        other_mass = sum(other[query][key] for key in keys)
        for key in keys:
            p, q = own[query][key] / own_mass, other[query][key] / other_mass
            weight = own_mass
            bits += weight * p * log2(p / q)
            uniform_bits += weight * p * log2(p * len(keys))
            smaller += weight * min(p, q)
            larger += weight * max(p, q)
            products += weight * (p - 1 / len(keys)) * (q - 1 / len(keys))
            own_squares += weight * (p - 1 / len(keys)) ** 2
            other_squares += weight * (q - 1 / len(keys)) ** 2
    correlation = products / sqrt(own_squares * other_squares)
    return {
        "explained": 1 - bits / uniform_bits,
        "iou": smaller / larger,
        "correlation": correlation,
    }


def test_scores_are_those_of_loops_over_cells():
    own = causal_patterns(seed=0, sharpness=2)
    other = causal_patterns(seed=1, sharpness=1)
    seen = torch.ones(9, 9, dtype=torch.bool).tril()
    found = scores(PatternPair(own, other, seen)).columns()
    expected = slow_scores(own.numpy(), other.numpy(), 0)
    rest = slow_scores(own.numpy(), other.numpy(), 1)
    expected |= {f"{name}_rest": value for name, value in rest.items()}
    assert found == pytest.approx(expected, rel=1e-4)


def test_the_first_token_alone_has_high_scores_with_the_sink_and_none_without():
    own = causal_patterns(seed=0, sharpness=2, size=40)[2:]
    own[:, 1:] *= 0.03 / own[:, 1:].sum(-1, keepdim=True)
    own[:, 0] = 0.97
    seen = torch.ones(40, 40, dtype=torch.bool).tril()[2:]
    first = torch.zeros_like(own)
    first[:, 0] = 1
    found = scores(PatternPair(own, first, seen), smoothing=0.01).columns()
    for name in ("explained", "iou", "correlation"):
        assert found[name] > 0.9
        assert found[f"{name}_rest"] == pytest.approx(0, abs=1e-6)


def test_the_heads_own_pattern_as_a_program_has_full_scores(gpt2_folder, tmp_path):
    """The program reads the pattern from transformers' own attention."""
    program = f"""
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    FOLDER = {str(gpt2_folder)!r}
    MODEL = AutoModelForCausalLM.from_pretrained(FOLDER, attn_implementation="eager")
    TOKENIZER = AutoTokenizer.from_pretrained(FOLDER)

    def L1H1(tokens):
        ids = TOKENIZER("".join(tokens), return_tensors="pt").input_ids
        with torch.no_grad():
            attentions = MODEL(ids, output_attentions=True).attentions
        return attentions[1][0, 1]

    def L0H0(tokens):
        return [[1.0] * len(tokens)] * len(tokens)
    """
    file = tmp_path / "programs.py"
    file.write_text(dedent(program))
    result = hs.score_programs(gpt2_folder, file, GOLD, windows=8, features=1)
    table = result.table.set_index(["layer", "head", "explanation"])
    own = table.loc[(1, 1, "program")]
    assert own[["iou", "iou_rest", "correlation", "correlation_rest"]].min() > 0.999
    assert own[["explained", "explained_rest"]].min() > 0.95
    uniform = table.loc[(0, 0, "program")]
    for name in ("explained", "explained_rest", "correlation", "correlation_rest"):
        assert uniform[name] == pytest.approx(0, abs=1e-4)
    assert set(table.index.get_level_values("explanation")) == {
        "program",
        "feature model",
        "first token",
    }


@pytest.mark.parametrize(
    ("program", "named"),
    [
        ("def L0H0(tokens): return [[-1.0] * len(tokens)] * len(tokens)", "L0H0"),
        ("def L0H0(tokens): return [1.0]", "L0H0"),
        ("def L0H0(tokens): return undefined", "NameError"),
        ("def L0H0(tokens: return", "SyntaxError"),
        ("def L9H9(tokens): return 1", "L9H9"),
        ("def helper(tokens): return 1", "programs.py"),
        ("import sys\nsys.exit(0)", "line 2: .*SystemExit"),
        ("quit()", "SystemExit"),
        ("class Stop(BaseException): pass\nraise Stop", "Stop"),
        ("def L0H0(tokens): raise SystemExit", "SystemExit"),
    ],
    ids=[
        *("negative", "shape", "raises", "syntax", "no such head", "no program"),
        *("exits", "quits", "raises its own", "exits later"),
    ],
)
def test_a_bad_program_is_named(program, named, gpt2_folder, tmp_path, command):
    file = tmp_path / "programs.py"
    file.write_text(program)
    out = tmp_path / "scores.csv"
    words = ("--programs", file, "--corpus", GOLD, "--windows", 8, "--out", out)
    code, _, err = command("explain", gpt2_folder, *words)
    assert code == 2
    assert re.search(named, err)
    assert not out.exists()
