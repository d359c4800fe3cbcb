"""Answers of a model to the questions of haystacks, by the model alone."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext

import numpy as np
import pandas as pd
import torch
from jaxtyping import Int
from numpy import ndarray

from headscope.causal.intervention import Intervention
from headscope.causal.loss import chunked_losses, last_stream, logits_of, network_of
from headscope.corpus.window import Window
from headscope.models.model import Model
from headscope.stimuli.haystack import DEPTHS, NEEDLE, NULL, haystack_lengths, length_of


def answer_tokens(window: Window, query: int) -> Int[ndarray, " token"]:
    """Positions of the tokens of the answer that is due after a question's last token."""
    arrows = window.arrows
    words = window.words
    of_question = (arrows.kind == NEEDLE) & (arrows.query == query)
    first_tokens = arrows.first[of_question & arrows.right]
    in_text = np.sort(words.row_at(first_tokens))
    # an answer that stands at several places has as many words at each
    is_gap = np.diff(in_text) > 1
    places = np.split(in_text, np.flatnonzero(is_gap) + 1)
    length = len(places[0])
    # as many words follow the question's last one
    question = int(np.searchsorted(words.last, query))
    end = min(question + length, len(words) - 1)
    last_token = int(words.last[end])
    return np.arange(query + 1, last_token + 1)


def questions_of(window: Window) -> pd.DataFrame:
    """The questions of a haystack: `query`, the first `key` of the answer, and its depth.

    `depth` is one of `DEPTHS`: with as many questions, by the order of their answers; else the
    nearest to the percentage of the text that comes before the answer.
    """
    arrows = window.arrows
    of_answers = arrows.take((arrows.kind == NEEDLE) & arrows.right)
    nulls = arrows.query[arrows.kind == NULL]
    end = int(nulls.min()) if len(nulls) else len(window)
    rows = pd.DataFrame({"query": of_answers.query, "key": of_answers.first})
    rows = rows.groupby("query", as_index=False)["key"].min()
    depths = np.array(DEPTHS)
    # shipped haystacks ask at every depth, so that the order of answers tells it exactly
    if len(rows) == len(DEPTHS):
        return rows.assign(depth=depths[rows["key"].argsort().argsort()])
    percent = 100 * rows["key"].to_numpy() / end
    nearest = np.abs(percent[:, None] - depths).argmin(1)
    return rows.assign(depth=depths[nearest])


@torch.inference_mode()
def haystack_answers(
    model: Model,
    windows: Sequence[Window],
    names: Sequence[str],
    change: Intervention | None = None,
) -> pd.DataFrame:
    """Answer a haystack's questions with a causal model; a row for each question.

    Args:
        model: the model.
        windows: haystacks.
        names: their lengths or their file, as requested.
        change: applied while each window runs.

    Columns: `document`, `length`, `depth`; `correct`, 1 if each token of the answer is the most
    likely one after those before it; `log_probability` of the answer in nats.

    Raises:
        ModelError: the model is an encoder, or its logits cannot be computed.
    """
    network = network_of(model)
    rows: list[dict[str, float]] = []
    for window in windows:
        tokens = torch.from_numpy(window.tokens).to(model.device)
        # one forward pass serves all questions of a window
        with nullcontext() if change is None else change.applied(model):
            stream = last_stream(network, tokens[None])[0]
        for question in questions_of(window).itertuples(index=False):
            # the answer stands in the window, so that each of its tokens is predicted from those
            # before it
            places = torch.from_numpy(answer_tokens(window, question.query)).to(model.device)
            states, labels = stream[places - 1], tokens[places]
            is_top = logits_of(network, states).argmax(-1) == labels
            loss = torch.cat(list(chunked_losses(network, states, labels))).sum()
            rows.append(
                {
                    "document": window.document,
                    "length": length_of(window, names),
                    "depth": question.depth,
                    "correct": float(is_top.all()),
                    "log_probability": -float(loss),
                }
            )
    return pd.DataFrame(rows)


def chance_of(names: Sequence[str]) -> float:
    """Accuracy of a model that takes any of the answers in the window; 0 for a user's file."""
    return 1 / len(DEPTHS) if haystack_lengths(names) else 0.0
