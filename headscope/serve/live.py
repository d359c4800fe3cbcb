"""A model that answers about sentences: each head on them, and what is lost without some."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float
from numpy import ndarray
from torch import Tensor

from headscope.corpus.window import Window
from headscope.errors import ChoiceError, HeadscopeError, ModelError
from headscope.evidence.result import Result
from headscope.heads import check_head, parse_head
from headscope.models.engines.engine import stream_patterns
from headscope.models.hybrids import check_in
from headscope.models.load import Model
from headscope.studies.ablate.rerun import Clean, Edit, Rerunner, Rows, silence
from headscope.views.show import check_unicode, text_window

MOST_TOKENS = 256
"""Of a sentence: 1,024 heads' patterns of so many tokens are 268 MB."""
KEPT = 256_000_000
"""Bytes of patterns that are kept of sentences that were read before; the last one always is."""
BEST = 5
HOW = ("mean", "zero")
"""Ways to silence a head; of one sentence no other row is there to exchange with."""

Pause = Callable[[], None]
"""Called between layers; what it raises ends the reading."""


@dataclass(frozen=True, eq=False)
class Predictions:
    """What a model makes of a sentence as a text that goes on."""

    losses: Float[ndarray, " position"]
    """In nats, of each token but the first."""
    best: list[list[tuple[str, float]]]
    """After each token the likeliest next ones, with their probabilities."""


@dataclass(frozen=True, eq=False)
class Reading:
    """A sentence as a model read it."""

    tokens: tuple[str, ...]
    patterns: Float[Tensor, "layer head query key"]
    clean: Clean | None
    """What the untouched run left; None of a model that does not predict, or cannot be edited."""
    predictions: Predictions | None


class Live:
    """A model, with its run if there is one.

    It is used by one thread at a time: the network has hooks while it runs.

    Raises:
        ModelError: it has several stacks of heads.
    """

    def __init__(self, model: Model, run: Result | None = None) -> None:
        if model.stacks:
            raise ModelError(
                f"{model.name} has an encoder and a decoder, which serve does not show; see a head "
                "of it with `headscope show`"
            )
        self.model, self.run = model, run
        self.most = min(MOST_TOKENS, model.context)
        self.silent_because = ""
        """Why no head can be silenced, or nothing."""
        self._rerunner = self._make_rerunner()
        self._kept: OrderedDict[str, Reading] = OrderedDict()

    def read(self, text: str, pause: Pause = lambda: None) -> Reading:
        """Every head's pattern on a sentence, and what the model predicts there.

        Raises:
            HeadscopeError: the text is empty, too long, or no Unicode.
        """
        if text in self._kept:
            self._kept.move_to_end(text)
            return self._kept[text]
        window = self.window(text)
        reading = self._read(window, pause)
        self._kept[text] = reading
        while len(self._kept) > 1 and sum(r.patterns.nbytes for r in self._kept.values()) > KEPT:
            self._kept.popitem(last=False)
        return reading

    def window(self, text: str) -> Window:
        """The tokens of a sentence that may be read."""
        check_unicode(text)
        window = text_window(self.model, text)
        if len(window.tokens) > self.most:
            raise HeadscopeError(
                f"the text has {len(window.tokens)} tokens with its beginning; this page reads "
                f"{self.most} at most, so shorten it"
            )
        return window

    def place(self, head: str) -> tuple[int, int]:
        """The row of a head's layer in `Reading.patterns`, and its number in the layer.

        Raises:
            HeadscopeError: it is no name of a head, or the model has no such head.
        """
        layer, number = self._head(head)
        return self.model.attention_layers.index(layer), number

    def without(
        self, text: str, heads: Sequence[str], how: str = "mean", pause: Pause = lambda: None
    ) -> Predictions:
        """What the model predicts on a sentence with some heads silenced.

        Args:
            text: the sentence.
            heads: their names; none leaves the model as it is.
            how: `mean`, each head's mean over the sentence's tokens without the first; or `zero`.
            pause: called between layers.

        Raises:
            ChoiceError: no such way to silence a head.
            HeadscopeError: no such head; the text cannot be read; or the model has no heads that
                can be silenced.
        """
        if how not in HOW:
            raise ChoiceError("way to silence", how, HOW)
        by_layer: dict[int, list[int]] = {}
        for layer, head in dict.fromkeys(self._head(name) for name in heads):
            by_layer.setdefault(layer, []).append(head)
        clean = self.read(text, pause).clean
        if self._rerunner is None or clean is None:
            raise HeadscopeError(self.silent_because)
        edits = {layer: silence(how, clean, layer, own, 0) for layer, own in by_layer.items()}
        with self._pausing(pause):
            return self._predictions(self._rerunner, clean, edits)

    def _head(self, name: str) -> tuple[int, int]:
        check_head(name)
        layer, head = parse_head(name)
        check_in(self.model, layer, head)
        return layer, head

    def _make_rerunner(self) -> Rerunner | None:
        if self.model.both_ways:
            self.silent_because = "an encoder predicts no next token: no head is silenced here"
            return None
        try:
            return Rerunner(self.model)
        except ModelError as error:
            self.silent_because = str(error)
            return None

    def _read(self, window: Window, pause: Pause) -> Reading:
        patterns: list[Tensor] = []

        def take(layer: int, pattern: Tensor) -> None:
            pause()
            patterns.append(pattern[0].float().cpu())

        ids = torch.from_numpy(window.tokens)[None].to(self.model.device)
        with torch.inference_mode():
            stream_patterns(self.model.engine, ids, take)
        clean, predictions = None, None
        if self._rerunner is not None:
            with self._pausing(pause):
                clean = self._rerunner.clean(_rows(ids))
                predictions = self._predictions(self._rerunner, clean, {})
        return Reading(tuple(window.strings), torch.stack(patterns), clean, predictions)

    def _predictions(self, rerunner: Rerunner, clean: Clean, edits: dict[int, Edit]) -> Predictions:
        told = rerunner.predictions(clean, edits)
        ids = clean.rows.tokens[0]
        losses = -told[:-1].gather(1, ids[1:, None])[:, 0]
        best = told.topk(min(BEST, told.shape[1]))
        words = self.model.tokenizer.spell(best.indices.flatten().tolist())
        pairs = list(zip(words, best.values.exp().flatten().tolist(), strict=True))
        width = best.values.shape[1]
        rows = [pairs[start : start + width] for start in range(0, len(pairs), width)]
        return Predictions(losses.double().cpu().numpy(), rows)

    @contextmanager
    def _pausing(self, pause: Pause) -> Iterator[None]:
        """Call it before each layer while something runs."""

        def hook(_: Any, __: Any) -> None:
            pause()

        with ExitStack() as hooks:
            for block in self._rerunner.blocks if self._rerunner is not None else ():
                hooks.callback(block.register_forward_pre_hook(hook).remove)
            yield


def _rows(ids: Tensor) -> Rows:
    """One row of tokens, all of which but the first are predicted."""
    length = ids.shape[1]
    position = torch.arange(1, length, device=ids.device)
    return Rows(ids, torch.tensor([length], device=ids.device), position * 0, position)
