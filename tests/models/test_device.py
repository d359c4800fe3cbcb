"""What another device computes is compared with the processor before it is believed."""

from __future__ import annotations

import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

import headscope as hs
from headscope.corpus.shipped import mini_folder
from headscope.errors import ModelError
from headscope.models import device as where
from headscope.models.load import load_model


@pytest.fixture
def elsewhere(monkeypatch):
    """The processor, taken for a device that nobody trusts."""
    monkeypatch.setattr(where, "REFERENCE", ("meta",))


def small() -> torch.nn.Module:
    return AutoModelForCausalLM.from_pretrained(
        mini_folder(), local_files_only=True, attn_implementation="eager"
    ).eval()


class Wrong:
    """A device that loses a part of one layer's projection, without an error."""

    def __init__(self, network, part: str, factor: float) -> None:
        self.network, self.part, self.factor = network, part, factor

    def __getattr__(self, name: str):
        return getattr(self.network, name)

    def to(self, device: str):
        with torch.no_grad():
            self.network.get_parameter(self.part).mul_(self.factor)
        return self.network


@pytest.mark.parametrize(
    ("part", "factor", "told"),
    [
        ("transformer.h.0.attn.c_attn.weight", 0.5, "layer 0 of attentions"),
        ("transformer.h.1.attn.c_attn.bias", torch.nan, "layer 1 of attentions"),
        ("transformer.ln_f.weight", -1.0, "last_hidden_state"),
    ],
)
def test_a_device_that_computes_something_else_is_refused_with_both_numbers(
    elsewhere, part, factor, told
):
    with pytest.raises(ModelError, match=f"something else than the processor: {told}") as caught:
        where.move_checked("mini", Wrong(small(), part, factor), "cpu")
    assert "where cpu has" in str(caught.value)
    assert "--device cpu" in str(caught.value)


def test_rounding_is_no_fault(elsewhere):
    where.move_checked(
        "mini", Wrong(small(), "transformer.h.0.attn.c_attn.weight", 1 + 1e-6), "cpu"
    )


def test_a_device_that_fails_is_told(elsewhere, monkeypatch):
    network = small()

    def fail(*_, **__):
        raise RuntimeError("no such kernel")

    monkeypatch.setattr(network.base_model, "forward", fail)
    with pytest.raises(ModelError, match="fails on a short text on cpu: no such kernel"):
        where.move_checked("mini", network, "cpu")


@pytest.mark.parametrize("device", ["cpu", "meta"])
def test_what_is_believed_or_computes_nothing_is_not_compared(device, monkeypatch):
    monkeypatch.setattr(where, "_outputs", lambda *_: pytest.fail("it was run"))
    assert where.move_checked("mini", small(), device).device.type == device


def test_models_from_disk_and_from_memory_are_compared(elsewhere, monkeypatch):
    looks = []
    look = where._outputs
    monkeypatch.setattr(where, "_outputs", lambda *a: looks.append(1) or look(*a))
    load_model("mini")
    assert len(looks) == 2
    network = small()
    before = {key: each.clone() for key, each in network.state_dict().items()}
    how = {"types": ("positional",), "max_tokens": 300, "twin": False, "examples": False}
    hs.classify((network, AutoTokenizer.from_pretrained(mini_folder())), "gold", **how)
    assert len(looks) == 4
    assert all(torch.equal(each, before[key]) for key, each in network.state_dict().items())
