"""A user's model keeps its tensors after every public call that reads or changes its heads."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.ao.nn.quantized.dynamic import Linear as DynamicLinear
from torch.ao.quantization import quantize_dynamic
from transformers import AutoTokenizer, LlamaConfig, LlamaForCausalLM

import headscope as hs
from headscope.errors import ModelError
from headscope.models.load import open_model
from headscope.models.null_model import null_model

TYPES = {"types": ["positional", "induction"], "max_tokens": 400, "max_length": 64}
LAYERS = range(3)


def llama(words: Any) -> Any:
    torch.manual_seed(0)
    config = LlamaConfig(
        hidden_size=32,
        num_hidden_layers=len(LAYERS),
        num_attention_heads=4,
        intermediate_size=64,
        max_position_embeddings=256,
        vocab_size=len(words),
        initializer_range=0.4,
    )
    return LlamaForCausalLM(config)


def attention(model: Any, layer: int) -> Any:
    return model.model.layers[layer].self_attn


def tied(model: Any) -> None:
    for layer in LAYERS:
        attention(model, layer).k_proj.weight = attention(model, layer).q_proj.weight


def same_storage(model: Any) -> None:
    for layer in LAYERS:
        attention(model, layer).k_proj.weight.data = attention(model, layer).q_proj.weight.data


def shared_layers(model: Any) -> None:
    for name in ("q_proj", "k_proj", "v_proj", "o_proj"):
        setattr(attention(model, 2), name, getattr(attention(model, 0), name))


def shared_attention(model: Any) -> None:
    model.model.layers[2].self_attn = attention(model, 0)


def halved(model: Any) -> None:
    with torch.no_grad():
        for weights in model.model.layers.parameters():
            weights.mul_(0.5)
    model.to(torch.bfloat16)


def int8(model: Any) -> None:
    for layer in LAYERS:
        weight = attention(model, layer).q_proj.weight.detach().to(torch.int8)
        attention(model, layer).q_proj.weight = torch.nn.Parameter(weight, requires_grad=False)


def packed(model: Any) -> None:
    with warnings.catch_warnings(action="ignore"):
        quantize_dynamic(model, {torch.nn.Linear}, inplace=True)


FORMS: dict[str, Callable[[Any], None]] = {
    "plain": lambda model: None,
    "tied": tied,
    "same storage": same_storage,
    "shared layers": shared_layers,
    "shared attention": shared_attention,
    "bfloat16": halved,
    "int8": int8,
    "packed": packed,
}
REFUSED = {
    "shared attention": "patterns",
    "int8": "quantised",
    "packed": "quantised",
}
STUDIES: dict[str, Callable[[Any, Any], object]] = {
    "ablate": lambda pair, text: hs.ablate(
        hs.classify(pair, text, **TYPES), heads="L0H0", source=pair
    ),
    "collapse": lambda pair, text: hs.collapse(pair, text, max_tokens=300),
    "explain": lambda pair, text: hs.explain(pair, text, windows=16, features=2),
    "prune": lambda pair, text: hs.prune(pair, text, max_tokens=300),
    "show": lambda pair, text: hs.show(pair, "L0H1", "the old keys"),
    "weights": lambda pair, text: hs.weights(pair),
}


@pytest.fixture(scope="module")
def text(tmp_path_factory):
    folder = tmp_path_factory.mktemp("text")
    for name in "abcdefgh":
        sentence = f"Alice was very tired. She looked at the old keys {name} again. "
        (folder / f"{name}.txt").write_text(sentence * 20)
    return folder


@pytest.fixture(scope="module")
def words(gpt2_folder):
    return AutoTokenizer.from_pretrained(gpt2_folder)


def state(model: Any) -> dict[str, Any]:
    """Every tensor's bytes, and which tensors are one."""
    tensors = [
        *model.named_parameters(remove_duplicate=False),
        *model.named_buffers(remove_duplicate=False),
    ]
    first: dict[int, str] = {}
    packed_weights = {
        name: module.weight().int_repr().numpy().tobytes()
        for name, module in model.named_modules()
        if isinstance(module, DynamicLinear)
    }
    return packed_weights | {
        name: (
            tensor.dtype,
            first.setdefault(tensor.data_ptr(), name),
            tensor.detach().contiguous().view(torch.uint8).numpy().tobytes(),
        )
        for name, tensor in tensors
    }


@pytest.mark.parametrize("form", FORMS)
def test_classify_leaves_every_form_of_weights_as_it_was(form, words, text):
    model = llama(words)
    FORMS[form](model)
    before = state(model)
    if form in REFUSED:
        with pytest.raises(ModelError, match=REFUSED[form]):
            hs.classify((model, words), text, null_model=True, **TYPES)
    else:
        hs.classify((model, words), text, null_model=True, **TYPES)
    assert state(model) == before


@pytest.mark.parametrize("study", STUDIES)
def test_a_study_leaves_tied_weights_as_they_were(study, words, text):
    model = llama(words)
    tied(model)
    before = state(model)
    STUDIES[study]((model, words), text)
    assert state(model) == before


def explain_a_task(pair, text):
    rows = [{"prompt": f"the old keys {name}", "answer": " again"} for name in "abcd"]
    return hs.task(pair, rows)


@pytest.mark.parametrize("study", [explain_a_task, STUDIES["prune"]], ids=["task", "prune"])
def test_heads_of_layers_that_share_an_output_projection_are_not_changed(study, words, text):
    model = llama(words)
    shared_layers(model)
    before = state(model)
    with pytest.raises(ModelError, match="layers 0 and 2"):
        study((model, words), text)
    assert state(model) == before


class Interrupted(BaseException):
    """Comes from outside, as a key of the keyboard does."""


@pytest.mark.parametrize("study", ["classify", "collapse", "explain", "prune"])
def test_weights_are_as_they_were_after_a_call_that_ends_midway(study, words, text):
    calls = {"classify": lambda pair, text: hs.classify(pair, text, **TYPES), **STUDIES}
    model = llama(words)
    tied(model)
    before, passes, last = state(model), [0], [-1]

    def count(*_: object) -> None:
        passes[0] += 1
        if passes[0] == last[0]:
            raise Interrupted

    model.get_input_embeddings().register_forward_pre_hook(count)
    calls[study]((model, words), text)
    whole = passes[0]
    for at in (2, whole):
        passes[0], last[0] = 0, at
        with pytest.raises(Interrupted):
            calls[study]((model, words), text)
        assert state(model) == before, at


def test_a_permutation_that_fails_midway_leaves_the_weights(words, monkeypatch):
    network = llama(words)
    before, draw, left = state(network), torch.randperm, [4]

    def randperm(*given: Any, **options: Any) -> torch.Tensor:
        left[0] -= 1
        if not left[0]:
            raise MemoryError
        return draw(*given, **options)

    model = open_model((network, words))
    monkeypatch.setattr(torch, "randperm", randperm)
    with pytest.raises(MemoryError), null_model(model.engine, seed=1):
        pass
    assert state(network) == before
