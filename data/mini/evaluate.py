"""Held-out perplexity of `mini` beside n-gram models of the same tokens.

    PYTHONPATH=. python data/mini/evaluate.py --text FOLDER_OR_FILE … [--model data/mini]

The n-grams are interpolated by Witten and Bell's rule (Chen and Goodman 1999, 2.3). The held-out
text is every twentieth paragraph, as in training.
"""

from __future__ import annotations

import argparse
from collections import Counter, defaultdict
from pathlib import Path

import numpy as np
import torch
from train import CONTEXT, VOCABULARY, tokens_of
from transformers import AutoTokenizer, GPT2LMHeadModel

from headscope.corpus.read import corpus_files, read_documents

ORDERS = (1, 2, 3, 4)


def main() -> None:
    parser = argparse.ArgumentParser(description="Compare mini with n-grams on held-out text.")
    parser.add_argument("--text", nargs="+", type=Path, required=True)
    parser.add_argument("--model", type=Path, default=Path(__file__).parent)
    asked = parser.parse_args()
    tokenizer = AutoTokenizer.from_pretrained(asked.model)
    texts = [d.text for d in read_documents(corpus_files(asked.text))]
    train, held_out = tokens_of(tokenizer, texts)
    print(f"{len(train):,} tokens to learn from, {len(held_out):,} held out")
    for order in ORDERS:
        print(f"{order}-gram: perplexity {ngram_perplexity(train, held_out, order):.1f}")
    print(f"mini: perplexity {model_perplexity(asked.model, held_out):.1f} per token")


def ngram_perplexity(train: np.ndarray, held_out: np.ndarray, order: int) -> float:
    """Perplexity of an interpolated n-gram model with this many tokens in a gram."""
    counts: list[dict[tuple[int, ...], Counter[int]]] = [defaultdict(Counter) for _ in range(order)]
    tokens = train.tolist()
    for n in range(order):
        for i in range(n, len(tokens)):
            counts[n][tuple(tokens[i - n : i])][tokens[i]] += 1
    total = 0.0
    held = held_out.tolist()
    for i in range(order - 1, len(held)):
        p = 1 / VOCABULARY
        for n in range(order):
            seen = counts[n].get(tuple(held[i - n : i]))
            if seen:
                size, kinds = seen.total(), len(seen)
                p = (seen[held[i]] + kinds * p) / (size + kinds)
        total -= float(np.log(p))
    return float(np.exp(total / (len(held) - order + 1)))


@torch.inference_mode()
def model_perplexity(folder: Path, held_out: np.ndarray) -> float:
    """Perplexity over whole contexts, each behind a beginning-of-text token."""
    model = GPT2LMHeadModel.from_pretrained(folder).eval()
    length = CONTEXT - 1
    rows = held_out[: len(held_out) // length * length].reshape(-1, length)
    losses = []
    for start in range(0, len(rows), 16):
        part = torch.from_numpy(rows[start : start + 16])
        tokens = torch.cat([torch.zeros(len(part), 1, dtype=torch.long), part], 1)
        loss = model(tokens, labels=tokens, use_cache=False).loss
        losses.append(float(loss) * len(part))
    return float(np.exp(sum(losses) / len(rows)))


if __name__ == "__main__":
    main()
