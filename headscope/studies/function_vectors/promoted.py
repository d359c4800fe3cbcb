"""The words that heads' mean outputs promote where the examples do not tell the task."""

from __future__ import annotations

from collections.abc import Sequence

import pandas as pd
import torch
from torch import Tensor

from headscope.models.last_token import LastTokenRunner
from headscope.studies.function_vectors.few_shot import SHUFFLED, PromptSize
from headscope.studies.function_vectors.head_effects import (
    EFFECTS,
    TaskReading,
    prompts_of,
)

WORDS = 3


@torch.inference_mode()
def promoted_words(
    runner: LastTokenRunner,
    readings: Sequence[TaskReading],
    effects: pd.DataFrame,
    heads: pd.DataFrame,
    size: PromptSize,
) -> list[str]:
    """For each row of the effects the words that are raised most, in shuffled prompts.

    They are the words of all tasks whose probability rises most, as a mean over prompts, with the
    head's output set to its mean over clean prompts instead of that over shuffled ones. Empty but
    for tagged heads in tasks that they hold in.
    """
    tagged = heads[heads["function_vector"].astype(bool)]
    tagged_heads = {(row.layer, row.head) for row in tagged.itertuples()}
    words = [""] * len(effects)
    candidates = sorted({token for reading in readings for token in reading.task.words})
    for reading in readings:
        rows = effects[(effects["task"] == reading.task.name) & effects["holds"].astype(bool)]
        tagged_rows = [row for row in rows.itertuples() if (row.layer, row.head) in tagged_heads]
        if not tagged_rows:
            continue
        prompts = prompts_of(runner, reading.task, EFFECTS, SHUFFLED, size)
        runs = runner.read([prompt.tokens for prompt in prompts], keys=True)
        item = torch.arange(len(runs))
        for row in tagged_rows:
            chances: list[Tensor] = []
            for means in (reading.clean_mean, reading.shuffled_mean):
                value = means[row.layer][row.head].expand(len(runs), -1)
                head = torch.full_like(item, row.head)
                states = runner.states(runs, row.layer, prompt=item, head=head, value=value)
                logits = runner.network.get_output_embeddings()(states)[:, candidates]
                chances.append(logits.float().softmax(-1).mean(0))
            raised = (chances[0] - chances[1]).topk(WORDS).indices.tolist()
            texts = runner.model.tokenizer.spell([candidates[index] for index in raised])
            words[effects.index.get_loc(row.Index)] = ", ".join(text.strip() for text in texts)
    return words
