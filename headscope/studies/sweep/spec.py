"""The specification of a sweep: models, revisions, corpora, and the settings of each run."""

from __future__ import annotations

import os
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path, PurePath
from reprlib import repr as shortened  # aliases make a short file hold endless lists
from typing import Any

from headscope.arguments import LARGEST, Kind, described
from headscope.errors import HeadscopeError
from headscope.relations import relations_of
from headscope.runs.user_file import given_file, read_yaml
from headscope.settings import OPTIONS, read_value

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
    """Those of `headscope.classify` that every cell shares; its defaults are left out."""


def read_spec(path: Path | None, **options: Any) -> Spec:
    """A sweep from a YAML file, from options, or from both: an option replaces the file's key.

    Args:
        path: the file; None for options alone.
        options: what the command line says, by the file's keys; None is not said.

    Raises:
        HeadscopeError: the file cannot be read, or a key is unknown, missing, or holds what it
            cannot hold.
    """
    where = "the command line" if path is None else str(path)
    keys = {} if path is None else _read(path)
    if empty := [key for key in _KEYS if key in keys and keys[key] is None]:
        raise HeadscopeError(f"{where}: {empty[0]} is empty, expected {_KEYS[empty[0]].words}")
    _check(where, keys)
    plain = {key: _plain(value) for key, value in options.items()}
    _check("the command line", plain)
    keys |= {key: value for key, value in plain.items() if value is not None}
    if not keys.get("models"):
        raise HeadscopeError(f"{where}: no models; a sweep names them, e.g. models: [mini]")
    values = {key: _value(key, value) for key, value in keys.items() if value is not None}
    relations_of(values.get("types"))  # before a cell is read that could only fail
    default = Path("runs") / ("sweep" if path is None else path.stem)
    return Spec(
        models=values.pop("models"),
        revisions=values.pop("revisions", ()) or (None,),
        corpora=values.pop("corpora", ()) or ((),),
        out=values.pop("out", default),
        settings=values,
    )


def _plain(value: Any) -> Any:
    """A value from Python as YAML would hold it: lists and texts."""
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    return os.fspath(value) if isinstance(value, PurePath) else value


def _value(key: str, value: Any) -> Any:
    if key in _KEYS:
        return _KEYS[key].plain(value)
    read = read_value(key, value, key)
    return list(read) if isinstance(read, tuple) else read  # as sweep.json says it


def _is_text(value: Any) -> bool:
    if not isinstance(value, str) or not value.strip() or "\0" in value:
        return False
    with suppress(UnicodeEncodeError):  # half of a character names nothing
        return bool(os.fsencode(value))
    return False


def _names(value: Any) -> tuple[str, ...]:
    """Names, or one; a revision such as 1000, which YAML reads as a number, is a name too."""
    names = value if isinstance(value, list) else [value]
    valid = [_is_text(name) or (type(name) is int and 0 <= name <= LARGEST) for name in names]
    if not valid or not all(valid):
        raise ValueError("no names")
    return tuple(dict.fromkeys(map(str, names)))


def _corpora(value: Any) -> tuple[tuple[str, ...], ...]:
    items = value if isinstance(value, list) else [value]
    corpora = [tuple(item) if isinstance(item, list) else (item,) for item in items]
    if not corpora or not all(corpus and all(map(_is_text, corpus)) for corpus in corpora):
        raise ValueError("no paths")
    return tuple(dict.fromkeys(corpora))


def _folder(value: Any) -> Path:
    if not _is_text(value):
        raise ValueError("no path")
    return Path(value)


_KEYS = {
    "models": Kind("a name or a list of names, one at least", _names),
    "revisions": Kind("a name or a list of names, one at least", _names),
    "corpora": Kind(
        "a path or a list of paths, one at least; a list within it is one corpus", _corpora
    ),
    "out": Kind("a folder", _folder),
}
"""Keys of the file that are no settings; each as Python's own, from what YAML holds."""
_SETTINGS = [name for name in OPTIONS if name != "revision"]


def _read(path: Path) -> dict[str, Any]:
    raw = given_file(path, "a sweep as YAML, keys with values", max_bytes=MOST_BYTES)
    content = read_yaml(raw, path)
    if not isinstance(content, dict):
        raise HeadscopeError(
            f"{path}: holds {shortened(content)}, but a sweep is keys with values, "
            "e.g. models: [mini]"
        )
    return content


def _check(where: str, keys: Mapping[Any, Any]) -> None:
    for key, value in keys.items():
        if key not in _KEYS and key not in _SETTINGS:
            choices = ", ".join([*_KEYS, *_SETTINGS])
            raise HeadscopeError(
                f"{where}: {key!r:.60} is no key of a sweep; choose from: {choices}"
            )
        if value is not None and key in _SETTINGS:
            read_value(key, value, f"{where}: {key}")
        elif value is not None:
            try:
                _KEYS[key].plain(value)
            except ValueError as error:
                expected = _KEYS[key].words
                raise HeadscopeError(
                    f"{where}: {key} is {_value_text(value)}, expected {expected}"
                ) from error


def _value_text(value: Any) -> str:
    try:
        return shortened(value)
    except Exception:  # of a number of thousands of digits
        return described(value)
