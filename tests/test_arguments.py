"""The door of the public functions: what an argument may be, and what is said of what it may not."""

from __future__ import annotations

import inspect
from contextlib import suppress

import numpy as np
import pytest
import torch

import headscope as hs
from headscope.arguments import ANYTHING, KINDS, check, number, takes, whole
from headscope.errors import ArgumentError


def doors():
    """Every public function and every method of a run that takes an argument."""
    for name in hs.__all__:
        thing = getattr(hs, name)
        if inspect.isfunction(thing) and inspect.signature(thing).parameters:
            yield name, thing
    for name, method in inspect.getmembers(hs.Run, inspect.isfunction):
        if not name.startswith("_") and len(inspect.signature(method).parameters) > 1:
            yield f"Run.{name}", method


def test_no_public_function_takes_an_argument_unchecked():
    unchecked = [name for name, door in doors() if not hasattr(door, "__wrapped__")]
    assert unchecked == []
    assert len({name for name, _ in doors()}) > 30


def test_a_function_cannot_have_a_parameter_of_which_nothing_is_said():
    with pytest.raises(TypeError, match="does not say what colour may be"):

        @takes()
        def paint(colour: str) -> None: ...


@pytest.mark.parametrize("name", ["collapse", "prune", "ablate", "redundancy"])
def test_an_argument_that_a_function_only_passes_on_must_be_one_that_it_knows(name):
    with pytest.raises(TypeError, match=f"{name}.* has no argument 'dvice'"):
        getattr(hs, name)("mini", dvice="cpu")


def test_a_function_that_passes_nothing_on_has_no_kinds_for_it():
    with pytest.raises(TypeError, match="paint has no parameter shade"):

        @takes(shade=KINDS["name"])
        def paint(name: str) -> None: ...


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: hs.load(None), "folder is None, expected the path of a file or folder"),
        (lambda: hs.read_corpus([]), "path is an empty list, expected the path"),
        (lambda: hs.weights(123), "model is 123, expected a run folder, or a run from"),
        (lambda: hs.show("mini", 5, "x"), "head is 5, expected the name of a head"),
        (lambda: hs.prune("mini", seed=None), "seed is None, expected a whole number from 0"),
        (lambda: hs.collapse("mini", max_tokens=500.5), "max_tokens is 500.5, expected a whole"),
        (lambda: hs.collapse("mini", mixing="yes"), "mixing is 'yes', expected True or False"),
        (lambda: hs.classify(123), "model is 123, expected the name or path of a model"),
        (lambda: hs.sweep(models=10**5000), "models is a number of more than 40 digits, expected"),
        (lambda: hs.sweep(models=["\ud800"]), "models is .*, expected a name or a list of names"),
        (lambda: hs.sweep(models=["mini"], colour=None), "'colour' is no key of a sweep"),
        (lambda: hs.sweep(models=["mini"], out="x" * 5000), "cannot be written: File name too"),
        (lambda: hs.emergence("x" * 5000), "cannot be read: File name too long"),
        (lambda: hs.classify("mini", settings=5), "settings is 5, expected hs.Settings"),
        (lambda: hs.pairs([1, 2], [0.5]), "key is a value of type list, expected a row of whole"),
        (lambda: hs.pairs([1, 2], [0]), "2 queries and 1 keys"),
        (lambda: hs.register("word"), "head_type is 'word', expected an hs.HeadType"),
        (lambda: hs.window_of_tokens([5]), "expected tokens as text, each as it is spelled"),
        (lambda: hs.ablate("run", heads=5), "heads is 5, expected tagged, all, or names"),
        (lambda: hs.emergence(5), "sweep is 5, expected the path of a file or folder"),
        (lambda: hs.anatomy(torch.zeros(2, 3)), r"type Tensor of shape \(2, 3\), expected the"),
        (lambda: hs.anatomy("mini", revision=5), "revision is 5, expected a name, or None"),
        (lambda: hs.redundancy("run", source=5), "source is 5, expected the name or path of a"),
    ],
)
def test_a_value_of_the_wrong_kind_is_named_with_what_would_do(call, message):
    with pytest.raises(hs.HeadscopeError, match=message) as refused:
        call()
    assert "\n" not in str(refused.value)
    assert len(str(refused.value)) < 300


