"""The mean pattern of the first tokens: the plain mean over texts, read in any pieces."""

from __future__ import annotations

import numpy as np
import pytest

import headscope as hs
from headscope.errors import RunError
from headscope.measure.tally import SIDE


def score(lengths: list[int], seed: int = 0):
    """A run of random patterns of texts of these lengths, and the patterns."""
    rng = np.random.default_rng(seed)
    patterns, tokens = [], []
    for length in lengths:
        a = np.tril(rng.random((2, 3, length, length)))
        patterns.append(a / a.sum(-1, keepdims=True))
        tokens.append(["<s>", *(f"w{i} " for i in range(length - 1))])
    return hs.score_patterns(patterns, None, tokens), patterns


def test_it_is_the_mean_over_texts_of_each_row_that_they_have():
    run, patterns = score([40, 30, 12, 9, 20, *[25] * 5])
    expected = np.zeros((2, 3, SIDE, SIDE))
    for query in range(1, SIDE):
        # of ten texts every second one is profiled
        rows = [a[:, :, query, : query + 1] for a in patterns[::2] if a.shape[-1] > query]
        expected[:, :, query, : query + 1] = np.mean(rows, axis=0)
    np.testing.assert_allclose(run.means, expected, atol=1e-6)


def test_a_run_folder_keeps_them_and_one_without_them_is_read(tmp_path):
    run, _ = score([30] * 10)
    run.save(tmp_path / "run")
    np.testing.assert_allclose(hs.load(tmp_path / "run").means, run.means, atol=1e-3)
    from dataclasses import replace

    hs.Run.of(replace(run, means=None)).save(tmp_path / "older")
    assert not (tmp_path / "older" / "patterns").exists()
    assert hs.load(tmp_path / "older").means is None


@pytest.mark.parametrize("change", ["shape", "kind", "range", "name"])
def test_mean_patterns_that_cannot_be_are_refused(tmp_path, change):
    import json

    from safetensors.numpy import save_file

    run, _ = score([30] * 10)
    run.save(tmp_path / "run")
    means = np.asarray(run.means, np.float16)
    broken = {
        "shape": {"mean": means[:1]},
        "kind": {"mean": means.astype(np.float32)},
        "range": {"mean": means + np.float16(2)},
        "name": {"other": means},
    }[change]
    save_file(
        {k: np.ascontiguousarray(v) for k, v in broken.items()},
        tmp_path / "run" / "patterns" / "mean.safetensors",
    )
    with pytest.raises(RunError, match=r"mean.safetensors: this file is not the one"):
        hs.load(tmp_path / "run")
    record = tmp_path / "run" / "run.json"
    info = json.loads(record.read_text(encoding="utf-8"))
    del info["files"], info["provenance"]["sha256"]
    record.write_text(json.dumps(info), encoding="utf-8")
    with pytest.raises(RunError, match="mean patterns"):
        hs.load(tmp_path / "run")
