"""Pack GUM's documents whose licence lets anyone pass them on: what `classify` reads by default.

    python data/gum/make.py FOLDER [--into data/gum]

FOLDER holds the corpus' `dep/*.conllu` (amir-zeldes/gum at 72ce5ac) and its LICENSE.txt. A file is
written for each document, `GENRE/DOCUMENT.conllu.xz`, and `documents.csv`, which says whose each
text is and under which licence. Same input, same bytes; another version of liblzma may compress
otherwise, the text that comes out is the same.
"""

from __future__ import annotations

import argparse
import csv
import hashlib
import lzma
import re
import shutil
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

FILE, PAGE = "GUM's LICENSE.txt", "https://gucorpling.org/gum/papers.html"
"""Where GUM says what its texts' licences are: the page adds genres that the file leaves out."""


class Licence(NamedTuple):
    """What a text's owner allows."""

    name: str
    """By its SPDX name, if it has one."""
    url: str
    stated: str
    """Who says so of the text."""


def _by(version: str, stated: str, kind: str = "by") -> Licence:
    name = f"CC-{kind.upper()}-{version}"
    return Licence(name, f"https://creativecommons.org/licenses/{kind}/{version}/", stated)


_PUBLIC = "https://creativecommons.org/publicdomain/mark/1.0/"
_FEDERAL = Licence("public domain", _PUBLIC, "a work of the United States government (17 USC 105)")
_UNITED_NATIONS = Licence(
    "CC0-1.0",
    "https://creativecommons.org/publicdomain/zero/1.0/",
    "the data set that it was taken from, doi:10.7910/DVN/0TJX8Y",
)
_TAIWAN = Licence("public domain", _PUBLIC, "a civil servant's speech (Taiwan, Copyright Act 9)")

GENRES = {
    "academic": _by("4.0", FILE),
    "bio": _by("3.0", FILE, "by-sa"),
    "court": _by("4.0", FILE),
    "interview": _by("2.5", FILE),
    "news": _by("2.5", FILE),
    "textbook": _by("4.0", PAGE),
    "vlog": _by("3.0", f"{PAGE}; YouTube's Creative Commons licence"),
    "voyage": _by("3.0", FILE, "by-sa"),
}
"""The licence of a genre's texts. Speeches have each their own."""
DOCUMENTS = {
    "academic_lighting": _by("3.0", "its publisher (IOP Conference Series)"),
    "court_carpet": _by("4.0", f"{FILE}; {PAGE} for texts of the Santa Barbara Corpus"),
    "court_loan": _FEDERAL,
    "court_prince": _FEDERAL,
    "speech_albania": _UNITED_NATIONS,
    "speech_data": _TAIWAN,
    "speech_floyd": _FEDERAL,
    "speech_humanitarian": _UNITED_NATIONS,
    "speech_impeachment": _FEDERAL,
    "speech_inauguration": _FEDERAL,
    "speech_maiden": _FEDERAL,
    "speech_nixon": _FEDERAL,
    "speech_remarks": _FEDERAL,
    "speech_school": _by("4.0", "the site that it was taken from"),
    "speech_telescope": _FEDERAL,
    "textbook_artwork": _by("4.0", "the book that it is a chapter of"),
    "textbook_evoethics": _by("4.0", "the book that it is a chapter of"),
}
"""Documents whose own source says more than is said of their genre."""
LEFT_OUT = {
    "court_equality": "the court's rules keep the copyright of recordings (India)",
    "court_negligence": "the court lets its webcasts be passed on by permission only (Canada)",
    "speech_destiny": "no licence is named, and in some countries the copyright goes on",
    "speech_trump": "a private person's speech, and no licence is named",
    "textbook_alamo": "its licence could not be found out",
}
"""Documents of permissive genres that do not ship, and why."""

