"""The language of a treebank, which its file's name says: `de_pud-ud-test.conllu` is German.

Universal Dependencies names every file so: a code of ISO 639, `_`, the treebank, `-ud-`, the part.
https://universaldependencies.org/release_checklist.html
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from pathlib import Path, PurePath

from headscope.corpus.read import corpus_files
from headscope.corpus.shipped import uncompressed
from headscope.errors import CorpusError

ENGLISH = "en"
"""The language of the sentences and word lists that ship with headscope."""
_CODE = re.compile(r"([a-z]{2,3})_\w")
_OF_UD = re.compile(r"([a-z]{2,3})_[\w.]+-ud-")


def language_of(file: str | PurePath) -> str:
    """The language's code at the front of a treebank's name; empty if it says none.

    >>> language_of("pud/de_pud-ud-test.conllu"), language_of("yue_mine.conllu.gz")
    ('de', 'yue')
    >>> language_of("novel.conllu"), language_of("de_pud.txt")
    ('', '')
    """
    path = uncompressed(Path(file))
    match = _CODE.match(path.name) if path.suffix == ".conllu" else None
    return "" if match is None else match[1]


def foreign_languages(files: Iterable[PurePath]) -> list[str]:
    """The languages of Universal Dependencies' files that are not English.

    Names that only look like theirs say nothing: `my_text.conllu` is not Burmese.

    >>> foreign_languages([Path("en_gum-ud-dev.conllu"), Path("ja_pud-ud-test.conllu")])
    ['ja']
    """
    matches = (_OF_UD.match(file.name) for file in files)
    return sorted({match[1] for match in matches if match is not None} - {ENGLISH})


def foreign_notes(files: Iterable[PurePath]) -> list[str]:
    """A note where the text is not English, as what is made for it is."""
    languages = ", ".join(foreign_languages(files))
    if not languages:
        return []
    return [f"the text is {languages}: the challenge set, which is English, is left out"]


def by_language(
    corpora: Sequence[str | Path], only: Sequence[str] = ()
) -> dict[str, tuple[Path, ...]]:
    """The treebanks among some files and folders by their languages, in the order of the codes.

    Raises:
        CorpusError: a path is no corpus, a file's name states no language, or a language that is
            wanted is not there.
    """
    files_of: dict[str, list[Path]] = {}
    for file in dict.fromkeys(corpus_files(corpora)):
        language = language_of(file)
        if not language:
            raise CorpusError(
                f"{file}: its name states no language; treebanks are named by their language as in "
                "Universal Dependencies, e.g. de_pud-ud-test.conllu"
            )
        files_of.setdefault(language, []).append(file)
    only = [language.lower() for language in only]
    for language in only:
        if language not in files_of:
            raise CorpusError(
                f"no treebank of the language {language!r:.40} here; there are: {_listed(files_of)}"
            )
    return {language: tuple(files_of[language]) for language in sorted(only or files_of)}


def _listed(languages: Iterable[str]) -> str:
    return f"{', '.join(sorted(languages)):.200}"
