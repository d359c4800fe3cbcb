"""What a user has set in transformers is as it was after a model has been loaded, or has not."""

from __future__ import annotations

import logging
import warnings
from contextlib import nullcontext

import pytest
from huggingface_hub.utils import are_progress_bars_disabled, disable_progress_bars
from transformers.utils import logging as transformers_logging

from headscope.errors import ModelError
from headscope.models.load import load_model
from headscope.models.weights import quiet_logging


@pytest.fixture(autouse=True)
def as_before():
    import sys

    states = sys.modules["huggingface_hub.utils.tqdm"].progress_bar_states
    kept, level = dict(states), transformers_logging.get_verbosity()
    bars, hook = transformers_logging.is_progress_bar_enabled(), transformers_logging._tqdm_hook
    yield
    (
        transformers_logging.enable_progress_bar
        if bars
        else transformers_logging.disable_progress_bar
    )()
    states.clear()
    states.update(kept)
    transformers_logging.set_verbosity(level)
    transformers_logging.set_tqdm_hook(hook)


def settings() -> tuple[object, ...]:
    return (
        transformers_logging.is_progress_bar_enabled(),
        are_progress_bars_disabled(),
        are_progress_bars_disabled("some.group"),
        transformers_logging.get_verbosity(),
        logging.getLogger("transformers").level,
        transformers_logging._tqdm_hook,
        list(warnings.filters),
    )


def own_hook(factory, args, named):
    return factory(*args, **named)


@pytest.mark.parametrize("bars", [True, False])
@pytest.mark.parametrize("level", [logging.DEBUG, logging.CRITICAL, logging.NOTSET])
@pytest.mark.parametrize("raises", [True, False])
def test_bars_and_verbosity_are_restored(gpt2_folder, tmp_path, bars, level, raises):
    if not bars:
        transformers_logging.disable_progress_bar()
    disable_progress_bars("some.group")
    logging.getLogger("transformers").setLevel(level)
    transformers_logging.set_tqdm_hook(own_hook)
    before = settings()
    assert before[:3] == (bars, not bars, True)
    target = tmp_path if raises else gpt2_folder
    if raises:
        (tmp_path / "config.json").write_text('{"model_type": "gpt2", "n_layer": "x"}')
        (tmp_path / "model.safetensors").write_bytes(
            (gpt2_folder / "model.safetensors").read_bytes()
        )
    with pytest.raises(ModelError) if raises else nullcontext():
        load_model(str(target))
    assert settings() == before


def test_inside_there_is_no_bar_and_no_advice(capfd):
    with quiet_logging():
        for _ in transformers_logging.tqdm(range(3)):
            transformers_logging.get_logger("transformers.x").warning("advice")
    assert capfd.readouterr() == ("", "")
