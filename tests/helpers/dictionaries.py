"""Dictionaries of features, written to folders."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any


def save_dictionary(
    folder: Path,
    *,
    d_model: int = 32,
    features: int = 20,
    architecture: str = "standard",
    **options: object,
) -> Path:
    """A dictionary of random tensors in SAELens' layout."""
    import torch
    from safetensors.torch import save_file

    rng = torch.Generator().manual_seed(1)

    def draw(*shape: int) -> Any:
        return torch.randn(*shape, generator=rng)

    gated = {"b_gate": draw(features), "b_mag": draw(features), "r_mag": draw(features)}
    tensors = {"W_enc": draw(d_model, features), "W_dec": draw(features, d_model)}
    tensors |= {"b_dec": draw(d_model)}
    tensors |= gated if architecture == "gated" else {"b_enc": draw(features)}
    if architecture == "jumprelu":
        tensors["threshold"] = draw(features).abs()
    folder.mkdir(exist_ok=True)
    save_file(tensors, folder / "sae_weights.safetensors")
    config = {"architecture": architecture, "apply_b_dec_to_input": True, **options}
    (folder / "cfg.json").write_text(json.dumps(config))
    return folder
