"""Parts of a run's record that may be shared: the names of files, and never where they lie."""

from __future__ import annotations

import shlex
from collections.abc import Iterable
from pathlib import PurePath
from typing import Any

from headscope.corpus.naming import unlike


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