def test_token_ids_are_refused_where_tokens_are_asked_for():
    pattern = np.tril(np.ones((1, 1, 3, 3))) / np.arange(1, 4)[:, None]
    with pytest.raises(hs.HeadscopeError, match="spelled, not its id"):
        hs.score_patterns([pattern], None, [[1, 2, 3]])
    with pytest.raises(hs.HeadscopeError, match=r"windows is None, expected those of hs\.windows"):
        hs.score_patterns(pattern, None, None)
    for odd in ([[[[1.0], [1.0, 2.0]]]], (np.full((1, 1, 3, 3), "a"),)):
        with pytest.raises(hs.HeadscopeError, match="is no array of numbers"):
            hs.score_patterns(odd, None, ["<s>", "a", "b"])
    with pytest.raises(hs.HeadscopeError, match="is no array of numbers"):
        hs.score_patterns(["words"], None, [["a", "b"]])


def test_a_number_of_numpy_goes_on_as_python_s_own():
    found = check("seed", np.int64(3), KINDS["seed"])
    assert type(found) is int
    assert found == 3
    assert type(check("share", np.float32(0.5), number(0, 1))) is float


@pytest.mark.parametrize("value", [2.0, True, np.bool_(True), "2", None, -1, 2**63, 10**400])
def test_what_is_no_whole_number_is_refused(value):
    with pytest.raises(ArgumentError, match="expected a whole number from 0"):
        check("seed", value, whole(0))


@pytest.mark.parametrize("value", [float("nan"), float("inf"), 1.5, -0.1, True, "0.5", 10**400])
def test_what_is_no_share_is_refused(value):
    with pytest.raises(ArgumentError, match="expected a number from 0 to 1"):
        check("share", value, number(0, 1))


def test_a_model_in_memory_has_its_device_already(gpt2_folder):
    from headscope.models.load import load_model

    with pytest.raises(hs.HeadscopeError, match="is loaded already; give its name instead"):
        hs.collapse(load_model(str(gpt2_folder)), device="cpu")


def test_windows_are_cut_by_the_tokenizer_of_a_model_that_is_named(gpt2_folder, tokenizer):
    named = hs.windows("gum", str(gpt2_folder), max_tokens=300)
    assert [w.tokens.tolist() for w in named] == [
        w.tokens.tolist() for w in hs.windows("gum", tokenizer, max_tokens=300)
    ]
    with pytest.raises(hs.HeadscopeError, match="no-such-model"):
        hs.windows("gum", "./no-such-model", max_tokens=300)


def lists():
    """Every argument of a public function that takes a list of things, with one that it takes."""
    for name, door in doors():
        for argument, kind in getattr(door, "kinds", {}).items():
            for thing in ("x", own_relation):
                with suppress(Exception):  # as of what a kind refuses in its own way
                    check(argument, [thing], kind)
                    yield name, argument, kind
                    break


@hs.relation("words", "first")
def own_relation(window):
    """the first word"""
    return hs.pairs(window.words.last[1:], window.words.first[:-1])


@pytest.mark.parametrize(
    "nothing", [[], (), iter(()), np.array([], str)], ids=lambda v: type(v).__name__
)
def test_an_empty_list_is_refused_wherever_a_list_is_taken(nothing):
    own = {(name, argument): kind for name, argument, kind in lists() if kind is not ANYTHING}
    assert {("classify", "corpus"), ("languages", "languages")} <= own.keys()
    assert ("classify", "relations") in own
    for (name, argument), kind in own.items():
        if argument in ("query", "key", "owner"):
            continue  # a window without a pair
        with pytest.raises(ArgumentError, match=f"{argument} is .*, expected"):
            check(argument, nothing, kind)
        assert name


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
