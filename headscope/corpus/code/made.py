"""Python that was made for the purpose: where a name first stands is not where it is bound.

In most files a function is named first where it is defined, and a module where it is imported, so
that "where the word first stands" is right of nearly every call and import. Here what is called
and imported is named above that too, once or twice, other functions and modules lie nearer, and it
is used several times.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

from headscope.corpus.code.python import read_python
from headscope.corpus.document import Document

FILES = 120
_LINES = 6
_FUNCTIONS = """
add apply build check clean close convert copy count draw fetch fill filter find fold format
get group join keep list load make mark match merge move open order pack parse pick print
push read save scale search select send show skip sort split store test trim update wait
write
"""
_NAMES = """
args base body code data end first item items key kind last left length line lines name
names node other path point right rows size start state table text tree value values width
words
"""
_MODULES = "ast csv glob io json math os random re string sys time"
_MEMBERS = "error name path read search size sleep split time write"


def made_code(count: int = FILES, seed: int = 0) -> Iterator[Document]:
    """Small modules, each a document.

    Args:
        count: how many.
        seed: of the random numbers that choose their names and their order.
    """
    for number in range(count):
        rng = np.random.default_rng((seed, number))
        yield read_python(Path("made") / f"made_{number}.py", _module(rng))


def _module(rng: np.random.Generator) -> str:
    """Named above, bound, then used; what else is bound stands between."""
    asked, others = _some(rng, _FUNCTIONS, 4), _some(rng, _MODULES, 3)
    names = _some(rng, _NAMES, 8)
    first, second, third, top = asked
    bound = [
        _function(first, names[:2]),
        _function(second, names[2:4]),
        _function(third, names[1:3]),
    ]
    imports = [f"import {module}" for module in others]
    above, middle = [], [*_shuffled(rng, imports), *_shuffled(rng, bound)]
    told, shown = [(True, False), (False, True), (True, True)][int(rng.integers(3))]
    if told:
        modules = ", ".join(_shuffled(rng, others))
        above.append(f'"""To {first}, {second} and {third} with {modules}."""')
    if shown:
        used = ", ".join(f"{module}.{_one(rng, _MEMBERS.split())}" for module in others)
        calls = ", ".join(f"{name}({names[4]}, {names[4]})" for name in asked[:3])
        above.append(f"def {top}_all({names[4]}):\n    return {calls}, {used}")
        if rng.random() < 0.5:
            middle = [*middle[3:], *middle[:3]]
    return "\n".join([*above, *middle, _asking(rng, top, asked[:3], others, names)]) + "\n"


def _function(name: str, parameters: Sequence[str]) -> str:
    one, other = parameters
    return f"def {name}({one}, {other}):\n    return {one} + {other}"


def _asking(
    rng: np.random.Generator,
    name: str,
    functions: Sequence[str],
    modules: Sequence[str],
    names: Sequence[str],
) -> str:
    """A function that calls some functions and uses some modules, none to all of them again."""
    given = [names[5], names[6]]
    lines = [
        f"    {_one(rng, given)} = {_one(rng, functions)}({_one(rng, given)}, "
        f"{_one(rng, modules)}.{_one(rng, _MEMBERS.split())})"
        for _ in range(_LINES)
    ]
    return "\n".join([f"def {name}({given[0]}, {given[1]}):", *lines, f"    return {given[1]}"])


def _some(rng: np.random.Generator, words: str, count: int) -> list[str]:
    found: list[str] = rng.permutation(words.split())[:count].tolist()
    return found


def _one(rng: np.random.Generator, words: Sequence[str]) -> str:
    return words[int(rng.integers(len(words)))]


def _shuffled(rng: np.random.Generator, words: Sequence[str]) -> list[str]:
    return [words[i] for i in rng.permutation(len(words)).tolist()]
