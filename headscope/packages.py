"""Packages that only some uses need."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from headscope.errors import HeadscopeError, first_line

EXTRAS = {
    "anywidget": "widget",
    "matplotlib": "figures",
    "ray": "ray",
    "starlette": "serve",
    "uvicorn": "serve",
}
"""headscope's extras by the package that each brings."""


def optional_package(purpose: str, module: str) -> Any:
    """Import a module that only some uses need.

    Raises:
        HeadscopeError: it cannot be imported; the message has the command that installs it.
    """
    try:
        return import_module(module)
    except Exception as error:  # packages that are broken or too old raise many kinds
        raise HeadscopeError(
            f"{purpose} needs {module} ({first_line(error)}): "
            f"pip install 'headscope[{EXTRAS[module]}]'"
        ) from error
