"""The gallery's index: a card for each run, in the report's style."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from importlib.resources import files

from jinja2 import Environment

from headscope.corpus.visible import visible
from headscope.views.colours import is_resting, letter, type_class, type_style
from headscope.views.gallery.card import Card
from headscope.views.gallery.tables import types_of


def gallery_html(cards: Sequence[Card]) -> str:
    """The index of a gallery as one HTML page that asks no network.

    It says everything without its script, which searches and sorts.
    """
    environment = Environment(autoescape=True, trim_blocks=True, lstrip_blocks=True)
    environment.filters |= {"visible": visible, "letter": letter}
    environment.filters["type_class"] = _style_class
    template = environment.from_string(_file("headscope.views.gallery", "page.html"))
    return template.render(
        cards=cards,
        types=types_of(cards),
        models=len({card.model for card in cards}),
        total=sum(card.total for card in cards),
        style=type_style()
        + "\n"
        + _file("headscope.views.report", "report.css")
        + _file("headscope.views.gallery", "gallery.css"),
        script=_file("headscope.views.gallery", "gallery.js"),
    )


def _style_class(type_name: str) -> str:
    class_name = f"type-{type_class(type_name)}"
    return f"{class_name} resting" if is_resting(type_name) else class_name


@cache
def _file(package: str, name: str) -> str:
    return (files(package) / name).read_text(encoding="utf-8")
