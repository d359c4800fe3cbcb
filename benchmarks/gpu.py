"""On a GPU: tokens per second of a reading beside a bare forward pass, for models of three sizes.

    python benchmarks/gpu.py [135M | 1B | 7B …]

The models have the shapes of SmolLM2-135M, Llama 3.2 1B and Llama 2 7B, random weights in bfloat16
and `mini`'s tokenizer. A reading finds all pairs of all types, runs the model and sums. The bare
pass runs the same weights over batches of the same size, by the framework's kernel and without
unembedding. Windows of 256 tokens are text that ships; longer ones are repeats of random tokens.
The share of the card's matrix rate counts the bare pass's matrix products alone.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np
import torch
from forward import RELATIONS
from side_by_side import alternate, ratio, save, text_windows
from transformers import AutoModelForCausalLM, AutoTokenizer, LlamaConfig

from headscope.corpus.shipped import mini_folder, shipped_corpora
from headscope.corpus.window import Window
from headscope.measure.reading import sum_cells
from headscope.models.load import open_model
from headscope.models.model import Model
from headscope.models.stream import ACCELERATOR_BATCH_TOKENS, in_batches, padded_tokens

SHAPES: dict[str, dict[str, int]] = {
    "135M": {
        "num_hidden_layers": 30,
        "num_attention_heads": 9,
        "num_key_value_heads": 3,
        "hidden_size": 576,
        "intermediate_size": 1_536,
    },
    "1B": {
        "num_hidden_layers": 16,
        "num_attention_heads": 32,
        "num_key_value_heads": 8,
        "hidden_size": 2_048,
        "intermediate_size": 8_192,
    },
    "7B": {
        "num_hidden_layers": 32,
        "num_attention_heads": 32,
        "num_key_value_heads": 32,
        "hidden_size": 4_096,
        "intermediate_size": 11_008,
    },
}
SIZES = ((256, 128), (1_024, 32), (4_096, 4))
"""Lengths of windows, and how many are read."""


def main() -> None:
    if not torch.cuda.is_available():
        raise SystemExit("no GPU is at hand: nothing measured")
    rate = matrix_rate()
    rows: dict[str, Any] = {"card's matrix rate, TFLOP/s (bfloat16)": round(rate / 1e12, 1)}
    for name in sys.argv[1:] or SHAPES:
        network, model = random_model(SHAPES[name], "cuda")
        for length, count in SIZES:
            found = measure(network, model, windows_of(model, length, count), rounds=3)
            per_second, flops = found["bare, tokens per second"], flops_per_token(network, length)
            found["share of the matrix rate, bare"] = round(per_second * flops / rate, 3)
            rows |= {f"{name} at {length}: {key}": value for key, value in found.items()}
        del network, model  # before the next one is made
    save("gpu", rows)


def random_model(shape: dict[str, int], device: str) -> tuple[Any, Model]:
    """A network with random weights, and the model that reads a copy which shares them."""
    tokenizer = AutoTokenizer.from_pretrained(mini_folder())
    config = LlamaConfig(
        **shape,
        vocab_size=len(tokenizer),
        max_position_embeddings=max(length for length, _ in SIZES),
        bos_token_id=0,
        eos_token_id=0,
    )
    torch.manual_seed(0)
    with torch.device(device):
        network = AutoModelForCausalLM.from_config(
            config, dtype=torch.bfloat16, attn_implementation="sdpa"
        )
    network = network.eval()
    return network, open_model((network, tokenizer))


def windows_of(model: Model, length: int, count: int) -> list[Window]:
    """Text that ships if its documents are long enough, else a random half twice."""
    if length <= SIZES[0][0]:
        corpora = [str(path) for path in shipped_corpora()]
        return text_windows(model, corpora, tokens=length * count, length=length)
    rng = np.random.default_rng(0)
    windows = []
    for document in range(count):
        half = rng.integers(1, model.vocabulary_size, (length - 1) // 2)
        ids = np.concatenate([[0], half, half])
        window = Window(
            f"repeat {document}",
            ids,
            ("a",) * len(ids),
            document=document,
            copy_length=len(half),
            stimulus="repeat",
        )
        windows.append(window)
    return windows


def measure(
    network: Any, model: Model, windows: Sequence[Window], *, rounds: int
) -> dict[str, float]:
    """Tokens per second of a reading and of a bare pass, in turns, and the ratio of their times."""
    longest_first = sorted(windows, key=len, reverse=True)
    batches = [
        padded_tokens(batch).to(model.device)
        for batch in in_batches(longest_first, ACCELERATOR_BATCH_TOKENS)
    ]
    seconds = alternate(
        rounds, reading=partial(read, model, windows), bare=partial(forward, network, batches)
    )
    tokens = sum(map(len, windows))
    rows: dict[str, float] = {"reading ÷ bare": ratio(seconds, "reading", "bare")}
    for name, of_rounds in seconds.items():
        rows[f"{name}, tokens per second"] = round(tokens / min(of_rounds))
    return rows


def read(model: Model, windows: Sequence[Window]) -> None:
    sum_cells(model, [], windows, RELATIONS, seed=0, batch_tokens=ACCELERATOR_BATCH_TOKENS)
    finish()


@torch.inference_mode()
def forward(network: Any, batches: Sequence[torch.Tensor]) -> None:
    for tokens in batches:
        network.base_model(tokens, use_cache=False)
    finish()


def finish() -> None:
    """Wait for the card, which works on while Python goes on."""
    if torch.cuda.is_available():
        torch.cuda.synchronize()


def flops_per_token(network: Any, length: int) -> float:
    """Operations of a layer's matrices, and of scores and outputs of the keys that a query sees."""
    config = network.config
    of_matrices = sum(weight.numel() for weight in network.base_model.layers.parameters())
    keys_seen = length / 2
    of_attention = 2 * config.num_hidden_layers * config.hidden_size * keys_seen
    return 2 * float(of_matrices + of_attention)


def matrix_rate(size: int = 8_192, times: int = 20) -> float:
    """Operations per second of a product of large matrices."""
    a = torch.randn(size, size, device="cuda", dtype=torch.bfloat16)
    a @ a
    torch.cuda.synchronize()
    start = time.perf_counter()
    for _ in range(times):
        a @ a
    torch.cuda.synchronize()
    return times * 2 * size**3 / (time.perf_counter() - start)


if __name__ == "__main__":
    main()
