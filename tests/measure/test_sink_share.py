"""The share of a learned sink, which belongs to no token, against transformers' own attention."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import headscope as hs
from headscope.measure.batches import assign_blocks
from headscope.models.load import load_model
from headscope.stimuli.natural_text import TextWindows
from headscope.views.report.data import page_data
from tests.models.every_layout import attention_of, own_network, save_tiny

LENGTH = 80


@pytest.fixture(scope="module")
def folder(tokenizer, tmp_path_factory):
    folder = tmp_path_factory.mktemp("gpt_oss") / "model"
    save_tiny("gpt_oss", tokenizer, folder, vocab_size=400)
    return folder


@pytest.fixture(scope="module")
def run(folder, annotated):
    settings = hs.Settings(
        types=("positional", "sink"), max_tokens=1500, max_length=LENGTH, all=True
    )
    return hs.classify(str(folder), annotated, settings=settings)


def test_it_is_what_the_model_s_own_rows_lack(run, folder, annotated):
    tokenizer = load_model(str(folder)).tokenizer
    text = list(TextWindows(annotated, tokenizer, max_tokens=1500, max_length=LENGTH, seed=0))
    chosen = assign_blocks(text).profiled
    network = own_network(folder)
    lacks = queries = 0.0
    for i in chosen:
        own = np.stack(
            [p[0].numpy() for p in attention_of(network, torch.from_numpy(text[i].tokens)[None])]
        )
        lacks = lacks + (1 - own[:, :, 1:].sum(-1)).sum(-1)
        queries += own.shape[2] - 1
    expected = (lacks / queries).ravel()
    assert np.ptp(expected) > 0.01
    assert expected.min() > 0.001
    assert np.allclose(run.heads["sink_share"], expected, atol=1e-5)


def test_it_is_blank_where_no_head_has_a_sink(gpt2_folder, annotated):
    found = hs.classify(str(gpt2_folder), annotated, max_tokens=400, types=["positional"])
    assert found.heads["sink_share"].isna().all()
    assert {row["sink_share"] for row in page_data(found)["rows"]} == {None}
