"""Treebanks by the language that their files are named after: `de_pud-ud-test.conllu`.

A sweep over languages compares groups of files that the user names so. What is done with the text
of a file depends on the text alone; see `headscope.corpus.language`. Universal Dependencies names
every file so: a code of ISO 639, `_`, the treebank, `-ud-`, the part.
https://universaldependencies.org/release_checklist.html
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path, PurePath

from headscope.corpus.read import corpus_files
from headscope.errors import CorpusError, check_choice

_NAME = re.compile(r"([a-z]{2,3})_[\w.]+-ud-.*\.conllu(\.gz|\.xz)?")


def language_of(file: PurePath) -> str:
    """The language's code at the front of a treebank's name; empty for another name.

    >>> language_of(Path("pud/de_pud-ud-test.conllu")), language_of(Path("my_text.conllu"))
    ('de', '')
    """
    match = _NAME.fullmatch(file.name)
    return "" if match is None else match[1]


def by_language(
    corpora: Sequence[str | Path], only: Sequence[str] = ()
) -> dict[str, tuple[Path, ...]]:
    """The treebanks among some files and folders by their languages, in the order of the codes.

    Raises:
        CorpusError: a path is not a corpus, or a file's name states no language.
        ChoiceError: a language of `only` is not there.
    """
    # a file may be named alone and lie in a folder that is named
    files_of: dict[str, list[Path]] = {}
    for file in dict.fromkeys(corpus_files(corpora)):
        language = language_of(file)
        if not language:
            raise CorpusError(
                f"{file}: its name states no language; Universal Dependencies calls a treebank "
                "after its language, e.g. de_pud-ud-test.conllu"
            )
        files_of.setdefault(language, []).append(file)
    for language in only:
        check_choice("language", language, sorted(files_of))
    return {language: tuple(files_of[language]) for language in sorted(only or files_of)}
