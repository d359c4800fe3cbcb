"""Checks of a model's files without torch or transformers, which take seconds to import."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

from headscope.errors import ModelError
from headscope.models.checkpoint import CONFIG, check_file, find_checkpoint
from headscope.models.config_values import check_counts, check_values, read_entries
from headscope.models.families import check_family
from headscope.models.gguf_files import check_header
from headscope.models.packaged import local_path
from headscope.paths import exists

TOKENIZER_FILES = (
    "tokenizer.json",
    "tokenizer.model",
    "vocab.json",
    "vocab.txt",
    "merges.txt",
    "spiece.model",
    "spm.model",
    "sentencepiece.bpe.model",
    "sentencepiece.model",
    "tiktoken.model",
    "tekken.json",
    "bpe.codes",
    "dict.txt",
)
"""Files that hold the vocabulary of some tokenizer of transformers."""


def check_local_model(name: str) -> None:
    """Check the files of a model on this disk; a name on the hub passes.

    Raises:
        ModelError: the files cannot be a model that headscope reads.
    """
    with suppress(RuntimeError):  # a home that nobody has: `locate` says so
        path = local_path(name)
        if path is not None and exists(path) and (path.is_dir() or path.is_file()):
            _check_files(name, path)


def _check_files(name: str, path: Path) -> None:
    checkpoint = find_checkpoint(name, path)
    if checkpoint.is_gguf:
        check_header(path)
        return
    entries = read_entries(name, path / CONFIG)
    check_counts(name, entries, checkpoint.shapes)
    check_values(f"{name}: its configuration", entries)
    check_family(name, entries)
    check_tokenizer_files(name, path)


def check_tokenizer_files(name: str, path: Path) -> None:
    """Refuse a model's folder without a file that holds a tokenizer's vocabulary.

    Raises:
        ModelError: there is none, or one is no file but a broken link, a folder or a pipe.
    """
    if path.is_file():  # a GGUF file holds its tokenizer
        return
    files = [path / file for file in TOKENIZER_FILES]
    for file in files:
        check_file(name, file)
    if not any(file.is_file() for file in files):
        raise ModelError(
            f"{name}: no tokenizer files in this folder, such as tokenizer.json or "
            "tokenizer.model; copy them from the published model, or write them with "
            "tokenizer.save_pretrained(folder)"
        )
