"""What heads write for later heads' scores, against later heads that read it and heads removed."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from headscope.corpus.controlled.lists import IN_ORDER
from headscope.corpus.controlled.prompts import draws
from headscope.corpus.window import Question, Window
from headscope.measure.query_composition import effects_on, name_positions
from headscope.models.engines.capture import capturing
from headscope.models.frozen_norm_path import direct_paths
from headscope.models.frozen_norm_path.scores import ScoreQueries, later_scores, unknown_scores
from headscope.models.layout.modules import attention_modules
from headscope.models.load import load_model
from headscope.relations.effects import S_INHIBITION, prompt_kinds
from headscope.stimuli.prompts import prompt_windows
from tests.helpers.models import save_model
from tests.oracles.words import vocabulary
from tests.oracles.writers import WIDTH, planted_heads, save_writers

LISTED = [" ".join(members) for members in IN_ORDER.values()]
LENGTH, QUERY, SUBJECT, DUE = 14, 12, 3, 5


def places(windows: int) -> ScoreQueries:
    names, sides = torch.zeros(windows, LENGTH), torch.zeros(3, windows, LENGTH)
    names[:, [SUBJECT, DUE]] = 1.0
    sides[0, :, SUBJECT] = sides[1, :, DUE] = sides[2, :, 7] = 1.0
    return ScoreQueries(torch.full((windows,), QUERY), names, names, sides)


def scores_of(network, tokens, layer, change=None):
    """The scores of a layer's heads at the query, where the attention's input there is changed."""
    found = {}

    def take(number, scores):
        if number == layer:
            key = scores.key.repeat_interleave(scores.query.shape[1] // scores.key.shape[1], 1)
            found["raw"] = torch.einsum("whd,whkd->whk", scores.query[:, :, QUERY], key)
            found["raw"] = found["raw"] * scores.scale
            found["all"] = (found["raw"][:, :, : QUERY + 1]).softmax(-1)

    def changed(_, inputs, named):
        read = (inputs[0] if inputs else named["hidden_states"]).clone()
        read[:, QUERY] += change
        return (
            ((read, *inputs[1:]), named) if inputs else (inputs, {**named, "hidden_states": read})
        )

    module = attention_modules(network)[layer]
    handle = None
    if change is not None:
        handle = module.register_forward_pre_hook(changed, with_kwargs=True)
    with torch.no_grad(), capturing(take):
        network.base_model(tokens, use_cache=False)
    if handle is not None:
        handle.remove()
    return found


@pytest.mark.parametrize("layout", ["gpt2", "gpt_neox", "llama"])
def test_effects_are_what_later_heads_lose_without_the_write(layout, tokenizer, tmp_path):
    """Slowly: each head's write, through each later norm at its own scale, taken from its input."""
    save_model(layout, tokenizer, tmp_path, layers=3)
    model = load_model(str(tmp_path), engine="fused")
    network, paths = model.engine.network, direct_paths(model)
    generator = torch.Generator().manual_seed(1)
    tokens = torch.randint(3, model.vocabulary_size, (2, LENGTH), generator=generator)
    layers = later_scores(model.engine, paths, tokens, places(2))
    on, _ = effects_on(layers, paths)
    norms = [getattr(b, "ln_1", None) or b.input_layernorm for b in paths.modules.blocks]
    clean = [scores_of(network, tokens, layer) for layer in range(3)]
    masses = torch.stack([each["all"][:, :, [SUBJECT, DUE]].sum(-1) for each in clean])
    streams = []
    hooks = [
        norm.register_forward_pre_hook(lambda _, inputs: streams.append(inputs[0]))
        for norm in norms
    ]
    with torch.no_grad():
        network.base_model(tokens, use_cache=False)
    for hook in hooks:
        hook.remove()
    for layer, head in ((0, 1), (1, 2), (2, 0)):
        matrix = paths.modules.outputs[layer].weight.detach().float()
        matrix = matrix if layout == "gpt2" else matrix.T
        width = layers[layer].z.shape[-1]
        write = layers[layer].z[:, head] @ matrix[head * width : (head + 1) * width]
        lost = torch.zeros(3, 2)
        for later in range(layer + 1, 3):
            stream = streams[later][:, QUERY]
            if layout == "llama":
                scale = stream.square().mean(-1, keepdim=True) + norms[later].variance_epsilon
                change = write / scale.sqrt() * norms[later].weight
            else:
                scale = stream.var(-1, unbiased=False, keepdim=True) + norms[later].eps
                change = (write - write.mean(-1, keepdim=True)) / scale.sqrt() * norms[later].weight
            raw = scores_of(network, tokens, later, -change.detach())["raw"]
            weighed = ((clean[later]["raw"] - raw) * masses[later][..., None]).sum(1)
            lost += weighed[:, [SUBJECT, DUE, 7]].T
        torch.testing.assert_close(
            on[:, :, layer, head], lost / masses.sum((0, 2)), atol=1e-4, rtol=1e-4
        )
    assert float(on[:, :, 0].abs().max()) > 1e-2


