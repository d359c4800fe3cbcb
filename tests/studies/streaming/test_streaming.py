"""Streaming: a planted head that reads far is the last to stream, and local heads cost nothing."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
import torch
from transformers import AutoModelForCausalLM

import headscope as hs
from headscope.errors import ArgumentError, CorpusError
from headscope.studies.anatomy.anatomy_dimensions import cache_sizes
from headscope.studies.streaming.long_text import joined
from headscope.studies.streaming.streaming_curve import CURVE, DRAWS, STEPS
from headscope.studies.streaming.streaming_result import CHANGE, MASS, RANDOM
from headscope.studies.validation.planted import CODE, D_HEAD, HEADS, PER_LAYER, WORD, save_planted
from headscope.studies.validation.planted_words import BOS, UNKNOWN

INDUCTION = next(
    place
    for place, head in enumerate([h for h in HEADS if h.layer == 1])
    if head.name == "induction"
)
DOCUMENTS, PERIOD = 6, 100
"""Words after which a text repeats: farther than 64 keys, nearer than the model's context."""


@pytest.fixture(scope="module")
def repeats(tmp_path_factory):
    """Documents each of words of its own, said again and again: who looks back far knows them."""
    folder, rng = tmp_path_factory.mktemp("repeats"), np.random.default_rng(0)
    for number in range(DOCUMENTS):
        words = [f"w{i}" for i in number * PERIOD + rng.permutation(PERIOD)]
        (folder / f"{number}.txt").write_text(" ".join((words * 3)[:255]))
    return folder


@pytest.fixture(scope="module")
def reader(tmp_path_factory):
    """A planted model whose induction head also writes the word that it looks at.

    Its logits name that word; no other head of its layer writes, and those below are local or
    write nothing.
    """
    folder = tmp_path_factory.mktemp("reader")
    save_planted("gpt2", [BOS, UNKNOWN, *(f"w{i}" for i in range(DOCUMENTS * PERIOD))], folder)
    model = AutoModelForCausalLM.from_pretrained(folder)
    state = model.state_dict()
    own = slice(INDUCTION * D_HEAD, INDUCTION * D_HEAD + CODE)
    values = slice(2 * PER_LAYER * D_HEAD + own.start, 2 * PER_LAYER * D_HEAD + own.stop)
    state["transformer.h.1.attn.c_attn.weight"][WORD, values] = torch.eye(CODE)
    state["transformer.h.1.attn.c_proj.weight"][own, WORD] = 3 * torch.eye(CODE)
    state["transformer.ln_f.weight"].fill_(0.05)
    for layer in range(2):  # sharper scores differ between kernels by rounding
        for name in ("weight", "bias"):
            part = state[f"transformer.h.{layer}.attn.c_attn.{name}"]
            part[..., : PER_LAYER * D_HEAD] *= 0.5
    model.save_pretrained(folder)
    return str(folder)


@pytest.fixture(scope="module")
def found(reader, repeats):
    return hs.streaming(reader, repeats, max_tokens=2_000)


def test_a_head_that_reads_far_is_the_last_to_stream_and_costs_loss(found):
    heads = found.table.set_index(["layer", "head"])
    assert heads.loc[1, INDUCTION]["place"] == len(heads) == 2 * PER_LAYER
    assert not heads.loc[1, INDUCTION]["streams"]
    curve = found.curve[found.curve["order"] == CHANGE].set_index("heads")
    assert curve["loss"].iloc[0] < np.log(DOCUMENTS * PERIOD)
    assert curve.loc[20, "rise"] > 1
    assert curve.loc[20, "ci_low"] > 0.5
    for more in (2, 10, 18):  # local heads cost nothing
        assert curve.loc[more, "rise"] == pytest.approx(0, abs=1e-4)
    assert found.best["heads"] == 18
    assert heads["streams"].sum() == 18


def test_random_heads_cost_what_the_reader_among_them_does(found):
    random = found.curve[found.curve["order"] == RANDOM]
    assert random["draw"].nunique() == DRAWS
    half = random[random["heads"] == 10]["rise"]
    assert half.max() > 1  # some draw takes it
    assert half.min() == pytest.approx(0, abs=1e-4)  # and some does not


def test_only_a_head_that_reads_the_far_text_needs_it(found):
    """A head that looks at everything puts as much mass on a foreign far text."""
    heads = found.table.set_index(["layer", "head"])
    names = [head.name for head in HEADS if head.layer == 0]
    reader, uniform = heads.loc[1, INDUCTION], heads.loc[0, names.index("uniform")]
    assert reader["needs_far"] == "yes"
    assert reader["own_far"] > 0.3
    assert reader["foreign_far"] < 0.05
    assert uniform["needs_far"] == "no"
    assert uniform["own_far"] == pytest.approx(uniform["foreign_far"], abs=0.01)
    assert uniform["far_mass"] > 0.3  # far it looks
    second = [head.name for head in HEADS if head.layer == 1]
    needing = heads[heads["needs_far"] == "yes"].index
    found_there = {(names, second)[layer][head] for layer, head in needing}
    assert found_there == {"induction", "duplicate token", "same word"}
    local = heads.loc[0, names.index("previous token")]
    assert local["needs_far"] == "no"
    assert local["far_mass"] < 0.01


def test_the_uniform_heads_far_mass_has_a_closed_form(found):
    """A query at position p sees p + 1 keys and keeps 68 of them."""
    uniform = [h.name for h in HEADS if h.layer == 0].index("uniform")
    expected = np.mean([1 - 68 / (p + 1) for p in range(68, 256)])
    heads = found.table.set_index(["layer", "head"])
    assert heads.loc[(0, uniform), "far_mass"] == pytest.approx(expected, abs=1e-5)


