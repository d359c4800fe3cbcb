"""The study of haystacks: ablation at the questions, and the scores that it compares."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import headscope as hs
from headscope.causal.haystack_answers import haystack_answers
from headscope.causal.rerun import Rerunner
from headscope.stimuli.haystack import HAYSTACK, NEEDLE, NULL
from headscope.stimuli.stimulus import StimulusConfig
from headscope.studies.haystacks import WindowReading, compared_scores, mean_norms, set_effects
from tests.helpers.models import save_model
from tests.models.every_layout import attention_of

HEADS = ((0, 1), (0, 3), (1, 2))


@pytest.fixture(scope="module")
def model(tokenizer, tmp_path_factory):
    folder = tmp_path_factory.mktemp("haystacks")
    return hs.load_model(str(save_model("llama", tokenizer, folder, context=1024)))


@pytest.fixture(scope="module")
def reading(model):
    config = StimulusConfig(
        model.tokenizer, model.vocabulary_size, 64, 0, haystack=["1024"], context=1024
    )
    reading = WindowReading.of(model, HAYSTACK.windows(config)[0])
    haystack_answers(model, [reading.window], ["1024"], change=reading.rows)
    return reading


def test_ablated_heads_write_at_the_question_what_they_write_where_nothing_is_asked(model, reading):
    rerunner = Rerunner(model)
    asked = reading.at_questions(rerunner)
    found = reading.changes(rerunner, asked, [HEADS])[0]
    window = reading.window
    null = int(window.arrows.query[window.arrows.kind == NULL][0])
    layers = model.engine.network.model.layers
    width = layers[0].self_attn.o_proj.in_features // model.heads
    ids = torch.from_numpy(window.tokens)[None]

    def logs(query: int, heads: tuple[tuple[int, int], ...]) -> float:
        """The whole window again, with hooks that exchange z at one place."""
        handles = []
        for layer, head in heads:
            part = slice(head * width, (head + 1) * width)

            def exchange(_, inputs, part=part, layer=layer):
                z = inputs[0].clone()
                z[0, query, part] = clean[layer][null, part]
                return (z,)

            handles.append(layers[layer].self_attn.o_proj.register_forward_pre_hook(exchange))
        with torch.no_grad():
            last = model.engine.network(ids).logits[0, query].log_softmax(-1)
        for handle in handles:
            handle.remove()
        return float(last[window.tokens[query + 1]])

    clean: dict[int, torch.Tensor] = {}
    handles = [
        layer.self_attn.o_proj.register_forward_pre_hook(
            lambda _, inputs, number=number: clean.update({number: inputs[0][0]})
        )
        for number, layer in enumerate(layers)
    ]
    with torch.no_grad():
        model.engine.network(ids)
    for handle in handles:
        handle.remove()
    expected = [logs(q, HEADS) - logs(q, ()) for q in reading.queries.tolist()]
    assert found == pytest.approx(expected, abs=2e-3)
    assert np.abs(found).max() > 0.01
    norms = mean_norms(rerunner, asked)
    weight = layers[1].self_attn.o_proj.weight[:, 2 * width : 3 * width]
    z = clean[1][[*reading.queries, null], 2 * width : 3 * width]
    assert norms[1, 2] == pytest.approx(
        float((z @ weight.T).norm(dim=-1).mean().detach()), rel=1e-3
    )


def test_mass_and_copy_rate_are_those_of_the_eager_pattern(model, reading):
    """The arg-max must be on the same token of the fact, as in Retrieval_Head."""
    window = reading.window
    network = model.engine.network
    network.set_attn_implementation("eager")
    patterns = attention_of(network, torch.from_numpy(window.tokens)[None])
    network.set_attn_implementation("headscope")
    table = compared_scores((0, 1), [reading.mass()], [reading.copied()])
    own = window.arrows.take((window.arrows.kind == NEEDLE) & window.arrows.right)
    for row in table.itertuples():
        pattern = patterns[row.layer][0, row.head].numpy()
        masses, copies = [], []
        for query, first, last in zip(own.query, own.first, own.last, strict=True):
            masses.append(pattern[query, first : last + 1].sum())
            for step in range(last - first + 1):
                key = int(pattern[query + step].argmax())
                is_same = window.tokens[key] == window.tokens[query + step + 1]
                copies.append(first <= key <= last and is_same)
        assert row.mass == pytest.approx(np.mean(masses), abs=1e-4)
        assert row.copy_rate == pytest.approx(np.mean(copies))


def test_the_effect_of_a_set_is_compared_with_random_ones():
    changes = np.array([[-2.0, -4.0, -3.0, -3.0], [-1.0] * 4, [-5.0] * 4, [0.0] * 4])
    effect = set_effects(changes, np.array([0, 0, 1, 1]), seed=0)
    assert effect["mean"] == -3
    assert effect["random"] == [-1, -5, 0]
    assert effect["p_value"] == 2 / 4
