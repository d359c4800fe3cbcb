"""Ablating the heads of encoders: masked tokens filled in, or how far the last states move."""

from __future__ import annotations

import pytest
import torch
from transformers import AutoModelForMaskedLM, BertConfig, BertModel

import headscope as hs
from headscope.models.intervention import ablated
from headscope.models.load import load_model
from headscope.models.rerun import Rerunner, Score, TokenRows
from headscope.statistics.causes import AWAY, BREAKS, CAUSE_COLUMNS, NEAR, NO_CAUSE, cause_lines
from tests.helpers.encoders import HEADS, WIDTH, WORDS, corpus, hand_built, save_tokenizer
from tests.models.every_layout import save_tiny
from tests.models.tiny import ENCODERS

LENGTHS = (24, 15, 9)
OUTPUTS = (".attention.output.dense", ".out_lin", ".attn.Wo", ".attention.dense", ".attn.o")
"""Ends of the names of W_O in the layouts of `ENCODERS`."""
WRITER, SILENT = HEADS["syntactic/obj:dep>head"], HEADS["syntactic/obj:head>dep"]
DOCUMENTS = 24
WORDS_READ = DOCUMENTS * 8 * 13
SMALL = {
    "vocab_size": len(WORDS), "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4,
    "intermediate_size": 32, "max_position_embeddings": 128, "initializer_range": 0.4,
}  # fmt: skip


def rows_of(mask: int) -> TokenRows:
    """Rows of three lengths, each third token masked."""
    tokens = torch.randint(5, 70, (3, max(LENGTHS)), generator=torch.Generator().manual_seed(3))
    places = [(row, at) for row, length in enumerate(LENGTHS) for at in range(1, length - 1, 3)]
    row, position = torch.tensor(places).T
    labels = tokens[row, position]
    tokens[row, position] = mask
    return TokenRows(tokens, torch.tensor(LENGTHS), row, position, labels)


def alone(network, rows: TokenRows, output: str) -> list[torch.Tensor]:
    """What transformers' own model gives each row by itself, without padding."""
    with torch.no_grad():
        return [
            network(rows.tokens[row, :length][None])[output][0]
            for row, length in enumerate(LENGTHS)
        ]


def without_head(network, layer: int, head: int, heads: int) -> None:
    """W_O of one head is set to zero."""
    found = [m for name, m in network.named_modules() if name.endswith(OUTPUTS)]
    weight = found[layer].weight.data
    width = weight.shape[1] // heads
    weight[:, head * width : (head + 1) * width] = 0


@pytest.mark.parametrize("model_type", ENCODERS)
def test_masked_tokens_are_filled_in_as_transformers_does(model_type, tokenizer, tmp_path):
    save_tiny(model_type, tokenizer, tmp_path)
    model = load_model(str(tmp_path))
    model.tokenizer.mask = 4
    rerunner, rows = Rerunner(model), rows_of(mask=4)
    assert rerunner.score is Score.MASKED
    network = AutoModelForMaskedLM.from_pretrained(tmp_path).eval()

    def by_hand() -> torch.Tensor:
        logits = alone(network, rows, "logits")
        places = zip(rows.row.tolist(), rows.position.tolist(), rows.labels.tolist(), strict=True)
        return torch.stack([logits[r].log_softmax(-1)[at, label] for r, at, label in places])

    clean = rerunner.clean(rows)
    assert torch.allclose(clean.scores, by_hand(), atol=1e-4)
    last = model.attention_layers[-1]
    found = rerunner.scores(clean, ablated("zero", clean, {last: [1]}))
    without_head(network, last, 1, model.heads)
    assert torch.allclose(found, by_hand(), atol=1e-4)
    assert float((found - clean.scores).abs().max()) > 1e-4


