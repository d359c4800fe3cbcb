"""Paths of a run's model and corpora: absolute in memory, and relative to the folder in `run.json`.

A run folder is meant to be shared, so that `run.json` calls a model and a corpus by their names.
It gives their paths only relative to the run folder, and only if such a path does not lead through
the root of the disk; whoever moves all of them together finds them again.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path, PurePath
from typing import Any

from headscope.corpus.shipped import named_corpora
from headscope.models.packaged import is_reserved
from headscope.paths import resolved

PLACES = "places"
SHIPPED = "headscope:"
"""Start of the name of a corpus that ships with headscope, which lies elsewhere on each machine."""


def places_of(model: str | None, revision: str, corpora: Sequence[str | Path]) -> dict[str, Any]:
    """Paths of the model and the corpora of a run on this machine.

    Args:
        model: the name or path that was asked for; None for a model that was in memory.
        revision: the hub's commit, which local models do not have.
        corpora: the files and folders that were asked for.
    """
    on_disk = not revision and not (model and is_reserved(model))
    local: dict[str, Any] = {"model": model and lies(model)} if on_disk else {}
    return {**local, "corpora": [lies(path) for path in corpora]}


def lies(path: str | Path) -> str:
    """The absolute path of a file or folder. A link is what it is called, not where it leads."""
    try:
        local = Path(path).expanduser()
        if local.name in ("", ".", ".."):
            return str(resolved(local))
        return str(resolved(local.parent) / local.name)
    except (OSError, RuntimeError, ValueError):  # a loop of links, or a home that nobody has
        return str(path)


def seen_from(folder: Path, path: str) -> str | None:
    """The way from a folder to an absolute path; None if it leads through the root of the disk.

    >>> seen_from(Path("/home/ann/runs/tiny"), "/home/ann/models/tiny")
    '../../models/tiny'
    >>> seen_from(Path("/home/ann/runs/tiny"), "/data/models/tiny") is None
    True
    """
    home = resolved(folder)
    try:
        shared = Path(os.path.commonpath([home, path]))
    except ValueError:  # on another drive, or no absolute path
        return None
    return None if shared == Path(shared.anchor) else Path(os.path.relpath(path, home)).as_posix()


def outward(info: dict[str, Any], folder: Path) -> dict[str, Any]:
    """The content of `run.json` in this folder."""
    shipped = {lies(path): f"{SHIPPED}{path.name}" for path in named_corpora().values()}
    return _with_places(info, lambda path: shipped.get(path) or seen_from(folder, path))


def inward(info: dict[str, Any], folder: Path) -> dict[str, Any]:
    """The record in memory of a run that was read from this folder: places are paths again."""
    shipped = {f"{SHIPPED}{path.name}": lies(path) for path in named_corpora().values()}
    home = resolved(folder)
    return _with_places(info, lambda way: shipped.get(way) or os.path.normpath(home / way))


def _with_places(info: dict[str, Any], change: Callable[[str], str | None]) -> dict[str, Any]:
    if PLACES not in info:
        return info
    places = dict(info[PLACES])
    if places.get("model") is not None:
        places["model"] = change(places["model"])
    corpora = places.get("corpora", ())
    places["corpora"] = [None if path is None else change(path) for path in corpora]
    return info | {PLACES: places}


def name_of(path: str) -> str:
    """The last part of a path that is absolute or leads upwards; a hub's name stays whole.

    >>> name_of("/home/ann/models/tiny"), name_of("../x.gguf"), name_of("EleutherAI/pythia-70m")
    ('tiny', 'x.gguf', 'EleutherAI/pythia-70m')
    """
    parts = PurePath(path).parts
    elsewhere = PurePath(path).is_absolute() or ".." in parts or path.startswith("~")
    return (PurePath(path).name if elsewhere else path) or path


def shorten_paths(text: str, paths: Iterable[str]) -> str:
    """A text that speaks of files, with each of these paths as its name.

    >>> shorten_paths("/home/ann/gum/a.conllu:3: no word", ["/home/ann/gum"])
    'gum/a.conllu:3: no word'
    """
    for path in sorted({*paths}, key=len, reverse=True):  # the longest may begin with another
        if path and name_of(path) != path:
            text = text.replace(path, name_of(path))
    return text
