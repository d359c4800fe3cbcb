"""The feature of bigrams: runs under a mask, heads with and without content, one query."""

from __future__ import annotations

import pytest
import torch
from transformers import AutoModelForCausalLM

import headscope as hs
from headscope.corpus.shipped import data_folder
from headscope.models.load import load_model
from headscope.relations import relations_of
from headscope.studies.explain.catalogue import BIGRAMS_TERM, SplitWindows, Term, Texts
from headscope.studies.explain.content import FIRST, LOWEST, LayerRows, stream_rows
from headscope.studies.explain.feature_model import explain_layer
from headscope.studies.explain.fit import LayerFit, Selector
from headscope.studies.explain.pattern_scores import log_pattern
from tests.helpers.prose import prose_windows

GOLD = data_folder() / "corpora" / "gold.conllu"
TEXT = "the old keys and the old house that the tired kings lost in the garden"


@pytest.fixture(scope="module")
def texts() -> Texts:
    windows = [w for w in prose_windows(6_000) if len(w) > 40][:32]
    parts = windows[:16], windows[16:24], windows[24:]
    return Texts.of(SplitWindows(*parts), relations_of(["all"]))


@pytest.fixture(scope="module")
def model(gpt2_folder):
    """A model whose first layer attends by tokens and places, and the others evenly."""
    model = load_model(str(gpt2_folder))
    generator = torch.Generator().manual_seed(0)
    for layer, block in enumerate(model.engine.network.transformer.h):
        width = block.attn.c_attn.weight.shape[0]
        queries_and_keys = block.attn.c_attn.weight.data[:, : 2 * width]
        if layer:
            queries_and_keys.zero_()
            block.attn.c_attn.bias.data[: 2 * width] = 0
        else:
            queries_and_keys.normal_(0, 0.25, generator=generator)
        block.attn.c_proj.weight.data.normal_(0, 0.5, generator=generator)
    return model


def bigram_attention(folder, window, layer: int) -> torch.Tensor:
    """Attention between tokens of which each is read in a run of its own, from GPT-2's states."""
    network = AutoModelForCausalLM.from_pretrained(folder, attn_implementation="eager")
    size = len(window)
    tokens = torch.from_numpy(window.tokens)[None]
    block = network.transformer.h[layer]
    projected = []
    for token in range(size):
        seen = {query: {*range(min(FIRST, query)), query} for query in range(size)}
        seen[token] |= {max(token - 1, 0)}
        mask = torch.full((size, size), torch.finfo(torch.float32).min)
        for query, keys in seen.items():
            mask[query, list(keys)] = 0
        with torch.no_grad():
            output = network(tokens, attention_mask=mask[None, None], output_hidden_states=True)
            state = output.hidden_states[layer][0, token]
            projected.append(block.attn.c_attn(block.ln_1(state)[None])[0])
    heads = network.config.n_head
    by_token = torch.stack(projected).detach().view(size, 3, heads, -1)
    query, key, _ = by_token.permute(1, 2, 0, 3)
    scores = query @ key.transpose(1, 2) / query.shape[-1] ** 0.5
    is_later = torch.ones(size, size, dtype=torch.bool).triu(1)
    return scores.masked_fill(is_later, -torch.inf).softmax(-1)


def test_content_is_the_attention_between_tokens_read_one_by_one_under_a_mask(gpt2_folder):
    model = load_model(str(gpt2_folder))
    windows = hs.windows(GOLD, model.tokenizer, max_length=24, max_tokens=60)[:2]
    texts = Texts.of(SplitWindows(windows), relations_of(["all"]), step=1)
    found: dict[int, LayerRows] = {}
    stream_rows(model, texts, lambda rows: found.update({rows.layer: rows}))
    for layer in (0, 1):
        content = found[layer].content
        assert content is not None
        for index, window in enumerate(windows):
            expected = bigram_attention(gpt2_folder, window, layer)[:, 1:]
            of_window = content[:, texts.window == index, : len(window)]
            seen = expected > 0
            assert torch.allclose(of_window.exp()[seen], expected[seen], atol=1e-5)
            assert not of_window[~seen].any()
            assert of_window.min() >= LOWEST
    tokens = torch.from_numpy(windows[0].tokens)[None]
    network = AutoModelForCausalLM.from_pretrained(gpt2_folder, attn_implementation="eager")
    with torch.no_grad():
        own = network(tokens, output_attentions=True).attentions[1][0, :, 1:]
    of_window = found[1].attention[:, texts.window == 0, : own.shape[-1]]
    assert torch.allclose(of_window, own, atol=1e-5)


def test_heads_of_bigrams_are_explained_and_replaced_without_loss(model):
    explanation = hs.explain(model, GOLD, windows=16)
    first = explanation.table[explanation.table["layer"] == 0]
    assert (first.loc[first["place"] == 1, "feature"].str.startswith("bigrams (")).all()
    assert (first["explained"] > 0.999).all()
    heads = explanation.terminal_table
    assert (heads.loc[heads["layer"] == 0, "position"] < 0.8).all()
    table = hs.replace_heads(model, GOLD, windows=16).table
    is_own = table["replacement"] == "feature model"
    assert (table.loc[is_own, "rise"].abs() < 1e-4).all()
    assert (table.loc[table["replacement"] == "uniform", "rise"].abs() > 1e-3).any()


@pytest.mark.parametrize("has_content", [True, False])
def test_a_head_has_the_feature_if_and_only_if_it_attends_by_content(has_content, texts):
    numbers = {feature.name: number for number, feature in enumerate(texts.features)}
    terms = [Term(numbers["token 0"], -1), Term(numbers["offset-1"], -1)]
    logits = torch.tensordot(torch.tensor([2.0, 1.5]), texts.values(terms), 1)
    generator = torch.Generator().manual_seed(0)
    noise = torch.randn(logits.shape, generator=generator)
    content = log_pattern(2 * noise, texts.seen).masked_fill(~texts.seen, 0)
    own = log_pattern(logits + has_content * 0.5 * content, texts.seen).exp()
    rows = LayerRows(0, own[None], content[None])
    selector = Selector(texts)
    (draft,) = LayerFit(texts, selector, rows.attention, 12, rows.content).grow()
    assert (BIGRAMS_TERM in draft.terms) == has_content
    (fitted,) = explain_layer(texts, selector, rows, features=12)
    assert fitted.has_content == has_content
    if has_content:
        weight = next(term.weight for term in fitted.terms if term.pairs)
        assert weight == pytest.approx(0.5, abs=0.02)


def test_one_query_has_the_shares_and_terms_of_bigrams(model):
    table = hs.explain_at(model, "L0H1", TEXT, GOLD, windows=16).table
    assert table["share"].tolist() == pytest.approx(table["attention"].tolist(), abs=0.01)
    assert table["terms"].str.contains(r"bigrams [+-]").all()


def test_a_head_that_other_features_explain_has_no_bigrams_even_if_they_explain_it_too(texts):
    numbers = {feature.name: number for number, feature in enumerate(texts.features)}
    terms = [Term(numbers["token 0"], -1), Term(numbers["follower"], -1)]
    logits = torch.tensordot(torch.tensor([2.0, 4.0]), texts.values(terms), 1)
    logs = log_pattern(logits, texts.seen)
    content = logs.masked_fill(~texts.seen, 0)
    (draft,) = LayerFit(texts, Selector(texts), logs.exp()[None], 12, content[None]).grow()
    assert BIGRAMS_TERM not in draft.terms
    assert set(terms) <= set(draft.terms)
