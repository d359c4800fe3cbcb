"""On a GPU: GPT-2 XL's shape at length 1,024 and 4,096, `fused` against eager with patterns.

    python benchmarks/gpu.py CORPUS …

Random tokens take the place of text where its documents are shorter than a window. The share of the
card's matrix rate counts the model's matrix products alone, without those that scoring adds.
"""

from __future__ import annotations

import time
from functools import partial
from typing import Any

import numpy as np
import torch
from forward import RELATIONS
from side_by_side import alternate, bare, gpt2_shape, ratio, save, scratch

from headscope.corpus.window import Window
from headscope.measure.reading import sum_cells
from headscope.models.load import load_model
from headscope.models.stream import ACCELERATOR_BATCH_TOKENS

LAYERS, HEADS, WIDTH = 48, 25, 1_600


def main() -> None:
    if not torch.cuda.is_available():
        raise SystemExit("no GPU is at hand: nothing measured")
    rows: dict[str, Any] = {}
    rate = matrix_rate()
    rows["card's matrix rate, TFLOP/s (bfloat16)"] = round(rate / 1e12, 1)
    with scratch() as folder:
        name = gpt2_shape(folder, layers=LAYERS, heads=HEADS, width=WIDTH, context=4_096)
        model = load_model(name, device="cuda", dtype="bfloat16")
        eager = bare(name, "eager").to("cuda", torch.bfloat16)
        for length, count in ((1_024, 32), (4_096, 4)):
            windows = repeats(length, count)
            tokens = torch.tensor(np.stack([window.tokens for window in windows])).cuda()
            seconds = alternate(
                3, fused=partial(run, model, windows), patterns=partial(forward, eager, tokens)
            )
            per_second = length * count / min(seconds["fused"])
            flops = 2 * LAYERS * 12 * WIDTH**2 + 2 * 2 * LAYERS * WIDTH * length / 2
            rows[f"fused ÷ eager with patterns at {length}"] = ratio(seconds, "fused", "patterns")
            rows[f"tokens per second at {length}"] = round(per_second)
            rows[f"share of the matrix rate at {length}"] = round(per_second * flops / rate, 3)
    save("gpu", rows)


def repeats(length: int, count: int) -> list[Window]:
    rng = np.random.default_rng(0)
    made = []
    for i in range(count):
        half = rng.integers(1, 1_000, (length - 1) // 2)
        ids = np.concatenate([[0], half, half])
        made.append(
            Window(str(i), ids, ("a",) * len(ids), copy_length=len(half), stimulus="repeat")
        )
    return made


def run(model: Any, windows: list[Window]) -> None:
    sum_cells(model, [], windows, RELATIONS, seed=0, batch_tokens=ACCELERATOR_BATCH_TOKENS)
    torch.cuda.synchronize()


@torch.inference_mode()
def forward(network: Any, tokens: torch.Tensor) -> None:
    for row in tokens:
        network(row[None], use_cache=False, output_attentions=True)
    torch.cuda.synchronize()


def matrix_rate(size: int = 8_192, times: int = 20) -> float:
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
