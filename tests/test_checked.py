"""What checks every call while the tests run sees what it should."""

from __future__ import annotations

import sys

import numpy as np
import pytest
from beartype.roar import BeartypeCallHintViolation

from tests.checked import EVERY, FIRST, Finder

SOURCE = '''\
"""A module like the package's."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, no_type_check

import numpy as np
from jaxtyping import Float

if TYPE_CHECKING:
    from nowhere import Unknown


@dataclass(frozen=True, slots=True)
class Pair:
    one: Float[np.ndarray, " n"]
    other: Float[np.ndarray, " n"]

    @property
    def length(self) -> int:
        return float(len(self.one))

    @classmethod
    def twice(cls, one: Float[np.ndarray, " n"]) -> Pair:
        return cls(one, one)


def product(
    a: Float[np.ndarray, "row inner"], b: Float[np.ndarray, "inner column"]
) -> Float[np.ndarray, "row column"]:
    return a @ b if a.any() else b


def outer(number: int) -> str:
    def inner(word: str) -> str:
        return word

    return inner(number)


def unknown(thing: Unknown, number: int) -> int:
    return number


@no_type_check
def free(number: int) -> str:
    return number
'''


@pytest.fixture
def module(tmp_path, monkeypatch):
    (tmp_path / "like_it.py").write_text(SOURCE)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(sys, "meta_path", [Finder("like_it"), *sys.meta_path])
    import like_it

    yield like_it
    del sys.modules["like_it"]


def test_sound_calls_pass(module):
    for n in (2, 3):  # one call says nothing of the next
        assert module.product(np.ones((n, 3)), np.ones((3, 4))).shape == (n, 4)
    assert module.Pair.twice(np.ones(2)).one.shape == (2,)
    assert module.unknown(object(), 1) == 1
    assert module.free(1) == 1


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda m: m.product(np.ones((2, 3)), np.ones((2, 4))), "parameter b"),
        (lambda m: m.product(np.zeros((2, 3)), np.ones((3, 4))), "return"),
        (lambda m: m.product(np.ones((2, 3), dtype=int), np.ones((3, 4))), "parameter a"),
        (lambda m: m.Pair(np.ones(2), np.ones(3)), "parameter other"),
        (lambda m: m.Pair(np.ones(2), np.ones(2)).length, r"length.*return"),
        (lambda m: m.Pair.twice(np.zeros((2, 2))), "parameter one"),
        (lambda m: m.outer(1), r"inner.*parameter word"),
        (lambda m: m.unknown(object(), 1.5), "parameter number"),
    ],
)
def test_wrong_arguments_and_results_are_seen(module, call, message):
    with pytest.raises(BeartypeCallHintViolation, match=message):
        call(module)


def test_of_many_calls_the_first_and_some_later_ones_are_checked(module):
    wrong = 0
    for _ in range(FIRST + 2 * EVERY):
        try:
            module.unknown(None, "a word")
        except BeartypeCallHintViolation:
            wrong += 1
    assert EVERY < wrong < FIRST + EVERY


def test_this_run_checks_the_package():
    from headscope.heads import head_name

    if not any(isinstance(finder, Finder) for finder in sys.meta_path):
        pytest.skip("pytest ran without -p tests.checked")
    with pytest.raises(BeartypeCallHintViolation):
        [head_name("one", 2) for _ in range(EVERY)]
