"""Memory above the loaded model, by length and by number of tokens, each in a process of its own.

    python benchmarks/memory.py CORPUS …

The peak of the process while classify measures, less what it held when the model was loaded. Linux
only: the kernel is asked to forget the peak of the loading.
"""

from __future__ import annotations

import ctypes
import gc
import re
import statistics
import subprocess
import sys
from pathlib import Path
from typing import Any

import torch
from forward import RELATIONS, forward
from side_by_side import bare, corpora, gpt2_shape, save, scratch
from soak import copies

from headscope.measure.reading import sum_cells
from headscope.models.load import load_model
from headscope.models.stream import BATCH_TOKENS
from headscope.models.weights import fuse_activations
from headscope.stimuli.natural_text import TextWindows

LENGTHS = (256, 1_024, 2_048, 8_192)
TOKENS = (50_000, 500_000)
SAMPLES = 3
"""Processes for each number of tokens, of which the median counts: peaks vary by some MB."""


def main() -> None:
    if sys.argv[1:2] == ["--child"]:
        print(WORK[sys.argv[2]](sys.argv[3], int(sys.argv[4]), int(sys.argv[5]), sys.argv[6:]))
        return
    rows = {}
    with scratch() as folder:
        big = gpt2_shape(folder, context=max(LENGTHS))
        for length in LENGTHS:
            for work in WORK:
                rows[f"MB above GPT-2 small's shape at length {length}, {work}"] = child(
                    work, big, 16_384, length, corpora()
                )
        # a longer corpus of other documents would have longer ones among them
        same = str(copies(Path(folder) / "corpus", max(TOKENS)))
        for tokens in TOKENS:
            peaks = [child("classify", "mini", tokens, 256, [same]) for _ in range(SAMPLES)]
            rows[f"MB above mini at {tokens:,} tokens"] = statistics.median(peaks)
    few, many = (rows[f"MB above mini at {tokens:,} tokens"] for tokens in TOKENS)
    rows["500,000 ÷ 50,000 tokens"] = round(many / few, 3)
    save("memory", rows)


def child(work: str, name: str, tokens: int, length: int, texts: list[str]) -> float:
    command = [sys.executable, __file__, "--child", work, name, str(tokens), str(length), *texts]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return float(done.stdout.split()[-1])


def measuring(name: str, tokens: int, length: int, texts: list[str]) -> float:
    """What classify takes while it measures."""
    model = load_model(name, device="cpu")
    engine: Any = model.engine
    forward(
        engine.network, [torch.zeros((1, 16), dtype=torch.long)]
    )  # weights are mapped when used
    before = forget_the_peak()
    text = TextWindows(
        [Path(each) for each in texts],
        model.tokenizer,
        max_tokens=tokens,
        max_length=min(length, model.context),
        seed=0,
    )
    sum_cells(model, text, [], RELATIONS, seed=0, batch_tokens=BATCH_TOKENS)
    if text.tokens < 0.9 * tokens:
        raise SystemExit(f"the corpora have {text.tokens:,} tokens, and {tokens:,} were asked for")
    return round(peak_mb() - before, 1)


def bare_pass(name: str, tokens: int, length: int, texts: list[str]) -> float:
    """What the model's own forward pass takes for batches of the same size."""
    network = bare(name, "sdpa")
    fuse_activations(network)
    forward(network, [torch.zeros((1, 16), dtype=torch.long)])  # weights are mapped when used
    before = forget_the_peak()
    rows = max(1, BATCH_TOKENS // length)
    forward(network, [torch.zeros((rows, length), dtype=torch.long)] * 2)
    return round(peak_mb() - before, 1)


WORK = {"classify": measuring, "bare": bare_pass}


def forget_the_peak() -> float:
    """From here on the peak is counted, in MB; what the process holds by now."""
    gc.collect()
    ctypes.CDLL(None).malloc_trim(0)  # what loading freed is not headscope's to fill
    Path("/proc/self/clear_refs").write_text("5")
    return peak_mb()


def peak_mb() -> float:
    status = Path("/proc/self/status").read_text()
    return int(re.findall(r"VmHWM:\s+(\d+) kB", status)[0]) / 1024


if __name__ == "__main__":
    main()
