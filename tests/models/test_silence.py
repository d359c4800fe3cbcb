"""What a user has set in transformers is as it was after a model has been loaded, or has not."""

from __future__ import annotations

import logging
import warnings
from contextlib import nullcontext

import pytest
from transformers.utils import logging as transformers_logging

from headscope.errors import ModelError
from headscope.models.load import load_model
from headscope.models.weights import quiet_logging


def settings() -> tuple[object, ...]:
    return (
        transformers_logging.is_progress_bar_enabled(),
        transformers_logging.get_verbosity(),
        logging.getLogger("transformers").level,
        transformers_logging._tqdm_hook,
        list(warnings.filters),
    )


@pytest.mark.parametrize("raises", [True, False])
def test_bars_and_verbosity_are_restored(gpt2_folder, tmp_path, raises, monkeypatch):
    monkeypatch.setattr(logging.getLogger("transformers"), "level", logging.DEBUG)
    hook = transformers_logging.set_tqdm_hook(lambda factory, args, named: factory(*args, **named))
    before = settings()
    (tmp_path / "config.json").write_text('{"model_type": "gpt2", "n_layer": "x"}')
    (tmp_path / "model.safetensors").write_bytes((gpt2_folder / "model.safetensors").read_bytes())
    with pytest.raises(ModelError) if raises else nullcontext():
        load_model(str(tmp_path if raises else gpt2_folder))
    assert settings() == before
    transformers_logging.set_tqdm_hook(hook)


def test_inside_there_is_no_bar_and_no_advice(capfd):
    with quiet_logging():
        for _ in transformers_logging.tqdm(range(3)):
            transformers_logging.get_logger("transformers.x").warning("advice")
    assert capfd.readouterr() == ("", "")
