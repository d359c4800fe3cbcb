"""Heads while a model is trained: the table as it goes, and nothing of the training changes."""

from __future__ import annotations

import copy
import random
import warnings

import numpy as np
import pandas as pd
import pytest
import torch
from transformers import (
    AutoModelForCausalLM,
    AutoTokenizer,
    DataCollatorForLanguageModeling,
    Trainer,
    TrainerCallback,
    TrainingArguments,
)

import headscope as hs
from headscope.corpus.shipped import data_folder, mini_folder
from headscope.errors import ChoiceError, CorpusError, HeadscopeError, WriteError
from headscope.studies.sweep.head_callback import random_states_restored

TEXT = data_folder() / "corpora" / "gold.conllu"
STATES = [{"input_ids": [0, *range(10 + i, 24 + i)]} for i in range(8)]


def network():
    torch.manual_seed(3)
    config = AutoModelForCausalLM.from_pretrained(mini_folder()).config
    config.attn_pdrop = config.resid_pdrop = 0.1  # so that training draws random numbers
    return AutoModelForCausalLM.from_pretrained(mini_folder(), config=config)


def trained(tmp_path, *callbacks, steps: int = 4, tokenizer=True, **arguments) -> Trainer:
    backend = AutoTokenizer.from_pretrained(mini_folder())
    backend.pad_token = backend.eos_token
    trainer = Trainer(
        model=network(),
        args=TrainingArguments(
            str(tmp_path / "trainer"), max_steps=steps, per_device_train_batch_size=2, seed=1,
            report_to=[], logging_steps=1, save_strategy="no", disable_tqdm=True, use_cpu=True,
            learning_rate=1e-3, **arguments,
        ),
        train_dataset=STATES,
        data_collator=DataCollatorForLanguageModeling(backend, mlm=False),
        processing_class=backend if tokenizer else None,
        callbacks=list(callbacks),
    )  # fmt: skip
    for callback in callbacks:
        if isinstance(callback, hs.HeadCallback):
            callback.log = trainer.log
    trainer.train()
    return trainer


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("heads")
    heads = hs.HeadCallback(every=2, corpus=TEXT, out=folder / "new" / "heads.csv")
    return trained(folder, heads), heads


def losses(trainer: Trainer) -> list[float]:
    return [entry["loss"] for entry in trainer.state.log_history if "loss" in entry]


def test_the_table_is_that_of_emergence_and_the_file_too(run):
    _, heads = run
    table = heads.emergence.table
    assert table["step"].drop_duplicates().tolist() == [0, 2, 4]
    first = table[table["step"] == 0].set_index("type")["heads"]
    assert first["induction"] >= 4  # mini's heads before anything is unlearned
    assert pd.isna(first["syntactic"])  # not asked
    written = pd.read_csv(heads.out)
    assert written["heads"].dropna().tolist() == table["heads"].dropna().tolist()
    assert list(written.columns) == list(table.columns)
    assert heads.emergence.figure().axes


def test_training_goes_as_it_would_without(run, tmp_path):
    trainer, _ = run
    alone = trained(tmp_path)
    assert losses(alone) == losses(trainer)
    pairs = zip(alone.model.parameters(), trainer.model.parameters(), strict=True)
    assert all(torch.equal(one, other) for one, other in pairs)


def test_a_later_reading_is_that_of_the_weights_as_they_then_are(run):
    trainer, heads = run
    table = heads.emergence.table
    pair = (copy.deepcopy(trainer.model), trainer.processing_class)
    again = hs.classify(
        pair, TEXT, types=heads.types, max_tokens=heads.max_tokens, all=True, twin=False,
        built=False, examples=False, progress=False,
    )  # fmt: skip
    held = [set(tags.split(";")) for tags in again.heads["tags"]]
    last = table[table["step"] == 4].set_index("type")["heads"]
    for name in heads.types:
        if not pd.isna(last[name]):
            assert last[name] == sum(name in tags for tags in held)
    logged = [entry for entry in trainer.state.log_history if "lift/induction" in entry]
    lift = again.evidence[again.evidence["type"] == "induction"]["lift"].max()
    assert logged[-1]["lift/induction"] == pytest.approx(lift, abs=1e-6)
    assert logged[-1]["lift/induction"] != logged[0]["lift/induction"]


def test_a_loop_of_ones_own_reads_what_the_trainer_would(run):
    trainer, heads = run
    own = hs.HeadCallback(corpus=TEXT)
    own.read(4, trainer.model, AutoTokenizer.from_pretrained(mini_folder()))
    table = heads.emergence.table
    last = table[table["step"] == 4].reset_index(drop=True)
    pd.testing.assert_frame_equal(own.emergence.table, last)
    with pytest.raises(HeadscopeError, match="no tokenizer"):
        own.read(5, trainer.model, None)


