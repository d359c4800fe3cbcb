"""The run of a model with an encoder and a decoder: the results of its readings as one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from headscope.attention_kind import AttentionKind
from headscope.errors import NothingAskedError
from headscope.relations.relation import Relation
from headscope.runs.provenance import describe_input
from headscope.settings import Settings
from headscope.statistics.merge import join
from headscope.statistics.result import Result

if TYPE_CHECKING:
    from headscope.models.load import Model

NOT_KEPT = (
    "a model with an encoder and a decoder is read stack by stack and its sums are not kept on the "
    "way: a run that is broken off begins anew, and there is no sums.npz"
)
UNKNOWN_LOSS = (
    "its loss was not measured, as it predicts translations and most text is none: nothing but its "
    "files says whether its weights are what they should be"
)


def join_readings(
    model: Model,
    results: Mapping[AttentionKind, Result | str],
    relations: Sequence[Relation],
    corpora: Sequence[str | Path],
    settings: Settings,
) -> Result:
    """The results of a model's readings as one.

    Args:
        model: with several readings.
        results: of each its result, or the reason why there is none.
        relations: those of all readings.
        corpora: the run's.
        settings: likewise.

    Raises:
        NothingAskedError: no reading has a result.
    """
    if not any(isinstance(result, Result) for result in results.values()):
        raise NothingAskedError("; ".join(dict.fromkeys(map(str, results.values()))))
    info = describe_input(model, relations, corpora, settings)
    by_letter = {kind.letter: result for kind, result in results.items()}
    joined = join(by_letter, model.head_names, model.heads, info.with_notes(UNKNOWN_LOSS, NOT_KEPT))
    return replace(joined, source=model.origin)
