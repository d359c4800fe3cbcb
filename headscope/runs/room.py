"""Room on the disk: what a run folder takes, and what is free where it will lie."""

from __future__ import annotations

import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from headscope.attention_kind import AttentionKind
from headscope.errors import HeadscopeError, RunError
from headscope.measure.tally import Tally
from headscope.paths import resolved
from headscope.relations import relations_of
from headscope.relations.relation import Relation
from headscope.runs.workplace import unwritable
from headscope.runs.write import existing
from headscope.settings import Settings

_PACKED = 400
"""Sums in memory are at most so many times as large as when they are packed: of 64 blocks each
relation has queries in one at least, and of 8 bytes each sum keeps one or more."""


def sums_bytes(tally: Tally, settings: Mapping[str, Any]) -> int:
    """Bytes that a run's sums take on the disk: all of them, or at least what is left when packed.

    >>> tally = Tally.zeros(("positional/offset-1",), 6, 8)
    >>> sums_bytes(tally, {"keep_sums": True, "twin": False}) == tally.size
    True
    """
    size = tally.size * (2 if settings.get("twin", True) else 1)
    return size if settings.get("keep_sums") else size // _PACKED


def check_room(folder: Path, needed: int) -> None:
    """Refuse a run folder that its disk has no room for.

    Raises:
        RunError: less is free there.
    """
    try:
        free = free_bytes(folder)
    except (OSError, ValueError) as error:
        raise unwritable(folder, error) from error
    if free < needed:
        raise RunError(
            f"{folder} will take at least {megabytes(needed)}, and {megabytes(free)} are free "
            f"there; free {megabytes(needed - free)}, ask fewer --types, or choose another --out"
        )


def check_stated_room(
    folder: Path, model: Any, settings: Settings, stated_relations: Sequence[Relation] | None
) -> None:
    """Refuse a run folder without room before its model is loaded, by what a folder states of it.

    What simple rules and writes add is not known yet, so that this is the least that a run takes.

    Raises:
        RunError: less is free there.
    """
    stated = _stated(model)
    if stated is None:
        return
    layers, heads, attention_kind = stated
    relations = (
        relations_of(settings.types, attention_kind, quick=settings.quick, in_chat=settings.chat)
        if stated_relations is None
        else stated_relations
    )
    tally = Tally.zeros(tuple(relation.id for relation in relations), layers, heads)
    check_room(folder, sums_bytes(tally, settings.to_json()))


def free_bytes(folder: Path) -> int:
    """Bytes that are free on the disk on which a folder lies or will lie."""
    return shutil.disk_usage(existing(resolved(folder).parent)).free


def megabytes(size: int) -> str:
    """A size in words.

    >>> megabytes(52_440_000), megabytes(4096)
    ('52.4 MB', '0.0 MB')
    """
    return f"{size / 10**6:,.1f} MB"


def _stated(model: Any) -> tuple[int, int, AttentionKind] | None:
    """Layers with attention, heads and their kind; None if no folder of a model states them."""
    # importing a model library takes seconds
    from headscope.models.layout.dimensions import read_dimensions
    from headscope.models.packaged import local_path
    from headscope.models.weights import read_config

    if not isinstance(model, str | Path):
        return None
    try:
        path = local_path(str(model))
        if path is None or not path.is_dir():
            return None
        dimensions = read_dimensions(str(model), read_config(str(model), path))
    except (HeadscopeError, OSError, RuntimeError, ValueError):  # the loader says what is wrong
        return None
    return len(dimensions.attention_layers), dimensions.heads, dimensions.attention_kind
