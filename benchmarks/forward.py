"""classify beside one bare forward pass over the same batches, in one process.

    python benchmarks/forward.py MODEL CORPUS [--max-tokens 40000]

The bare pass is the model as transformers loads it, eager attention, without unembedding. Both
run batch by batch in alternation; the ratio of the sums is the figure to quote. Memory is the
growth of the process's peak over the bare pass, in a process of its own that wraps the same
weights: `--memory`.
"""

from __future__ import annotations

import argparse
import resource
import time
from pathlib import Path

import torch

from headscope.attention import stream_patterns
from headscope.batches import batches, select
from headscope.corpus.plan import plan_repeats, plan_text
from headscope.measure import add_counts, add_layer, deal
from headscope.models import DTYPES, Model, load_model
from headscope.models import _load_weights as load_weights
from headscope.pipeline import BATCH_TOKENS, MAX_LENGTH
from headscope.relations import relations_of
from headscope.tally import Tally


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model")
    parser.add_argument("corpus", nargs="+")
    parser.add_argument("--max-tokens", type=int, default=40_000)
    parser.add_argument("--memory", action="store_true")
    asked = parser.parse_args()
    model = load_model(asked.model, device="cpu")
    plan = plan_text(
        asked.corpus, model.tokenizer, max_tokens=asked.max_tokens, max_length=MAX_LENGTH, seed=0
    )
    vocabulary = model.tokenizer.ordinary_tokens(model.vocabulary_size)
    plan.windows.extend(plan_repeats(vocabulary, model.tokenizer, max_length=MAX_LENGTH, seed=0))
    blocks, profiled = deal(plan.windows)
    work = list(batches(plan.windows, blocks, profiled, tokens=BATCH_TOKENS))
    bare = load_weights(asked.model, Path(asked.model).expanduser(), DTYPES["float32"]).base_model
    if asked.memory:
        compare_memory(bare, model, work)
    else:
        compare_time(bare, model, work, plan.tokens)


def compare_time(bare: torch.nn.Module, model: Model, work: list, tokens: int) -> None:
    tally = Tally.zeros(tuple(r.id for r in relations_of()), model.layers, model.heads)
    forward(bare, work[0])
    score(model, work[0], tally)
    seconds = {"bare": 0.0, "classify": 0.0, "finding pairs": 0.0}
    for batch in work:
        start = time.perf_counter()
        forward(bare, batch)
        middle = time.perf_counter()
        seconds["finding pairs"] += score(model, batch, tally)
        end = time.perf_counter()
        seconds["bare"] += middle - start
        seconds["classify"] += end - middle
    for name, value in seconds.items():
        print(f"{name}: {value:.1f} s, {tokens / value:,.0f} tokens/s")
    print(f"ratio: {seconds['classify'] / seconds['bare']:.3f}")


def compare_memory(bare: torch.nn.Module, model: Model, work: list) -> None:
    for batch in work:
        forward(bare, batch)
    before = peak_mb()
    tally = Tally.zeros(tuple(r.id for r in relations_of()), model.layers, model.heads)
    for batch in work:
        score(model, batch, tally)
    print(f"peak of the bare pass: {before:.0f} MB; above it: {peak_mb() - before:.0f} MB")


@torch.inference_mode()
def forward(bare: torch.nn.Module, batch) -> None:
    bare(batch.tokens(), use_cache=False)


def score(model: Model, batch, tally: Tally) -> float:
    start = time.perf_counter()
    selection = select(batch, relations_of(), heads=model.heads, seed=0)
    found = time.perf_counter() - start
    add_counts(tally, selection)
    stream_patterns(
        model.bridge,
        model.layers,
        batch.tokens(),
        lambda layer, pattern: add_layer(tally, batch, selection, layer, pattern),
    )
    return found


def peak_mb() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


if __name__ == "__main__":
    main()
