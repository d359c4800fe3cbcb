"""Small models whose norms have gains and biases of their own: folding them is not nothing."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.helpers.models import LAYOUTS, save_model


@pytest.fixture(scope="session", params=LAYOUTS)
def layout(request) -> str:
    return request.param


@pytest.fixture(scope="session")
def normed_folder(layout, tokenizer, tmp_path_factory) -> Path:
    import torch
    from transformers import AutoModelForCausalLM

    folder = save_model(layout, tokenizer, tmp_path_factory.mktemp(f"normed-{layout}"))
    model = AutoModelForCausalLM.from_pretrained(folder)
    generator = torch.Generator().manual_seed(5)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if parameter.ndim == 1:  # gains and all biases
                gain = float("bias" not in name)
                parameter.copy_(gain + 0.5 * torch.randn(parameter.shape, generator=generator))
    model.save_pretrained(folder)
    return folder
