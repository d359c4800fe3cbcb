"""LLMVis' forty short prompts, which its published scores of seven models are means over.

Its repository states no licence, so that the prompts are not shipped: who has its file gives it,
and a checksum says that they are those. Nothing of the file is run.
"""

from __future__ import annotations

import ast
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from jaxtyping import Bool, Float
from numpy import ndarray

from headscope.corpus.document import Document
from headscope.errors import RunError
from headscope.measure.progress import OnProgress
from headscope.runs.user_file import given_file

if TYPE_CHECKING:
    import torch

    from headscope.models.load import Model

SOURCE = "cdpearlman/LLMVis 1b3b7d0:scripts/analyze_heads.py"
"""Where they stand; commit f478beb brought this file and the scores, and none later changed them.

The least of GPT-Neo's `positional` is 0.074585, which is the mean of 1 / n over these prompts in
GPT-2's tokens behind one more: a head that gives the first token nothing scores that, as the first
token itself has no other key.
"""
PROMPTS_SHA256 = "3c1fcc888770431c09f3a25ada59fb72137fca5471893f49c3f6fb19584e5d12"
"""Of all prompts in their order, a line each."""
GENERAL = ("previous_token", "positional", "diffuse")
"""Scores that are means over all prompts; the others are over those that repeat themselves."""
BEGINNING = "llmvis_"
ACCEPTED = 0.01
"""Accepted largest difference: on the same tokens only rounding is left."""
STRONG = 0.25
"""Score from which on LLMVis names a head (`select_top_heads`)."""


def read_prompts(path: Path) -> tuple[list[str], list[str]]:
    """The natural prompts, and those that repeat themselves, from LLMVis' own file.

    Raises:
        HeadscopeError: there is no such file, or it does not hold these prompts.
    """
    raw = given_file(path, SOURCE)
    try:
        values = {
            node.targets[0].id: ast.literal_eval(node.value)
            for node in ast.walk(ast.parse(raw))
            if isinstance(node, ast.Assign)
            and isinstance(node.targets[0], ast.Name)
            and node.targets[0].id in _LISTS
        }
        lists = tuple(list(values[name]) for name in _LISTS)
        text = "\n".join(prompt for prompts in lists for prompt in prompts)
    except (SyntaxError, ValueError, KeyError, TypeError, RecursionError, MemoryError) as error:
        raise RunError(f"{path}: no lists {' and '.join(_LISTS)}; give {SOURCE}") from error
    if sha256(text.encode()).hexdigest() != PROMPTS_SHA256:
        raise RunError(f"{path}: other prompts than the scores are of; give {SOURCE}")
    return lists[0], lists[1]


_LISTS = ("natural_prompts", "repetitive_prompts")


def prompt_scores(
    model: Model, natural: list[str], repeating: list[str], on_progress: OnProgress
) -> dict[str, Float[ndarray, "layer head"]]:
    """LLMVis' five scores of every head, by their published names.

    As in its code, prompts count the same however long they are, and stand behind the model's
    beginning-of-text token, which is a query and a key like others.
    """
    of_prompts = []
    for index, prompt in enumerate(prompts := [*natural, *repeating]):
        on_progress(index, len(prompts))
        of_prompts.append(_scores_of(model, prompt))
    return {
        BEGINNING + name: np.mean(
            [
                scores[name]
                for scores in (of_prompts if name in GENERAL else of_prompts[len(natural) :])
            ],
            axis=0,
        )
        for name in of_prompts[0]
    }


def _scores_of(model: Model, prompt: str) -> dict[str, Float[ndarray, "layer head"]]:
    import torch

    from headscope.models.engines.engine import stream_patterns

    text = model.tokenizer.encode(Document("prompt", prompt, ())).tokens
    tokens = np.array([model.tokenizer.bos, *text])
    duplicates = np.tril(tokens[:, None] == tokens, -1)
    # of a pair (query, earlier copy) induction looks one after the copy, and not at the query
    after = np.zeros_like(duplicates)
    after[:, 1:] = duplicates[:, :-1]
    np.fill_diagonal(after, False)
    layers: dict[int, Float[ndarray, "head query key"]] = {}

    def take(layer: int, pattern: torch.Tensor) -> None:
        layers[layer] = pattern[0].float().cpu().numpy()

    stream_patterns(model.engine, torch.from_numpy(tokens)[None].to(model.device), take)
    pattern = np.stack([layers[layer] for layer in sorted(layers)])
    spread = -(pattern + _EPSILON) * np.log(pattern + _EPSILON)
    return {
        "previous_token": pattern.diagonal(-1, -2, -1).mean(-1),
        "induction": _mean_at(pattern, after),
        "duplicate_token": _mean_at(pattern, duplicates),
        "positional": pattern[..., 0].mean(-1),
        "diffuse": spread.sum(-1).mean(-1) / np.log(len(tokens)),
    }


_EPSILON = 1e-10
"""LLMVis', which keeps the logarithm of 0 out."""


def _mean_at(
    pattern: Float[ndarray, "layer head query key"], cells: Bool[ndarray, "query key"]
) -> Float[ndarray, "layer head"]:
    return pattern[..., cells].mean(-1) if cells.any() else np.zeros(pattern.shape[:2])
