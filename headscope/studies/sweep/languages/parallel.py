"""Parallel treebanks: how many documents every language can read whole, the same in each."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from headscope.corpus.window import Window
from headscope.measure.stimuli import Encoder, TextWindows
from headscope.settings import Settings


def shared_documents(
    treebanks: Mapping[str, Sequence[Path]], encoder: Encoder, settings: Settings, longest: int
) -> int | None:
    """How many documents each language reads so that all read the same; None of other texts.

    Treebanks are parallel where their documents have the same names in the same order, as those of
    Parallel UD have. One takes more tokens than the other to say the same, so that a number of
    tokens would end them at different sentences.

    Args:
        treebanks: the files of each language.
        encoder: the model's tokenizer.
        settings: how much may be read of each.
        longest: the model's longest window.
    """
    names = []
    for files in treebanks.values():
        text = TextWindows(
            files,
            encoder,
            max_tokens=settings.max_tokens,
            max_documents=settings.documents,
            max_length=min(settings.max_length, longest),
            seed=settings.seed,
        )
        own = _names(text)
        # the last one may go on where the tokens ended
        names.append(own[:-1] if text.tokens >= settings.max_tokens else own)
    count = min(map(len, names))
    same = len({tuple(own[:count]) for own in names}) == 1
    return count if count and same else None


def _names(windows: Iterable[Window]) -> list[str]:
    """The documents' names in the order in which they are read."""
    found: dict[int, str] = {}
    for window in windows:
        found.setdefault(window.document, window.name.rpartition("#")[0])
    return list(found.values())
