"""What may be shared of a run: the names of files, and never where they lie."""

from __future__ import annotations

import shlex
from collections.abc import Iterable
from pathlib import PurePath
from typing import Any

from headscope.corpus.naming import unlike


def shareable(info: dict[str, Any]) -> dict[str, Any]:
    """What `run.json` says, every local path as a name, corpus files within their corpus.

    A path that a command was given and that neither is absolute nor leads upwards stays.
    """
    corpora = info.get("corpora", {})
    asked = [str(path) for path in corpora.get("asked", ())]
    model = {**info["model"], "name": name_of(str(info["model"]["name"]))}
    paths = [str(info["model"]["name"]), *asked, *corpora.get("files", {})]
    shown: dict[str, Any] = {**info, "model": model}
    if "notes" in info:
        shown["notes"] = [named(str(note), paths) for note in info["notes"]]
    if "command" in info:
        shown["command"] = _command(info["command"])
    if corpora:
        files = _within(corpora.get("files", {}), asked)
        shown["corpora"] = {**corpora, "asked": [name_of(path) for path in asked], "files": files}
    shown.pop("places", None)
    return shown


def name_of(path: str) -> str:
    """The last part of a path that is absolute or leads upwards; a hub's name stays whole.

    >>> name_of("/home/ann/models/tiny"), name_of("../x.gguf"), name_of("EleutherAI/pythia-70m")
    ('tiny', 'x.gguf', 'EleutherAI/pythia-70m')
    """
    parts = PurePath(path).parts
    elsewhere = PurePath(path).is_absolute() or ".." in parts or path.startswith("~")
    return (PurePath(path).name if elsewhere else path) or path


def named(text: str, paths: Iterable[str]) -> str:
    """A text that speaks of files, with each of these paths as its name.

    >>> named("/home/ann/gum/a.conllu:3: no word", ["/home/ann/gum"])
    'gum/a.conllu:3: no word'
    """
    for path in sorted({*paths}, key=len, reverse=True):  # the longest may begin with another
        if path and name_of(path) != path:
            text = text.replace(path, name_of(path))
    return text


def _within(files: dict[str, Any], asked: Iterable[str]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for path, sha256 in files.items():
        homes = [home for home in asked if PurePath(path).is_relative_to(home) and home != path]
        name = name_of(path)
        if homes:
            home = PurePath(max(homes, key=len))
            name = str(PurePath(name_of(str(home))) / PurePath(path).relative_to(home))
        found[unlike(name, found)] = sha256  # two corpora may have a file of the same name
    return found


def _command(text: str) -> str:
    try:
        return shlex.join(name_of(word) for word in shlex.split(text))
    except ValueError:  # quotes that do not close: written by hand
        return text
