"""Function-vector heads: a planted one is found, and heads that only seem to be are refused."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import headscope as hs
from headscope.causal.rerun import Rerunner
from headscope.models.load import load_model
from headscope.stimuli.few_shot import SHUFFLED, ZERO_SHOT, PromptSize, spelled_task
from headscope.stimuli.prompts import Spelling
from headscope.studies import function_vectors
from headscope.studies.function_vectors import (
    EFFECTS,
    THRESHOLD,
    prompts_of,
    read_word_task,
    task_effects,
)
from tests.oracles.planted_tasks import FUNCTION_VECTOR, LAZY, save_model, save_tasks_file, tasks

PLANTED = [(0.0, 0), (0.2, 2), pytest.param((0.2, 3), marks=pytest.mark.slow)]
"""Noise on all weights, and its seed. With the seeds 0 and 4 the model does too few of its tasks,
with 6 it does six of them badly."""


@pytest.fixture(scope="module")
def tasks_file(tmp_path_factory):
    return save_tasks_file(tmp_path_factory.mktemp("tasks") / "tasks.csv")


@pytest.fixture(scope="module", params=PLANTED, ids=str)
def found(request, tasks_file, tmp_path_factory):
    noise, seed = request.param
    folder = save_model(tmp_path_factory.mktemp("planted"), noise=noise, seed=seed)
    options = {"tasks": str(tasks_file), "prompts": 10, "progress": False}
    return hs.function_vectors(str(folder), **options)


def tagged(found):
    rows = found.table[found.table["function_vector"].astype(bool)]
    return list(zip(rows["layer"], rows["head"], strict=True))


def test_the_planted_head_is_tagged_and_no_other(found):
    assert tagged(found) == [FUNCTION_VECTOR]


def test_the_lazy_heads_earn_nothing_of_what_the_planted_one_does(found):
    rows = found.table.set_index(["layer", "head"])
    for head, rule in LAZY.items():
        assert not rows.loc[head, "function_vector"], rule
        assert rows.loc[head, "lift"] < rows.loc[FUNCTION_VECTOR, "lift"] / 4, rule
    # it raises the answers of the task, and not the right one of them
    raiser = rows.loc[1, 5]
    assert raiser["first_half"] > THRESHOLD
    assert raiser["among_answers"] < raiser["lift"] / 4


def test_a_model_without_the_head_does_no_task(tasks_file, tmp_path):
    folder = save_model(tmp_path, carries=False)
    found = hs.function_vectors(str(folder), tasks=str(tasks_file), progress=False)
    assert tagged(found) == []
    assert found.values["scored"] == []
    assert "too hard: " in found.notes[0]
    assert found.table["lift"].isna().all()


def test_an_effect_is_that_of_a_whole_run_with_the_head_set(tasks_file, tmp_path):
    """A slow loop: each prompt alone, all of it, with a hook on W_O."""
    folder = save_model(tmp_path)
    model = load_model(str(folder))
    runner, size = Rerunner(model), PromptSize(3, 6, 0)
    spelling = Spelling(model.tokenizer)
    readings = [
        read_word_task(runner, spelled_task(name, rows, spelling, seed=0), size)
        for name, rows in list(tasks().items())[:2]
    ]
    effects = task_effects(runner, readings, 0, size, lambda: None)
    words = sorted({token for reading in readings for token in reading.task.words})
    answers = readings[0].task.answers
    layer, head = FUNCTION_VECTOR
    network = runner.network

    def log_probabilities(prompt, value=None):
        def set_head(_, arguments):
            z = arguments[0].clone()
            width = z.shape[-1] // model.heads
            if value is not None:
                z[:, -1, head * width : (head + 1) * width] = value
            return (z,)

        output = network.transformer.h[layer].attn.c_proj
        handle = output.register_forward_pre_hook(set_head)
        with torch.inference_mode():
            logits = network(prompt.tokens[None]).logits[0, -1]
        handle.remove()
        right = logits[prompt.right]
        return [float(right - logits[part].logsumexp(0)) for part in (words, answers)]

    for kind, name in enumerate((SHUFFLED, ZERO_SHOT)):
        prompts = prompts_of(runner, readings[0].task, EFFECTS, name, size)
        for number, prompt in enumerate(prompts):
            before = log_probabilities(prompt)
            values = (
                readings[0].clean_mean[layer][head],
                readings[0].shuffled_mean[layer][head],
                readings[1].clean_mean[layer][head],
            )
            for place, value in enumerate(values):
                after = log_probabilities(prompt, value)
                measured = [part[layer, head, place, kind, number] for part in effects]
                expected = np.subtract(after, before)
                np.testing.assert_allclose(measured, expected, atol=1e-3)


def test_prompts_have_as_many_examples_as_were_named(tasks_file, tmp_path, monkeypatch):
    sizes = []

    def recorded(*args: int) -> PromptSize:
        sizes.append(PromptSize(*args))
        return sizes[-1]

    monkeypatch.setattr(function_vectors, "PromptSize", recorded)
    options = {"tasks": str(tasks_file), "prompts": 10, "shots": 3, "progress": False}
    found = hs.function_vectors(str(save_model(tmp_path, noise=0.0, seed=0)), **options)
    assert [(size.shots, size.prompts) for size in sizes] == [(3, 10)]
    assert tagged(found) == [FUNCTION_VECTOR]
