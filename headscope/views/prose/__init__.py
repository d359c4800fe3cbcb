"""English text of headscope's answers: templates, which the numbers of `statistics/` fill in.

Each template is a file of this folder, in the language of Jinja.
"""

from __future__ import annotations

from functools import cache
from importlib.resources import files
from math import isnan
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from jinja2 import Environment


def render(template: str, **values: Any) -> str:
    """A template of this folder, by its name without `.txt`, with its values filled in.

    Templates have a filter `form`, which takes a format of Python, and a test `known`: neither None
    nor NaN.
    """
    return _environment().get_template(f"{template}.txt").render(values).strip("\n")


@cache
def _environment() -> Environment:
    # jinja2 is slow to import, and most commands print no prose
    from jinja2 import Environment, FunctionLoader, StrictUndefined

    folder = files(__package__)
    environment = Environment(
        loader=FunctionLoader(lambda name: (folder / name).read_text(encoding="utf-8")),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        autoescape=False,  # the text is plain; pages escape what they show
    )
    environment.filters["form"] = format
    environment.tests["known"] = lambda value: value is not None and not isnan(value)
    return environment