META = ("title", "author", "sourceURL", "dateCreated", "dateModified", "dateCollected", "genre")
META += ("speakerCount",)
COMMENTS = ("newdoc id", "global.Entity", "newpar", "sent_id", "speaker", "addressee", "text")
MISC = ("Discourse", "Entity", "SpaceAfter")
_META = re.compile(r"# meta::(\w+) = (.*)")
_SIGNALS = re.compile(r"(?<=[=;])([^:;|]+:\d+(?:->\d+)?):[^;|]*")
"""A discourse relation with its units, and the distance and signals behind them."""


def reduce(text: str) -> str:
    """A document without what headscope does not read.

    Left out are DEPS (enhanced dependencies), MISC beside `Discourse=`, `Entity=` and
    `SpaceAfter=`, distances and signals of `Discourse=`, summaries, and the comments of other
    layers of annotation.
    """
    return "\n".join(_lines(text.removesuffix("\n").split("\n"))) + "\n"


def _lines(lines: Iterable[str]) -> Iterator[str]:
    for line in lines:
        if not line.startswith("#"):
            yield _row(line) if line else line
        elif meta := _META.match(line):
            if meta[1] in META:
                yield line
        elif line[1:].partition("=")[0].strip() in COMMENTS:
            yield line


def _row(line: str) -> str:
    columns = line.split("\t")
    columns[8] = "_"
    kept = (part for part in columns[9].split("|") if part.partition("=")[0] in MISC)
    columns[9] = _SIGNALS.sub(r"\1", "|".join(kept)) or "_"
    return "\t".join(columns)


def make(source: Path, into: Path) -> None:
    """Write the documents of `source` that may be passed on, and the table of them."""
    found = sorted(source.glob("GUM_*.conllu"))
    shipped = ((path, _licence(path.stem.removeprefix("GUM_"))) for path in found)
    rows = [_document(path, licence, into) for path, licence in shipped if licence is not None]
    if not rows:
        raise SystemExit(f"{source}: no GUM_*.conllu of a genre that may be passed on")
    with (into / "documents.csv").open("w", encoding="utf-8", newline="") as file:
        table = csv.DictWriter(file, rows[0], lineterminator="\n")
        table.writeheader()
        table.writerows(rows)
    shutil.copyfile(source / "LICENSE.txt", into / "LICENSE.txt")
    size = sum(path.stat().st_size for path in into.rglob("*.xz"))
    words = sum(int(row["words"]) for row in rows)
    print(f"{len(rows)} of {len(found)} documents, {words:,} words, {size / 1e6:.2f} MB")


def _licence(document: str) -> Licence | None:
    """None for what may not be passed on, or not by anyone."""
    if document in LEFT_OUT:
        return None
    return DOCUMENTS.get(document) or GENRES.get(document.partition("_")[0])


def _document(path: Path, licence: Licence, into: Path) -> dict[str, str]:
    text = reduce(path.read_text(encoding="utf-8"))
    meta = dict(_META.findall(text))
    file = into / meta["genre"] / f"{path.name}.xz"
    file.parent.mkdir(parents=True, exist_ok=True)
    packed = lzma.compress(text.encode(), check=lzma.CHECK_CRC32, preset=9 | lzma.PRESET_EXTREME)
    file.write_bytes(packed)
    return {
        "document": path.stem,
        "genre": meta["genre"],
        "title": meta["title"],
        "author": meta["author"],
        "source": meta["sourceURL"],
        "licence": licence.name,
        "licence_url": licence.url,
        "stated_by": licence.stated,
        "sentences": str(text.count("# sent_id")),
        "words": str(len(re.findall(r"^\d+\t", text, flags=re.MULTILINE))),
        "sha256": hashlib.sha256(packed).hexdigest(),
    }


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("source", type=Path, help="GUM's CoNLL-U files, with its LICENSE.txt")
    parser.add_argument("--into", type=Path, default=Path(__file__).parent)
    asked = parser.parse_args()
    make(asked.source, asked.into)
