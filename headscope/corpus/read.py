"""Files and folders to documents."""

from __future__ import annotations

import codecs
import hashlib
import os
import stat
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path

from headscope.arguments import takes
from headscope.corpus.code import read_python
from headscope.corpus.compressed import uncompressed, unpack
from headscope.corpus.conllu import read_conllu
from headscope.corpus.document import Document
from headscope.corpus.shipped import corpus_place
from headscope.corpus.text import read_texts
from headscope.errors import CorpusError

CODE = ".py"
SUFFIXES = (".conllu", ".txt", ".md", CODE)
"""Of what headscope reads; behind each may stand that of a compressed file, `.gz` or `.xz`."""
MOST_BYTES = 100_000_000
"""Of one file, which is read whole. Treebanks stay below: GitHub takes no larger file."""


def corpus_files(paths: Iterable[str | Path]) -> list[Path]:
    """The corpus files that the paths name, folders read recursively in the order of names.

    Raises:
        CorpusError: a path that does not exist or is no file or folder, a folder without corpus
            files, or a suffix that headscope does not read.

    >>> corpus_files(["ring.pdf"])
    Traceback (most recent call last):
    headscope.errors.CorpusError: ring.pdf: no such corpus file or folder
    """
    files: list[Path] = []
    for path in map(Path, paths):
        mode = _mode(path)
        if stat.S_ISDIR(mode):
            files_within = sorted(
                p for p in path.rglob("*") if _suffix(p) in SUFFIXES and p.is_file()
            )
            # notes beside a treebank are no corpus: text counts only where nothing is annotated
            annotated = [p for p in files_within if _suffix(p) == ".conllu"]
            if not files_within:
                raise CorpusError(f"{path}: no corpus file in this folder ({', '.join(SUFFIXES)})")
            files += annotated or _most_frequent(files_within)
        elif _suffix(path) not in SUFFIXES:
            raise CorpusError(
                f"{path}: cannot read {path.suffix or 'a file without suffix'}; "
                f"a corpus is {', '.join(SUFFIXES)}, or one of them as .gz or .xz"
            )
        elif not stat.S_ISREG(mode):
            # a pipe or a device may never end
            raise CorpusError(f"{path}: neither a file nor a folder")
        else:
            files.append(path)
    return files


def _most_frequent(files: list[Path]) -> list[Path]:
    """The kind of which there is more: a licence by code is no corpus, nor a README by texts."""
    kinds = Counter(map(_suffix, files))
    commonest = max((kind for kind in SUFFIXES if kind in kinds), key=lambda kind: kinds[kind])
    return [path for path in files if _suffix(path) == commonest]


def _suffix(path: Path) -> str:
    return uncompressed(path).suffix.lower()


def _mode(path: Path) -> int:
    try:
        return path.stat().st_mode
    except FileNotFoundError as error:
        raise CorpusError(f"{path}: no such corpus file or folder") from error
    except (OSError, ValueError) as error:  # a name that is too long, or no name at all
        reason = getattr(error, "strerror", None) or error
        raise CorpusError(f"{path!s:.200}: cannot be read: {reason}") from error


def read_documents(files: Iterable[Path], left_out: list[str] | None = None) -> Iterator[Document]:
    """The documents of the files in order, read one file at a time.

    Args:
        files: of a corpus.
        left_out: where to say which files of code are passed over, as they do not parse, are no
            UTF-8 or empty; they are errors if None.

    Raises:
        CorpusError: with file and line; see `read_conllu`.
    """
    for path in files:
        if _suffix(path) == CODE:
            try:
                yield read_python(path, _decode(path))
            except CorpusError as error:
                if left_out is None:
                    raise
                left_out.append(str(error))
            continue
        text = _decode(path)
        if _suffix(path) == ".conllu":
            yield from read_conllu(path, text)
        else:
            yield from read_texts(uncompressed(path).stem, text, source=str(path))


@takes()
def read_corpus(path: str | Path) -> list[Document]:
    """All documents of a file, or of a folder in the order of names.

    Args:
        path: the file or folder, or the name of a corpus that ships.

    Raises:
        CorpusError: with file and line; see `read_conllu`.

    >>> len(read_corpus("gold"))
    72
    """
    location = corpus_place(path)
    files = corpus_files([location])  # which refuses what can be no path at all
    left_out: list[str] | None = [] if Path(location).is_dir() else None
    return list(read_documents(files, left_out))


def read_text_file(path: Path) -> str:
    """The text of a regular file; see `_decode`.

    Raises:
        CorpusError: there is none, or it is no UTF-8 text.
    """
    if not stat.S_ISREG(_mode(path)):
        raise CorpusError(f"{path}: no file; a pipe or a device may never end")
    return _decode(path)


def file_sha256(path: Path) -> str:
    """The file's sha256 as hex digits."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _decode(path: Path) -> str:
    """UTF-8 text without any byte-order mark, every line end a line feed."""
    try:
        with path.open("rb") as file:
            size = os.fstat(file.fileno()).st_size
            raw = file.read() if size <= MOST_BYTES else b""
    except OSError as error:
        raise CorpusError(f"{path}: cannot be read: {error.strerror}") from error
    if size > MOST_BYTES:
        raise CorpusError(
            f"{path}: {size / 1e6:,.0f} MB, and {MOST_BYTES / 1e6:.0f} MB at most can be read; "
            "split it into several files"
        )
    raw = unpack(path, raw, max_bytes=MOST_BYTES)
    if len(raw) > MOST_BYTES:
        raise CorpusError(
            f"{path}: more than {MOST_BYTES / 1e6:.0f} MB when unpacked, and no more can be read; "
            "split it into several files"
        )
    if encoding := _wide_encoding(raw):
        raise CorpusError(
            f"{path}: {encoding} text, and a corpus is UTF-8; convert it, for example with: "
            f"iconv -f {encoding} -t UTF-8"
        )
    try:
        # files that were put together have byte-order marks within, too
        text = raw.decode("utf-8").replace("\ufeff", "")
    except UnicodeDecodeError as error:
        line = raw[: error.start].count(b"\n") + 1
        raise CorpusError(
            f"{path}:{line}: not UTF-8 (byte {raw[error.start]:#04x}); "
            "convert it, for example with: iconv -f LATIN1 -t UTF-8"
        ) from error
    if not text.strip():
        raise CorpusError(f"{path}: the file is empty")
    return text.replace("\r\n", "\n").replace("\r", "\n")


def _wide_encoding(raw: bytes) -> str:
    """The encoding of text in two or four bytes a character, by its mark or its many NULs.

    Without a mark it may well decode as UTF-8, a NUL behind every letter.
    """
    for mark in (
        codecs.BOM_UTF32_LE,
        codecs.BOM_UTF32_BE,
    ):  # before UTF-16, whose mark it begins by
        if raw.startswith(mark):
            return "UTF-32"
    if raw.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        return "UTF-16"
    start = raw[:4096]
    nulls = start.count(0)
    if len(start) < 8 or nulls < len(start) / 4:
        return ""
    if nulls > 0.6 * len(start):
        return "UTF-32LE" if start[0] else "UTF-32BE"
    return "UTF-16LE" if start[0] else "UTF-16BE"
