"""Paths of the files that ship with headscope, and names of a corpus and its files."""

from __future__ import annotations

import os
from collections.abc import Container, Iterable, Sequence
from pathlib import Path, PurePath

from headscope.options import checked
from headscope.paths import resolved


@checked
def data_folder() -> Path:
    """The folder of shipped data: inside the installed package, or next to it in a checkout.

    `mini/` is the model, with `emergence.csv` of its training; `gum/` is what `classify` reads;
    `corpora/` was made for headscope.
    """
    package = Path(__file__).parents[1]
    packed = package / "data"
    return packed if packed.is_dir() else package.parent / "data"


MINI = "mini"
"""The model that ships with headscope, by its name."""


def mini_folder() -> Path:
    """The folder of `mini`, in Hugging Face layout."""
    return data_folder() / MINI


def shipped_corpora() -> list[Path]:
    """The corpora that `classify` reads when none is named: natural text of nine genres.

    >>> [path.name for path in shipped_corpora()]
    ['gum']
    """
    return [data_folder() / "gum"]


def synthetic_corpora() -> list[Path]:
    """The corpora that were made for headscope: synthetic sentences, and texts for coreference.

    >>> [path.name for path in synthetic_corpora()]
    ['controlled.conllu', 'gold.conllu']
    """
    return sorted((data_folder() / "corpora").glob("*.conllu"))


def named_corpora() -> dict[str, Path]:
    """Shipped corpora by the names that `--corpus` takes.

    >>> list(named_corpora())
    ['gum', 'controlled', 'gold']
    """
    corpora = [*shipped_corpora(), *synthetic_corpora()]
    return {path.stem: path for path in corpora}


def corpus_place(corpus: str | Path) -> str | Path:
    """The path of a corpus: the path itself, or that of what ships under this name.

    A file or folder of the name comes first.

    >>> str(corpus_place("texts/gum")), corpus_place("gold") == synthetic_corpora()[1]
    ('texts/gum', True)
    """
    shipped = named_corpora().get(str(corpus))
    return corpus if shipped is None or os.path.lexists(corpus) else shipped


def listed(paths: str | Path | Iterable[str | Path] | None) -> list[str | Path]:
    """Paths as a list, which is empty if none was named.

    >>> listed("a.txt"), listed(["a.txt", "b.txt"]), listed(None)
    (['a.txt'], ['a.txt', 'b.txt'], [])
    """
    return [paths] if isinstance(paths, str | Path) else list(paths or ())


def asked_corpora(corpus: str | Path | Iterable[str | Path] | None) -> list[str | Path]:
    """Paths of the named corpora; the default corpus if none is named."""
    return [corpus_place(name) for name in listed(corpus)] or [*shipped_corpora()]


def uncompressed(path: Path) -> Path:
    """The path without the suffix of a compressed file.

    >>> uncompressed(Path("dev.conllu.gz")).name, uncompressed(Path("dev.conllu")).name
    ('dev.conllu', 'dev.conllu')
    """
    return path.with_suffix("") if path.suffix.lower() in (".gz", ".xz") else path


def corpus_title(corpus: str | Path) -> str:
    """The name of a corpus: that of its folder or file, never a path.

    >>> corpus_title("../texts/gum/"), corpus_title("alice.txt")
    ('gum', 'alice.txt')
    """
    path = Path(corpus)
    return path.name if path.name not in ("", "..") else resolved(path).name or str(corpus)


def names_within(corpora: Sequence[str | Path], files: Sequence[Sequence[Path]]) -> dict[str, Path]:
    """The files of some corpora by their names within these, each another one.

    >>> list(names_within(["/home/ann/gum"], [[Path("/home/ann/gum/dev/a.conllu")]]))
    ['gum/dev/a.conllu']
    """
    files_by_name: dict[str, Path] = {}
    named_files = set[Path]()
    for corpus, corpus_files in zip(corpora, files, strict=True):
        title = PurePath(corpus_title(corpus))
        for file in corpus_files:
            # a file may be named alone and lie in a folder that is named
            if file not in named_files:
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
