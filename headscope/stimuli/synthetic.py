"""Synthetic sentences and modules: baseline heuristics are wrong in them.

The sentences ship with headscope (`synthetic_corpora`); the modules are drawn here. What they call
and import is named above its definition too, and other functions and modules lie nearer.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import chain, combinations
from pathlib import Path

import numpy as np

from headscope.corpus.code import read_python
from headscope.corpus.document import Document
from headscope.corpus.read import corpus_files, read_documents
from headscope.corpus.shipped import synthetic_corpora
from headscope.corpus.window import Window
from headscope.stimuli.stimulus import Stimulus, TextTokenizer, cut_document
from headscope.stimuli.word_lists import pick

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


def synthetic_windows(
    tokenizer: TextTokenizer, max_length: int, *, has_code: bool = False
) -> Iterator[Window]:
    """Windows of synthetic sentences, and before them of synthetic modules where the text holds
    code.
    """
    sentences = read_documents(corpus_files(synthetic_corpora()))
    documents = chain(synthetic_modules() if has_code else (), sentences)
    for number, document in enumerate(documents):
        yield from cut_document(document, tokenizer, SYNTHETIC.name, max_length, number=number)


def synthetic_modules() -> Iterator[Document]:
    """Small modules, each a document."""
    for number in range(FILES):
        rng = np.random.default_rng((0, number))
        yield read_python(Path("made") / f"made_{number}.py", _module(rng))


def _module(rng: np.random.Generator) -> str:
    """Named above, bound, then used; what else is bound stands between."""
    first, second, third, top = _some(rng, _FUNCTIONS, 4)
    others = _some(rng, _MODULES, 3)
    *parameters, argument, one, other = _some(rng, _NAMES, 6)
    # each function shares a parameter's name with either of the others
    functions = dict(zip((first, second, third), combinations(parameters, 2), strict=True))
    bound = [
        f"def {name}({first}, {right}):\n    return {first} + {right}"
        for name, (first, right) in functions.items()
    ]
    imports = [f"import {module}" for module in others]
    above, middle = [], [*_shuffled(rng, imports), *_shuffled(rng, bound)]
    in_docstring, in_function = [(True, False), (False, True), (True, True)][int(rng.integers(3))]
    if in_docstring:
        modules = ", ".join(_shuffled(rng, others))
        above.append(f'"""To {first}, {second} and {third} with {modules}."""')
    if in_function:
        used = ", ".join(f"{module}.{pick(rng, _MEMBERS.split())}" for module in others)
        inner = ", ".join(f"{name}({argument}, {argument})" for name in functions)
        above.append(f"def {top}_all({argument}):\n    return {inner}, {used}")
        if rng.random() < 0.5:
            middle = [*middle[3:], *middle[:3]]
    calls = _calls(rng, functions, others, (one, other))
    last = [f"def {top}({one}, {other}):", *calls, f"    return {other}"]
    return "\n".join([*above, *middle, *last]) + "\n"


def _calls(
    rng: np.random.Generator,
    functions: Mapping[str, Sequence[str]],
    modules: Sequence[str],
    names: Sequence[str],
) -> Iterator[str]:
    """Lines that call some functions and use some modules, by position or by keyword."""
    for _ in range(_LINES):
        name, module = pick(rng, list(functions)), pick(rng, modules)
        arguments = [pick(rng, names), f"{module}.{pick(rng, _MEMBERS.split())}"]
        if rng.random() < 0.5:
            pairs = zip(functions[name], arguments, strict=True)
            arguments = _shuffled(rng, [f"{parameter}={value}" for parameter, value in pairs])
        yield f"    {pick(rng, names)} = {name}({arguments[0]}, {arguments[1]})"


def _some(rng: np.random.Generator, words: str, count: int) -> list[str]:
    sample: list[str] = rng.permutation(words.split())[:count].tolist()
    return sample


def _shuffled(rng: np.random.Generator, words: Sequence[str]) -> list[str]:
    return [words[i] for i in rng.permutation(len(words)).tolist()]


SYNTHETIC = Stimulus(name="synthetic", contested="synthetic", example_windows=0)
