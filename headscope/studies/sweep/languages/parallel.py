"""Parallel treebanks: how many documents every language can read whole, the same in each."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from headscope.corpus.window import Window
from headscope.settings import Settings
from headscope.stimuli.stimulus import TextTokenizer
from headscope.stimuli.text import TextWindows


def shared_documents(
    treebanks: Mapping[str, Sequence[Path]],
    encoder: TextTokenizer,
    settings: Settings,
    longest: int,
) -> int | None:
    """Documents that each language reads so that all read the same; None of other texts.

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
        document_names = _names(text)
        # the last one may go on where the tokens ended
        names.append(document_names[:-1] if text.tokens >= settings.max_tokens else document_names)
    count = min(map(len, names))
    same = len({tuple(document_names[:count]) for document_names in names}) == 1
    return count if count and same else None


def _names(windows: Iterable[Window]) -> list[str]:
    """The documents' names in the order in which they are read."""
    names: dict[int, str] = {}
    for window in windows:
        names.setdefault(window.document, window.name.rpartition("#")[0])
    return list(names.values())
