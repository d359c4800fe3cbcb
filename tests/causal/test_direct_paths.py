"""Direct effects: what heads, MLPs, biases and the embedding write adds up to the logits."""

from __future__ import annotations

import pytest
import torch
from torch import nn

import headscope as hs
from headscope.causal.direct_paths import FrozenNorm, direct_paths
from headscope.errors import ArgumentError, ModelError
from headscope.models.load import load_model
from headscope.relations import relations_of
from tests.models.every_layout import save_tiny

LAYOUTS = {
    "gpt2": {},
    "gpt_neox": {},
    "llama": {},
    "qwen2": {},
    "qwen3": {},
    "gemma": {},
    "gemma2": {},
    "olmo2": {},
    "opt": {},
    "granite": {"logits_scaling": 4.0},
    "cohere": {"logit_scale": 0.25},
}
BEHIND = ("gemma2", "olmo2")
LENGTH, CANDIDATES = 30, torch.arange(3, 200, 11)


def loaded(layout: str, tokenizer, folder, engine: str = "fused"):
    save_tiny(layout, tokenizer, folder, vocab_size=len(tokenizer), **LAYOUTS.get(layout, {}))
    return load_model(str(folder), engine=engine)


def read(model, tokens):
    """Each head's effects `[layer query head token]`, and how the stream ends."""
    paths, places = direct_paths(model), torch.arange(tokens.numel())
    directions = paths.directions(CANDIDATES)
    effects = torch.zeros(paths.layers, len(places), model.heads, len(CANDIDATES))

    def take(layer, z, scale):
        through = paths.through_heads(layer, directions)
        effects[layer] = torch.einsum("qhd,thd->qht", z, through) * scale[:, None, None]

    with paths.watching(places, take) as end:
        tiles = model.engine.layout(*tokens.shape)
        model.engine.run(tokens, tiles, lambda layer, rows: list(rows), on=True)
    return paths, directions, effects * end.scale[:, None, None], end.scale


def uncapped(network, tokens: torch.Tensor) -> torch.Tensor:
    """The network's own logits of the candidates, before they are capped."""
    with torch.no_grad():
        found = network(tokens, use_cache=False).logits[..., CANDIDATES].flatten(0, 1)
    cap = getattr(network.config, "final_logit_softcapping", None)
    return found if cap is None else torch.atanh(found / cap) * cap


@pytest.mark.parametrize("layout", LAYOUTS)
@torch.no_grad()
def test_what_is_written_adds_up_to_the_logits(layout, tokenizer, tmp_path):
    """Embedding, heads, and what else each block adds: MLPs, and the biases of W_O."""
    model = loaded(layout, tokenizer, tmp_path)
    tokens = torch.randint(1, 250, (2, LENGTH), generator=torch.Generator().manual_seed(1))
    paths, directions, effects, scale = read(model, tokens)
    network = model.engine.network
    rest = other_writes(paths, tokens, network) @ directions.T * scale[:, None]
    total = effects.sum((0, 2)) + rest + constants(paths)
    own = uncapped(network, tokens)
    assert float((total - own).abs().max()) < 1e-4
    # heads matter there
    assert float(effects.sum((0, 2)).abs().mean()) > 0.01
    assert (paths.post_norms[0] is not None) == (layout in BEHIND)


def other_writes(paths, tokens: torch.Tensor, network) -> torch.Tensor:
    """The last stream without what heads write: the embedding, MLPs, and the biases of W_O."""
    seen: list[torch.Tensor] = []

    def keep(values: torch.Tensor) -> None:
        seen.append(values.float().clone().view(-1, values.shape[-1]))

    writers = [
        output if norm is None else norm.module
        for output, norm in zip(paths.outputs, paths.post_norms, strict=True)
    ]
    handles = [
        *(writer.register_forward_hook(lambda _, inputs, out: keep(out)) for writer in writers),
        paths.final_norm.module.register_forward_pre_hook(lambda _, inputs: keep(inputs[0])),
    ]
    network(tokens, use_cache=False)
    for handle in handles:
        handle.remove()
    *written, stream = seen
    by_heads = [each - bias_of(output) for each, output in zip(written, paths.outputs, strict=True)]
    return stream - sum(by_heads)


def bias_of(output) -> torch.Tensor | float:
    bias = getattr(output, "bias", None)
    return 0.0 if bias is None else bias.detach()


