"""Pruning: importance against finite differences, the order of heads, and excess loss over random orders."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import headscope as hs
from headscope.causal.intervention import HeadsScaled
from headscope.causal.loss import loss, network_of
from headscope.measure.study_windows import TextLoss, text_windows
from headscope.models.load import load_model
from headscope.studies.prune import (
    DRAWS,
    IMPORTANCE,
    RANDOM,
    _halves,
    _orders,
    _type_ranks,
    head_importance,
    layer_normalised,
    over_random,
    prune,
)

LAYERS, HEADS = 2, 4


@pytest.fixture(scope="module")
def model(model_folder):
    return load_model(str(model_folder))


def test_importance_equals_a_finite_difference(model_folder, story):
    """Mean over tokens of |nats(1 + ε) − nats(1 − ε)| / 2ε, in double precision, window by window."""
    model = load_model(str(model_folder))
    network, windows = network_of(model).double(), text_windows(model, story)
    for norm in network.modules():
        if type(norm).__name__ == "LlamaRMSNorm":  # its own forward rounds to single precision
            norm.forward = lambda x, norm=norm: norm.weight * rms(x, norm.variance_epsilon)
    own = head_importance(model, windows)
    step, expected = 1e-5, np.zeros((LAYERS, HEADS))
    for layer in range(LAYERS):
        for head in range(HEADS):
            sides = []
            for sign in (1, -1):
                mask = torch.ones(LAYERS, HEADS, dtype=torch.float64)
                mask[layer, head] += sign * step
                sides.append(loss(model, windows, HeadsScaled.by_row(model, mask)))
            slope = (sides[0].nats - sides[1].nats) / (2 * step)
            expected[layer, head] = np.abs(slope).sum() / sides[0].tokens.sum()
    assert own == pytest.approx(expected, rel=1e-5)
    assert own.min() > 0


def rms(x, epsilon):
    return x / (x.square().mean(-1, keepdim=True) + epsilon).sqrt()


def test_importance_leaves_the_weights_as_they_were(model, story):
    network, windows = network_of(model), text_windows(model, story)
    before = [weight.requires_grad for weight in network.parameters()]
    head_importance(model, windows)
    assert [weight.requires_grad for weight in network.parameters()] == before
    assert all(weight.grad is None for weight in network.parameters())


@pytest.fixture(scope="module")
def run(small_run):
    """Six heads with a tag: two look only at the first token, one of the others there too."""
    run = hs.load(small_run)
    kinds = {
        (0, 0): ["first-token"], (0, 1): ["first-token", "punctuation"], (0, 2): ["punctuation"],
        (1, 0): ["first-token"], (1, 1): ["punctuation"], (1, 3): ["punctuation"],
    }  # fmt: skip
    evidence, heads = run.evidence, run.heads
    keys = zip(evidence["layer"], evidence["head"], evidence["relation"], strict=True)
    evidence["tagged"] = [name in kinds.get((layer, head), ()) for layer, head, name in keys]
    heads["primary"] = [
        "delimiter" if key in kinds else "unclassified"
        for key in zip(heads["layer"], heads["head"], strict=True)
    ]
    return run


@pytest.fixture(scope="module")
def pruning(story, run):
    return prune(run, story)


def test_the_curve_has_every_order_and_step(pruning):
    curve = pruning.table
    assert curve.groupby("order", sort=False)["draw"].nunique().to_dict() == {
        "importance": 1, "random": DRAWS, "type": 1,
    }  # fmt: skip
    for _, rows in curve.groupby(["order", "draw"]):
        assert rows["share"].tolist() == [i / 10 for i in range(11)]
        assert rows["masked"].tolist() == [0, 1, 2, 2, 3, 4, 5, 6, 6, 7, 8]
    ends = curve[curve["share"].isin([0, 1])].groupby("share")["loss"].nunique()
    assert ends.tolist() == [1, 1]
    draws = curve[(curve["order"] == "random") & (curve["masked"] == 4)]["loss"]
    assert draws.nunique() > 1


def test_heads_are_ranked_on_other_windows_than_the_loss(pruning, gpt2_folder, story):
    """Both recomputed here from the windows themselves."""
    model = load_model(str(gpt2_folder))
    windows = text_windows(model, story)
    ranking, judging = _halves(windows)
    names = [{window.name for window in half} for half in (ranking, judging)]
    assert not names[0] & names[1]
    assert names[0] | names[1] == {window.name for window in windows}
    expected = layer_normalised(head_importance(model, ranking))
    assert np.array(pruning.values["importance"]) == pytest.approx(expected)
    assert pruning.table["loss"][0] == pytest.approx(loss(model, judging).mean)


def test_the_least_important_heads_go_first(pruning, gpt2_folder, story):
    mask = torch.ones(8)
    mask[np.argsort(np.ravel(pruning.values["importance"]))[:3].tolist()] = 0
    model = load_model(str(gpt2_folder))
    _, judging = _halves(text_windows(model, story))
    expected = loss(model, judging, HeadsScaled.by_row(model, mask.view(2, 4))).mean
    curve = pruning.table
    own = curve[(curve["order"] == "importance") & (curve["masked"] == 3)]
    assert own["loss"].item() == pytest.approx(expected)


def test_by_type_unclassified_heads_go_first_then_sinks_then_the_rest(pruning, run):
    importance = np.array(pruning.values["importance"])
    order = _orders(importance, _type_ranks(run), 0)["type", 0].tolist()
    # heads numbered through both layers: 0.3 and 1.2 have no tag, 0.0 and 1.0 only the first token
    assert set(order[:2]) == {3, 6}
    assert set(order[2:4]) == {0, 4}
    assert set(order[4:]) == {1, 2, 5, 7}
    flat = importance.ravel()
    for part in (order[:2], order[2:4], order[4:]):
        assert flat[part].tolist() == sorted(flat[part])


TOKENS = np.array([10, 20, 30, 40])


def losses(per_token: np.ndarray, tokens: np.ndarray = TOKENS) -> list[TextLoss]:
    """A loss for each share, the same in every window."""
    return [TextLoss(value * tokens, tokens) for value in per_token]


def test_windows_weigh_by_their_tokens():
    nats = np.array([10.0, 0.0, 0.0, 0.0])
    nothing = TextLoss(np.zeros(4), TOKENS)
    one = [nothing, TextLoss(nats, TOKENS), TextLoss(nats, TOKENS), nothing]
    found = over_random({(IMPORTANCE, 0): one, (RANDOM, 0): [nothing] * 4}, seed=0)[IMPORTANCE]
    assert found[1, 0] == pytest.approx(10 / 100)
    assert found[1, 1] == 0  # the first window is in some resamples only
    assert found[1, 2] > 0.15


def test_the_interval_holds_what_other_seeds_would_have_given():
    made = {(IMPORTANCE, 0): losses(np.array([0, 1.0, 1.0, 0]))}
    made |= {(RANDOM, i): losses(np.array([0, own, own, 0])) for i, own in enumerate((0.0, 2.0))}
    value, low, high = over_random(made, seed=0)[IMPORTANCE][1]
    assert value == pytest.approx(0)
    # half of the resamples have both seeds, a quarter each has one of them twice
    assert (low, high) == (pytest.approx(-1), pytest.approx(1))
