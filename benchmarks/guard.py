"""What `compare --fail-on` says of a model with fewer bits, without some heads, and of other text.

python benchmarks/guard.py MODEL OUT [TOKENS] [TYPES]

Writes the changed models and their runs to the folder OUT; a run that is there is not made again.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from transformers import AutoTokenizer

import headscope as hs
from headscope.causal.loss import network_of
from headscope.corpus.read import corpus_files
from headscope.corpus.shipped import corpus_place
from headscope.models.load import load_model
from headscope.models.locate import locate

CONDITIONS = ("lost induction > 0", "sure lost induction > 0", "sure changes > 3")
BITS = (8, 4, 3, 2)
PRUNED = 0.05
"""The share of heads that are cut, drawn by chance."""


def main() -> None:
    model, out = sys.argv[1], Path(sys.argv[2])
    tokens = int(sys.argv[3]) if len(sys.argv) > 3 else 3000
    types = sys.argv[4].split(",") if len(sys.argv) > 4 else None
    out.mkdir(parents=True, exist_ok=True)
    settings = hs.Settings(max_tokens=tokens, types=types, examples=False)
    files = [str(path) for path in corpus_files([corpus_place("gum")])]
    changes: dict[str, Callable[[Any], None]] = {
        **{f"bits-{bits}": partial(quantise, bits=bits) for bits in BITS},
        "pruned": prune,
    }
    base = classified(model, files[::2], out / "base", settings)
    same = classified(model, files[1::2], out / "other-text", settings)
    print("| | " + " | ".join(f"`{each}`" for each in CONDITIONS) + " |\n|---|" + "---|" * 3)
    say("other half of the text", base, same)
    for name, change in changes.items():
        folder = changed(model, change, out / f"model-{name}")
        say(name, base, classified(str(folder), files[::2], out / name, settings))


def classified(model: str, files: list[str], run: Path, settings: hs.Settings) -> Path:
    if not run.exists():
        hs.classify(model, files, settings=settings, out=run)
    return run


def changed(model: str, change: Callable[[Any], None], folder: Path) -> Path:
    if not folder.exists():
        opened = load_model(model)
        network = network_of(opened)
        with torch.no_grad():
            change(network)
        network.save_pretrained(folder)
        AutoTokenizer.from_pretrained(locate(model, None)[0]).save_pretrained(folder)
    return folder


def quantise(network: Any, bits: int) -> None:
    """Every matrix but embeddings and norms, each output's weights rounded to a grid around 0."""
    for _, weight, outputs in _matrices(network):
        levels = 2 ** (bits - 1) - 1
        step = weight.abs().amax(1 - outputs, keepdim=True).clamp_min(1e-12) / levels
        weight.copy_((weight / step).round() * step)


def prune(network: Any) -> None:
    """Without query and output the head looks everywhere alike, and writes nothing."""
    config = network.config
    heads = config.num_attention_heads
    width = getattr(config, "head_dim", None) or config.hidden_size // heads
    rng = torch.Generator().manual_seed(0)
    count = config.num_hidden_layers * heads
    drawn = torch.randperm(count, generator=rng)[: max(1, round(PRUNED * count))].tolist()
    cut = sorted(divmod(each, heads) for each in drawn)
    print("cut:", ", ".join(f"L{layer}H{head}" for layer, head in cut), file=sys.stderr)
    for name, weight, outputs in _matrices(network):
        numbers = [int(part) for part in name.split(".") if part.isdigit()]
        if not numbers or not any(part in name for part in ("attn", "attention")):
            continue
        for layer, head in cut:
            if layer != numbers[0]:
                continue
            own = slice(head * width, (head + 1) * width)
            if "q_proj" in name or "c_attn" in name:  # of Q, K and V beside each other Q is first
                weight.narrow(outputs, own.start, width).zero_()
            elif "o_proj" in name or "c_proj" in name:
                weight.narrow(1 - outputs, own.start, width).zero_()


def _matrices(network: Any) -> list[tuple[str, Tensor, int]]:
    """The name and weight of each, and along which axis its outputs lie."""
    found = []
    for name, module in network.named_modules():
        if type(module).__name__ in ("Linear", "Conv1D") and "lm_head" not in name:
            found.append((name, module.weight, int(type(module).__name__ == "Conv1D")))
    return found


def say(name: str, base: Path, run: Path) -> None:
    cells = []
    for condition in CONDITIONS:
        done = subprocess.run(
            [sys.executable, "-m", "headscope", "compare", base, run, "--fail-on", condition],
            capture_output=True,
            text=True,
        )
        verdict = str(_verdict(base, run, condition)).split(": ")[-1]
        cells.append(f"exit {done.returncode}: {verdict}")
    print(f"| {name} | " + " | ".join(cells) + " |", flush=True)


def _verdict(base: Path, run: Path, condition: str) -> Any:
    from headscope.studies.compare import condition_outcomes

    return condition_outcomes(hs.compare(base, run), [condition])[0]


if __name__ == "__main__":
    main()
