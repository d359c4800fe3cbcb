"""A model that is too large for one device, spread by accelerate: here over memory and the disk."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import headscope as hs
from headscope.errors import ChoiceError, ModelError
from headscope.models.load import load_model

pytest.importorskip("accelerate")
OPTIONS = {"types": ["positional", "induction"], "max_tokens": 500, "examples": False}


@pytest.fixture
def spread(monkeypatch, tmp_path):
    """accelerate would keep so small a model in one piece: the second layer goes to the disk."""
    from transformers import AutoModelForCausalLM

    own = AutoModelForCausalLM.from_pretrained
    parts = ("transformer.wte", "transformer.wpe", "transformer.h.0", "transformer.ln_f")
    places = dict.fromkeys([*parts, "lm_head"], "cpu") | {"transformer.h.1": "disk"}

    def load(*args, **how):
        if how.get("device_map") == "auto":
            how |= {"device_map": places, "offload_folder": tmp_path / "offloaded"}
        return own(*args, **how)

    monkeypatch.setattr(AutoModelForCausalLM, "from_pretrained", load)


def test_layers_on_the_disk_give_the_same_sums(gpt2_folder, keys_file, monkeypatch, request):
    whole = hs.classify(str(gpt2_folder), keys_file, twin=False, **OPTIONS)
    request.getfixturevalue("spread")
    assert any(m.is_meta for m in load_model(str(gpt2_folder), device_map="auto").engine.matrices())
    run = hs.classify(str(gpt2_folder), keys_file, twin=False, device_map="auto", **OPTIONS)
    for name, array in whole.tally.arrays().items():
        assert np.array_equal(run.tally.arrays()[name], array), name
    assert set(run.info["notes"]) == {*whole.info["notes"], "spread by accelerate over cpu, disk"}
    assert run.info["settings"]["device_map"] == "auto"
    assert "--device-map auto" in run.info["command"]
    assert "--device-map" not in whole.info["command"]


def test_layers_on_the_disk_have_no_twin(gpt2_folder, keys_file, spread):
    with pytest.raises(ModelError, match=r"run without the twin \(--no-twin\)"):
        hs.classify(str(gpt2_folder), keys_file, device_map="auto", **OPTIONS)


def test_a_model_that_fits_is_in_one_piece(gpt2_folder):
    model = load_model(str(gpt2_folder), device_map="auto")
    assert model.engine.name == "fused"
    assert model.device.split(":")[0] == ("cuda" if torch.cuda.is_available() else "cpu")


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"device_map": "everywhere"}, ChoiceError, "no device map named 'everywhere'; choose from: auto"),
        ({"device_map": "auto", "device": "cpu"}, ModelError, "leave --device cpu out"),
        ({"device_map": "auto", "engine": "lens"}, ModelError, "goes with the fused engine"),
    ],
)  # fmt: skip
def test_what_does_not_go_together_is_refused(gpt2_folder, options, error, message):
    with pytest.raises(error, match=message):
        load_model(str(gpt2_folder), **options)
