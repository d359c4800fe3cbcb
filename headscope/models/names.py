"""The name of a model that is shown and that its run is called by, wherever its files lie."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

from headscope.errors import ModelError
from headscope.models.packaged import is_reserved
from headscope.paths import real_name


def title_of(model: str) -> str:
    """A model's name for people: the hub's name, or the name of the folder or file, never a path.

    >>> title_of("EleutherAI/pythia-70m"), title_of("../models/tiny.gguf")
    ('EleutherAI/pythia-70m', 'tiny.gguf')
    """
    path = Path(model)
    with suppress(RuntimeError):  # a home that nobody has
        path = path.expanduser()
    local = model.startswith((".", "/", "~")) or model.count("/") > 1 or _exists(path)
    if is_reserved(model) or not local:
        return model
    return path.name if path.name not in _NO_NAMES else real_name(path) or model


def run_name(model: str) -> str:
    """The name of a model's run folder when no other name is given.

    >>> run_name("EleutherAI/pythia-1.4b"), run_name("../models/tiny.gguf")
    ('pythia-1.4b', 'tiny')

    Raises:
        ModelError: the model's path has no name.
    """
    name = title_of(model).rstrip("/").rsplit("/", 1)[-1]
    short = name[:-5] if name.lower().endswith(".gguf") else name
    folder = next(
        (name_or_stem for name_or_stem in (short, name) if name_or_stem not in _NO_NAMES), None
    )
    if folder is None:
        raise ModelError(f"{model!r} gives a run folder no name; name one with --out")
    return folder


_NO_NAMES = ("", ".", "..")


def _exists(path: Path) -> bool:
    try:
        return path.exists()
    except (OSError, ValueError):  # too long, or with a NUL in it
        return False
