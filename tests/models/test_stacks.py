"""Models with an encoder and a decoder: each stack's rows are those of the model's own attention."""

from __future__ import annotations

import pytest
import torch
from transformers import AutoModelForSeq2SeqLM, AutoTokenizer

import headscope as hs
from headscope.corpus.window import NOTHING, PADDING, START
from headscope.errors import HeadscopeError, ModelError
from headscope.heads import HeadNames
from headscope.models.engines.engine import stream_patterns
from headscope.models.layout.table import ENCODER_DECODERS, LAYOUTS
from headscope.models.load import load_model
from headscope.models.null_model import null_model
from tests.helpers.shell import headscope
from tests.helpers.stacks import HEADS, SHAPE, save_stacks
from tests.helpers.studies import line
from tests.models.every_layout import placement

SOURCES, TARGETS = (12, 9), (7, 10)
"""Tokens of two windows, so that each is padded on one side."""


@pytest.fixture(scope="module", params=ENCODER_DECODERS)
def layout(request):
    (row,) = (row for row in LAYOUTS if row.model_type == request.param)
    return row


@pytest.fixture(scope="module")
def tolerance(layout):
    """The difference from the model's own code that is stated of the layout."""
    stated = float(layout.differs_by.removeprefix("< "))
    assert stated <= 1e-4
    return stated


@pytest.fixture(scope="module")
def folder(layout, tokenizer, tmp_path_factory):
    name = layout.model_type
    return save_stacks(name, tokenizer, tmp_path_factory.mktemp(name))


@pytest.fixture(scope="module")
def bart(tokenizer, tmp_path_factory):
    return save_stacks("bart", tokenizer, tmp_path_factory.mktemp("bart"))


@pytest.fixture(scope="module")
def texts():
    generator = torch.Generator().manual_seed(1)
    source, target = (
        [torch.randint(5, 300, (1, length), generator=generator) for length in lengths]
        for lengths in (SOURCES, TARGETS)
    )
    for each in target:
        each[0, 0] = 3
    return source, target


def patterns(model, rows: list[torch.Tensor], padding: int) -> list[torch.Tensor]:
    """Each layer's, in order, on windows that are padded together."""
    tokens = torch.nn.utils.rnn.pad_sequence(rows, batch_first=True, padding_value=padding)
    seen: dict[int, torch.Tensor] = {}
    stream_patterns(model.engine, tokens, lambda layer, p: seen.update({layer: p.clone()}))
    assert sorted(seen) == list(range(model.layers))
    return [seen[layer] for layer in sorted(seen)]


def own_attention(folder, source, target):
    network = AutoModelForSeq2SeqLM.from_pretrained(folder, attn_implementation="eager").eval()
    with torch.no_grad():
        return [
            network(one, decoder_input_ids=two, output_attentions=True, use_cache=False)
            for one, two in zip(source, target, strict=True)
        ]


def test_a_source_is_read_as_by_the_models_own_encoder(folder, texts, tolerance):
    encoder, _, _ = load_model(str(folder)).parts
    own = own_attention(folder, *texts)
    rows = [torch.cat([torch.tensor([NOTHING]), each[0]]) for each in texts[0]]
    for layer, seen in enumerate(patterns(encoder, rows, PADDING)):
        for window, length in enumerate(SOURCES):
            expected = own[window].encoder_attentions[layer][0]
            found = seen[window][:, 1 : 1 + length]
            assert float((found[..., 1 : 1 + length] - expected).abs().max()) < tolerance
            assert not found[..., 0].any()
            assert not found[..., 1 + length :].any()
            assert float(expected.triu(1).max()) > 0.1


def test_a_target_looks_at_its_source_and_at_nothing_else(folder, texts, tolerance):
    *_, across = load_model(str(folder)).parts
    own = own_attention(folder, *texts)
    rows = [
        torch.cat([torch.tensor([NOTHING]), one[0], torch.tensor([START]), two[0, 1:]])
        for one, two in zip(*texts, strict=True)
    ]
    for layer, seen in enumerate(patterns(across, rows, PADDING)):
        for window, (keys, queries) in enumerate(zip(SOURCES, TARGETS, strict=True)):
            expected = own[window].cross_attentions[layer][0]
            place = slice(1 + keys, 1 + keys + queries), slice(1, 1 + keys)
            found = seen[window][:, place[0], place[1]]
            assert found.shape == (HEADS, queries, keys)
            assert float((found - expected).abs().max()) < tolerance
            assert float((found.sum(-1) - 1).abs().max()) < tolerance
            assert float(seen[window].sum()) == pytest.approx(HEADS * queries, abs=1e-3)


