"""Packages that only some uses need: the one module that asks whether they are installed."""

from __future__ import annotations

from collections.abc import Iterable
from importlib import import_module
from importlib.util import find_spec
from typing import Any

from headscope.errors import ModelError, first_line

EXTRAS = {"anywidget": "widget", "ray": "ray"}
"""headscope's extras by the package that each brings."""


def check_packages(purpose: str, modules: Iterable[str]) -> None:
    """Refuse what needs packages that are not installed, before any work.

    Args:
        purpose: what needs them, as the beginning of a sentence.
        modules: their modules.

    Raises:
        ModelError: one is not installed; the message has the command that installs it.
    """
    for module in modules:
        if find_spec(module) is None:
            name = f"'headscope[{EXTRAS[module]}]'" if module in EXTRAS else module
            raise ModelError(
                f"{purpose} needs {module}, which is not installed: pip install {name}"
            )


def optional_package(purpose: str, module: str) -> Any:
    """A module that only some uses need.

    Raises:
        ModelError: it is not installed, or it is and cannot be imported.
    """
    check_packages(purpose, [module])
    try:
        return import_module(module)
    except Exception as error:  # what is broken or too old for the packages around it
        raise ModelError(
            f"{purpose} needs {module}, which cannot be imported: {first_line(error)}"
        ) from error
