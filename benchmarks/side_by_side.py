"""What the benchmarks share: timing in alternation, the models and texts, and the results' file."""

from __future__ import annotations

import json
import os
import platform
import re
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer, GPT2Config, GPT2LMHeadModel

from headscope.corpus.shipped import mini_folder, shipped_corpora
from headscope.corpus.window import Window
from headscope.models.model import Model
from headscope.stimuli.natural_text import TextWindows

RESULTS = Path(__file__).parent / "results"
ROUNDS = 3


def alternate(rounds: int = ROUNDS, **work: Callable[[], object]) -> dict[str, list[float]]:
    """Seconds of each piece of work, in turns; the first turn warms up and is not counted."""
    seconds: dict[str, list[float]] = {name: [] for name in work}
    for turn in range(rounds + 1):
        for name, run in work.items():
            start = time.perf_counter()
            run()
            if turn:
                seconds[name].append(time.perf_counter() - start)
    return seconds


def ratio(seconds: dict[str, list[float]], name: str, to: str) -> float:
    """The median over turns of one time in units of another of the same turn."""
    turns = zip(seconds[name], seconds[to], strict=True)
    return round(statistics.median(one / other for one, other in turns), 3)


def save(name: str, rows: dict[str, Any]) -> None:
    """Print the rows, and write them with machine and versions to `results/NAME.json`."""
    for key, value in rows.items():
        print(f"{name}  {key}: {value}")
    RESULTS.mkdir(exist_ok=True)
    content = {"rows": rows, "machine": machine()}
    (RESULTS / f"{name}.json").write_text(json.dumps(content, indent=1) + "\n")


def machine() -> dict[str, Any]:
    """What the figures were measured on."""
    packages = ("torch", "transformers", "transformer-lens", "numpy")
    return {
        "cores": os.cpu_count(),
        "processor": _processor(),
        "gpu": torch.cuda.get_device_name() if torch.cuda.is_available() else None,
        "python": platform.python_version(),
        **{package: version(package) for package in packages},
        "time": time.strftime("%Y-%m-%d"),
    }


def _processor() -> str:
    """Name of the processor, and its units for products of matrices in bfloat16, if it has any."""
    facts = Path("/proc/cpuinfo")
    if not facts.exists():
        return platform.processor() or platform.machine()
    text = facts.read_text()
    name = re.search(r"model name\s*: (.+)", text)
    units = [unit for unit in ("avx512_bf16", "amx_bf16") if unit in text]
    return ", ".join([name[1] if name else platform.machine(), *units])


def gpt2_shape(
    folder: str,
    *,
    layers: int = 12,
    heads: int = 12,
    width: int = 768,
    context: int = 2048,
    vocabulary: int | None = None,
) -> str:
    """A model of GPT-2 small's shape with random weights and `mini`'s vocabulary.

    Speed does not depend on what was learned; its embeddings are smaller than GPT-2's, which
    takes nothing away: no engine unembeds.
    """
    tokenizer = AutoTokenizer.from_pretrained(mini_folder())
    torch.manual_seed(0)
    config = GPT2Config(
        vocab_size=vocabulary or len(tokenizer),
        n_layer=layers,
        n_head=heads,
        n_embd=width,
        n_positions=context,
        bos_token_id=0,
        eos_token_id=0,
    )
    GPT2LMHeadModel(config).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return str(folder)


def text_windows(model: Model, corpora: list[str], *, tokens: int, length: int) -> list[Window]:
    """Windows of natural text; long ones need long documents."""
    text = TextWindows(corpora, model.tokenizer, max_tokens=tokens, max_length=length, seed=0)
    return list(text)


def corpora() -> list[str]:
    """The corpora named on the command line, or natural text that ships."""
    return sys.argv[1:] or [str(path) for path in shipped_corpora()]


def bare(folder: str, attention: str) -> Any:
    """The model as transformers loads it, without unembedding."""
    network = AutoModelForCausalLM.from_pretrained(folder, attn_implementation=attention)
    return network.base_model.eval()


def scratch() -> tempfile.TemporaryDirectory[str]:
    """A folder for models that goes away."""
    return tempfile.TemporaryDirectory(prefix="headscope-bench-")
