"""The whole command beside a bare forward pass over as many tokens as it reads.

    python benchmarks/whole.py [smollm2 | MODEL.gguf | FOLDER …] [--quick] [--max-tokens N …]

`headscope classify MODEL --max-tokens N` runs in a process of its own and everything counts: start,
loading, all stimuli, the null model, verdicts, examples and the report. So does the same with
`--quick` (here the word leaves out the full runs), and each in single precision. The bare pass runs
the model as transformers loads it, in the precision that the run chose, by the framework's kernel
and without unembedding, over as many tokens of the same text as the run read of all stimuli, and
nothing else. Without a model: one of GPT-2 small's shape.

Beside seconds, the processor's own of all threads (`user`) are given: they say less of a user's
patience, and hardly depend on what else runs on the machine.
"""

from __future__ import annotations

import json
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import torch
from forward import forward, forward_batches
from side_by_side import bare, gpt2_shape, save, scratch, text_windows
from transformers import AutoModelForCausalLM

from headscope.corpus.shipped import shipped_corpora
from headscope.models.load import load_model
from headscope.models.packaged import local_path

TOKENS = (8_000, 40_000)
QUICK = "--quick"
MODES = {
    "quick": [QUICK],
    "quick, float32": [QUICK, "--dtype", "float32"],
    "full": [],
    "full, float32": ["--dtype", "float32"],
}
"""Options of `classify` by what a row calls them."""


class Spent(NamedTuple):
    """Time of one piece of work."""

    seconds: float
    user: float
    """Of the processor, all threads and children together."""

    def over(self, other: Spent) -> dict[str, float]:
        """The ratios of both."""
        return {
            name: round(mine / its, 2)
            for name, mine, its in zip(self._fields, self, other, strict=True)
        }

    def rounded(self) -> dict[str, float]:
        return {name: round(value, 1) for name, value in self._asdict().items()}


def main() -> None:
    words = [word for word in sys.argv[1:] if word != QUICK]
    models, sizes = _asked(words)
    modes = {name: on for name, on in MODES.items() if QUICK in on or QUICK not in sys.argv}
    rows: dict[str, Any] = {}
    with scratch() as folder:
        for name in models or [gpt2_shape(folder, context=1024)]:
            for tokens in sizes or TOKENS:
                title = f"{Path(name).stem if models else 'GPT-2 small shape'}, {tokens} tokens"
                found = _measured(name, tokens, modes)
                rows |= {f"{title}: {key}": value for key, value in found.items()}
    save("whole", rows)


def _measured(name: str, tokens: int, modes: dict[str, list[str]]) -> dict[str, Any]:
    """Every mode, each followed by the bare pass over what it read; a quick run warms up."""
    loaded = load_model(name)
    corpora = [str(path) for path in shipped_corpora()]
    rows: dict[str, Any] = {}
    with tempfile.TemporaryDirectory(prefix="headscope-bench-") as out:
        run = Path(out) / "run"
        _classify(name, tokens, MODES["quick"], run)
        for mode, options in modes.items():
            whole = spent(partial(_classify, name, tokens, options, run))
            info = json.loads((run / "run.json").read_text(encoding="utf-8"))
            provenance = info["provenance"]
            dtype = info["precision"]["dtype"] if info.get("precision") else "float32"
            windows = text_windows(loaded, corpora, tokens=provenance["tokens"], length=256)
            batches = forward_batches(windows)
            network = _bare(name).to(getattr(torch, dtype))
            forward(network, batches[:2])  # warms up
            bare_pass = spent(partial(forward, network, batches))
            del network
            rows[mode] = {
                "÷ bare": whole.over(bare_pass),
                **whole.rounded(),
                "bare": bare_pass.rounded(),
                "dtype": dtype,
                "tokens read": provenance["tokens"],
                "stages": provenance["seconds"],
            }
    return rows


def _classify(name: str, tokens: int, options: list[str], run: Path) -> None:
    command = [sys.executable, "-m", "headscope", "classify", name, "--out", str(run), *options]
    command += ["--max-tokens", str(tokens), "--overwrite", "--quiet"]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)


def spent(work: Callable[[], object]) -> Spent:
    """The time that a piece of work takes."""
    seconds, user = time.perf_counter(), _user()
    work()
    return Spent(time.perf_counter() - seconds, _user() - user)


def _user() -> float:
    processes = (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)
    return sum(resource.getrusage(process).ru_utime for process in processes)


def _bare(name: str) -> Any:
    path = local_path(name) or Path(name)
    if path.suffix != ".gguf":
        return bare(str(path), "sdpa")
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
