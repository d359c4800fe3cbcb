"""What checks every call while the tests run sees what it should, and changes nothing else."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pytest
from beartype.roar import BeartypeCallHintViolation
from jaxtyping import Float, Int, TypeCheckError

from tests.checked import EVERY, FIRST, Finder, begin, checked

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


class Child(Pair):
    @staticmethod
    def halved(number: int) -> int:
        return number // 2

    def total(self) -> float:
        return super().twice(self.one).one.sum().item()


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


def same(number: int) -> int:
    return number


def row(length: int) -> np.ndarray:
    return np.zeros(length)


def product(
    a: Float[np.ndarray, "row inner"], b: Float[np.ndarray, "inner column"]
) -> Float[np.ndarray, "row column"]:
    return a @ b if a.any() else b


def test_an_axis_has_one_length_in_all_arguments_and_in_the_result():
    sound = checked(product)
    assert sound(np.ones((2, 3)), np.ones((3, 4))).shape == (2, 4)
    with pytest.raises(BeartypeCallHintViolation, match="parameter b"):
        sound(np.ones((2, 3)), np.ones((2, 4)))
    with pytest.raises(BeartypeCallHintViolation, match="return"):
        sound(np.zeros((2, 3)), np.ones((3, 4)))
    with pytest.raises(BeartypeCallHintViolation, match="parameter a"):
        sound(np.ones((2, 3), dtype=int), np.ones((3, 4)))


def test_one_call_says_nothing_of_the_next():
    sound = checked(product)
    for n in (2, 3):
        assert sound(np.ones((n, n)), np.ones((n, n))).shape == (n, n)


def test_the_first_calls_of_a_test_are_checked_and_of_the_others_some():
    sound, wrong = checked(same), []
    for part in range(2):
        begin()
        for number in range(FIRST + 2 * EVERY):
            try:
                sound("a word")
            except BeartypeCallHintViolation:
                wrong.append((part, number))
    assert wrong[:FIRST] == [(0, number) for number in range(FIRST)]
    assert [number for part, number in wrong if part == 1] == [n for part, n in wrong if part == 0]
    assert len(wrong) == 2 * (FIRST + 2)


def test_a_function_within_a_function_has_its_turns_too():
    def outer():
        def inner(number: int) -> int:
            return number

        return inner

    inners = [outer() for _ in range(FIRST + 2)]
    assert [checked(inner) is inner for inner in inners] == [False] * FIRST + [True] * 2


def test_shapes_are_seen_within_containers_and_beside_none():
    def longest(
        rows: Sequence[Float[np.ndarray, " n"]], best: Int[np.ndarray, " n"] | None = None
    ) -> Float[np.ndarray, " n"]:
        return rows[0]

    sound = checked(longest)
    assert len(sound([row(3)])) == 3
    with pytest.raises(BeartypeCallHintViolation):
        sound([row(3)], np.zeros(2, dtype=int))
    with pytest.raises(BeartypeCallHintViolation):
        sound([np.zeros((3, 1))])


def test_a_generator_is_left_one():
    def each(rows: Float[np.ndarray, "n m"]) -> Iterator[Float[np.ndarray, " m"]]:
        yield from rows

    assert len(list(checked(each)(np.ones((3, 2))))) == 3
    with pytest.raises(TypeCheckError):
        checked(each)(np.ones(3))  # before any value is asked for


def test_whoever_reads_a_function_sees_what_was_written():
    sound = checked(product)
    assert inspect.signature(sound) == inspect.signature(product)
    assert sound.__annotations__ == product.__annotations__
    assert (sound.__name__, sound.__module__) == ("product", __name__)


def test_a_dataclass_is_checked_as_it_is_made():
    @checked
    @dataclass
    class Cell:
        query: int
        weight: float = 0.0

    assert Cell(1).query == 1
    with pytest.raises(BeartypeCallHintViolation, match="parameter query"):
        Cell(1.0)
    with pytest.raises(BeartypeCallHintViolation, match="parameter weight"):
        Cell(1, "much")


def test_every_function_of_an_imported_module_is_checked(module):
    assert module.Pair(row(2), row(2)).one.shape == (2,)
    with pytest.raises(BeartypeCallHintViolation, match="parameter other"):
        module.Pair(row(2), row(3))
    with pytest.raises(BeartypeCallHintViolation, match=r"length.*return"):
        _ = module.Pair(row(2), row(2)).length
    with pytest.raises(BeartypeCallHintViolation, match="parameter one"):
        module.Pair.twice(np.zeros((2, 2)))
    with pytest.raises(BeartypeCallHintViolation, match="parameter number"):
        module.Child.halved(1.5)
    with pytest.raises(BeartypeCallHintViolation, match=r"inner.*parameter word"):
        module.outer(1)
    assert module.Child.twice(row(2)).total() == 0


def test_what_cannot_be_looked_up_hides_no_other_hint(module):
    assert module.unknown(object(), 1) == 1
    with pytest.raises(BeartypeCallHintViolation, match="parameter number"):
        module.unknown(object(), 1.5)


def test_what_asks_not_to_be_checked_is_not(module):
    assert module.free(1) == 1


def test_this_run_checks_the_package():
    from headscope.relations.pairs import Pairs

    if not any(isinstance(finder, Finder) for finder in sys.meta_path):
        pytest.skip("pytest ran without -p tests.checked")
    with pytest.raises(BeartypeCallHintViolation):
        Pairs([1], [2])
