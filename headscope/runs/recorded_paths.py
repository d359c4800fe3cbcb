"""Paths of a run's model and corpora: as paths in memory, and in `run.json` as its folder sees it.

A run folder is meant to be shared, so that `run.json` calls a model and a corpus by their names.
Where they lie it says only as a way from the run folder, and only if that way does not lead through
the root of the disk; whoever moves all of them together finds them again.

What may be shared of a record are the names of files, and never where they lie.
"""

from __future__ import annotations

import os
import shlex
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path, PurePath
from typing import Any

from headscope.corpus.shipped import named_corpora, unlike
from headscope.models.packaged import is_reserved
from headscope.paths import resolved

PLACES = "places"
SHIPPED = "headscope:"
"""Before the name of a corpus that ships with headscope, which lies elsewhere on each machine."""


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
    """The way from a folder to an absolute path; None where it leads through the root of the disk.

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


def shareable(info: dict[str, Any]) -> dict[str, Any]:
    """The content of `run.json`, every local path as a name, corpus files within their corpus.

    A path that a command was given and that neither is absolute nor leads upwards stays.
    """
    corpora = info.get("corpora", {})
    corpus_paths = [str(path) for path in corpora.get("asked", ())]
    model = {**info["model"], "name": name_of(str(info["model"]["name"]))}
    paths = [str(info["model"]["name"]), *corpus_paths, *corpora.get("files", {})]
    shared: dict[str, Any] = {**info, "model": model}
    if "notes" in info:
        shared["notes"] = [shorten_paths(str(note), paths) for note in info["notes"]]
    if "command" in info:
        shared["command"] = _command(info["command"])
    if corpora:
        files = _within(corpora.get("files", {}), corpus_paths)
        shared["corpora"] = {
            **corpora,
            "asked": [name_of(path) for path in corpus_paths],
            "files": files,
        }
    shared.pop("places", None)
    return shared


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


def _within(files: dict[str, Any], corpora: Iterable[str]) -> dict[str, Any]:
    files_within: dict[str, Any] = {}
    for path, sha256 in files.items():
        homes = [home for home in corpora if PurePath(path).is_relative_to(home) and home != path]
        name = name_of(path)
        if homes:
            home = PurePath(max(homes, key=len))
            name = str(PurePath(name_of(str(home))) / PurePath(path).relative_to(home))
        files_within[unlike(name, files_within)] = (
            sha256  # two corpora may have a file of the same name
        )
    return files_within


def _command(text: str) -> str:
    try:
        return shlex.join(name_of(word) for word in shlex.split(text))
    except ValueError:  # quotes that do not close: written by hand
        return text
