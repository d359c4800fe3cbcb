"""Time of `export headvis` beside Neuronpedia's own script, on the same sequences of a model.

    python benchmarks/neuronpedia.py SCRIPT TEXT [TEXT …] [--models mini smollm2] [--sequences 500]

SCRIPT is Neuronpedia's `compute-head-metrics.py` (github.com/hijohnnylin/neuronpedia,
`utils/neuronpedia-utils/neuronpedia_utils/headvis`), which needs the package `datasets`. Both read
the same token ids in this process, one after the other on one thread, load the model themselves and
write their folder; seconds are the processor's. Theirs keeps its defaults but for the length, the
number of sequences and float32.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch

import headscope as hs
from headscope.models.load import load_model
from headscope.stimuli.natural_text import TextWindows

LENGTH = 256
METRICS = (
    *("self_attention_score", "prev_token_score", "pattern_entropy", "qk_distance"),
    *("qk_distance_variance", "induction_score"),
)


class Numbered:
    """A tokenizer for their script whose texts are the numbers of sequences."""

    pad_token, pad_token_id, padding_side = "<pad>", 0, "right"

    def __init__(self, sequences: list[list[int]], decode: Callable[[list[int]], str]) -> None:
        self.sequences, self.decode = sequences, decode

    def __call__(self, texts: list[str], **_: Any) -> SimpleNamespace:
        rows = [self.sequences[int(text)] for text in texts]
        longest = max(map(len, rows))
        ids = torch.tensor([row + [0] * (longest - len(row)) for row in rows])
        mask = torch.tensor([[1] * len(row) + [0] * (longest - len(row)) for row in rows])
        return SimpleNamespace(input_ids=ids, attention_mask=mask)


def main() -> None:
    parser = argparse.ArgumentParser(description=str(__doc__).partition("\n")[0])
    parser.add_argument("script", type=Path)
    parser.add_argument("texts", type=Path, nargs="+")
    parser.add_argument("--models", nargs="+", default=["mini", "smollm2"], help="with an atlas")
    parser.add_argument("--sequences", type=int, default=500)
    options = parser.parse_args()
    if not options.script.is_file():
        print(f"left out: there is no script of Neuronpedia's at {options.script}")
        return
    if importlib.util.find_spec("datasets") is None:
        print("left out: Neuronpedia's script needs the package datasets")
        return
    torch.set_num_threads(1)
    for model in options.models:
        compare(model, options.script, options.texts, options.sequences)


def compare(name: str, script: Path, texts: list[Path], count: int) -> None:
    """Print the seconds of both, and the largest difference of their metrics."""
    model: Any = load_model(name)
    text = TextWindows(texts, model.tokenizer, max_tokens=count * LENGTH, max_length=LENGTH, seed=0)
    windows = [w.tokens.tolist() for w in text][:count]
    decode = model.tokenizer.spell
    tokens = sum(map(len, windows))
    print(f"{name}: {len(windows)} sequences, {tokens} tokens, processor seconds")
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place, "model")  # theirs reads no GGUF
        model.engine.network.save_pretrained(folder)
        del model
        numbered = Numbered(windows, lambda ids: decode(ids)[0])
        theirs = run_script(script, folder, numbered, Path(place))
        print(f"  Neuronpedia's script  {theirs:.1f}", flush=True)
        start = time.process_time()
        hs.headvis(
            f"atlas:{name}",
            Path(place, "ours"),
            corpus=texts,
            sequences=count,
            max_length=LENGTH,
            progress=False,
        )
        seconds = time.process_time() - start
        print(f"  headscope  {seconds:.1f}  ({seconds / theirs:.2f})", flush=True)
        expected = rows_of(Path(place, "exports", "tested", "headvis", "texts"))
        found = rows_of(Path(place, "ours"))
        worst = max(
            abs(found[head][metric] - row[metric]) / max(1.0, abs(row[metric]))
            for head, row in expected.items()
            for metric in METRICS
        )
        print(
            f"  largest difference of the six metrics over {len(expected)} heads, of those above 1 "
            f"as a share: {worst:.1g}"
        )


def run_script(script: Path, folder: Path, numbered: Numbered, place: Path) -> float:
    """Processor seconds of Neuronpedia's script on these sequences."""
    spec = importlib.util.spec_from_file_location("neuronpedia_script", script)
    if spec is None or spec.loader is None:
        raise ImportError(f"{script} is no Python file")
    module: Any = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    rows = [{"text": str(number)} for number in range(len(numbered.sequences))]
    module.AutoTokenizer = SimpleNamespace(from_pretrained=lambda *_, **__: numbered)
    module.load_dataset = lambda **_: rows
    (place / "names.json").write_text(json.dumps({"tested": str(folder)}))
    options = {
        "--model-name": folder,
        "--dataset-name": "texts",
        "--n-sequences": len(rows),
        "--seq-len": LENGTH,
        "--dtype": "float32",
        "--device": "cpu",
        "--exports-dir": place / "exports",
        "--np-model-map": place / "names.json",
    }
    sys.argv = [str(script), *(str(word) for option in options.items() for word in option)]
    start = time.process_time()
    module.main()
    return time.process_time() - start


def rows_of(folder: Path) -> dict[tuple[int, int], dict[str, float]]:
    """The metrics of each head."""
    rows = json.loads((folder / "scatter_data.json").read_text())
    return {(row["layer"], row["head"]): row for row in rows}


if __name__ == "__main__":
    main()