def test_counts_go_where_the_trainer_logs(run):
    trainer, heads = run
    logged = [entry for entry in trainer.state.log_history if "heads/induction" in entry]
    assert [entry["step"] for entry in logged] == [0, 2, 4]
    table = heads.emergence.table
    counts = table[table["type"] == "induction"]["heads"].tolist()
    assert [entry["heads/induction"] for entry in logged] == counts


class Witness(TrainerCallback):
    """What a step leaves, just before and just after the heads are read."""

    def __init__(self, seen: list) -> None:
        self.seen = seen

    def on_pre_optimizer_step(self, args, state, control, model, **context) -> None:
        self.gradients = [p.grad for p in model.parameters()]

    def on_step_end(self, args, state, control, model, **context) -> None:
        self.seen.append(
            {
                "modes": [module.training for module in model.modules()],
                "gradients": [(p.grad is None, p.requires_grad) for p in model.parameters()],
                "dtypes": [p.dtype for p in model.parameters()],
                "places": [p.data_ptr() for p in model.parameters()],
                "attention": model.config._attn_implementation,
                "forward": "forward" in vars(model),
                "hooks": sum(
                    len(m._forward_hooks) + len(m._forward_pre_hooks) for m in model.modules()
                ),
                "random": (torch.get_rng_state().tolist(), np.random.get_state()[1].tolist()),
                "grad": torch.is_grad_enabled(),
            }
        )  # fmt: skip


def test_mode_gradients_random_states_and_dtype_are_as_before(tmp_path):
    seen: list = []
    heads = hs.HeadCallback(every=1, corpus=TEXT, max_tokens=400)
    trained(tmp_path, Witness(seen), heads, Witness(seen), steps=2)
    assert len(seen) == 4
    for before, after in (seen[:2], seen[2:]):
        assert before == after
        assert any(before["modes"])
        assert before["grad"]


def test_random_states_are_put_back():
    context = random_states_restored()
    before = random.getstate(), np.random.get_state()[1].tolist(), torch.get_rng_state().tolist()
    with context:
        assert len({random.random(), np.random.rand(), float(torch.rand(()))}) == 3
    after = random.getstate(), np.random.get_state()[1].tolist(), torch.get_rng_state().tolist()
    assert before == after


def test_mixed_precision_reads_the_copy_and_not_the_model_that_is_trained(tmp_path):
    """accelerate wraps `forward`: the copy must not run the original, in training mode."""
    heads = hs.HeadCallback(every=2, corpus=TEXT, max_tokens=400)
    trainer = trained(tmp_path, heads, steps=2, bf16=True)
    assert trainer.accelerator.mixed_precision == "bf16"
    first = heads.emergence.table.query("step == 0").set_index("type")["heads"]
    again = hs.classify(
        (network(), trainer.processing_class), TEXT, types=heads.types, max_tokens=400, all=True,
        twin=False, built=False, examples=False, progress=False,
    )  # fmt: skip
    held = [set(tags.split(";")) for tags in again.heads["tags"]]
    assert first["induction"] == sum("induction" in tags for tags in held) > 0


def test_a_failure_in_the_midst_is_a_warning_and_training_goes_on(tmp_path, monkeypatch):
    heads = hs.HeadCallback(every=2, corpus=TEXT, max_tokens=400)

    class Break(TrainerCallback):
        def on_step_end(self, args, state, control, model, **context) -> None:
            if state.global_step == 2:
                with torch.no_grad():
                    model.transformer.wte.weight[:] = float("nan")

    with warnings.catch_warnings(record=True) as raised:
        warnings.simplefilter("always")
        trainer = trained(tmp_path, Break(), heads, steps=3)
    assert trainer.state.global_step == 3
    assert any("heads at step 2: " in str(warning.message) for warning in raised)
    assert heads.emergence.table["step"].unique().tolist() == [0]


def test_a_trainer_without_a_tokenizer_is_refused_before_the_first_step(tmp_path):
    heads = hs.HeadCallback(corpus=TEXT)
    with pytest.raises(HeadscopeError, match=r"no tokenizer: give one by Trainer\(processing"):
        trained(tmp_path, heads, tokenizer=False)


def test_bad_arguments_are_refused_before_training(tmp_path):
    callback = hs.HeadCallback
    precious = tmp_path / "heads.csv"
    precious.write_text("precious")
    with pytest.raises(HeadscopeError, match="every is 0, expected a whole number from 1"):
        callback(every=0)
    with pytest.raises(ChoiceError, match=r"is induction meant\?"):
        callback(types=["inducton"])
    with pytest.raises(CorpusError, match="no such corpus"):
        callback(corpus="nowhere.txt")
    with pytest.raises(WriteError, match=r"heads\.csv exists already"):
        callback(out=precious)
    with pytest.raises(WriteError, match=r"a table is written as \.csv"):
        callback(out=tmp_path / "heads.xlsx")
    assert callback(out=precious, overwrite=True).out == precious
    assert precious.read_text() == "precious"
    with pytest.raises(HeadscopeError, match="none of the 0 runs"):
        _ = callback().emergence
