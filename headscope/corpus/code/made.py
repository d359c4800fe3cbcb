"""Python that was made for the purpose: where a name first stands is not where it is bound.

In most files a function is named first where it is defined, and a module where it is imported, so
that "where the word first stands" is right of nearly every call and import. Here what is called
and imported is named above that too, once or twice, other functions and modules lie nearer, and it
is used several times.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import combinations
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
    first, second, third, top = _some(rng, _FUNCTIONS, 4)
    others = _some(rng, _MODULES, 3)
    *taken, given, one, other = _some(rng, _NAMES, 6)
    # each function shares a parameter's name with either of the others
    functions = dict(zip((first, second, third), combinations(taken, 2), strict=True))
    bound = [
        f"def {name}({own[0]}, {own[1]}):\n    return {own[0]} + {own[1]}"
        for name, own in functions.items()
    ]
    imports = [f"import {module}" for module in others]
    above, middle = [], [*_shuffled(rng, imports), *_shuffled(rng, bound)]
    told, shown = [(True, False), (False, True), (True, True)][int(rng.integers(3))]
    if told:
        modules = ", ".join(_shuffled(rng, others))
        above.append(f'"""To {first}, {second} and {third} with {modules}."""')
    if shown:
        used = ", ".join(f"{module}.{_one(rng, _MEMBERS.split())}" for module in others)
        calls = ", ".join(f"{name}({given}, {given})" for name in functions)
        above.append(f"def {top}_all({given}):\n    return {calls}, {used}")
        if rng.random() < 0.5:
            middle = [*middle[3:], *middle[:3]]
    asking = _asking(rng, functions, others, (one, other))
    last = [f"def {top}({one}, {other}):", *asking, f"    return {other}"]
    return "\n".join([*above, *middle, *last]) + "\n"


def _asking(
    rng: np.random.Generator,
    functions: Mapping[str, Sequence[str]],
    modules: Sequence[str],
    names: Sequence[str],
) -> Iterator[str]:
    """Lines that call some functions and use some modules, by place or by keyword."""
    for _ in range(_LINES):
        name, module = _one(rng, list(functions)), _one(rng, modules)
        given = [_one(rng, names), f"{module}.{_one(rng, _MEMBERS.split())}"]
        if rng.random() < 0.5:
            pairs = zip(functions[name], given, strict=True)
            given = _shuffled(rng, [f"{parameter}={value}" for parameter, value in pairs])
        yield f"    {_one(rng, names)} = {name}({given[0]}, {given[1]})"


def _some(rng: np.random.Generator, words: str, count: int) -> list[str]:
    found: list[str] = rng.permutation(words.split())[:count].tolist()
    return found


def _one(rng: np.random.Generator, words: Sequence[str]) -> str:
    return words[int(rng.integers(len(words)))]


def _shuffled(rng: np.random.Generator, words: Sequence[str]) -> list[str]:
    return [words[i] for i in rng.permutation(len(words)).tolist()]
