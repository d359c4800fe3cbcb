"""What the files of a corpus are called, wherever they lie."""

from __future__ import annotations

from collections.abc import Container, Sequence
from pathlib import Path, PurePath


def corpus_title(corpus: str | Path) -> str:
    """The name of a corpus: that of its folder or file, never a path.

    >>> corpus_title("../texts/gum/"), corpus_title("alice.txt")
    ('gum', 'alice.txt')
    """
    path = Path(corpus)
    return path.name if path.name not in ("", "..") else path.resolve().name or str(corpus)


def names_within(corpora: Sequence[str | Path], files: Sequence[Sequence[Path]]) -> dict[str, Path]:
    """The files of some corpora by their names within these, each another one.

    Args:
        corpora: files and folders.
        files: the files of each.

    >>> list(names_within(["/home/ann/gum"], [[Path("/home/ann/gum/dev/a.conllu")]]))
    ['gum/dev/a.conllu']
    """
    found: dict[str, Path] = {}
    named = set[Path]()
    for corpus, own in zip(corpora, files, strict=True):
        title = PurePath(corpus_title(corpus))
        for file in own:
            if file not in named:  # a file may be named alone and lie in a folder that is named
                name = (title / file.relative_to(corpus)).as_posix()
                found[unlike(name, found)] = file
                named.add(file)
    return found


def unlike(name: str, others: Container[str]) -> str:
    """A name with a number behind it if it is taken.

    >>> unlike("gum", {"gum": 1, "gum (2)": 2})
    'gum (3)'
    """
    number, found = 2, name
    while found in others:
        found, number = f"{name} ({number})", number + 1
    return found
