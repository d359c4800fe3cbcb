"""Engines: what they give must not depend on how they give it."""

from __future__ import annotations

import shutil

import numpy as np
import pytest
import torch

import headscope as hs
from headscope import fused
from headscope.ahead import ahead
from headscope.corpus.plan import TextWindows, plan_repeats
from headscope.corpus.window import Window
from headscope.deal import AT_ONCE, chunks
from headscope.engine import Block, stream_patterns
from headscope.errors import ChoiceError, ModelError
from headscope.measure import measure
from headscope.models import load_model
from headscope.relations import relations_of
from headscope.tally import BLOCKS, Tally

RELATIONS = relations_of()


@pytest.fixture(scope="module")
def stimuli(model_folder, gum):
    model = load_model(str(model_folder))
    paths = [gum / "GUM_bio_byron.conllu", gum / "GUM_vlog_pizzeria.conllu"]
    text = TextWindows(paths, model.tokenizer, max_tokens=2500, max_length=240, seed=0)
    vocabulary = model.tokenizer.ordinary_tokens(model.vocabulary_size)
    return list(text), plan_repeats(vocabulary, model.tokenizer, max_length=240, seed=0)[:4]


def tally_by(engine: str, folder, stimuli) -> Tally:
    model = load_model(str(folder), engine=engine)
    assert model.engine.name == engine
    return measure(model, *stimuli, RELATIONS, seed=0, batch_tokens=1000)[0]


@pytest.fixture(scope="module")
def by_lens(model_folder, stimuli):
    return tally_by("lens", model_folder, stimuli)


def differences(one: Tally, other: Tally) -> dict[str, float]:
    """The largest differences of means over queries, 0 to 1."""
    queries = np.maximum(one.queries.sum(0), 1)[:, None, None]
    means = {
        name: np.abs((getattr(one, name) - getattr(other, name)).sum(0) / queries).max()
        for name in ("target", "control")
    }
    profiled = float(one.profile.queries)
    for name in ("entropy", "first_token", "spread", "diagonal", "stripe", "sentence"):
        difference = getattr(one.profile, name) - getattr(other.profile, name)
        means[name] = np.abs(difference).max() / profiled
    means["distance"] = np.abs(one.profile.distance - other.profile.distance).max() / profiled / 240
    means["corner"] = np.abs(one.profile.corner - other.profile.corner).max()
    return means


def test_both_engines_give_the_same_tally(model_folder, stimuli, by_lens):
    own = tally_by("fused", model_folder, stimuli)
    assert np.array_equal(by_lens.queries, own.queries)
    assert by_lens.profile.queries == own.profile.queries > 500
    assert np.array_equal(by_lens.profile.corners, own.profile.corners)
    assert max(differences(by_lens, own).values()) < 1e-5
    # two keys that differ in the last bit may change places
    assert np.abs(by_lens.hits.sum(0) - own.hits.sum(0)).max() <= 1
    assert own.hits.sum() > 1000


@pytest.mark.parametrize("cells", [1, 30_000, 2**30])
def test_the_size_of_blocks_changes_nothing(model_folder, stimuli, by_lens, monkeypatch, cells):
    monkeypatch.setattr(fused, "BLOCK_CELLS", cells)
    own = tally_by("fused", model_folder, stimuli)
    assert max(differences(by_lens, own).values()) < 1e-5
    assert np.array_equal(by_lens.profile.corners, own.profile.corners)


@pytest.mark.parametrize(("windows", "length"), [(1, 1), (3, 16), (8, 256), (2, 1024), (1, 5000)])
def test_blocks_cover_every_row_once_and_in_order(gpt2_folder, windows, length):
    blocks = load_model(str(gpt2_folder)).engine.layout(windows, length)
    seen = [
        (window, query)
        for block in blocks
        for window in range(block.windows.start, block.windows.stop)
        for query in range(block.queries.start, block.queries.stop)
    ]
    assert seen == [(window, query) for window in range(windows) for query in range(length)]
    heads = 4
    largest = max(block.shape[0] * block.shape[1] * block.keys * heads for block in blocks)
    assert largest <= fused.BLOCK_CELLS


def test_patterns_are_those_of_the_models_own_eager_attention(model_folder):
    from transformers import AutoModelForCausalLM

    model = load_model(str(model_folder))
    assert model.engine.name == "fused"
    assert model.notes == ()
    tokens = torch.randint(1, 90, (3, 40), generator=torch.Generator().manual_seed(0))
    seen = {}
    stream_patterns(model.engine, tokens, seen.__setitem__)
    network = AutoModelForCausalLM.from_pretrained(model_folder, attn_implementation="eager")
    with torch.no_grad():
        own = network.eval()(tokens, output_attentions=True).attentions
    for layer, pattern in enumerate(own):
        assert torch.allclose(seen[layer], pattern, atol=1e-5)
    only = {}
    stream_patterns(model.engine, tokens, only.__setitem__, 1)
    assert list(only) == [0]


