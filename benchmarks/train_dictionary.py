"""A small dictionary of a model's residual stream, in SAELens' layout, to try `study features` on.

python benchmarks/train_dictionary.py mini 5 /tmp/sae-mini-5      # 1,024 features, two minutes
python benchmarks/train_dictionary.py mini 5 /tmp/random-5 --random    # directions of no training

A sparse autoencoder whose 16 largest activations count (Gao et al. 2024, arXiv 2406.04093), on half
natural text, half repeated random tokens. Features that never fire are not revived.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import torch
from safetensors.torch import save_file
from torch import Tensor

from headscope.corpus.window import Window
from headscope.measure.study_windows import text_windows
from headscope.models.engines.engine import Vectors
from headscope.models.load import Model, load_model
from headscope.models.stream import LayerAttention, stream_attention
from headscope.stimuli import STIMULI
from headscope.stimuli.stimulus import StimulusConfig

FEATURES, ACTIVE = 1_024, 16
TOKENS = 200_000
STEPS, BATCH, RATE = 2_000, 1_024, 1e-3


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model")
    parser.add_argument("layer", type=int)
    parser.add_argument("out", type=Path)
    parser.add_argument("--corpus", nargs="*", default=None)
    parser.add_argument("--random", action="store_true", help="directions of no training")
    options = parser.parse_args()
    torch.manual_seed(0)
    model = load_model(options.model)
    windows = text_windows(model, options.corpus, max_tokens=TOKENS)
    text = sum(map(len, windows))
    repeat = STIMULI["repeat"]
    length = min(256, model.context)
    assert repeat.build is not None
    windows += repeat.build(
        StimulusConfig(model.tokenizer, model.vocabulary_size, length, 7, text // length)
    )
    stream = read_stream(model, windows, options.layer)
    print(f"{len(stream):,} tokens, {text:,} of natural text")
    tensors = trained(stream, steps=0 if options.random else STEPS)
    options.out.mkdir(parents=True, exist_ok=True)
    save_file(tensors, options.out / "sae_weights.safetensors")
    config = {
        "architecture": "topk", "k": ACTIVE, "d_in": stream.shape[1], "d_sae": FEATURES,
        "apply_b_dec_to_input": True, "normalize_activations": "none",
        "metadata": {"hook_name": f"blocks.{options.layer}.hook_resid_pre"},
    }  # fmt: skip
    (options.out / "cfg.json").write_text(json.dumps(config, indent=1) + "\n")


def read_stream(model: Model, windows: list[Window], layer: int) -> Tensor:
    """What the layer's block reads at every token but each window's first."""
    streams: list[Tensor] = []

    def add(attention: LayerAttention) -> None:
        if attention.layer == layer and attention.block_input is not None:
            streams.append(attention.block_input[0, 1:].float().cpu())

    with torch.inference_mode():
        for window in windows:
            stream_attention(model, [window], lambda _: [Vectors()], add, layers=layer + 1)
    return torch.cat(streams).clone()


def trained(stream: Tensor, *, steps: int) -> dict[str, Tensor]:
    """The autoencoder's tensors after so many steps."""
    mean, variance = stream.mean(0), stream.var(0).sum()
    decoder = torch.nn.functional.normalize(torch.randn(FEATURES, stream.shape[1]), dim=-1)
    parameters = [decoder.T.clone(), torch.zeros(FEATURES), decoder, mean.clone()]
    encoder, encoder_bias, decoder, decoder_bias = (p.requires_grad_() for p in parameters)
    optimiser = torch.optim.Adam([encoder, encoder_bias, decoder, decoder_bias], lr=RATE)
    fired = torch.zeros(FEATURES, dtype=torch.bool)
    error = torch.tensor(float("nan"))
    for step in range(steps):
        batch = stream[torch.randint(len(stream), (BATCH,))]
        before = (batch - decoder_bias) @ encoder + encoder_bias
        largest = before.topk(ACTIVE, dim=-1)
        active = torch.zeros_like(before).scatter(-1, largest.indices, largest.values.relu())
        rebuilt = active @ decoder + decoder_bias
        error = (rebuilt - batch).square().sum(-1).mean() / variance
        optimiser.zero_grad()
        error.backward()  # type: ignore[no-untyped-call]
        optimiser.step()
        if step >= steps - 200:
            fired |= (active > 0).any(0)
        if step % 500 == 0:
            print(f"step {step}: {error.item():.3f} of the variance left out", flush=True)
    print(f"{error.item():.3f} left out in the end; {int(fired.sum())} of {FEATURES} features fire")
    named = {"W_enc": encoder, "b_enc": encoder_bias, "W_dec": decoder, "b_dec": decoder_bias}
    return {name: tensor.detach().contiguous() for name, tensor in named.items()}


if __name__ == "__main__":
    main()
