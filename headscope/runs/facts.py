"""What `run.json` says of a run's input: enough to repeat it."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from headscope.corpus.naming import corpus_title
from headscope.corpus.shipped import named_corpora, shipped_corpora
from headscope.measure.backend import batch_tokens_on
from headscope.models.names import title_of
from headscope.relations import head_types
from headscope.relations.relation import Relation
from headscope.runs.places import PLACES, places_of
from headscope.runs.record import ATTENTION_LAYERS
from headscope.runs.shareable import name_of
from headscope.settings import Settings

if TYPE_CHECKING:
    from headscope.models.load import Model


def describe_input(
    model: Model,
    relations: Sequence[Relation],
    corpora: Sequence[str | Path],
    settings: Settings,
) -> dict[str, Any]:
    """What `run.json` says of the input before it is read.

    Args:
        model: the loaded model.
        relations: the relations to score.
        corpora: the corpora that were asked for.
        settings: what else was asked for.
    """
    facts = {name: getattr(model, name) for name in _MODEL_FACTS}
    if model.both_ways:
        facts["both_ways"] = True
    if model.stacks:
        facts["stacks"] = {each.stack: each.layers for each in model.stacks}
    if model.others:
        facts["layers"] = model.layers + len(model.others)
        facts[ATTENTION_LAYERS] = [*model.attention_layers]
    return {
        "model": {**facts, "name": title_of(model.name)},
        "types": sorted({relation.type for relation in relations}),
        "bos": model.tokenizer.bos_string,
        "corpora": {"asked": [corpus_title(path) for path in corpora], "files": {}},
        PLACES: places_of(
            None if model.origin is not None else model.name,
            model.revision,
            corpora,
            settings.adapter,
        ),
        "engine": model.engine.name,
        "command": _command(model, relations, corpora, settings),
        "notes": [],
        "settings": {**_shown(settings).to_json(), "batch_tokens": batch_tokens_on(model.device)},
    }


def _command(
    model: Model,
    relations: Sequence[Relation],
    corpora: Sequence[str | Path],
    settings: Settings,
) -> str:
    """The command that repeats the run where its files lie; one's own relations need their code."""
    words = ["headscope", "classify", name_of(model.name)]
    if list(corpora) != shipped_corpora():
        names = {path: name for name, path in named_corpora().items()}
        for path in corpora:
            words += ["--corpus", names.get(Path(path)) or name_of(str(path))]
    types = tuple(dict.fromkeys(relation.type for relation in relations))
    every = tuple(head_types())
    all_asked = tuple(name for name, each in head_types().items() if each.relations or model.stacks)
    known = set(types) <= set(every) and types != all_asked
    asked = replace(_shown(settings), types=types if known else None)
    return shlex.join([*words, *asked.words()])


def _shown(settings: Settings) -> Settings:
    """The same, an adapter by its name and not by where it lies."""
    adapter = settings.adapter
    return settings if adapter is None else replace(settings, adapter=name_of(adapter))


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
