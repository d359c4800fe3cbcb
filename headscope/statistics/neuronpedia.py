"""Pages of heads on Neuronpedia (neuronpedia.org), which shows HeadVis' views of many models."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pandas as pd

SITE = "https://www.neuronpedia.org"
HOSTED: Mapping[str, str] = {
    "allenai/Olmo-3-1025-7B": "olmo-3-1025-7b",
    "allenai/Olmo-3-1125-32B": "olmo-3-1125-32b",
    "deepseek-ai/DeepSeek-V4-Flash": "deepseek-v4-flash",
    "EleutherAI/pythia-70m-deduped": "pythia-70m-deduped",
    "google/gemma-2-27b": "gemma-2-27b",
    "google/gemma-2-2b": "gemma-2-2b",
    "google/gemma-2-2b-it": "gemma-2-2b-it",
    "google/gemma-2-9b": "gemma-2-9b",
    "google/gemma-2-9b-it": "gemma-2-9b-it",
    "google/gemma-3-12b-it": "gemma-3-12b-it",
    "google/gemma-3-12b-pt": "gemma-3-12b",
    "google/gemma-3-1b-it": "gemma-3-1b-it",
    "google/gemma-3-1b-pt": "gemma-3-1b",
    "google/gemma-3-270m": "gemma-3-270m",
    "google/gemma-3-270m-it": "gemma-3-270m-it",
    "google/gemma-3-27b-it": "gemma-3-27b-it",
    "google/gemma-3-27b-pt": "gemma-3-27b",
    "google/gemma-3-4b-it": "gemma-3-4b-it",
    "google/gemma-3-4b-pt": "gemma-3-4b",
    "google/gemma-4-31B": "gemma-4-31b",
    "google/gemma-4-E2B": "gemma-4-e2b",
    "google/gemma-4-E4B": "gemma-4-e4b",
    "meta-llama/Llama-3.1-8B": "llama3.1-8b",
    "meta-llama/Llama-3.1-8B-Instruct": "llama3.1-8b-it",
    "meta-llama/Llama-3.3-70B-Instruct": "llama3.3-70b-it",
    "meta-models/Muse-Glimmer-30B": "glimmer-30b",
    "openai-community/gpt2": "gpt2-small",
    "openai/gpt-oss-20b": "gpt-oss-20b",
    "Qwen/Qwen2.5-1.5B-Instruct": "qwen2.5-1.5b-it",
    "Qwen/Qwen2.5-7B-Instruct": "qwen2.5-7b-it",
    "Qwen/Qwen3-1.7B": "qwen3-1.7b",
    "Qwen/Qwen3-14B": "qwen3-14b",
    "Qwen/Qwen3-32B": "qwen3-32b",
    "Qwen/Qwen3-4B": "qwen3-4b",
    "Qwen/Qwen3-8B": "qwen3-8b",
    "Qwen/Qwen3.5-0.8B": "qwen3.5-0.8b",
    "Qwen/Qwen3.5-27B": "qwen3.5-27b",
    "Qwen/Qwen3.5-2B-Base": "qwen3.5-2b-pt",
    "Qwen/Qwen3.5-4B": "qwen3.5-4b",
    "Qwen/Qwen3.5-9B-Base": "qwen3.5-9b-pt",
    "Qwen/Qwen3.6-27B": "qwen3.6-27b",
}
"""Models whose attention heads have pages there, by their names on the hub, with the site's own
names (hijohnnylin/neuronpedia ebb8426, `np_model_to_hf.json`)."""


def head_pages(info: Mapping[str, Any]) -> str | None:
    """The address of a model's heads there, to which `LAYER/HEAD` is added; None for other models.

    A name without its organisation counts too, as in `gpt2`. A revision other than the newest is
    another model. Nothing is asked of the network.

    >>> head_pages({"model": {"name": "gpt2"}})
    'https://www.neuronpedia.org/gpt2-small/head/'
    """
    settings, name = info.get("settings", {}), str(info["model"]["name"])
    if settings.get("revision") not in (None, "", "main"):
        return None
    names = (hub for hub in HOSTED if name in (hub, hub.partition("/")[2]))
    model = next(names, None)
    return None if model is None else f"{SITE}/{HOSTED[model]}/head/"


def with_pages(heads: pd.DataFrame, info: Mapping[str, Any]) -> pd.DataFrame:
    """Rows of heads with the address of each one's page, where the model has pages."""
    pages = head_pages(info)
    if pages is None:
        return heads
    names = heads["layer"].astype(str) + "/" + heads["head"].astype(str)
    return heads.assign(page=pages + names)
