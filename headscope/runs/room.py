"""Room on the disk: what a run folder takes, and what is free where it will lie."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from headscope.attention_kind import AttentionKind
from headscope.errors import HeadscopeError, RunError
from headscope.measure.tally import Tally
from headscope.relations import relations_of
from headscope.relations.relation import Relation
from headscope.runs.lock import unwritable
from headscope.runs.write import existing, resolved
from headscope.settings import Settings


def sums_bytes(relations: int, layers: int, heads: int, *, twin: bool) -> int:
    """Bytes of a run's sums, by far its largest file: blocks × relations × layers × heads.

    >>> sums = 3 * 64 * 100 * 6 * 8 * 8  # blocks × relations × layers × heads, in double precision
    >>> sums_bytes(100, 6, 8, twin=False) > sums
    True
    """
    names = tuple(map(str, range(relations)))
    return tally_bytes(Tally.zeros(names, layers, heads)) * (2 if twin else 1)


def tally_bytes(tally: Tally) -> int:
    """Bytes of the arrays of a tally."""
    return sum(array.nbytes for array in tally.arrays().values())


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
        relations_of(settings.types, attention_kind)
        if stated_relations is None
        else stated_relations
    )
    check_room(folder, sums_bytes(len(relations), layers, heads, twin=settings.twin))


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
    """Layers with attention, heads and their kind; None where no folder of a model with one stack
    says so.
    """
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
    if dimensions.stack_layers:
        return None
    return len(dimensions.attention_layers), dimensions.heads, dimensions.attention_kind
