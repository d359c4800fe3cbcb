"""Checks of public functions' arguments: all are checked at the door, by one table.

One name means one thing wherever it stands: a `seed` is a seed of every function. A value that is
none ends in an `ArgumentError` before anything is read or run, and what comes in as NumPy's number
goes on as Python's, so that it can be written to JSON.
"""

from __future__ import annotations

import functools
import inspect
import math
import os
import re
import sys
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from numbers import Integral, Real
from pathlib import Path, PurePath
from reprlib import Repr
from typing import Any, ParamSpec, TypeVar, get_type_hints

from headscope.errors import ArgumentError

LARGEST = 2**63 - 1
"""Of whole numbers: what torch takes as a seed, and more tokens than there are."""

_P = ParamSpec("_P")
_R = TypeVar("_R")


@dataclass(frozen=True)
class Kind:
    """A kind of values that an argument may be."""

    words: str
    """What would do, for a message."""
    plain: Callable[[Any], Any]
    """The value as Python's own; raises TypeError or ValueError for what is none."""


@dataclass(frozen=True)
class Default:
    """The default of an option of a TypedDict and its help, in the option's `Annotated`."""

    value: Any
    help: str = ""


def takes(**extra_kinds: Kind) -> Callable[[Callable[_P, _R]], Callable[_P, _R]]:
    """Make a function check its arguments by `KINDS`, and by kinds of its own.

    Where it takes options by `**` of a TypedDict, it takes no others; a kind that one of them has
    of its own stands in its `Annotated`. A parameter or an option without a kind is an error of the
    program, when it is imported.
    """

    def decorate(function: Callable[_P, _R]) -> Callable[_P, _R]:
        signature = inspect.signature(function)
        keywords = {n for n, p in signature.parameters.items() if p.kind is not p.VAR_KEYWORD}
        passed = _option_kinds(function)
        kinds = {name: extra_kinds.get(name) or KINDS.get(name) for name in keywords}
        every = kinds | passed
        if lacking := [name for name in every if every[name] is None and name != "self"]:
            raise TypeError(f"{function.__name__} does not say what {', '.join(lacking)} may be")
        if unknown := extra_kinds.keys() - keywords:
            raise TypeError(f"{function.__name__} has no parameter {', '.join(unknown)}")

        @functools.wraps(function)
        def checked(*args: _P.args, **kwargs: _P.kwargs) -> _R:
            for name in kwargs.keys() - keywords if passed else ():
                if name not in passed:
                    raise TypeError(f"{function.__name__}() has no argument {name!r}")
                kwargs[name] = check(name, kwargs[name], passed[name])
            bound = signature.bind(*args, **kwargs)
            for name, value in bound.arguments.items():
                kind = kinds.get(name)
                if kind is None:
                    continue
                if signature.parameters[name].kind is inspect.Parameter.VAR_POSITIONAL:
                    bound.arguments[name] = tuple(check(name, item, kind) for item in value)
                else:
                    bound.arguments[name] = check(name, value, kind)
            return function(*bound.args, **bound.kwargs)

        checked.__dict__["kinds"] = every
        return checked

    return decorate


def _option_kinds(function: Callable[..., Any]) -> dict[str, Any]:
    """The kinds of the options that a function takes by `**`, None for those that have none."""
    annotations = [
        str(parameter.annotation)
        for parameter in inspect.signature(function).parameters.values()
        if parameter.kind is parameter.VAR_KEYWORD
    ]
    options = re.fullmatch(r"Unpack\[(\w+)\]", "".join(annotations))
    if options is None:
        return {}
    hints = get_type_hints(vars(sys.modules[function.__module__])[options[1]], include_extras=True)
    notes = {name: getattr(hint, "__metadata__", ()) for name, hint in hints.items()}
    noted = {name: note for name in notes for note in notes[name] if isinstance(note, Kind)}
    return {name: noted.get(name) or KINDS.get(name) for name in hints}


def check(name: str, value: Any, kind: Kind) -> Any:
    """A value of this kind, as Python's own.

    Raises:
        ArgumentError: it is none, or a list of nothing, which a pattern that matches no file gives.
    """
    try:
        plain = kind.plain(value)
    except Exception as error:  # an object may fail in any way when it is asked what it is
        reason = str(error) if isinstance(error, _TooLargeError) else ""
        raise ArgumentError(
            f"{name} is {described(value)}, expected {kind.words}{reason}"
        ) from error
    if isinstance(plain, _LISTS) and not plain and kind is not ANYTHING:
        received = described(value) if isinstance(value, _LISTS) else "empty"
        raise ArgumentError(f"{name} is {received}, expected {kind.words}")
    return plain


_LISTS = (list, tuple, set, frozenset, dict)


def described(value: Any) -> str:
    """A value in words, on one line and short; of anything but plain values its kind alone."""
    if isinstance(value, Integral) and abs(int(value)) > 10**40:
        return "a number of more than 40 digits"
    if isinstance(value, PurePath):
        value = str(value)
    if value is None or isinstance(value, bool | Integral | Real | str | bytes):
        return " ".join(_SHORT.repr(value).split())
    if isinstance(value, _LISTS) and not value:
        return f"an empty {type(value).__name__}"
    shape = getattr(value, "shape", None)
    of_shape = f" of shape {tuple(shape)}" if isinstance(shape, tuple) else ""
    return f"a value of type {type(value).__name__}{of_shape}"


_SHORT = Repr()
_SHORT.maxstring = _SHORT.maxother = 80


class _TooLargeError(ValueError):
    """A number above what the words of its kind say: it ends the message."""


