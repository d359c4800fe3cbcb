"""Files and folders to documents."""

from __future__ import annotations

import gzip
import hashlib
import lzma
import zlib
from collections import Counter
from collections.abc import Collection, Iterable, Iterator
from pathlib import Path

from headscope.corpus.conllu import read_conllu
from headscope.corpus.document import Document
from headscope.corpus.python_files import read_python
from headscope.corpus.shipped import corpus_place, uncompressed
from headscope.corpus.text import read_texts
from headscope.errors import CorpusError
from headscope.options import PathName, checked
from headscope.paths import exists

CODE = ".py"
SUFFIXES = (".conllu", ".txt", ".md", CODE)
"""Suffixes of corpus files; behind each may stand that of a compressed file, `.gz` or `.xz`."""
MOST_SUFFIXES = 8
"""Suffixes that a note on unread files lists at most."""
_COMPRESSED = {".gz": gzip.decompress, ".xz": lzma.decompress}


def corpus_files(paths: Iterable[str | Path]) -> list[Path]:
    """The corpus files that the paths name, folders read recursively in the order of names.

    Raises:
        CorpusError: a path that does not exist or is not a file or folder, a folder without corpus
            files, or a suffix that headscope does not read.

    >>> corpus_files(["ring.pdf"])
    Traceback (most recent call last):
    headscope.errors.CorpusError: ring.pdf: no such corpus file or folder
    """
    files: list[Path] = []
    for path in map(Path, paths):
        if not exists(path) or not (path.is_dir() or path.is_file()):
            raise CorpusError(f"{path!s:.200}: no such corpus file or folder")
        # a folder stands for its files
        if path.is_dir():
            files += _files_within(path)
        elif _suffix(path) not in SUFFIXES:
            raise CorpusError(
                f"{path}: cannot read {path.suffix or 'a file without suffix'}; "
                f"a corpus is {', '.join(SUFFIXES)}, or one of them as .gz or .xz"
            )
        else:
            files.append(path)
    return files


def _files_within(folder: Path) -> list[Path]:
    """The treebanks of a folder, or else its files of the most frequent suffix.

    Notes with a treebank, a licence with code and a README with texts are not part of the corpus.
    """
    files = []
    for path in sorted(folder.rglob("*")):
        if _suffix(path) in SUFFIXES and path.is_file():
            files.append(path)
    if not files:
        others = _listed_suffixes(folder, files)
        contents = f"; it contains {others}" if others else ""
        raise CorpusError(
            f"{folder}: no corpus file in this folder ({', '.join(SUFFIXES)}){contents}"
        )
    # treebanks first, else the most frequent kind
    counts = Counter(map(_suffix, files))
    suffix = ".conllu"
    if suffix not in counts:
        suffix = max(SUFFIXES, key=lambda kind: counts[kind])
    return [path for path in files if _suffix(path) == suffix]


def unread_note(folder: Path, files: Collection[Path]) -> str:
    """Note on the files of a folder that are not read, by suffix; empty if all are read.

    Args:
        folder: a corpus.
        files: those of its files that are read.
    """
    others = _listed_suffixes(folder, files)
    return f"{folder}: files that are not read: {others}" if others else ""


def _listed_suffixes(folder: Path, files: Collection[Path]) -> str:
    """Suffixes of a folder's other files with their numbers; hidden files are left out."""
    # a folder may hold what a user believes to be read
    read = set(files)
    counts: Counter[str] = Counter()
    for path in sorted(folder.rglob("*")):
        parts = path.relative_to(folder).parts
        is_hidden = any(part.startswith(".") for part in parts)
        if is_hidden or path in read or not path.is_file():
            continue
        counts[_suffix(path) or "no suffix"] += 1
    listed = [f"{suffix} ({count})" for suffix, count in counts.most_common(MOST_SUFFIXES)]
    unlisted = len(counts) - len(listed)
    if unlisted:
        listed.append(f"{unlisted} more suffixes")
    return ", ".join(listed)


def _suffix(path: Path) -> str:
    return uncompressed(path).suffix.lower()


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
        suffix = _suffix(path)
        # a folder of code has files of other versions of Python, so that one alone is passed over
        if suffix == CODE:
            try:
                yield read_python(path, read_text_file(path))
            except CorpusError as error:
                if left_out is None:
                    raise
                left_out.append(str(error))
        elif suffix == ".conllu":
            yield from read_conllu(path, read_text_file(path))
        else:
            yield from read_texts(uncompressed(path).stem, read_text_file(path), source=str(path))


@checked
def read_corpus(path: PathName) -> list[Document]:
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


def file_sha256(path: Path) -> str:
    """The file's sha256 as hex digits."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def read_text_file(path: Path) -> str:
    """UTF-8 text without any byte-order mark, every line end a line feed.

    Raises:
        CorpusError: it cannot be read, is not UTF-8 text, or is empty.
    """
    try:
        raw = path.read_bytes()
        raw = _COMPRESSED.get(path.suffix.lower(), bytes)(raw)
    except (OSError, EOFError, zlib.error, lzma.LZMAError) as error:
        reason = getattr(error, "strerror", None) or error
        raise CorpusError(f"{path}: cannot be read: {reason}") from error
    try:
        # files that were put together have byte-order marks within, too
        text = raw.decode("utf-8").replace("\ufeff", "")
    except UnicodeDecodeError as error:
        line = raw[: error.start].count(b"\n") + 1
        raise CorpusError(
            f"{path}:{line}: not UTF-8 (byte {raw[error.start]:#04x}); convert it with iconv"
        ) from error
    if not text.strip():
        raise CorpusError(f"{path}: the file is empty")
    return text.replace("\r\n", "\n").replace("\r", "\n")
