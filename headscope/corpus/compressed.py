"""Compressed corpus files: `.gz` and `.xz`, read whole and with a limit on what comes out.

A few kilobytes may stand for gigabytes, so that neither the text nor the dictionary that it is
unpacked with may grow without bound.
"""

from __future__ import annotations

import gzip
import lzma
import zlib
from collections.abc import Callable
from io import BytesIO
from pathlib import Path

from headscope.errors import CorpusError

DICTIONARY_BYTES = 256_000_000
"""Memory that unpacking `.xz` may take. `xz -9` asks for 65 MB, and a file may ask for 4 GB."""


def uncompressed(path: Path) -> Path:
    """The path without the suffix of a compressed file.

    >>> uncompressed(Path("dev.conllu.gz")).name, uncompressed(Path("dev.conllu")).name
    ('dev.conllu', 'dev.conllu')
    """
    return path.with_suffix("") if path.suffix.lower() in _READERS else path


def unpack(path: Path, raw: bytes, *, max_bytes: int) -> bytes:
    """The content of a file's bytes; the bytes themselves if its suffix is of no compressed file.

    Args:
        path: names the file, by its suffix how it is compressed.
        raw: the bytes of the file.
        max_bytes: stop soon after as many bytes, in bytes.

    Returns:
        At most `most + 1` bytes; so many say that there are more than `most`.

    Raises:
        CorpusError: the file is damaged, or was cut off.
    """
    read = _READERS.get(path.suffix.lower())
    if read is None:
        return raw
    try:
        return read(raw, max_bytes + 1)
    except EOFError as error:
        raise CorpusError(f"{path}: the compressed file ends too early; was it cut off?") from error
    except (OSError, zlib.error, lzma.LZMAError) as error:
        raise CorpusError(f"{path}: cannot be unpacked: {error}") from error


def _gunzip(raw: bytes, max_bytes: int) -> bytes:
    with gzip.GzipFile(fileobj=BytesIO(raw)) as file:
        return file.read(max_bytes)


def _unxz(raw: bytes, max_bytes: int) -> bytes:
    """All streams of the file; `lzma.open` would do, but sets no limit on the dictionary."""
    chunks, length = list[bytes](), 0
    while length < max_bytes:
        stream = lzma.LZMADecompressor(lzma.FORMAT_XZ, memlimit=DICTIONARY_BYTES)
        while not stream.eof and length < max_bytes:
            piece = stream.decompress(raw, max_length=max_bytes - length)
            if not piece and stream.needs_input:
                raise EOFError
            chunks.append(piece)
            length += len(piece)
            raw = b""  # all of it is the decompressor's now
        raw = stream.unused_data.lstrip(b"\0")  # streams may be padded
        if not raw:
            break
    return b"".join(chunks)


_READERS: dict[str, Callable[[bytes, int], bytes]] = {".gz": _gunzip, ".xz": _unxz}
