"""Pages that may hold any token: text is text, and never an element or a script."""

from __future__ import annotations

import json
from html.parser import HTMLParser

import numpy as np
import pandas as pd
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import headscope as hs
from headscope.views.html_page import atlas_html
from headscope.views.report.data import to_json
from headscope.views.show import AttentionView

SOME = settings(
    max_examples=40,
    derandomize=True,
    deadline=None,
    database=None,
    suppress_health_check=list(HealthCheck),
)


class Elements(HTMLParser):
    """The elements of a page, and the text of its cells."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.names: list[str] = []
        self.attributes: list[dict[str, str | None]] = []
        self.texts: list[str] = []
        self.feed(page)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.names.append(tag)
        self.attributes.append(dict(attrs))

    def handle_data(self, data: str) -> None:
        self.texts.append(data)


texts = st.one_of(
    st.text(max_size=20),
    st.lists(
        st.sampled_from(
            [
                "<",
                ">",
                "&",
                '"',
                "'",
                "</script>",
                "<!--",
                "]]>",
                "<script>",
                "\u2028",
                "\0",
                "\ud83d",
                "${x}",
                "{{x}}",
            ]
        ),
        max_size=6,
    ).map("".join),
)


@SOME
@given(st.lists(texts, min_size=1, max_size=4))
def test_any_text_in_a_script_is_data(tokens):
    page = f"<script>{to_json({'tokens': tokens})}</script><p></p>"
    parsed = Elements(page)
    assert parsed.names == ["script", "p"]
    assert json.loads("".join(parsed.texts)) == {"tokens": tokens}


@SOME
@given(texts, texts.filter(lambda text: text == text.encode("utf-8", "replace").decode()))
def test_any_name_in_a_notebooks_table_is_text(tmp_path_factory, model, kind):
    heads = pd.DataFrame(
        {"layer": [0], "head": [0], "primary": [kind or "x"], "tags": [kind], "lift": [0.5]}
        | {"preliminary": [""], "below_baseline": [""]}
    )
    run = hs.Run(heads, heads, {}, {"model": {"name": model}})
    parsed = Elements(atlas_html(run))
    assert parsed.names == ["div", "b", "br", "span", "table", "tr", "th", "td"]
    assert set().union(*parsed.attributes) <= {"style", "title"}


@SOME
@given(texts, texts)
def test_any_token_in_a_view_is_text(title, token):
    view = AttentionView(title, ("<s>", token), np.array([[1, 0], [0.5, 0.5]]))
    parsed = Elements(view.html())
    cells = ["rect", "title"] * 3
    picture = ["svg", "text", "rect", "g", *cells, *(["text"] * 4)]
    assert parsed.names == ["meta", "title", "h1", "div", *picture, "script"]
