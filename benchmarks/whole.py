"""The whole command beside a bare forward pass over the text that it was asked for.

    python benchmarks/whole.py [MODEL.gguf | FOLDER …] [--max-tokens N …]

`headscope classify MODEL --max-tokens N` runs in a process of its own and everything counts: start,
loading, all stimuli, the twin, verdicts, examples and the report. The bare pass runs the model as
transformers loads it, by the framework's kernel and without unembedding, over as many tokens of
the same text and nothing else. Without a model: one of GPT-2 small's shape.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from forward import forward, forward_batches
from side_by_side import alternate, bare, gpt2_shape, ratio, save, scratch, text_windows
from transformers import AutoModelForCausalLM

from headscope.corpus.shipped import shipped_corpora
from headscope.models.load import load_model

TOKENS = (8_000, 40_000)


def main() -> None:
    models, sizes = _asked(sys.argv[1:])
    rows: dict[str, Any] = {}
    with scratch() as folder:
        for name in models or [gpt2_shape(folder, context=1024)]:
            for tokens in sizes or TOKENS:
                title = f"{Path(name).stem if models else 'GPT-2 small shape'}, {tokens} tokens"
                rows |= {f"{title}: {key}": value for key, value in _measured(name, tokens).items()}
    save("whole", rows)


def _measured(name: str, tokens: int) -> dict[str, Any]:
    network = _bare(name)
    loaded = load_model(name)
    corpora = [str(path) for path in shipped_corpora()]
    batches = forward_batches(text_windows(loaded, corpora, tokens=tokens, length=256))
    del loaded
    with tempfile.TemporaryDirectory(prefix="headscope-bench-") as out:
        run = Path(out) / "run"
        command = [sys.executable, "-m", "headscope", "classify", name, "--out", str(run)]
        command += ["--max-tokens", str(tokens), "--overwrite", "--quiet"]
        seconds = alternate(
            1,
            bare=lambda: forward(network, batches),
            whole=lambda: subprocess.run(command, check=True, stdout=subprocess.DEVNULL),
        )
        provenance = json.loads((run / "run.json").read_text(encoding="utf-8"))["provenance"]
    return {
        "classify ÷ bare SDPA pass": ratio(seconds, "whole", "bare"),
        "seconds": {name: round(found[0], 1) for name, found in seconds.items()},
        "tokens read": provenance["tokens"],
        "stages": provenance["seconds"],
    }


def _bare(name: str) -> Any:
    if not name.endswith(".gguf"):
        return bare(name, "sdpa")
    path = Path(name)
    network = AutoModelForCausalLM.from_pretrained(
        path.parent, gguf_file=path.name, attn_implementation="sdpa"
    )
    return network.base_model.eval()


def _asked(words: list[str]) -> tuple[list[str], list[int]]:
    """Models and numbers of tokens."""
    if "--max-tokens" not in words:
        return words, []
    place = words.index("--max-tokens")
    return words[:place], [int(word) for word in words[place + 1 :]]


if __name__ == "__main__":
    main()