def test_only_the_fused_engine_shows_scores(tokenizer, tmp_path):
    save_model("gpt2", tokenizer, tmp_path)
    model = load_model(str(tmp_path), engine="lens")
    assert "fused" in unknown_scores(model, direct_paths(model))


def test_names_must_stand_once_and_twice():
    def window(*tokens):
        question = Question("indirect-object", len(tokens) - 1, np.array([7]), np.array([8]))
        strings = ("x",) * len(tokens)
        return Window("w", np.array(tokens), strings, stimulus="prompts", questions=(question,))

    found = name_positions(window(0, 7, 1, 8, 2, 8, 3), "indirect-object")
    assert found == (6, 3, 5, 1)
    assert name_positions(window(0, 7, 1, 8, 2, 4, 3), "indirect-object") is None
    assert name_positions(window(0, 7, 1, 8, 7, 8, 3), "indirect-object") is None
    assert name_positions(window(0, 7, 1, 8, 2, 8, 3), "retrieval") is None


@pytest.mark.parametrize("layout", ["gpt2", "llama"])
def test_removing_a_planted_head_moves_a_name_mover_back_to_the_subject(layout, tmp_path):
    places_of = {head.name: place for place, head in planted_heads().items()}
    layer, mover = places_of["name mover"]
    below, head = places_of["marks the last name"]
    drawn = [each for _, own in draws(4, seed=0) for each in own]
    prompts = [" ".join([p.text, *p.right, *p.wrong, *p.other]) for p in drawn]
    words = vocabulary([*prompts, *LISTED])
    save_writers(layout, words, words[-2:], tmp_path, noise=0.0)
    model = load_model(str(tmp_path), engine="fused")
    paths = direct_paths(model)
    planned = prompt_windows(model.tokenizer, prompt_kinds([S_INHIBITION]), 64, seed=0, count=4)
    asked = [(w, name_positions(w, "indirect-object")) for w in planned.windows]
    asked = [(window, named) for window, named in asked if named is not None]
    assert asked

    def looks(tokens, named):
        found = {}

        def take(number, scores):
            if number == layer:
                row = scores.query[0, mover, named.query] @ scores.key[0, mover].T * scores.scale
                found["row"] = row[: named.query + 1].double().log_softmax(-1)

        with torch.no_grad(), capturing(take):
            model.engine.network.base_model(tokens, use_cache=False)
        return found["row"]

    def silenced(_, inputs):
        z = inputs[0].clone()
        z[..., head * WIDTH : (head + 1) * WIDTH] = 0
        return (z,)

    for window, named in asked:
        tokens = torch.from_numpy(window.tokens)[None]
        clean = looks(tokens, named)
        hook = paths.modules.outputs[below].register_forward_pre_hook(silenced)
        ablated = looks(tokens, named)
        hook.remove()
        assert clean[named.due].exp() > 0.8 > 0.1 > clean[named.subject].exp()
        preferred, left = (each[named.due] - each[named.subject] for each in (clean, ablated))
        assert left < preferred - 50