def whole(least: int = 0, largest: int = LARGEST) -> Kind:
    """Whole numbers from `least` to `most`; True is none, and neither is 2.0."""

    def plain(value: Any) -> int:
        if isinstance(value, bool) or not isinstance(value, Integral):
            raise TypeError
        number = int(value)
        if number > largest == LARGEST:
            raise _TooLargeError(f"; the largest is {LARGEST:,}")
        if not least <= number <= largest:
            raise ValueError
        return number

    upper = "" if largest == LARGEST else f" to {largest}"
    return Kind(f"a whole number from {least}{upper}", plain)


def number(least: float | int, largest: float | int = math.inf) -> Kind:
    """Finite numbers from `least` to `most`."""

    def plain(value: Any) -> float:
        if isinstance(value, bool) or not isinstance(value, Real):
            raise TypeError
        converted = float(value)
        if converted == math.inf == largest:
            raise _TooLargeError("; it should be finite")
        if not (math.isfinite(converted) and least <= converted <= largest):
            raise ValueError
        return converted

    upper = "" if largest == math.inf else f" to {largest:g}"
    return Kind(f"a number from {least:g}{upper}", plain)


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError
    return str(value)


def _name(value: Any) -> str:
    text = _text(value)
    if not text.strip() or "\0" in text:
        raise ValueError
    return text


def _path(value: Any) -> str | Path:
    path_text = os.fspath(value)
    os.fsencode(_name(path_text))  # half of a character names no file
    return path_text if isinstance(value, str) else Path(path_text)


_OF_A_MODEL = ("engine", "run_with_hooks", "get_input_embeddings")
"""What a model has: one that headscope loaded, one of TransformerLens, and one of transformers."""


def _model(value: Any) -> Any:
    """A path as text; what is in memory is looked into where it is opened."""
    if isinstance(value, str | os.PathLike):
        return str(_path(value))
    if not (isinstance(value, tuple) or any(hasattr(value, name) for name in _OF_A_MODEL)):
        raise TypeError
    return value


def _paths(value: Any) -> str | Path | tuple[str | Path, ...]:
    if isinstance(value, str | os.PathLike):
        return _path(value)
    return tuple(map(_path, _several(value)))


def _names(value: Any) -> tuple[str, ...]:
    return tuple(map(_name, _several(value)))


def _head_types(value: Any) -> tuple[str, ...]:
    names = _names(value.split(",") if isinstance(value, str) else value)
    if not names:
        raise ValueError
    return tuple(dict.fromkeys(part.strip() for name in names for part in name.split(",")))


def _several(value: Any) -> Iterable[Any]:
    """A list or something like it, but no text, whose parts are letters."""
    if isinstance(value, str | bytes | Mapping) or getattr(value, "ndim", 1) != 1:
        raise TypeError
    return list(value)


def _flag(value: Any) -> bool:
    if type(value).__name__ not in ("bool", "bool_"):
        raise TypeError
    return bool(value)


def _call(value: Any) -> Any:
    if not callable(value):
        raise TypeError
    return value


def _progress(value: Any) -> Any:
    if type(value).__name__ in ("bool", "bool_"):
        return bool(value)
    return _call(value)


TEXT = Kind("text", _text)
NAME = Kind("a name", _name)
NAMES = Kind("a list of names", _names)
HEAD_TYPES = Kind("a head type or a list of them", _head_types)
PATH = Kind("the path of a file or folder, as text or pathlib.Path", _path)
PATHS = Kind("the path of a file or folder, or a list of them, as text or pathlib.Path", _paths)
MODEL = Kind(
    "the name or path of a model, a (model, tokenizer) pair, a loaded model, or a "
    "TransformerBridge",
    _model,
)
FLAG = Kind("True or False", _flag)
CALL = Kind("a function", _call)
PROGRESS = Kind(
    "True for a bar where a person waits, False for none, or a function of what is done and all",
    _progress,
)
ANYTHING = Kind("anything", lambda value: value)
"""For what the function itself looks into, such as arrays."""


def maybe(kind: Kind) -> Kind:
    """That kind, or None."""
    return Kind(
        f"{kind.words}, or None", lambda value: None if value is None else kind.plain(value)
    )


def made_by(words: str, *classes: type) -> Kind:
    """Objects of these classes; the words say where one is from."""

    def plain(value: Any) -> Any:
        if not isinstance(value, classes):
            raise TypeError
        return value

    return Kind(words, plain)


def either(*kinds: Kind) -> Kind:
    """A kind of values that are of one of these kinds."""

    def plain(value: Any) -> Any:
        for kind in kinds[:-1]:
            try:
                return kind.plain(value)
            except Exception:  # as in check
                continue
        return kinds[-1].plain(value)

    return Kind(", or ".join(kind.words for kind in kinds), plain)


KINDS: Mapping[str, Kind] = {
    "seed": whole(0),
    "max_tokens": whole(1),
    "max_length": whole(8),
    "windows": whole(1),
    "queries": whole(1),
    "context": maybe(whole(1)),
    "head": Kind("the name of a head, such as L5H1 or 5.1", _text),
    "heads": Kind("tagged, all, or names such as L5H1,L6H9", _text),
    "how": NAME,
    "text": TEXT,
    "target": maybe(TEXT),
    "name": NAME,
    "dtype": NAME,
    "device": NAME,
    "revision": maybe(NAME),
    "source": maybe(MODEL),
    "bos": maybe(TEXT),
    "relation": NAME,
    "types": maybe(HEAD_TYPES),
    "corpus": maybe(PATHS),
    "pairs": maybe(PATHS),
    "path": PATH,
    "folder": PATH,
    "out": maybe(PATH),
    "overwrite": FLAG,
    "with_tally": FLAG,
    "mixing": FLAG,
    "check": FLAG,
    "progress": PROGRESS,
    "tell": CALL,
}
"""What an argument of this name may be, wherever it stands."""
