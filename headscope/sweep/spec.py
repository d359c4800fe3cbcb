"""What a sweep is to do: lists of models, revisions and corpora, and the settings of each run."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from reprlib import repr as shortened  # aliases make a short file hold endless lists
from typing import Any, NamedTuple

import yaml

from headscope.errors import HeadscopeError

MOST_BYTES = 2**20  # a list of a thousand revisions has some kilobytes


@dataclass(frozen=True)
class Spec:
    """A sweep as it was asked for."""

    models: tuple[str, ...]
    revisions: tuple[str | None, ...]
    corpora: tuple[tuple[str, ...], ...]
    """The files and folders of each corpus; none for what ships."""
    out: Path
    settings: dict[str, Any]
    """Those of `headscope.pipeline.classify` that every cell shares; its defaults are left out."""


def read_spec(path: Path | None, **given: Any) -> Spec:
    """A sweep from a YAML file, from options, or from both: an option replaces the file's key.

    Args:
        path: the file; None for options alone.
        given: what the command line says, by the file's keys; None is not said.

    Raises:
        HeadscopeError: the file cannot be read, or a key is unknown, missing, or holds what it
            cannot hold.
    """
    where = "the command line" if path is None else str(path)
    asked = {} if path is None else _read(path)
    _check(where, asked)
    options = {key: value for key, value in given.items() if value not in (None, [], ())}
    _check("the command line", options)
    asked |= options
    if not asked.get("models"):
        raise HeadscopeError(f"{where}: no models; a sweep names them, e.g. models: [mini]")
    values = {key: _KEYS[key].value(value) for key, value in asked.items() if value is not None}
    default = Path("runs") / ("sweep" if path is None else path.stem)
    return Spec(
        models=values.pop("models"),
        revisions=values.pop("revisions", ()) or (None,),
        corpora=values.pop("corpora", ()) or ((),),
        out=values.pop("out", default),
        settings=values,
    )


class _Key(NamedTuple):
    """What a key holds: in words, as a test, and made into the value that is used."""

    words: str
    fits: Callable[[Any], bool]
    value: Callable[[Any], Any] = lambda value: value


def _text(value: Any) -> bool:
    return isinstance(value, str) and bool(value.strip()) and "\0" not in value


def _name(value: Any) -> bool:
    """YAML reads a revision such as 1000 as a number; it is a name all the same."""
    return _text(value) or (isinstance(value, int) and not isinstance(value, bool))


def _names(value: Any) -> bool:
    return _name(value) or (isinstance(value, list) and all(map(_name, value)))


def _as_names(value: Any) -> tuple[str, ...]:
    names = value if isinstance(value, list) else [value]
    return tuple(dict.fromkeys(str(name) for name in names))


def _corpora(value: Any) -> bool:
    if not isinstance(value, list):
        return _text(value)
    return all(_text(each) or (isinstance(each, list) and all(map(_text, each))) for each in value)


def _as_corpora(value: Any) -> tuple[tuple[str, ...], ...]:
    each = value if isinstance(value, list) else [value]
    return tuple(dict.fromkeys((c,) if isinstance(c, str) else tuple(c) for c in each))


def _as_types(value: Any) -> list[str]:
    names = value if isinstance(value, list) else value.split(",")
    return [str(name).strip() for name in names]


def _count(least: int) -> Callable[[Any], bool]:
    return lambda value: type(value) is int and least <= value < 2**63


_KEYS = {
    "models": _Key("a name or a list of names", _names, _as_names),
    "revisions": _Key("a name or a list of names", _names, _as_names),
    "corpora": _Key("a path or a list of paths; a list within it is one corpus", _corpora,
                    _as_corpora),
    "out": _Key("a folder", _text, Path),
    "types": _Key("a head type or a list of them", _names, _as_types),
    "max_tokens": _Key("a whole number from 1", _count(1)),
    "max_length": _Key("a whole number from 8", _count(8)),
    "seed": _Key("a whole number from 0", _count(0)),
    "twin": _Key("true or false", lambda value: isinstance(value, bool)),
    "examples": _Key("true or false", lambda value: isinstance(value, bool)),
    "device": _Key("a name such as cpu", _text),
    "dtype": _Key("a name such as float32", _text),
    "engine": _Key("a name such as auto", _text),
    "bos": _Key("the text of a token", _text),
}  # fmt: skip


def _read(path: Path) -> dict[str, Any]:
    try:
        with path.open("rb") as file:
            raw = file.read(MOST_BYTES + 1)
        if len(raw) > MOST_BYTES:
            raise HeadscopeError(f"{path}: more than {MOST_BYTES:,} bytes, which is no sweep")
        content = yaml.safe_load(raw)
    except (OSError, ValueError, RecursionError, yaml.YAMLError) as error:
        reason = getattr(error, "strerror", None) or " ".join(str(error).split())
        raise HeadscopeError(f"{path}: cannot be read as YAML: {reason:.300}") from error
    if not isinstance(content, dict):
        raise HeadscopeError(
            f"{path}: holds {shortened(content)}, but a sweep is keys with values, "
            "e.g. models: [mini]"
        )
    return content


def _check(where: str, asked: Mapping[Any, Any]) -> None:
    for key, value in asked.items():
        if key not in _KEYS:
            raise HeadscopeError(
                f"{where}: {key!r:.60} is no key of a sweep; choose from: {', '.join(_KEYS)}"
            )
        if value is not None and not _KEYS[key].fits(value):
            raise HeadscopeError(
                f"{where}: {key} is {shortened(value)}, expected {_KEYS[key].words}"
            )
