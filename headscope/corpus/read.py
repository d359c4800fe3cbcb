"""Files and folders to documents."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator
from pathlib import Path

from headscope.corpus.conllu import read_conllu
from headscope.corpus.document import Document
from headscope.corpus.text import read_text
from headscope.errors import CorpusError

SUFFIXES = (".conllu", ".txt")


def corpus_files(paths: Iterable[str | Path]) -> list[Path]:
    """The corpus files that the paths name, folders read recursively in the order of names.

    Raises:
        CorpusError: a path that does not exist, a folder without corpus files, or a suffix
            that headscope does not read.
    """
    files: list[Path] = []
    for path in map(Path, paths):
        if path.is_dir():
            found = sorted(p for p in path.rglob("*") if p.suffix in SUFFIXES and p.is_file())
            # notes beside a treebank are no corpus: text counts only where nothing is annotated
            annotated = [p for p in found if p.suffix == ".conllu"]
            if not found:
                raise CorpusError(f"{path}: no corpus file in this folder ({', '.join(SUFFIXES)})")
            files += annotated or found
        elif not path.exists():
            raise CorpusError(f"{path}: no such corpus file or folder")
        elif path.suffix not in SUFFIXES:
            raise CorpusError(
                f"{path}: cannot read {path.suffix or 'a file without suffix'}; "
                f"a corpus is {' or '.join(SUFFIXES)}"
            )
        else:
            files.append(path)
    return files


def read_documents(files: Iterable[Path]) -> Iterator[Document]:
    """The documents of the files in order, read one file at a time.

    Raises:
        CorpusError: with file and line; see `read_conllu`.
    """
    for path in files:
        text = _decode(path)
        if path.suffix == ".conllu":
            yield from read_conllu(path, text)
        else:
            yield read_text(path.stem, text, source=str(path))


def read_corpus(path: str | Path) -> list[Document]:
    """All documents of a file, or of a folder in the order of names.

    Raises:
        CorpusError: with file and line; see `read_conllu`.
    """
    return list(read_documents(corpus_files([path])))


def file_sha256(path: Path) -> str:
    """The file's sha256 as hex digits."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _decode(path: Path) -> str:
    """UTF-8 text without byte-order mark, every line end a line feed."""
    try:
        raw = path.read_bytes()
    except OSError as error:
        raise CorpusError(f"{path}: cannot be read: {error.strerror}") from error
    try:
        text = raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = raw[: error.start].count(b"\n") + 1
        raise CorpusError(
            f"{path}:{line}: not UTF-8 (byte {raw[error.start]:#04x}); "
            "convert it, for example with: iconv -f LATIN1 -t UTF-8"
        ) from error
    if not text.strip():
        raise CorpusError(f"{path}: the file is empty")
    return text.replace("\r\n", "\n").replace("\r", "\n")
