"""Where the files that ship with headscope lie."""

from __future__ import annotations

from pathlib import Path

from headscope.arguments import takes


@takes()
def data_folder() -> Path:
    """The folder of shipped data: inside the installed package, or beside it in a checkout.

    `mini/` is the model, with `emergence.csv` of its training; `corpora/` is what `classify` reads.
    """
    package = Path(__file__).parents[1]
    packed = package / "data"
    return packed if packed.is_dir() else package.parent / "data"


MINI = "mini"
"""The model that ships with headscope, by its name."""


def mini_folder() -> Path:
    """The folder of `mini`, in Hugging Face layout."""
    return data_folder() / MINI


def shipped_corpora() -> list[Path]:
    """The corpora that `classify` reads when none is named.

    >>> [path.name for path in shipped_corpora()]
    ['controlled.conllu', 'gold.conllu']
    """
    return sorted((data_folder() / "corpora").glob("*.conllu"))


ALIASES = {
    "gpt2": "gpt2-small",
    "openai-community/gpt2": "gpt2-small",
    "distilbert/distilgpt2": "distilgpt2",
    "openai-community/gpt2-xl": "gpt2-xl",
}
"""The literature's names for models that the hub calls otherwise."""
