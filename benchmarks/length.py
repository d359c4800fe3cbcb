"""Long windows: the measuring loop beside a bare SDPA pass with the same activation kernel.

    python benchmarks/length.py CORPUS …

Processor seconds of one thread, which other work on the machine disturbs less than seconds on the
clock, in turns. Documents of annotated corpora are joined to reach 8,192 tokens; a length that none
reaches is left out and said so.
"""

from __future__ import annotations

import statistics
import time
from pathlib import Path
from typing import Any

import torch
from forward import RELATIONS, forward, forward_batches
from side_by_side import bare, corpora, gpt2_shape, save, scratch, text_windows

from headscope.measure.batch_reader import measure
from headscope.measure.fit_baselines import fit_baselines
from headscope.models.load import load_model
from headscope.models.stream import BATCH_TOKENS
from headscope.models.weights import fuse_activations

LENGTHS = (256, 1_024, 4_096, 8_192)
TOKENS = 8_192
ROUNDS = 3


def main() -> None:
    torch.set_num_threads(1)
    rows: dict[str, Any] = {}
    with scratch() as folder, scratch() as text:
        texts = [joined(Path(text), corpora())]
        name = gpt2_shape(folder, context=max(LENGTHS))
        model, sdpa = load_model(name, engine="fused", device="cpu"), bare(name, "sdpa")
        fuse_activations(sdpa)
        for length in LENGTHS:
            windows = text_windows(model, texts, tokens=TOKENS, length=length)
            if max(map(len, windows)) < 0.75 * length:
                rows[f"fused ÷ bare SDPA at {length}"] = "no document of the corpora is as long"
                continue
            batches, parts = (
                forward_batches(windows),
                fit_baselines(windows, RELATIONS).parts(RELATIONS),
            )
            ratios = []
            for _ in range(ROUNDS):
                start = time.process_time()
                forward(sdpa, batches)
                middle = time.process_time()
                measure(model, windows, [], parts, seed=0, batch_tokens=BATCH_TOKENS)
                ratios.append((time.process_time() - middle) / (middle - start))
            rows[f"fused ÷ bare SDPA at {length}"] = round(statistics.median(ratios), 3)
    save("length", rows)


def joined(folder: Path, texts: list[str]) -> str:
    """One file in which all documents of the corpora's CoNLL-U files are one."""
    files = [path for text in texts for path in sorted([*Path(text).rglob("*.conllu"), Path(text)])]
    lines = [
        line
        for path in files
        if path.suffix == ".conllu"
        for line in path.read_text().splitlines(keepends=True)
        if not line.startswith("# newdoc")
    ]
    if not lines:
        raise SystemExit(f"{', '.join(texts)}: no CoNLL-U files to be joined")
    (out := folder / "joined.conllu").write_text("# newdoc id = joined\n" + "".join(lines))
    return str(out)


if __name__ == "__main__":
    main()
