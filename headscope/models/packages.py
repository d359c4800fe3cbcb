"""Packages that only some uses need: the one module that asks whether they are installed."""

from __future__ import annotations

import re
from collections.abc import Iterable
from importlib import import_module
from importlib.util import find_spec
from typing import Any

from headscope.errors import ModelError

EXTRAS = {"anywidget": "widget", "ray": "ray"}
"""headscope's extras by the package that each brings; pip knows others by their own names."""


def is_installed(module: str) -> bool:
    """True where Python finds a module; nothing is imported but what it is a part of.

    >>> is_installed("json"), is_installed("json.nothing"), is_installed("nothing.at.all")
    (True, False, False)
    """
    try:
        return find_spec(module) is not None
    except (ImportError, ValueError):  # the package that it would be part of is not there
        return False


def check_packages(purpose: str, modules: Iterable[str]) -> None:
    """Refuse what needs packages that are not installed, before any work.

    Args:
        purpose: what needs them, as the beginning of a sentence.
        modules: their modules.

    Raises:
        ModelError: one is not installed; the message has the command that installs it.
    """
    missing = [module for module in modules if not is_installed(module)]
    if not missing:
        return
    names = [re.sub(r"[._]", "-", module) for module in missing]
    verb = "are" if len(names) > 1 else "is"
    raise ModelError(
        f"{purpose} needs {' and '.join(names)}, which {verb} not installed: "
        f"{install_command(*missing)}"
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
            f"{purpose} needs {module}, which is installed and cannot be imported "
            f"({_first_line(error)}); install it anew: {install_command(module)}"
        ) from error


def install_command(*modules: str) -> str:
    """The command that installs packages.

    >>> install_command("ray", "optimum.quanto")
    "pip install 'headscope[ray]' optimum-quanto"
    """
    names = [
        f"'headscope[{EXTRAS[module]}]'" if module in EXTRAS else re.sub(r"[._]", "-", module)
        for module in modules
    ]
    return f"pip install {' '.join(names)}"


def missing_package(purpose: str, error: ImportError) -> ModelError:
    """The error for a package that a library asked for while it worked.

    >>> print(missing_package("its tokenizer", ModuleNotFoundError("gone", name="tiktoken.load")))
    its tokenizer needs tiktoken, which is not installed: pip install tiktoken
    """
    package = (error.name or "").partition(".")[0]
    if package and not is_installed(package):
        return ModelError(
            f"{purpose} needs {package}, which is not installed: {install_command(package)}"
        )
    return ModelError(f"{purpose} needs a package that is not installed: {_first_line(error)}")


def _first_line(error: Exception) -> str:
    """The first sentence of an error, which libraries wrap to lines of their own."""
    text = " ".join(str(error).split()) or type(error).__name__
    return text.partition(". ")[0][:300]
