"""Reruns with ablated heads: against transformers' own model, changed by hand."""

from __future__ import annotations

import pytest
import torch
from transformers import AutoModelForCausalLM, AutoModelForMaskedLM, BertModel

from headscope.causal.intervention import ablated
from headscope.causal.rerun import Rerunner, Score, TokenRows
from headscope.models.load import load_model
from tests.helpers.models import save_uneven
from tests.models.every_layout import save_tiny
from tests.models.tiny import FUSED_ENCODERS, tiny_config


@pytest.fixture(scope="module")
def rerunner(model_folder):
    return Rerunner(load_model(str(model_folder)))


@pytest.fixture(scope="module")
def rows(rerunner):
    tokens = torch.randint(1, 90, (4, 20), generator=torch.Generator().manual_seed(2))
    lengths = torch.tensor([20, 20, 12, 7])
    places = [(row, p) for row in range(4) for p in range(1, int(lengths[row]))]
    row, position = torch.tensor(places).T
    return TokenRows(tokens, lengths, row, position)


def by_hand(model_folder, rows, heads) -> torch.Tensor:
    """Log-probabilities of transformers' own model, one row at a time, without some heads."""
    network = AutoModelForCausalLM.from_pretrained(model_folder).eval()
    ablate(network, heads)
    found = []
    with torch.no_grad():
        for row, position in zip(rows.row, rows.position, strict=True):
            logits = network(rows.tokens[row, :position][None]).logits[0, -1]
            found.append(logits.log_softmax(-1)[rows.tokens[row, position]])
    return torch.stack(found)


OUTPUTS = tuple(
    (
        ".attn.c_proj .attention.dense .self_attn.o_proj .attention.output.dense .out_lin "
        ".attn.Wo .attn.o"
    ).split()
)
"""Names of W_O by layout."""


def ablate(network, heads: dict[int, list[int]]) -> None:
    """Set W_O of heads, of which each layer has four, to zero."""
    outputs = [m for name, m in network.named_modules() if name.endswith(OUTPUTS)]
    for layer, own in heads.items():
        weight = outputs[layer].weight.data
        matrix = weight if type(outputs[layer]).__name__ == "Conv1D" else weight.T
        width = len(matrix) // 4
        for head in own:
            matrix[head * width : (head + 1) * width] = 0


def test_the_clean_run_predicts_as_transformers_does(rerunner, model_folder, rows):
    clean = rerunner.clean(rows)
    assert torch.allclose(rerunner.scores(clean), by_hand(model_folder, rows, {}), atol=1e-4)
    assert len(clean.inputs) == len(clean.z) == 2
    assert clean.z[0].shape == (4, 20, 4, 8)


@pytest.mark.parametrize("heads", [{0: [1]}, {1: [0, 3]}, {0: [2], 1: [1]}])
def test_zero_equals_a_model_without_these_rows_of_w_o(rerunner, model_folder, rows, heads):
    clean = rerunner.clean(rows)
    without = ablated("zero", clean, heads)
    found = rerunner.scores(clean, without)
    assert torch.allclose(found, by_hand(model_folder, rows, heads), atol=1e-4)
    assert (found - rerunner.scores(clean)).abs().max() > 1e-2


def test_mean_leaves_out_the_first_token_and_padding(rerunner, rows):
    clean = rerunner.clean(rows)
    z = ablated("mean", clean, {1: [2]}).edit(1, clean.z[1])
    real = torch.cat([clean.z[1][r, 1 : int(n), 2] for r, n in enumerate(rows.lengths)])
    assert torch.allclose(z[:, :, 2], real.mean(0).expand(4, 20, -1), atol=1e-5)
    assert torch.equal(z[:, :, [0, 1, 3]], clean.z[1][:, :, [0, 1, 3]])


LENGTHS = (24, 15, 9)


def rows_of(mask: int) -> TokenRows:
    """Rows of three lengths, each third token masked."""
    tokens = torch.randint(5, 70, (3, max(LENGTHS)), generator=torch.Generator().manual_seed(3))
    places = [(row, at) for row, length in enumerate(LENGTHS) for at in range(1, length - 1, 3)]
    row, position = torch.tensor(places).T
    labels = tokens[row, position]
    tokens[row, position] = mask
    return TokenRows(tokens, torch.tensor(LENGTHS), row, position, labels)


def alone(network, rows: TokenRows, output: str) -> list[torch.Tensor]:
    """Outputs of transformers' own model for each row alone, without padding."""
    with torch.no_grad():
        return [
            network(rows.tokens[row, :length][None])[output][0]
            for row, length in enumerate(LENGTHS)
        ]


@pytest.mark.parametrize("model_type", FUSED_ENCODERS)
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
    assert torch.allclose(rerunner.scores(clean), by_hand(), atol=1e-4)
    last = model.attention_layers[-1]
    found = rerunner.scores(clean, ablated("zero", clean, {last: [1]}))
    ablate(network, {last: [1]})
    assert torch.allclose(found, by_hand(), atol=1e-4)
    assert float((found - rerunner.scores(clean)).abs().max()) > 1e-4


@pytest.mark.parametrize("heads", [{0: [2]}, {0: [2], 1: [3]}])
def test_without_that_head_the_score_is_how_far_the_last_state_moves(heads, tokenizer, tmp_path):
    """Sentence encoders have no head that fills in masked tokens."""
    config = tiny_config("bert")
    config.num_hidden_layers = len(heads)
    encoder = BertModel(config, add_pooling_layer=False)
    model = load_model(str(save_uneven(encoder, tokenizer, tmp_path)))
    rerunner, rows = Rerunner(model), rows_of(mask=4)
    assert rerunner.score is Score.STATE
    clean = rerunner.clean(rows)
    assert not rerunner.scores(clean).any()
    found = rerunner.scores(clean, ablated("zero", clean, heads))
    network = BertModel.from_pretrained(tmp_path, add_pooling_layer=False).eval()
    before = alone(network, rows, "last_hidden_state")
    ablate(network, heads)
    after = alone(network, rows, "last_hidden_state")
    expected = [
        -float((after[r][at] - before[r][at]).norm() / before[r][at].norm())
        for r, at in zip(rows.row.tolist(), rows.position.tolist(), strict=True)
    ]
    assert torch.allclose(found, torch.tensor(expected), atol=1e-5)
    assert min(expected) < -0.01
