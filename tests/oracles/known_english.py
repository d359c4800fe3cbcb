"""Errors of the rule that knows English, by the length of a text.

`python -m tests.oracles.known_english` reads the texts that ship, the public treebanks, novels and
speeches beside a checkout.
"""

from __future__ import annotations

from pathlib import Path

import pandas as pd

from headscope.corpus.language import Language
from headscope.corpus.read import corpus_files, read_documents
from headscope.corpus.shipped import shipped_corpora
from headscope.corpus.text import read_text
from tests.helpers.shared import SHARED

LENGTHS = (20, 50, 100, 200, 500)
"""Words of a text."""


def texts() -> dict[str, list[Path]]:
    """Files of each kind of text; the words of the rule are from GUM, EWT and the speeches."""
    others = [path for path in (SHARED / "pud").glob("*/*.conllu") if path.parent.name != "en"]
    english = corpus_files([*shipped_corpora(), SHARED / "ud_ewt", SHARED / "speeches"])
    unseen = [*(SHARED / "pud" / "en").glob("*.conllu"), *(SHARED / "novels").glob("*.txt")]
    return {"English": english, "unseen English": unseen, "nine languages": others}


def judged(text: str, length: int) -> list[bool]:
    """For each stretch of so many words of a text, whether it is known to be English."""
    verdicts = []
    words = text.split()
    for start in range(0, len(words) - length + 1, length):
        language = Language()
        language.add(read_text("text", " ".join(words[start : start + length])))
        verdicts.append(language.is_english)
    return verdicts


def table(files: dict[str, list[Path]]) -> pd.DataFrame:
    """Share of the texts of each length that are known to be English, by kind, and their number."""
    rows = {}
    for kind, paths in files.items():
        whole = ["\n".join(document.text for document in read_documents([path])) for path in paths]
        for length in LENGTHS:
            verdicts = [verdict for text in whole for verdict in judged(text, length)]
            known = 100 * sum(verdicts) / len(verdicts)
            rows[kind, length] = {"texts": len(verdicts), "% known to be English": known}
    return pd.DataFrame(rows).T


def main() -> None:
    """Print the table."""
    print(table(texts()).round(2).to_string())


if __name__ == "__main__":
    main()
