"""Single tokens run again: as the whole model does with the same change."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from transformers import AutoModelForCausalLM

from headscope.causal import rerun
from headscope.causal.intervention import OutputChange, Replacement, RowHeadsSet
from headscope.causal.loss import last_stream
from headscope.causal.moved_attention import ALL, AS_MUCH, Moves, attention_taken, move_attention
from headscope.causal.rerun import Rerunner
from headscope.models.engines.attention import CleanKeys
from headscope.models.engines.scores import ScoreTerms
from headscope.models.load import load_model
from tests.helpers.models import save_uneven
from tests.models.tiny import tiny_config


def one(query: int, layer: int, head: int, keys: list[int], draw: int = 0) -> Moves:
    rows = (np.array([each]) for each in (query, layer, head, draw))
    return Moves(*rows, np.zeros(len(keys), int), np.array(keys))


@pytest.mark.parametrize("layer", [0, 1])
def test_a_query_run_alone_predicts_what_the_whole_model_does_with_that_pattern(
    model_folder, layer
):
    model = load_model(str(model_folder))
    tokens = np.random.default_rng(1).integers(1, 90, 24)
    query, head = 17, 2
    plain = AutoModelForCausalLM.from_pretrained(model_folder, attn_implementation="eager")
    ids = torch.from_numpy(tokens)[None]
    with torch.no_grad():
        clean = plain(ids, output_attentions=True)
    pattern = clean.attentions[layer].clone()
    cells = (pattern[0, head, query, 1:].topk(2).indices + 1).tolist()
    found = move_attention(Rerunner(model), tokens, one(query, layer, head, cells))
    moved = pattern[0, head, query, cells].sum()
    pattern[0, head, query, 0] += moved
    pattern[0, head, query, cells] = 0
    network = model.engine.network
    replaced = Replacement({layer: range(model.heads)}, lambda call: pattern)
    with torch.no_grad(), replaced.applied(model):
        ablated = network(ids).logits
    before, after = (each[0, query].log_softmax(-1) for each in (clean.logits, ablated))
    expected = float((before.exp() * (before - after)).sum())
    assert expected > 1e-6
    assert found.divergence[0] == pytest.approx(expected, rel=0.02, abs=1e-6)
    assert found.moved[0] == pytest.approx(float(moved), abs=1e-5)
    following = tokens[query + 1]
    assert found.clean[0] == pytest.approx(float(before[following]), abs=1e-3)
    assert found.changed[0] == pytest.approx(float(after[following]), abs=1e-3)


def test_the_last_token_is_followed_by_none_and_queries_do_not_touch_each_other(gpt2_folder):
    runner = Rerunner(load_model(str(gpt2_folder)))
    tokens = np.random.default_rng(2).integers(1, 90, 20)
    alone = move_attention(runner, tokens, one(19, 0, 1, [3]))
    assert np.isnan(alone.clean[0])
    query = np.array([8, 19, 12])
    rows = (query, np.array([0, 0, 1]), np.array([1, 1, 3]), np.zeros(3, int))
    beside = move_attention(runner, tokens, Moves(*rows, np.arange(3), np.array([3, 3, 5])))
    assert beside.divergence[1] == pytest.approx(alone.divergence[0], rel=1e-2)


def taken(attention: torch.Tensor, keys: list[int], *draws: int) -> list[np.ndarray]:
    """Attention that each cell gives if head 1 of query 9 looks at these keys."""
    found = (attention_taken(one(9, 0, 1, keys, draw), 0, attention, sink=0) for draw in (*draws,))
    return [each.double().numpy() for each in found]


def test_no_cell_gives_more_than_it_holds_and_both_sides_give_alike():
    rng = np.random.default_rng(0)
    for sharpness in (0.3, 3.0, 20.0):  # the last looks at next to nothing but its targets
        scores = rng.normal(size=(4, 10)) * sharpness
        scores[1, 3] += sharpness
        attention = torch.from_numpy(scores).softmax(-1)
        held = attention.numpy()
        own, match, *drawn = taken(attention, [3, 7], ALL, AS_MUCH, 1, 2, 3)
        assert own.sum() == pytest.approx(held[1, [3, 7]].sum())
        assert not np.delete(own, [3, 7], axis=1).any()
        free = np.delete(held, [0, 3, 7], axis=1).sum()
        assert match.sum() == pytest.approx(min(own.sum(), free))
        assert match[1, 3] / match[1, 7] == pytest.approx(held[1, 3] / held[1, 7])
        for each in drawn:
            assert (each >= 0).all()
            assert (each <= held + 1e-12).all()
            assert each.sum() == pytest.approx(match.sum())
            assert not each[:, [0, 3, 7]].any()  # neither the sink nor the targets, by any head
        assert not np.array_equal(drawn[0], drawn[1]) or free < own.sum()


def test_a_cell_is_drawn_as_likely_as_it_holds_attention():
    attention = torch.full((2, 10), 1e-9, dtype=torch.float64)
    attention[1, 5], attention[0, 2], attention[1, 8] = 1e-3, 0.6, 0.2
    drawn = np.stack(taken(attention, [5], *range(1, 2001)))
    rates = (drawn > 5e-4).mean(0)
    assert rates[0, 2] == pytest.approx(0.75, abs=0.04)
    assert rates[1, 8] == pytest.approx(0.25, abs=0.04)


LENGTHS = (9, 14, 6)


class LastHeadSet(OutputChange):
    """A head's output at the last token of a whole prompt."""

    def __init__(self, layer, head, value):
        self.layer, self.head, self.value = layer, head, value

    @property
    def layers(self):
        return frozenset({self.layer})

    def edit(self, layer, z):
        changed = z.clone()
        changed[:, -1, self.head] = self.value
        return changed


