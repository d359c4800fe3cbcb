"""Names of a corpus and its files, wherever they lie."""

from __future__ import annotations

from collections.abc import Container, Sequence
from pathlib import Path, PurePath

from headscope.paths import real_name


def corpus_title(corpus: str | Path) -> str:
    """The name of a corpus: that of its folder or file, never a path.

    >>> corpus_title("../texts/gum/"), corpus_title("alice.txt")
    ('gum', 'alice.txt')
    """
    path = Path(corpus)
    return path.name if path.name not in ("", "..") else real_name(path) or str(corpus)


def names_within(corpora: Sequence[str | Path], files: Sequence[Sequence[Path]]) -> dict[str, Path]:
    """The files of some corpora by their names within these, each another one.

    Args:
        corpora: files and folders.
        files: the files of each.

    >>> list(names_within(["/home/ann/gum"], [[Path("/home/ann/gum/dev/a.conllu")]]))
    ['gum/dev/a.conllu']
    """
    files_by_name: dict[str, Path] = {}
    named_files = set[Path]()
    for corpus, corpus_files in zip(corpora, files, strict=True):
        title = PurePath(corpus_title(corpus))
        for file in corpus_files:
            if (
                file not in named_files
            ):  # a file may be named alone and lie in a folder that is named
                name = (title / file.relative_to(corpus)).as_posix()
                files_by_name[unlike(name, files_by_name)] = file
                named_files.add(file)
    return files_by_name


def unlike(name: str, others: Container[str]) -> str:
    """A name with a number behind it if it is taken.

    >>> unlike("gum", {"gum": 1, "gum (2)": 2})
    'gum (3)'
    """
    number, unique = 2, name
    while unique in others:
        unique, number = f"{name} ({number})", number + 1
    return unique
