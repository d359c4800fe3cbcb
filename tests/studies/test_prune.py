"""Importance against finite differences, order of heads, excess loss over random orders."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

import headscope as hs
from headscope.causal.intervention import HeadsScaled
from headscope.causal.loss import TextLoss, loss, network_of
from headscope.errors import WriteError
from headscope.measure.study_windows import text_windows
from headscope.models.layout.projections import outputs_by_layer
from headscope.models.load import load_model
from headscope.studies.prune import (
    DRAWS,
    GREEDY,
    IMPORTANCE,
    MASKED,
    RANDOM,
    Order,
    _halves,
    _type_ranks,
    over_random,
    prune,
    save_pruned,
    type_order,
)
from headscope.studies.prune_orders import (
    SingleHeads,
    greedy_order,
    head_importance,
    layer_normalised,
)
from tests.models.every_layout import save_tiny

LAYERS, HEADS = 2, 4


@pytest.fixture(scope="module")
def model(model_folder):
    return load_model(str(model_folder))


def test_importance_equals_a_finite_difference(model_folder, story):
    """Mean over tokens of |nats(1 + ε) − nats(1 − ε)| / 2ε, in double precision, by window."""
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
        (0, 0): ["first-token"],
        (0, 1): ["first-token", "punctuation"],
        (0, 2): ["punctuation"],
        (1, 0): ["first-token"],
        (1, 1): ["punctuation"],
        (1, 3): ["punctuation"],
    }
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
        "importance": 1,
        "masked": 1,
        "greedy": 1,
        "random": DRAWS,
        "type": 1,
    }
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
    halves = _halves(windows)
    ranking, judging = halves.ranking, halves.judging
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
    judging = _halves(text_windows(model, story)).judging
    expected = loss(model, judging, HeadsScaled.by_row(model, mask.view(2, 4))).mean
    curve = pruning.table
    own = curve[(curve["order"] == "importance") & (curve["masked"] == 3)]
    assert own["loss"].item() == pytest.approx(expected)


def test_by_type_unclassified_heads_go_first_then_sinks_then_the_rest(pruning, run):
    importance = np.array(pruning.values["importance"])
    order = type_order(importance.ravel(), _type_ranks(run)).tolist()
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
    found = over_random({Order(IMPORTANCE): one, Order(RANDOM): [nothing] * 4}, seed=0)[IMPORTANCE]
    assert found[1, 0] == pytest.approx(10 / 100)
    assert found[1, 1] == 0  # the first window is in some resamples only
    assert found[1, 2] > 0.15


def test_the_interval_holds_what_other_seeds_would_have_given():
    made = {Order(IMPORTANCE): losses(np.array([0, 1.0, 1.0, 0]))}
    made |= {
        Order(RANDOM, i): losses(np.array([0, own, own, 0])) for i, own in enumerate((0.0, 2.0))
    }
    value, low, high = over_random(made, seed=0)[IMPORTANCE][1]
    assert value == pytest.approx(0)
    # half of the resamples have both seeds, a quarter each has one of them twice
    assert (low, high) == (pytest.approx(-1), pytest.approx(1))


def slow_loss(model, windows, masked) -> float:
    """One whole forward pass."""
    present = torch.ones(LAYERS * HEADS)
    present[list(masked)] = 0
    return loss(model, windows, HeadsScaled.by_row(model, present.view(LAYERS, HEADS))).mean


def test_single_heads_cost_what_whole_forward_passes_say(model, story):
    windows = text_windows(model, story)[:3]
    single = SingleHeads(model, windows, lambda tokens: None)
    clean, base = loss(model, windows).mean, slow_loss(model, windows, [6])
    expected = [slow_loss(model, windows, [head]) - clean for head in range(8)]
    assert single.rises(range(8), []) == pytest.approx(expected, abs=1e-5)
    expected = [slow_loss(model, windows, [6, head]) - base for head in (0, 5)]
    assert single.rises([0, 5], [6]) == pytest.approx(expected, abs=1e-5)


def test_a_greedy_step_masks_the_cheapest_of_the_cheapest_candidates(model, story):
    """A loop by the definition: one or two heads at a step, of twice as many candidates."""
    windows = text_windows(model, story)[:3]
    clean = loss(model, windows).mean
    last = {head: slow_loss(model, windows, [head]) - clean for head in range(8)}
    order: list[int] = []
    for masked in (1, 2, 2, 3, 4, 5, 6, 6, 7, 8):
        count = masked - len(order)
        left = sorted((head for head in last if head not in order), key=last.get)
        if order and count:
            base = slow_loss(model, windows, order)
            for head in left[: 2 * count]:
                last[head] = slow_loss(model, windows, [*order, head]) - base
        order += sorted((head for head in left), key=last.get)[:count]
    single = SingleHeads(model, windows, lambda tokens: None)
    assert greedy_order(single, single.rises(range(8), [])).tolist() == order


def test_the_saved_model_is_the_pruned_one(model_folder, story, tmp_path):
    """transformers' own network, loaded from the folder, with the loss of the table."""
    result = prune(str(model_folder), story, save=tmp_path / "pruned", share=0.5)
    network = AutoModelForCausalLM.from_pretrained(tmp_path / "pruned").eval()
    AutoTokenizer.from_pretrained(tmp_path / "pruned")
    model = load_model(str(model_folder))
    nats, tokens = 0.0, 0
    for window in _halves(text_windows(model, story)).judging:
        ids = torch.from_numpy(window.tokens)[None]
        with torch.no_grad():
            logits = network(ids).logits[0, :-1]
        nats += float(torch.nn.functional.cross_entropy(logits, ids[0, 1:], reduction="sum"))
        tokens += len(window) - 1
    half = result.table[result.table["masked"] == 4].set_index("order")["loss"]
    assert nats / tokens == pytest.approx(half[[IMPORTANCE, MASKED, GREEDY]].min(), abs=1e-4)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["pruned"]


def test_saving_leaves_the_model_as_it_was_and_replaces_no_folder(gpt2_folder, story, tmp_path):
    model = load_model(str(gpt2_folder))
    before = {name: w.clone() for name, w in model.engine.network.state_dict().items()}
    save_pruned(model, np.array([0, 5]), tmp_path / "pruned")
    after = model.engine.network.state_dict()
    assert all(torch.equal(before[name], after[name]) for name in before)
    with pytest.raises(WriteError, match="pruned"):
        prune(model, story, save=tmp_path / "pruned")


def test_a_head_that_writes_nothing_has_no_importance_in_an_encoder(tokenizer, story, tmp_path):
    save_tiny("bert", tokenizer, tmp_path)
    model = load_model(str(tmp_path))
    outputs = outputs_by_layer(model.engine.network)
    outputs[0].weight.data[:, 8:16] = 0
    importance = head_importance(model, text_windows(model, story))
    silent = importance == 0
    assert silent.tolist() == [[False, True, False, False], [False] * 4]
    found = prune(model, story, max_tokens=150)
    assert found.table["loss"][0] == 0
    orders = found.table[(found.table["masked"] == 1) & (found.table["order"] != RANDOM)]
    assert orders["loss"].tolist() == pytest.approx([0, 0, 0], abs=1e-6)
