"""Classifying a model with an encoder and a decoder: its three stacks, one after the other."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from headscope.corpus.aligned import SOURCE, TARGET, side_of
from headscope.errors import NothingAskedError
from headscope.evidence.join import join
from headscope.evidence.result import Result
from headscope.heads import CROSS, DECODER, ENCODER, STACKS
from headscope.relations import relations_of
from headscope.relations.relation import Relation
from headscope.runs.facts import describe_input
from headscope.settings import Settings

if TYPE_CHECKING:
    from headscope.models.load import Model

NOT_KEPT = (
    "a model with an encoder and a decoder is read stack by stack and its sums are not kept on the "
    "way: a run that is broken off begins anew, and there is no tally.safetensors"
)
UNKNOWN_LOSS = (
    "its loss was not measured, as it predicts translations and most text is none: nothing but its "
    "files says whether its weights are what they should be"
)
Read = Callable[..., Result]
"""Reads one stack of a model and judges its heads; called as `headscope.classify` is."""


def asked_of(
    model: Model, settings: Settings, own: Sequence[Relation] | None
) -> Sequence[Relation]:
    """What a model's heads, or those of one stack, are asked."""
    if own is not None:
        return own
    across = model.stack == CROSS
    return relations_of(settings.types, both_ways=model.both_ways, across=across)


def text_of(model: Model, corpora: Sequence[str | Path]) -> list[str | Path]:
    """What a stack reads of some corpora: of aligned ones its own side, across both."""
    if model.stack == ENCODER:
        return side_of(corpora, SOURCE)
    return side_of(corpora, TARGET) if model.stack == DECODER else list(corpora)


def classify_stacks(
    model: Model,
    corpora: Sequence[str | Path],
    settings: Settings,
    own: Sequence[Relation] | None,
    read: Read,
) -> Result:
    """The stacks' results as one.

    The encoder reads the text as an encoder does, with keys on both sides. The decoder reads it as
    a causal model does, with the same text as its source. Across, each sentence of an aligned
    corpus is read with its translation. Of such a corpus the encoder reads the source and the
    decoder the target.

    Args:
        model: with stacks.
        corpora: what to read.
        settings: what else was asked for.
        own: the relations to ask, instead of the table's.
        read: reads one stack.

    Raises:
        NothingAskedError: nothing can be asked of any stack.
    """
    # what is loaded is loaded
    inner = replace(
        settings,
        device="auto",
        revision=None,
        device_map=None,
        adapter=None,
        engine="auto",
        dtype=model.dtype,
    )
    parts: dict[str, Result | str] = {}
    every: list[Relation] = []
    for stack in model.stacks:
        relations = asked_of(stack, settings, own)
        every += relations
        parts[stack.stack] = f"nothing was asked of the {STACKS[stack.stack]}"
        if relations:
            try:
                text = text_of(stack, corpora)
                parts[stack.stack] = read(stack, text, settings=inner, relations=relations)
            except NothingAskedError as error:
                parts[stack.stack] = f"the text holds nothing to ask: {error}"
    if not any(isinstance(part, Result) for part in parts.values()):
        raise NothingAskedError("; ".join(dict.fromkeys(map(str, parts.values()))))
    info = describe_input(model, every, corpora, settings)
    found = join(parts, model.naming, model.heads, info)
    found.info["notes"] += [UNKNOWN_LOSS, NOT_KEPT]
    return replace(found, source=model.origin)
