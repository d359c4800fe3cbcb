"""Where the files that ship with headscope lie."""

from __future__ import annotations

from pathlib import Path


def data_folder() -> Path:
    """The folder of shipped data: inside the installed package, or beside it in a checkout."""
    packed = Path(__file__).parent / "data"
    return packed if packed.is_dir() else Path(__file__).parents[1] / "data"


MINI = "mini"
"""The model that ships with headscope, by its name."""


def mini_folder() -> Path:
    """The folder of `mini`, in Hugging Face layout."""
    return data_folder() / MINI


def shipped_corpora() -> list[Path]:
    """The corpora that `classify` reads when none is named."""
    return sorted((data_folder() / "corpora").glob("*.conllu"))
