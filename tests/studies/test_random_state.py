"""Global random state: no public function moves it, whether it ends or is interrupted."""

from __future__ import annotations

import inspect
import random
import shutil
import sys
from contextlib import suppress
from functools import partial

import numpy as np
import pytest
import torch

import headscope as hs
from headscope import random_state
from headscope.studies.study_table import STUDIES
from tests.helpers.models import save_model
from tests.helpers.study_calls import MADE_UP, READ_NOTHING, plain_call

FIRST = 17


def seed() -> None:
    random.seed(FIRST)
    np.random.seed(FIRST)
    torch.manual_seed(FIRST)


def numbers() -> tuple[float, ...]:
    """The next numbers of each generator.

    Where beartype checks calls, it draws from Python's generator which items of a list it looks at.
    """
    of_python = 0.0 if "tests.checked" in sys.modules else random.random()
    return of_python, float(np.random.rand()), float(torch.rand(1))


seed()
EXPECTED = numbers()


def interrupt(done: int, total: int) -> None:
    # stands for what a library draws within a study
    random.random(), np.random.rand(), torch.rand(1)
    raise KeyboardInterrupt


@pytest.mark.parametrize("study", STUDIES, ids=lambda study: study.name)
def test_no_study_moves_the_random_state(study, small_run, story, tmp_path):
    call = MADE_UP.get(study.name, partial(plain_call, study))
    text = shutil.copytree(story, tmp_path / "story")
    seed()
    try:
        call(getattr(hs, study.name), small_run, text)
    except hs.HeadscopeError:
        assert study.name in ("ablate", "task")  # the small run has no behaviour to test
    assert numbers() == EXPECTED


REPORTING = [
    study
    for study in STUDIES
    if "progress" in inspect.signature(getattr(hs, study.name)).parameters
    and study.name not in READ_NOTHING
]


@pytest.mark.parametrize("study", REPORTING, ids=lambda study: study.name)
def test_no_interrupted_study_moves_the_random_state(study, small_run, story, tmp_path):
    call = MADE_UP.get(study.name, partial(plain_call, study))
    text = shutil.copytree(story, tmp_path / "story")
    seed()
    with pytest.raises(KeyboardInterrupt):
        call(partial(getattr(hs, study.name), progress=interrupt), small_run, text)
    assert numbers() == EXPECTED


OTHERS = {
    "classify": lambda run, model, text: hs.classify(model, text, max_tokens=100),
    "by lens": lambda run, model, text: hs.classify(model, text, max_tokens=100, engine="lens"),
    "show": lambda run, model, text: run.show("L0H0", "the old keys"),
    "report": lambda run, model, text: run.report(),
    "figure": lambda run, model, text: run.figure(),
    "load model": lambda run, model, text: hs.load_model(str(model), engine="lens"),
}


@pytest.mark.parametrize("name", OTHERS)
def test_no_other_function_moves_the_random_state(name, small_run, gpt2_folder, story):
    run = hs.load(small_run)
    seed()
    OTHERS[name](run, gpt2_folder, story)
    assert numbers() == EXPECTED


def test_training_goes_on_with_the_same_random_numbers(tokenizer, story, tmp_path):
    from transformers import AutoModelForCausalLM

    folder = save_model("gpt2", tokenizer, tmp_path / "model")
    network = AutoModelForCausalLM.from_pretrained(folder)
    callback = hs.HeadCallback(types=["positional"], corpus=story, max_tokens=200)
    seed()
    callback.read(1, network, tokenizer)
    assert numbers() == EXPECTED


def test_calls_within_a_call_leave_the_states_to_the_outer_one(monkeypatch):
    """A run makes thousands of them, and a state is as long as a text."""
    read = []
    of_python = random.getstate

    def state_read() -> object:
        read.append("python")
        return of_python()

    monkeypatch.setattr(random, "getstate", state_read)
    with random_state.random_state_kept():
        hs.pairs([1], [0])
        with suppress(KeyboardInterrupt), random_state.random_state_kept():
            interrupt(0, 1)
    assert len(read) == 1
    # the next call keeps them again
    hs.pairs([1], [0])
    assert len(read) == 2