@pytest.fixture(scope="module", params=["gpt2", "llama", "gemma3_text", "gpt_neox"])
def runner(request, tokenizer, tmp_path_factory):
    network = AutoModelForCausalLM.from_config(tiny_config(request.param))
    folder = save_uneven(network, tokenizer, tmp_path_factory.mktemp("tiny"))
    return Rerunner(load_model(str(folder)))


def prompts(runner):
    generator = torch.Generator().manual_seed(0)
    size = runner.model.vocabulary_size
    return [torch.randint(1, size, (length,), generator=generator) for length in LENGTHS]


@torch.inference_mode()
def test_a_head_that_is_set_changes_the_last_state_as_in_a_whole_prompt(runner):
    tokens = prompts(runner)
    run = runner.at_last(tokens)
    heads = runner.model.heads
    for layer in runner.model.attention_layers:
        width = run.z[layer].shape[-1]
        item = torch.arange(len(tokens)).repeat_interleave(heads)
        head = torch.arange(heads).repeat(len(tokens))
        value = torch.randn(len(item), width, generator=torch.Generator().manual_seed(layer))
        change = RowHeadsSet(layer, head, value[:, None])
        states = runner.states(run.at_rows(item), change)
        for row, state in enumerate(states):
            change = LastHeadSet(layer, int(head[row]), value[row])
            with change.applied(runner.model):
                whole = last_stream(runner.network, tokens[item[row]][None])[0, -1]
            torch.testing.assert_close(state, whole, atol=1e-4, rtol=1e-3)
            assert not torch.allclose(whole, run.states[item[row]], atol=1e-4)


@pytest.mark.parametrize(
    ("at_once", "batches"), [(1_024, [[6, 9, 14]]), (18, [[6, 9], [14]]), (13, [[6], [9], [14]])]
)
@torch.inference_mode()
def test_prompts_that_are_read_together_are_as_if_read_alone(runner, at_once, batches, monkeypatch):
    tokens, read = prompts(runner), []
    at_places = runner.at_places

    def noted(rows):
        read.append(rows.lengths.tolist())
        return at_places(rows)

    with monkeypatch.context() as patch:
        patch.setattr(rerun, "TOKENS_AT_ONCE", at_once)
        patch.setattr(runner, "at_places", noted)
        together = runner.at_last(tokens)
    assert read == batches  # a prompt that is too long is read alone
    for number, prompt in enumerate(tokens):
        alone = runner.at_last([prompt])
        torch.testing.assert_close(together.states[number], alone.states[0], atol=1e-5, rtol=1e-4)
        for layer, z in together.z.items():
            torch.testing.assert_close(z[number], alone.z[layer][0], atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize("cap", [None, 2.0])
def test_a_learned_sink_takes_its_share_of_a_rerun_query(cap):
    """Two heads of one group on four positions, each a softmax with one more score: the sink's."""
    generator = torch.Generator().manual_seed(0)
    key, value = torch.randn(2, 1, 4, 3, generator=generator)
    query = torch.randn(1, 2, 3, generator=generator)
    own_key, own_value = torch.randn(2, 1, 1, 3, generator=generator)
    sink = torch.tensor([0.5, -1.0])
    keys = CleanKeys(key, value, 0.7, ScoreTerms(cap=cap, sink=sink))
    attention, read = keys.read(query, own_key, own_value, torch.tensor([2]))
    for head in (0, 1):
        seen = [key[0, 0], key[0, 1], own_key[0, 0]]
        scores = [0.7 * float(query[0, head] @ each) for each in seen]
        if cap is not None:
            scores = [cap * np.tanh(score / cap) for score in scores]
        weights = np.exp([*scores, float(sink[head])])
        shares = weights / weights.sum()
        assert attention[0, head].tolist() == pytest.approx([*shares[:3], 0.0], abs=1e-6)
        values = torch.stack([value[0, 0], value[0, 1], own_value[0, 0]]).numpy()
        assert read[0, head].tolist() == pytest.approx((shares[:3] @ values).tolist(), abs=1e-5)
