"""Names that `import headscope as hs` has and does not list: for extensions, extras, and of 0.1."""

from __future__ import annotations

from importlib import import_module
from typing import Any
from warnings import warn

from headscope.studies.study_table import STUDIES, home

_HOMES = {
    "Document": "headscope.corpus.document",
    "Study": "headscope.views.study",
    "controls": "headscope.relations",
    "data_folder": "headscope.corpus.shipped",
    "read_corpus": "headscope.corpus.read",
    "widget": "headscope.serve.widget",
    "window_of_tokens": "headscope.corpus.from_tokens",
}
"""Names for those who write head types of their own, or have an extra, and the module of each."""
_OLD_HOMES = dict(
    home(path) for study in STUDIES for path in (study.result, study.function) if path
) | {
    "gallery": "headscope.views.gallery",
    "published_shapes": "headscope.studies.anatomy.published",
}
"""Names of an older headscope, which are reached otherwise now, and the module of each."""


def unlisted(name: str) -> Any:
    """What a name stands for that is not listed; an old one says the new one.

    Raises:
        AttributeError: there is no such name.
    """
    if name in _HOMES:
        return getattr(import_module(_HOMES[name]), name)
    if name not in _OLD_HOMES:
        raise AttributeError(f"module 'headscope' has no attribute {name!r}")
    warn(
        f"hs.{name} is now {_new_name(name)}; the old name goes in 0.3",
        DeprecationWarning,
        stacklevel=3,
    )
    return getattr(import_module(_OLD_HOMES[name]), name)


def _new_name(name: str) -> str:
    """The public name, of results that of their module."""
    for package in ("studies", "studies.validation"):
        if name in dir(import_module(f"headscope.{package}")):
            return f"hs.{package.rpartition('.')[2]}.{name}"
    return f"{_OLD_HOMES[name]}.{name}"
