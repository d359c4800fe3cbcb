"""classify beside one bare forward pass over the same windows, in turns.

    python benchmarks/forward.py CORPUS …

The bare pass is the model as transformers loads it, without unembedding: `sdpa` by the framework's
kernel, `eager` with every pattern returned. classify reads the windows, finds all pairs of all six
types, runs the model and sums; null model and examples are left out, which are options. At length
256 the run is as long as one by default.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from side_by_side import alternate, bare, corpora, gpt2_shape, ratio, save, scratch, text_windows

from headscope.corpus.window import Window
from headscope.measure.reading import sum_cells
from headscope.models.load import load_model
from headscope.models.model import Model
from headscope.models.stream import BATCH_TOKENS
from headscope.relations import relations_of
from headscope.settings import MAX_TOKENS

RELATIONS = relations_of(["all"])


def main() -> None:
    rows: dict[str, Any] = {}
    with scratch() as folder:
        name = gpt2_shape(folder)
        models = {
            engine: load_model(name, engine=engine, device="cpu") for engine in ("lens", "fused")
        }
        sdpa, eager = bare(name, "sdpa"), bare(name, "eager")
        for length, tokens, rounds in ((256, MAX_TOKENS, 2), (1_024, 16_384, 2)):
            windows = text_windows(models["fused"], corpora(), tokens=tokens, length=length)
            batches = forward_batches(windows)
            work = {
                "sdpa": lambda batches=batches: forward(sdpa, batches),
                "fused": lambda windows=windows: classify(models["fused"], windows),
                "patterns": lambda batches=batches: forward(eager, batches, output_attentions=True),
            }
            if length == 256:
                work["lens"] = lambda windows=windows: classify(models["lens"], windows)
            seconds = alternate(rounds, **work)
            for engine in ("lens", "fused"):
                if engine in seconds:
                    rows[f"{engine} ÷ bare SDPA at {length}"] = ratio(seconds, engine, "sdpa")
            rows[f"fused ÷ eager with patterns at {length}"] = ratio(seconds, "fused", "patterns")
            rows[f"seconds at {length}"] = {k: sorted(v)[len(v) // 2] for k, v in seconds.items()}
    save("forward", rows)


def forward_batches(windows: Sequence[Window]) -> list[torch.Tensor]:
    """The same batches as classify's: about 1,024 tokens, the longest windows first."""
    import numpy as np

    from headscope.measure.batches import Batch, batches

    blocks = np.zeros(len(windows), np.int64)
    return [batch.tokens() for batch in batches(Batch(windows, blocks), tokens=BATCH_TOKENS)]


@torch.inference_mode()
def forward(network: Any, batches: Sequence[torch.Tensor], **options: bool) -> None:
    for tokens in batches:
        network(tokens, use_cache=False, **options)


def classify(model: Model, windows: Sequence[Window]) -> None:
    sum_cells(model, windows, [], RELATIONS, seed=0, batch_tokens=BATCH_TOKENS)


if __name__ == "__main__":
    main()
