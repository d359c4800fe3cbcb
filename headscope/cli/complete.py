"""Shell completion: models, run folders and head types, without loading any."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

RUN_FILE = "run.json"
"""As `headscope.runs.folder.RUN`, which takes too long to import while somebody types."""
ATLAS = "atlas:"
"""As `headscope.runs.atlas.PREFIX`, likewise."""


def models(incomplete: str) -> list[str]:
    """Reserved names such as `mini`, folders and GGUF files; the hub is not asked."""
    from headscope.models.packaged import reserved_names

    paths = [path for path, is_folder in _entries(incomplete) if is_folder or _is_gguf(path)]
    return [*(name for name in reserved_names() if name.startswith(incomplete)), *paths]


def packaged(incomplete: str) -> list[str]:
    """Models that the package index holds."""
    from headscope.models.packaged import PACKAGED

    return [name for name in PACKAGED if name.startswith(incomplete)]


def runs(incomplete: str) -> list[str]:
    """Run folders, and folders that may hold some; those in `runs/` before anything is typed.

    An atlas by its whole name, once its beginning is typed.
    """
    paths = [path for path, is_folder in _entries(incomplete) if is_folder]
    if not incomplete:
        paths += [path for path, is_folder in _entries(f"runs{os.sep}") if is_folder]
    complete = [path for path in paths if (Path(path) / RUN_FILE).is_file()]
    return [*_atlases(incomplete), *(complete or paths)]


def models_or_runs(incomplete: str) -> list[str]:
    """Completions of `models` and `runs`."""
    return list(dict.fromkeys([*models(incomplete), *runs(incomplete)]))


def types(incomplete: str) -> list[str]:
    """Head types or `all`; after a comma another type."""
    before, comma, last = incomplete.rpartition(",")
    from headscope.relations import head_types
    from headscope.relations.types import ALL

    names = [*head_types(), *(() if comma else (ALL,))]
    return [before + comma + name for name in names if name.startswith(last)]


def _atlases(incomplete: str) -> list[str]:
    from headscope.models.packaged import reserved_names

    names = [f"{ATLAS}{name}" for name in reserved_names()]
    return [name for name in names if incomplete and name.startswith(incomplete)]


def _entries(incomplete: str) -> Iterator[tuple[str, bool]]:
    """Entries where the typed path points, as they would be typed, and whether each is a folder."""
    folder, name = os.path.split(incomplete)
    try:
        entries = sorted(os.scandir(folder or "."), key=lambda entry: entry.name)
    except OSError:
        return
    for entry in entries:
        if entry.name.startswith(name) and (name or not entry.name.startswith(".")):
            yield os.path.join(folder, entry.name), entry.is_dir()  # noqa: PTH118  as it is typed


def _is_gguf(path: str) -> bool:
    return path.lower().endswith(".gguf")