def constants(paths) -> torch.Tensor | float:
    """Share of the last norm's bias and the unembedding's in the candidates' logits."""
    norm, unembedding = paths.final_norm, paths.unembedding
    found: torch.Tensor | float = 0.0
    if isinstance(norm.bias, torch.Tensor):
        found = unembedding.weight[CANDIDATES] @ norm.bias
    own = getattr(unembedding, "bias", None)
    return (found if own is None else found + own[CANDIDATES]) * 1.0


@torch.no_grad()
def test_one_heads_effect_is_what_a_slow_loop_computes(tokenizer, tmp_path):
    """GPT-2 by hand: z of one head, its rows of W_O, the last norm as written in its paper."""
    model = loaded("gpt2", tokenizer, tmp_path)
    network = model.engine.network
    tokens = torch.randint(1, 250, (1, LENGTH), generator=torch.Generator().manual_seed(2))
    _, _, effects, _ = read(model, tokens)
    layer, head, query, candidate = 1, 2, 17, 5
    kept = {}
    block, final = network.transformer.h[layer].attn.c_proj, network.transformer.ln_f
    hooks = [
        block.register_forward_pre_hook(lambda _, x: kept.update(z=x[0][0, query].clone())),
        final.register_forward_pre_hook(lambda _, x: kept.update(x=x[0][0, query].clone())),
    ]
    with torch.no_grad():
        network(tokens, use_cache=False)
    for hook in hooks:
        hook.remove()
    width = len(kept["z"]) // model.heads
    own = slice(head * width, (head + 1) * width)
    written = kept["z"][own] @ block.weight[own]
    spread = float((kept["x"].var(unbiased=False) + final.eps) ** 0.5)
    normed = final.weight * (written - written.mean()) / spread
    expected = float(normed @ network.lm_head.weight[CANDIDATES[candidate]])
    assert float(effects[layer, query, head, candidate]) == pytest.approx(expected, abs=1e-5)


@pytest.mark.parametrize("centred", [True, False])
def test_the_scale_of_a_norm_is_one_over_the_spread_of_each_token(centred):
    generator = torch.Generator().manual_seed(0)
    x, gain, bias = (torch.randn(*shape, generator=generator) for shape in ((2, 3, 8), (8,), (8,)))
    spread = x.std(-1, unbiased=False) if centred else x.square().mean(-1).sqrt()
    output = (x - x.mean(-1, keepdim=True) * centred) / spread[..., None] * gain + bias
    norm = FrozenNorm(nn.Identity(), gain, bias, centred)
    torch.testing.assert_close(norm.scale(x, output), 1 / spread)
    through = norm.scale(x, output) * (x @ norm.pulled_back(output[0, 0]))
    torch.testing.assert_close(through, (output - bias) @ output[0, 0])


class Tanh(nn.Module):
    def forward(self, x):
        return x.tanh()


def another_block(network) -> None:
    network.model.layers[1].register_forward_hook(
        lambda _, inputs, out: out * 1.5 if isinstance(out, torch.Tensor) else (out[0] * 1.5,)
    )


def another_norm(network) -> None:
    network.model.norm = Tanh()


def no_module_as_norm(network) -> None:
    del network.model.norm
    network.model.norm = torch.tanh


def other_logits(network) -> None:
    network.lm_head.register_forward_hook(lambda _, inputs, out: out * 2)


def failing(network) -> None:
    def fail(*_):
        raise MemoryError("no memory is left")

    network.model.layers[0].mlp.register_forward_hook(fail)


CHANGES = {
    another_block: "block",
    another_norm: "norm",
    no_module_as_norm: "norm",
    other_logits: "logits",
    failing: "MemoryError",
}


@pytest.mark.parametrize("change", CHANGES)
def test_direct_paths_that_are_not_found_are_an_error_that_names_the_cause(
    change, tokenizer, tmp_path
):
    model = loaded("llama", tokenizer, tmp_path)
    direct_paths(model)
    change(model.engine.network)
    with pytest.raises(ModelError, match=CHANGES[change]):
        direct_paths(model)


UNMEASURED = {
    "no fused engine": ({"engine": "lens"}, ModelError, "fused engine"),
    "no such type": ({"types": ["delimiter"]}, ArgumentError, "direct_effects"),
    "own relations": (
        {"relations": relations_of(["positional"])},
        ArgumentError,
        "direct_effects",
    ),
}


@pytest.mark.parametrize("case", UNMEASURED)
def test_direct_effects_that_cannot_be_measured_are_not_dropped(case, gpt2_folder, story, tmp_path):
    options, kind, name = UNMEASURED[case]
    with pytest.raises(kind, match=name):
        hs.classify(str(gpt2_folder), story, direct_effects=True, out=tmp_path / "run", **options)
    assert not [*tmp_path.iterdir()]
