"""The content of `run.json`: what a run is and what it was made from, enough to repeat it.

`describe_input` states the input before it is read, and later steps add to it.
`headscope.runs.contents` makes the file, signed by `record_json`, and reads it back.
"""

from __future__ import annotations

import hashlib
import json
import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import BaseModel

from headscope.attention_kind import BIDIRECTIONAL
from headscope.corpus.shipped import corpus_title, named_corpora, shipped_corpora
from headscope.models.locate import title_of
from headscope.relations import check_types, head_types, relations_of
from headscope.relations.head_type import ALL
from headscope.relations.relation import Relation, Threshold
from headscope.runs.recorded_paths import name_of, places_of
from headscope.settings import MAX_TOKENS, Settings
from headscope.statistics.result import RunInfo

if TYPE_CHECKING:
    from headscope.models.model import Model

FORMAT_VERSION = 3
"""Version of run folders; folders of another version are not read."""
VERSION = "format_version"
SHA256 = "sha256"
"""The key, in the provenance, of the checksum that `run.json` states of itself."""
_MODEL_FIELDS = (
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


class Record(BaseModel):
    """The part of `run.json` that every run must have."""

    model: dict[str, Any]
    relations: dict[str, Threshold]
    """Thresholds of the tags, by relation."""
    provenance: dict[str, Any]
    files: dict[str, str]
    """The sha256 of each file that is read back, by its name in the folder."""


def record_json(record: dict[str, Any]) -> str:
    """`run.json` as it is written, with its own checksum in the provenance."""
    signed = record | {"provenance": record["provenance"] | {SHA256: record_sha256(record)}}
    return json.dumps(signed, indent=1, ensure_ascii=False, allow_nan=False) + "\n"


def record_sha256(record: dict[str, Any]) -> str:
    """The sha256 of what `run.json` says, but for the one that it states of itself.

    It is that of the canonical text, so that spaces and the order of keys do not count: JSON with
    sorted keys, without spaces, and nothing outside ASCII.
    """
    provenance = {key: value for key, value in record["provenance"].items() if key != SHA256}
    unsigned = record | {"provenance": provenance}
    text = json.dumps(unsigned, sort_keys=True, separators=(",", ":"), ensure_ascii=True)
    return hashlib.sha256(text.encode("ascii")).hexdigest()


def describe_input(
    model: Model,
    relations: Sequence[Relation],
    corpora: Sequence[str | Path],
    settings: Settings,
) -> RunInfo:
    """The record of a run's input before it is read."""
    from headscope.models.stream import batch_tokens_on  # imports torch, which takes seconds

    # what the model states of itself
    entry = {name: getattr(model, name) for name in _MODEL_FIELDS}
    chat = None
    if (template := model.tokenizer.template) is not None:
        chat = dict(zip(("before", "after"), template.text, strict=True))
    if model.attention_kind == BIDIRECTIONAL:
        entry["both_ways"] = True
    if model.others:
        entry["layers"] = model.layers + len(model.others)
        entry["attention_layers"] = [*model.attention_layers]
    # the command that repeats the run; relations of a plugin need their code
    words = ["headscope", "classify", name_of(model.name)]
    if list(corpora) != shipped_corpora():
        names = {corpus: corpus_name for corpus_name, corpus in named_corpora().items()}
        for corpus in corpora:
            corpus_name = names.get(Path(corpus)) or name_of(str(corpus))
            words += ["--corpus", corpus_name]
    # `--types` is left out for the default, for a preset, and for types of a plugin
    measured = tuple(dict.fromkeys(relation.type for relation in relations))
    is_preset = settings.quick and settings.types is None
    are_registered = set(measured) <= set(head_types())
    types: tuple[str, ...] | None = None
    if not is_preset and are_registered and measured != _measurable(None, model):
        types = (ALL,) if measured == _measurable([ALL], model) else measured
    options = settings.model_copy(update={"types": types}).words()
    return RunInfo(
        model={**entry, "name": title_of(model.name)},
        types=sorted({relation.type for relation in relations}),
        bos=model.tokenizer.bos_string,
        chat=chat,
        corpora={"asked": [corpus_title(path) for path in corpora], "files": {}},
        places=places_of(
            None if model.origin is not None else model.name,
            model.revision,
            corpora,
        ),
        engine=model.engine.name,
        preliminary=_left_out(model, relations, settings) if settings.quick else None,
        command=shlex.join([*words, *options]),
        settings={
            **settings.to_json(),
            "batch_tokens": batch_tokens_on(model.device),
        },
    )


def _measurable(types: Sequence[str] | None, model: Model) -> tuple[str, ...]:
    """The head types among these that have relations for a model's heads."""
    kinds = check_types(types).items()
    in_chat = model.tokenizer.template is not None
    return tuple(
        name
        for name, kind in kinds
        if kind.relations_of(model.attention_kind) or (in_chat and kind.chat_relations)
    )


def _left_out(model: Model, relations: Sequence[Relation], settings: Settings) -> list[str]:
    """Parts of a full run that a quick one leaves out."""
    # relations that a full run of these types has
    possible = relations_of(settings.types, model.attention_kind, in_chat=settings.chat)
    possible_ids = {relation.id for relation in possible}
    ids = {relation.id for relation in relations}
    parts = []
    if ids & possible_ids:  # else they are relations of a plugin
        missing = [relation.type for relation in possible if relation.id not in ids]
        measured_types = {relation.type for relation in relations}
        missing_types = sorted(set(missing) - measured_types)
        shortened = sorted(set(missing) & measured_types)
        if missing_types:
            parts.append(f"the types {', '.join(missing_types)}")
        if shortened:
            parts.append(f"more relations of the type {', '.join(shortened)}")
    # text, challenge set and surrogates
    if settings.max_tokens < MAX_TOKENS:
        parts.append(f"{MAX_TOKENS:,} tokens of text instead of {settings.max_tokens:,}")
    if not settings.challenge:
        parts.append("the challenge set")
    parts.append("the surrogates")
    return parts
