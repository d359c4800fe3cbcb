"""All heads of a layer side by side, on the text that the run kept of each."""

from __future__ import annotations

from dataclasses import dataclass
from html import escape

import numpy as np
from jaxtyping import Float
from numpy import ndarray

from headscope.errors import RunError
from headscope.heads import head_name
from headscope.statistics.result import Result, layers_of
from headscope.views.circuits import notebook_html, whole_html


@dataclass(frozen=True, eq=False)
class LayerView:
    """Patterns of a layer's heads on one text. In a notebook it draws itself without a network."""

    title: str
    tokens: tuple[str, ...]
    names: tuple[str, ...]
    """Of the heads."""
    patterns: Float[ndarray, "head query key"]
    """Attention in [0, 1]; of a text that goes on no row lacks anything in a causal model."""

    def html(self) -> str:
        """A whole page that asks no network."""
        title = escape(self.title)
        head = f"<!doctype html><meta charset=utf-8><title>{title}</title><h1>{title}</h1>"
        return head + whole_html(self.title, self.tokens, self.patterns, self.names)

    def _repr_html_(self) -> str:
        """Pictures, and the circuitsvis view where its script is in the notebook."""
        return notebook_html(self.title, self.tokens, self.patterns, self.names)


def layer_view(run: Result, layer: int) -> LayerView:
    """The heads of a layer on the ordinary text that the run kept; no model is loaded.

    Args:
        run: a run that kept examples.
        layer: its number in the model.

    Raises:
        RunError: no such layer, or no ordinary text was kept of its heads.
    """
    if layer not in layers_of(run):
        raise RunError(f"no layer {layer} in this run; they go up to {layers_of(run)[-1]}")
    examples = [example for example in run.examples if example.layer == layer and example.query < 0]
    examples = [example for example in examples if example.window == examples[0].window]
    if not examples:
        raise RunError(
            f"this run kept no text of layer {layer}: classify again, with examples, or name a "
            "head and a text"
        )
    names = tuple(head_name(example.layer, example.head, run.head_names) for example in examples)
    patterns = np.stack([example.pattern.astype(np.float32) for example in examples])
    return LayerView(f"{run.name} layer {layer}", examples[0].tokens, names, patterns)
