"""Arguments of the public functions: what is allowed, and the message for what is not."""

from __future__ import annotations

import inspect
from typing import Annotated

import numpy as np
import pytest
import torch
from pydantic import Field, ValidationError

import headscope as hs
from headscope.errors import ArgumentError
from headscope.options import ALLOWED, Seed, checked
from headscope.studies.study_table import STUDIES, imported


def public_functions():
    """Every public function and every method of a run that takes an argument."""
    for name in hs.__all__:
        thing = getattr(hs, name)
        if inspect.isfunction(thing) and inspect.signature(thing).parameters:
            yield name, thing
    for name, method in inspect.getmembers(hs.Run, inspect.isfunction):
        if not name.startswith("_") and len(inspect.signature(method).parameters) > 1:
            yield f"Run.{name}", method


def test_no_public_function_takes_an_argument_unchecked():
    unchecked = [name for name, function in public_functions() if not hasattr(function, "options")]
    assert unchecked == ["reference_attention"]
    assert len({name for name, _ in public_functions()}) > 30


ANY_KIND = {"backend", "patterns", "tokenizer", "tokens", "windows"}
"""Arguments of many kinds, which are refused as they are read."""


CHECKED = [name for name, function in public_functions() if hasattr(function, "options")]
ODD_VALUES = (object(), -5, 2.5, "\ud800", "", [], (), None, 10**50, float("nan"), [object()])


@pytest.mark.parametrize("name", CHECKED)
def test_every_argument_refuses_an_object_of_no_kind(name):
    options = dict(public_functions())[name].options()
    for field in options.model_fields.keys() - ANY_KIND:
        with pytest.raises(ValidationError):
            options.__pydantic_validator__.validate_assignment(
                options.model_construct(), field, object()
            )


@pytest.mark.parametrize("name", CHECKED)
def test_every_kind_of_error_has_words_for_what_is_allowed(name):
    options = dict(public_functions())[name].options()
    for field in options.model_fields.keys() - ANY_KIND:
        for value in ODD_VALUES:
            try:
                options.__pydantic_validator__.validate_assignment(
                    options.model_construct(), field, value
                )
            except ValidationError as error:
                kinds = {detail["type"] for detail in error.errors()}
                assert kinds <= ALLOWED.keys(), (field, value)


def test_every_argument_of_a_study_is_described():
    for study in STUDIES:
        function = imported(study.function)
        fields = function.options().model_fields
        assert [name for name, field in fields.items() if not field.description] == [], study.name
        assert all(f"    {name}: " in function.__doc__ for name in fields), study.name


@pytest.mark.parametrize("name", ["collapse", "prune", "ablate", "redundancy"])
def test_an_unknown_argument_is_refused(name):
    with pytest.raises(TypeError, match="'dvice'"):
        getattr(hs, name)("mini", dvice="cpu")


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: hs.load(None), "folder is None"),
        (lambda: hs.read_corpus([]), "path"),
        (lambda: hs.weights(123), "model is 123"),
        (lambda: hs.show("mini", 5, "x"), "head is 5"),
        (lambda: hs.prune("mini", seed=None), "seed is None"),
        (lambda: hs.collapse("mini", mixing="yes"), "mixing is 'yes'"),
        (lambda: hs.sweep(models=10**5000), "models"),
        (lambda: hs.sweep(models=["\ud800"]), "models"),
        (lambda: hs.sweep(models=["mini"], colour=None), "'colour'"),
        (lambda: hs.sweep(models=["mini"], out="x" * 5000), "name too long"),
        (lambda: hs.emergence("x" * 5000), "name too long"),
        (lambda: hs.classify("mini", settings=5), "settings is 5.*Settings"),
        (lambda: hs.pairs([1, 2], [0.5]), "key"),
        (lambda: hs.pairs([1, 2], [0]), "1 keys"),
        (lambda: hs.register("word"), "head_type.*HeadType"),
        (lambda: hs.window_of_tokens([5]), r"tokens\[0\] is 5"),
        (lambda: hs.anatomy(torch.zeros(2, 3)), r"Tensor of shape \(2, 3\)"),
    ],
)
def test_a_value_of_the_wrong_kind_is_named_with_what_would_do(call, message):
    with pytest.raises(hs.HeadscopeError, match=message) as refused:
        call()
    assert "\n" not in str(refused.value)
    assert len(str(refused.value)) < 300


def test_token_ids_are_refused_where_tokens_are_asked_for():
    pattern = np.tril(np.ones((1, 1, 3, 3))) / np.arange(1, 4)[:, None]
    with pytest.raises(hs.HeadscopeError, match=r"tokens\[0\]"):
        hs.score_patterns([pattern], None, [[1, 2, 3]])
    with pytest.raises(hs.HeadscopeError, match="windows"):
        hs.score_patterns(pattern, None, None)
    for odd in ([[[[1.0], [1.0, 2.0]]]], (np.full((1, 1, 3, 3), "a"),)):
        with pytest.raises(hs.HeadscopeError, match="array"):
            hs.score_patterns(odd, None, ["<s>", "a", "b"])
    with pytest.raises(hs.HeadscopeError, match="array"):
        hs.score_patterns(["words"], None, [["a", "b"]])


@checked
def draw(seed: Seed = 0, share: Annotated[float, Field(ge=0, le=1)] = 0.5) -> tuple[int, float]:
    """Values that come through."""
    return seed, share


def test_a_number_of_numpy_becomes_one_of_python():
    seed, share = draw(np.int64(3), np.float32(0.5))
    assert (type(seed), seed, type(share), share) == (int, 3, float, 0.5)


@pytest.mark.parametrize("value", [2.0, True, np.bool_(True), "2", None, -1, 2**63, 10**400])
def test_an_invalid_whole_number_is_refused(value):
    with pytest.raises(ArgumentError, match=r"^seed"):
        draw(seed=value)


@pytest.mark.parametrize("value", [float("nan"), float("inf"), 1.5, -0.1, True, "0.5", 10**400])
def test_an_invalid_share_is_refused(value):
    with pytest.raises(ArgumentError, match=r"^share"):
        draw(share=value)


def test_a_model_in_memory_has_its_device_already(gpt2_folder):
    from headscope.models.load import load_model

    with pytest.raises(hs.HeadscopeError, match="memory"):
        hs.collapse(load_model(str(gpt2_folder)), device="meta")


def test_windows_are_cut_by_the_tokenizer_of_a_model_that_is_named(gpt2_folder, tokenizer):
    named = hs.windows("gum", str(gpt2_folder), max_tokens=300)
    assert [w.tokens.tolist() for w in named] == [
        w.tokens.tolist() for w in hs.windows("gum", tokenizer, max_tokens=300)
    ]
    with pytest.raises(hs.HeadscopeError, match="no-such-model"):
        hs.windows("gum", "./no-such-model", max_tokens=300)


@pytest.mark.parametrize(
    "call",
    [
        lambda: hs.score_patterns([], None, ["a"]),
        lambda: hs.score_patterns([np.ones((1, 1, 1, 1))], []),
        lambda: hs.compare(),
        lambda: hs.gallery(out="nowhere"),
        lambda: hs.sweep(models=["mini"], corpora=[[]]),
    ],
)
def test_nothing_is_read_in_the_place_of_an_empty_list(call):
    with pytest.raises(hs.HeadscopeError):
        call()
