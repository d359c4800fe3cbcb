"""The widget of `hs.widget`; this module alone imports anywidget."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import anywidget
import numpy as np
import traitlets

from headscope.errors import HeadscopeError, check_choice
from headscope.heads import head_name
from headscope.serve.answers import head_answer, sentence_answer
from headscope.serve.live import Live
from headscope.serve.live_page import live_data, widget_module
from headscope.views.show import pattern_svg

Proposal = dict[str, Any]
"""Argument of a check by traitlets: under `value` the new value of a trait."""


class HeadWidget(anywidget.AnyWidget):  # type: ignore[misc]
    """All heads on a sentence, of which one is shown large; see `hs.widget`."""

    _esm = widget_module()
    text = traitlets.Unicode(help="the sentence, of 256 tokens at most").tag(sync=True)
    head = traitlets.Unicode(help="the name of the head, such as L5H1").tag(sync=True)
    type = traitlets.Unicode(help="a head type of the run's tags, or nothing").tag(sync=True)
    token = traitlets.Int(help="the query's place in the sentence, from 0").tag(sync=True)
    _data = traitlets.Dict().tag(sync=True)
    _reading = traitlets.Dict().tag(sync=True)
    _pattern = traitlets.Dict().tag(sync=True)

    def __init__(self, live: Live, head: str, text: str) -> None:
        self._live = live
        super().__init__(_data=live_data(live))
        with self.hold_sync():
            self.text = text
            self.head = head
            self.token = len(self.tokens) - 1

    @property
    def tokens(self) -> tuple[str, ...]:
        """The sentence's tokens, with the beginning-of-text token."""
        return self._live.read(self.text).tokens

    @property
    def types(self) -> tuple[str, ...]:
        """The head types that some head is tagged with; none without a run."""
        tags = [] if self._live.run is None else self._live.run.heads["tags"]
        return tuple(sorted({tag for row in tags for tag in str(row).split(";") if tag}))

    def __repr__(self) -> str:
        return f"<headscope widget: {self._title} on {self.text!r}>"

    def _repr_mimebundle_(self, **how: Any) -> Any:
        """The widget, and for a notebook that is read without a kernel the selected pattern.

        GitHub and most viewers of saved notebooks show the picture.
        """
        bundle = super()._repr_mimebundle_(**how)
        # anywidget gives the data alone, or with metadata
        data = bundle[0] if isinstance(bundle, tuple) else bundle
        pattern = np.array(self._pattern["matrix"])
        data["image/svg+xml"] = pattern_svg(self._title, self.tokens, pattern)
        return bundle

    @property
    def _title(self) -> str:
        """The model and the selected head."""
        return f"{Path(self._live.model.name).name} {self.head}"

    @traitlets.validate("text")
    def _check_text(self, proposal: Proposal) -> str:
        text: str = proposal["value"]
        self._live.read(text)
        return text

    @traitlets.validate("head")
    def _check_head(self, proposal: Proposal) -> str:
        return head_name(*self._live.head(proposal["value"]))

    @traitlets.validate("type")
    def _check_type(self, proposal: Proposal) -> str:
        name: str = proposal["value"]
        if name:
            check_choice("tag in this run", name, self.types)
        return name

    @traitlets.validate("token")
    def _check_token(self, proposal: Proposal) -> int:
        token: int = proposal["value"]
        tokens = len(self.tokens)
        if not 0 <= token < tokens:
            raise HeadscopeError(f"no token {token}: the sentence has 0 to {tokens - 1}")
        return token

    @traitlets.observe("text")
    def _read_text(self, change: object) -> None:
        with self.hold_sync():
            self._reading = sentence_answer(self._live, self.text)
            self.token = min(self.token, len(self.tokens) - 1)
            self._read_head(change)

    @traitlets.observe("head")
    def _read_head(self, change: object) -> None:
        if self.head:
            self._pattern = head_answer(self._live, self.text, self.head)