def test_the_memory_saved_is_that_of_anatomy(found):
    cache = found.cache
    dimensions = hs.anatomy("gpt-2-s").dimensions
    (own,) = [
        each
        for each in cache_sizes(
            type(dimensions)(**vars(dimensions) | {
                "layers": 2, "heads": PER_LAYER, "key_value_heads": PER_LAYER, "d_head": D_HEAD,
            }), context=256, batch=1, dtype="float16",
        )
        if each.variant == "own"
    ]  # fmt: skip
    assert cache.bytes == own.bytes
    every = found.curve[found.curve["heads"] == 20].iloc[0]
    assert every["saved"] == pytest.approx(1 - 68 / 256)


def test_the_curve_has_every_step_of_every_order(found):
    assert list(found.curve.columns) == CURVE
    assert len(found.curve) == len(STEPS) * (2 + DRAWS)
    assert set(found.curve["order"]) == {CHANGE, MASS, RANDOM}
    ends = found.curve[found.curve["heads"].isin([0, 20])]
    assert ends.groupby("heads")["loss"].nunique().tolist() == [1, 1]


def test_a_tolerance_lets_more_heads_stream(reader, repeats):
    patient = hs.streaming(reader, repeats, max_tokens=600, tolerance=50)
    assert patient.best["heads"] == 20
    assert patient.table["streams"].all()


def test_query_heads_that_share_keys_stream_together(model_folder, story):
    found = hs.streaming(str(model_folder), story, sinks=2, recent=6, max_length=64)
    shared = 2 if "llama" in str(model_folder) else 4
    assert len(found.heads) == 2 * shared
    assert found.heads["query_heads"].tolist()[:2] == (
        ["0-1", "2-3"] if shared == 2 else ["0", "1"]
    )
    assert found.cache.per_key == 2 * 8 * 2
    assert found.cache.bytes == 2 * shared * found.cache.length * 32


def test_short_documents_are_joined_and_it_says_so(gpt2_folder, tmp_path):
    for number in range(12):
        (tmp_path / f"{number}.txt").write_text("Alice told them that she was tired. " * 2)
    found = hs.streaming(str(gpt2_folder), tmp_path, max_length=200)
    assert "documents of at most" in found.notes[0]
    assert "joined to windows of 200" in found.notes[0]
    assert found.cache.length == 200
    assert (found.heads["needs_far"] == "").all()  # no document is long enough
    assert found.heads["far_lift"].isna().all()


def test_joined_windows_hold_all_tokens_in_order(gpt2_folder, story, tokenizer):
    windows = hs.windows(story, tokenizer, max_length=40, max_tokens=2_000)
    one = joined(windows, 64)
    text = np.concatenate([window.tokens[1:] for window in windows])
    again = np.concatenate([window.tokens[1:] for window in one])
    assert again.tolist() == text[: len(again)].tolist()
    assert len(text) - len(again) < 63
    assert {window.tokens[0] for window in one} == {windows[0].tokens[0]}
    assert {len(window) for window in one[:-1]} == {64}


def test_a_text_that_is_never_longer_than_what_is_kept_is_refused(gpt2_folder, story):
    with pytest.raises(CorpusError, match=r"no window of .* is longer than the 260 tokens that"):
        hs.streaming(str(gpt2_folder), story, recent=256, max_tokens=2_000)


def test_one_window_alone_cannot_rank_and_judge(gpt2_folder, story):
    with pytest.raises(CorpusError, match="one long window, and streaming needs two"):
        hs.streaming(str(gpt2_folder), story / "c.txt", max_length=256, recent=32, max_tokens=256)


@pytest.mark.parametrize(
    "wrong", [{"recent": 0}, {"sinks": -1}, {"tolerance": -1}, {"recent": 2.5}]
)
def test_what_cannot_be_kept_is_refused(wrong):
    with pytest.raises(ArgumentError):
        hs.streaming("mini", **wrong)


def test_heads_that_share_latents_are_refused(tokenizer, tmp_path, story):
    from transformers import DeepseekV2Config, DeepseekV2ForCausalLM

    config = DeepseekV2Config(
        vocab_size=len(tokenizer), hidden_size=32, intermediate_size=32, num_hidden_layers=2,
        num_attention_heads=4, num_key_value_heads=4, kv_lora_rank=8, q_lora_rank=None, qk_rope_head_dim=8,
        qk_nope_head_dim=8, v_head_dim=8, first_k_dense_replace=2, max_position_embeddings=128,
    )  # fmt: skip
    DeepseekV2ForCausalLM(config).save_pretrained(tmp_path)
    tokenizer.save_pretrained(tmp_path)
    with pytest.raises(hs.HeadscopeError, match="share a latent of each token"):
        hs.streaming(str(tmp_path), story, recent=16, max_length=64)


def test_the_command_prints_and_writes_both_tables_and_a_picture(
    command, reader, repeats, tmp_path
):
    out, figure = tmp_path / "streaming.csv", tmp_path / "streaming.svg"
    code, printed, _ = command(
        "study", "streaming", reader, "--corpus", repeats, "--max-tokens", 2000, "--out", out,
        "--figure", figure, "--quiet",
    )  # fmt: skip
    assert code == 0
    assert "18 of 20 key/value heads may keep 4 sinks and the last 64 keys" in printed
    assert "3 of 20 key/value heads need the far text" in " ".join(printed.split())
    assert pd.read_csv(out)["streams"].sum() == 18
    assert list(pd.read_csv(tmp_path / "streaming-curve.csv").columns) == CURVE
    assert "<svg" in figure.read_text()
