"""Loss under kvpress' DuoAttentionPress: gates of headscope, its own scores, random heads.

    python benchmarks/kvpress_loss.py MODEL DUO TEXT [TEXT …] --scoring TEXT [TEXT …]

Needs kvpress, in an environment of its own, and no headscope. MODEL is a folder in Hugging Face
layout, DUO what `headscope export duo-attention` wrote of it. A prompt of each text is read with
the full cache, the press cuts that, and the loss is that of the tokens that follow. All orders of
heads are cut at the same shares, and keep the same first and last keys: those of DUO.
"""

from __future__ import annotations

import argparse
import json
from copy import deepcopy
from pathlib import Path
from typing import Any

import kvpress.presses.duo_attention_press as duo
import numpy as np
import pandas as pd
import torch
from kvpress import DuoAttentionPress
from transformers import AutoModelForCausalLM, AutoTokenizer, DynamicCache

PROMPT, ANSWER = 1024, 256
PIECE = 16
"""Tokens of an answer in a pass: kvpress looks for one key that all its queries ignore."""
SAMPLES, SAMPLE_TOKENS = 20, 500
"""Texts of the scores on the fly; kvpress takes 50 chapters of BookSum, from the network."""
SEEDS = 3


def main() -> None:
    parser = argparse.ArgumentParser(description=str(__doc__).partition("\n")[0])
    parser.add_argument("model", type=Path)
    parser.add_argument("duo", type=Path)
    parser.add_argument("texts", type=Path, nargs="+", help="texts whose loss is taken")
    parser.add_argument("--scoring", type=Path, nargs="+", required=True, help="for the own scores")
    parser.add_argument("--ratios", type=float, nargs="+", default=[0.5, 0.75])
    options = parser.parse_args()
    tokenizer = AutoTokenizer.from_pretrained(options.model)
    model = AutoModelForCausalLM.from_pretrained(options.model, dtype=torch.float32).eval()
    config = json.loads((options.duo / "config.json").read_text())
    gates = np.loadtxt(options.duo / "full_attention_heads.tsv", delimiter="\t")
    orders = {"headscope": gates, "own scores": own_scores(model, tokenizer, options.scoring)}
    for seed in range(SEEDS):
        orders[f"random {seed}"] = np.random.default_rng(seed).random(gates.shape)
    presses = {
        (ratio, name): press_of(model, scores, config, ratio)
        for ratio in options.ratios
        for name, scores in orders.items()
    }
    rows = [prompt_losses(model, prompt(tokenizer, path), presses) for path in options.texts]
    full = np.array([row[None] for row in rows])
    print(f"{len(rows)} prompts of {PROMPT} tokens, {len(rows) * ANSWER} tokens predicted")
    print(f"full cache: {full.mean():.4f} nats per token")
    for arm in presses:
        rises = np.array([row[arm] for row in rows]) - full
        error = rises.std(ddof=1) / len(rises) ** 0.5
        print(f"ratio {arm[0]:.2f}  {arm[1]:<10}  rise {rises.mean():+.4f} ± {error:.4f}")


def prompt(tokenizer: Any, path: Path) -> torch.Tensor:
    """Token ids of a prompt with its answer, `[token]`, from the middle of a text."""
    ids = tokenizer(path.read_text(encoding="utf-8"), return_tensors="pt").input_ids[0]
    start = len(ids) // 2
    return torch.cat([ids[:1], ids[start : start + PROMPT + ANSWER - 1]])


def own_scores(model: Any, tokenizer: Any, paths: list[Path]) -> np.ndarray:
    """Scores that kvpress computes on the fly, `[layer head]`, of other texts than BookSum."""
    ids = [i for path in paths for i in tokenizer(path.read_text(encoding="utf-8")).input_ids]
    starts = np.linspace(0, len(ids) - SAMPLE_TOKENS, SAMPLES).astype(int)
    chapters = [tokenizer.decode(ids[start : start + SAMPLE_TOKENS]) for start in starts]
    frame = pd.DataFrame({"chapter": chapters})
    duo.load_dataset = lambda *_, **__: argparse.Namespace(to_pandas=lambda: frame)
    scores: np.ndarray = duo.duo_attention_on_the_fly(model, num_samples=SAMPLES)
    return scores


def press_of(model: Any, scores: np.ndarray, config: dict[str, Any], ratio: float) -> Any:
    """The press that cuts this share of heads, those with the lowest scores."""
    pattern = config["sink_size"], config["recent_size"], scores
    DuoAttentionPress.load_attention_pattern = staticmethod(lambda model: pattern)
    press = DuoAttentionPress(head_compression_ratio=ratio)
    press.post_init_from_model(model)
    return press


@torch.no_grad()
def prompt_losses(model: Any, ids: torch.Tensor, presses: dict[Any, Any]) -> dict[Any, float]:
    """Mean loss of an answer in nats with each press, and under None with the full cache.

    The press does not change how the prompt is read: that is done once.
    """
    cache = DynamicCache()
    first = model(ids[None, :PROMPT], past_key_values=cache).logits[:, -1:]
    losses = {}
    for arm, press in {None: None, **presses}.items():
        for layer in model.model.layers:
            attention = layer.self_attn
            kept = cache.layers[attention.layer_idx]
            attention.masked_key_indices = None
            if press is not None:
                press.compress(attention, None, kept.keys, kept.values, None, {})
        own, logits = deepcopy(cache), [first]
        for start in range(PROMPT, len(ids), PIECE):
            logits.append(model(ids[None, start : start + PIECE], past_key_values=own).logits)
        predicted = torch.cat(logits, 1)[0, :-1]
        losses[arm] = float(torch.nn.functional.cross_entropy(predicted, ids[PROMPT:]))
    return losses


if __name__ == "__main__":
    main()