def test_the_normaliser_of_kernels_and_of_blocks_is_the_same():
    generator = torch.Generator().manual_seed(1)
    query = torch.randn(2, 6, 300, 8, generator=generator)
    key, value = (torch.randn(2, 2, 300, 8, generator=generator) for _ in range(2))
    output, normaliser = fused._kernel(query, key, value, 0.3)
    assert torch.allclose(normaliser, fused.blockwise_normaliser(query, key, 0.3), atol=1e-5)
    scores = fused.Scores(query, key, 0.3, normaliser)
    pattern = fused.log_probabilities(scores, Block(slice(0, 2), slice(0, 300))).exp()
    assert torch.allclose(pattern.sum(-1), torch.ones(2, 6, 300), atol=1e-5)
    assert torch.allclose(pattern @ value.repeat_interleave(3, 1), output, atol=1e-5)


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ({"softcap": 30.0}, "does not know softcap"),
        ({"sliding_window": 8}, "does not know sliding_window of 8"),
        ({"s_aux": torch.ones(1)}, "does not know s_aux"),
        ({"mask": torch.zeros(9, 9)}, "does not know a mask"),
    ],
)
def test_other_kinds_of_attention_are_refused_by_name(more, message):
    x = torch.randn(1, 1, 9, 4)
    more = {"mask": None, **more}
    with pytest.raises(ModelError, match=message):
        fused.attention(torch.nn.Identity(), x, x, x, **more)
    wide = fused.attention(torch.nn.Identity(), x, x, x, None, sliding_window=9)[0]
    assert wide.shape == (1, 9, 1, 4)


def sliding(gpt2_folder, folder) -> str:
    """A Mistral whose window is shorter than its context."""
    from transformers import MistralConfig, MistralForCausalLM

    torch.manual_seed(0)
    config = MistralConfig(
        hidden_size=16, num_hidden_layers=2, num_attention_heads=2, num_key_value_heads=1,
        intermediate_size=16, vocab_size=500, sliding_window=20, max_position_embeddings=64,
        head_dim=8, bos_token_id=0, eos_token_id=0,
    )  # fmt: skip
    MistralForCausalLM(config).save_pretrained(folder)
    for name in ("tokenizer.json", "tokenizer_config.json"):
        shutil.copy(gpt2_folder / name, folder / name)
    return str(folder)


def test_auto_falls_back_to_lens_and_says_why(gpt2_folder, tmp_path, keys_file):
    name = sliding(gpt2_folder, tmp_path / "sliding")
    model = load_model(name)
    assert model.engine.name == "lens"
    assert "does not know sliding_window of 20" in model.notes[0]
    with pytest.raises(ModelError, match=r"fused engine does not fit: .*sliding_window of 20"):
        load_model(name, engine="fused")
    run = hs.classify(name, keys_file, max_tokens=100, types=["delimiter"])
    assert run.info["engine"] == "lens"
    assert any("sliding_window" in note for note in run.info["notes"])


def test_an_engine_that_does_not_exist_is_named(gpt2_folder):
    with pytest.raises(ChoiceError, match="choose from: auto, fused, lens"):
        load_model(str(gpt2_folder), engine="flash")


def made_up(count: int) -> list[Window]:
    return [Window(str(i), np.arange(9), ("a",) * 9) for i in range(count)]


@pytest.mark.parametrize("count", [1, 63, 64, 127, 128, 129, 256, 257, 1000, 5000])
def test_text_of_any_length_fills_at_least_half_of_the_blocks_by_position(count):
    tally = Tally.zeros(("a/b",), 1, 1)
    order: list[int] = []
    for chunk in chunks(iter(made_up(count)), []):
        if chunk.halve:
            tally.halve()
            order = [block // 2 for block in order]
        np.add.at(tally.queries[:, 0], chunk.blocks, 1)
        order += chunk.blocks.tolist()
    assert len(order) == count
    assert order == sorted(order)
    assert np.bincount(order, minlength=BLOCKS).tolist() == tally.queries[:, 0].tolist()
    used = tally.queries[tally.queries > 0]
    assert len(used) >= min(count, BLOCKS // 2)
    # up to rounding within the first windows every block but the last holds the same number
    assert np.ptp(used[:-1] if len(used) > 1 else used) <= (1 if count <= AT_ONCE else 0)


def test_no_more_windows_than_a_chunk_are_asked_for():
    asked = []

    def stream():
        for window in made_up(1000):
            asked.append(window)
            yield window

    next(chunks(stream(), []))
    assert len(asked) == AT_ONCE


def test_work_ahead_keeps_order_and_raises_in_its_place():
    def items():
        yield from range(5)
        raise KeyError("six")

    made = []
    with pytest.raises(KeyError, match="six"):
        made.extend(item for item in ahead(items()) if made.append(item) is None and False)
    assert made == [0, 1, 2, 3, 4]
    assert list(ahead(iter([]))) == []