@pytest.fixture(scope="module")
def sentence_encoder(tmp_path_factory):
    """An encoder without a head that fills in masked tokens, as sentence encoders are."""
    folder = tmp_path_factory.mktemp("sentences")
    torch.manual_seed(0)
    BertModel(BertConfig(**SMALL), add_pooling_layer=False).save_pretrained(folder)
    save_tokenizer(WORDS, folder)
    return folder


def test_without_that_head_the_score_is_how_far_the_last_state_moves(sentence_encoder):
    model = load_model(str(sentence_encoder))
    rerunner, rows = Rerunner(model), rows_of(mask=4)
    assert rerunner.score is Score.STATE
    clean = rerunner.clean(rows)
    assert not clean.scores.any()
    found = rerunner.scores(clean, ablated("zero", clean, {0: [2], 1: [3]}))
    network = BertModel.from_pretrained(sentence_encoder, add_pooling_layer=False).eval()
    before = alone(network, rows, "last_hidden_state")
    without_head(network, 0, 2, 4)
    without_head(network, 1, 3, 4)
    after = alone(network, rows, "last_hidden_state")
    expected = [
        -float((after[r][at] - before[r][at]).norm() / before[r][at].norm())
        for r, at in zip(rows.row.tolist(), rows.position.tolist(), strict=True)
    ]
    assert torch.allclose(found, torch.tensor(expected), atol=1e-5)
    assert min(expected) < -0.01


@pytest.fixture(scope="module", params=["masked", "state"])
def causes(request, tmp_path_factory):
    """An encoder whose heads for objects look alike, of which one writes and one does not."""
    folder = tmp_path_factory.mktemp(request.param)
    network = hand_built()
    layer, generator = network.bert.encoder.layer[0].attention, torch.Generator().manual_seed(0)
    writes = slice(WRITER * WIDTH, (WRITER + 1) * WIDTH)
    value, output = layer.self.value.weight, layer.output.dense.weight
    with torch.no_grad():
        value[writes] = 0.3 * torch.randn(value[writes].shape, generator=generator)
        output[:, writes] = 0.3 * torch.randn(output[:, writes].shape, generator=generator)
    (network if request.param == "masked" else network.bert).save_pretrained(folder)
    save_tokenizer(WORDS, folder)
    text = folder / "pairs.conllu"
    text.write_text(corpus(DOCUMENTS, seed=0), encoding="utf-8")
    run = hs.classify(str(folder), text, max_tokens=6000, max_length=120, progress=False)
    return hs.ablate(run, progress=False)


def test_the_head_that_writes_breaks_what_it_looks_at_and_the_other_does_not(causes):
    table = causes.table
    assert list(table.columns) == CAUSE_COLUMNS
    alone = table[(table["kind"] == "head") & (table["type"] == "syntactic")]
    near = alone[alone["behaviour"].isin(NEAR)].set_index("head")
    away = alone[alone["behaviour"].isin(AWAY)].set_index("head")
    assert {WRITER, SILENT} == {*near.index} == {*away.index}
    assert not near.loc[SILENT, "effect"]
    if near.loc[WRITER, "behaviour"] == "masked-near":
        # it knows nothing of words, masked or not
        assert {*near["verdict"]} == {"not tested: the model cannot do it"}
        assert ((near["n"] + away["n"]) / WORDS_READ).between(0.13, 0.16).all()
        return
    assert near.loc[WRITER, "effect"] < 2 * away.loc[WRITER, "effect"] < 0
    assert near.loc[WRITER, "verdict"] == BREAKS
    assert near.loc[SILENT, "verdict"] == NO_CAUSE
    assert not near.loc[WRITER, "clean"]
    (line,) = cause_lines(table[table["kind"] == "head"], 0, WRITER)
    assert "changes the last state at its queries from 0.00 to" in line


def test_edges_of_an_encoder_are_not_tested(causes):
    edges = causes.table[causes.table["kind"] == "tag"]
    assert len(edges) > 2
    assert {*edges["verdict"]} == {"not tested: all tokens of an encoder see each other"}
    assert any("all tokens of an encoder see each other" in line for line in causes.summary)