def test_a_decoder_reads_a_text_whose_source_is_the_same_text(folder, texts, tolerance):
    _, decoder, _ = load_model(str(folder)).parts
    end = AutoTokenizer.from_pretrained(folder).eos_token_id
    closed = [torch.cat([each[:, 1:], torch.tensor([[end]])], 1) for each in texts[1]]
    own = own_attention(folder, closed, texts[1])
    for layer, seen in enumerate(patterns(decoder, [each[0] for each in texts[1]], 3)):
        for window, length in enumerate(TARGETS):
            expected = own[window].decoder_attentions[layer][0]
            found = seen[window][:, :length, :length]
            assert float((found - expected).abs().max()) < tolerance


def test_the_twin_shuffles_every_stack_and_puts_all_back(folder, texts):
    model = load_model(str(folder))
    rows = [torch.cat([torch.tensor([NOTHING]), each[0]]) for each in texts[0]]
    before = patterns(model.parts[0], rows, PADDING)
    assert len(model.parts[0].engine.matrices()) == 4 * sum(SHAPE.values())
    with null_model(model.parts[2].engine, seed=1):
        twin = patterns(model.parts[0], rows, PADDING)
    for own, other, after in zip(
        before, twin, patterns(model.parts[0], rows, PADDING), strict=True
    ):
        assert float((own - other).abs().amax((0, 2, 3)).min()) > 0.02
        assert torch.equal(own, after)


def test_the_list_of_layouts_has_a_row_for_what_is_measured_here(folder, layout):
    network, row = load_model(str(folder)).engine.network, layout
    assert row.model_type == network.config.model_type
    assert placement(network, row) == {"projections": row.projections, "output": row.output}
    assert (row.engine, row.twin) == ("fused", True)
    assert row.attention.startswith("three stacks")


def test_layers_are_counted_through_the_stacks_and_named_by_their_letters(folder):
    model = load_model(str(folder))
    assert model.head_names == HeadNames(tuple("EDX"), (2, 3, 3))
    assert model.layers == 8
    names = [model.head_names.name(layer, 1) for layer in range(8)]
    assert names == ["E0H1", "E1H1", "D0H1", "D1H1", "D2H1", "X0H1", "X1H1", "X2H1"]
    assert [model.head_names.parse(name) for name in names] == [(layer, 1) for layer in range(8)]
    assert [
        (model.at(layer)[0].attention_kind.letter, model.at(layer)[1]) for layer in (1, 2, 7)
    ] == [
        ("E", 1),
        ("D", 0),
        ("X", 2),
    ]


def test_show_draws_the_head_of_a_stack_and_a_target_on_its_source(bart):
    model = load_model(str(bart))
    both = hs.show(model, "X1H2", "the king", target="her ring")
    assert both.tokens[both.source] == model.tokenizer.bos_string
    assert both.pattern[both.source :, : both.source].sum(1) == pytest.approx(1, abs=1e-5)
    assert not both.pattern[: both.source].any()
    assert "source" in both.figure().axes[0].get_xlabel()
    own = hs.show(model, "E0H0", "the king")
    assert own.pattern.sum(1) == pytest.approx(1, abs=1e-5)
    assert own.pattern[0, 1:].any()
    assert not hs.show(model, "D0H0", "the king").pattern[0, 1:].any()
    told = headscope("show", str(bart), "X1H2", "the king", "--target", "her ring")
    assert told.returncode == 0
    assert "source: " in told.stdout


def test_a_pair_in_memory_is_read(bart):
    network = AutoModelForSeq2SeqLM.from_pretrained(bart)
    pair = network, AutoTokenizer.from_pretrained(bart)
    view, same = (hs.show(each, "X0H1", "the king") for each in (pair, str(bart)))
    assert view.pattern == pytest.approx(same.pattern, abs=1e-6)


@pytest.mark.parametrize(
    ("head", "target", "said"),
    [
        ("L0H1", None, "whose layers are E0 to E1, D0 to D2, X0 to X2"),
        ("E2H0", None, "whose layers are E0 to E1"),
        ("X2H9", None, "they go up to X2H3"),
        ("E0H0", "her ring", "a target is for heads across"),
    ],
)
def test_what_is_no_head_of_a_stack_is_refused(bart, head, target, said):
    with pytest.raises(HeadscopeError, match=said):
        hs.show(str(bart), head, "the king", target=target)


@pytest.mark.parametrize("command", ["explain", "prune", "collapse", "weights", "anatomy"])
def test_what_reads_one_text_is_refused_in_one_line(command, bart):
    told = headscope(*line(command), str(bart))
    assert told.returncode == 2
    assert "an encoder and a decoder" in told.stderr
    assert "Traceback" not in told.stderr


def test_other_numbers_of_heads_in_the_two_halves_are_refused(tokenizer, tmp_path):
    save_stacks("bart", tokenizer, tmp_path, decoder_attention_heads=2)
    with pytest.raises(ModelError, match="its encoder has 4 heads in a layer and its decoder 2"):
        load_model(str(tmp_path))
