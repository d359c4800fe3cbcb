"""What `run.json` says of a run's input: enough to repeat it."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from headscope.data import shipped_corpora
from headscope.relations import TYPES
from headscope.relations.relation import Relation

if TYPE_CHECKING:
    from headscope.models import Model


def describe_input(
    model: Model,
    relations: Sequence[Relation],
    corpora: Sequence[str | Path],
    settings: dict[str, Any],
) -> dict[str, Any]:
    """What `run.json` says of the input before it is read.

    Args:
        model: the loaded model.
        relations: the relations to score.
        corpora: the corpora that were asked for.
        settings: the other choices.
    """
    return {
        "model": {name: getattr(model, name) for name in _MODEL_FACTS},
        "types": sorted({relation.type for relation in relations}),
        "bos": model.tokenizer.bos_string,
        "corpora": {"asked": [str(path) for path in corpora], "files": {}},
        "engine": model.engine.name,
        "command": _command(model, relations, corpora, settings),
        "notes": [],
        "settings": settings,
    }


def _command(
    model: Model,
    relations: Sequence[Relation],
    corpora: Sequence[str | Path],
    settings: dict[str, Any],
) -> str:
    """The command that repeats the run; relations of a user's own need their code too."""
    words = ["headscope", "classify", model.name]
    if list(corpora) != shipped_corpora():
        words += [word for path in corpora for word in ("--corpus", str(path))]
    types = list(dict.fromkeys(relation.type for relation in relations))
    if types != list(TYPES) and set(types) <= set(TYPES):
        words += ["--types", ",".join(types)]
    for name in ("max_tokens", "max_length", "seed"):
        words += [f"--{name.replace('_', '-')}", str(settings[name])]
    words += [] if settings["twin"] else ["--no-twin"]
    words += ["--revision", model.revision] if model.revision else []
    words += ["--dtype", model.dtype] if model.dtype != "float32" else []
    words += ["--bos", settings["bos"]] if settings["bos"] else []
    words += ["--engine", settings["engine"]] if settings["engine"] != "auto" else []
    words += ["--device-map", settings["device_map"]] if settings["device_map"] else []
    return shlex.join(words)


_MODEL_FACTS = (
    "name",
    "revision",
    "architecture",
    "layers",
    "heads",
    "key_value_heads",
    "context",
    "device",
    "dtype",
    "weights_sha256",
)
