"""Heads of each type at each revision, and during training, which the callback must not change."""

from __future__ import annotations

import copy
import warnings

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
from headscope.errors import RunError
from headscope.studies.emergence import by_revision, step_of
from headscope.studies.sweep_folder import Cell, counted_types, with_counts

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
            str(tmp_path / "trainer"),
            max_steps=steps,
            per_device_train_batch_size=2,
            seed=1,
            report_to=[],
            logging_steps=1,
            save_strategy="no",
            disable_tqdm=True,
            use_cpu=True,
            learning_rate=1e-3,
            **arguments,
        ),
        train_dataset=STATES,
        data_collator=DataCollatorForLanguageModeling(backend, mlm=False),
        processing_class=backend if tokenizer else None,
        callbacks=list(callbacks),
    )
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
        pair,
        TEXT,
        types=heads.types,
        max_tokens=heads.max_tokens,
        all=True,
        challenge=False,
        examples=False,
        progress=False,
    )
    held = [set(tags.split(";")) for tags in again.heads["tags"]]
    last = table[table["step"] == 4].set_index("type")["heads"]
    for name in heads.types:
        if not pd.isna(last[name]):
            assert last[name] == sum(name in tags for tags in held)
    logged = [entry for entry in trainer.state.log_history if "lift/induction" in entry]
    lift = again.evidence[again.evidence["type"] == "induction"]["lift"].max()
    assert logged[-1]["lift/induction"] == pytest.approx(lift, abs=1e-6)
    assert logged[-1]["lift/induction"] != logged[0]["lift/induction"]


class Scaled(torch.nn.Module):
    """A wrapper with a parameter that is trained, as adapters have."""

    def __init__(self, inside):
        super().__init__()
        self.inside, self.factor = inside, torch.nn.Parameter(torch.tensor(1.01))

    def forward(self, x):
        return self.inside(x) * self.factor


def test_a_later_reading_is_that_of_an_adapter_as_it_then_is():
    adapted, tokenizer = network().eval(), AutoTokenizer.from_pretrained(mini_folder())
    layers = [name for name, _ in adapted.named_modules() if name.endswith("attn.c_attn")]
    for name in layers:
        adapted.set_submodule(name, Scaled(adapted.get_submodule(name)))
    heads = hs.HeadCallback(corpus=TEXT, max_tokens=400, types=["induction"])
    logged = []
    heads.log = logged.append
    for step in (1, 2):
        heads.read(step, adapted, tokenizer)
        with torch.no_grad():
            for name in layers:
                adapted.get_submodule(name).factor.fill_(0)  # every head looks evenly back
    assert logged[0]["lift/induction"] > 0.3
    assert logged[1]["lift/induction"] < 0.1


def test_mixed_precision_reads_the_copy_and_not_the_model_that_is_trained(tmp_path):
    """accelerate wraps `forward`: the copy must not run the original, in training mode."""
    heads = hs.HeadCallback(every=2, corpus=TEXT, max_tokens=400)
    trainer = trained(tmp_path, heads, steps=2, bf16=True)
    assert trainer.accelerator.mixed_precision == "bf16"
    first = heads.emergence.table.query("step == 0").set_index("type")["heads"]
    again = hs.classify(
        (network(), trainer.processing_class),
        TEXT,
        types=heads.types,
        max_tokens=400,
        all=True,
        challenge=False,
        examples=False,
        progress=False,
    )
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


def cell(revision: str | None, **counts: int) -> Cell:
    """A complete cell with so many heads of each type, and all other types measured."""
    heads = pd.DataFrame(
        [(name, name) for name, count in counts.items() for _ in range(count)],
        columns=["tags", "primary"],
    )
    return with_counts(Cell("a/model", revision, (), f"run_{revision}"), heads, TYPES)


TYPES = counted_types()[:-2]


@pytest.mark.parametrize(
    ("revision", "step"),
    [
        ("step1000", 1000),
        ("1000", 1000),
        ("stage1-step5000-tokens21B", 21),
        ("main", None),
        (None, None),
        ("a" * 39 + "7", None),
        ("checkpoint-50", 50),
    ],
)
def test_a_step_is_the_last_number_of_a_name(revision, step):
    assert step_of(revision) == step


def test_revisions_are_sorted_by_number_and_names_come_last():
    cells = [cell(name, induction=1) for name in ("step1000", "main", "step5", "step128")]
    table = by_revision(cells)
    assert table["revision"].unique().tolist() == ["step5", "step128", "step1000", "main"]


def test_a_head_counts_for_each_of_its_tags_and_failed_cells_for_nothing():
    heads = pd.DataFrame(
        {
            "tags": ["induction;delimiter", "delimiter", "unclassified"],
            "primary": ["induction", "delimiter", "unclassified"],
        }
    )
    both = with_counts(Cell("m", "step2", (), "x"), heads, ["induction", "delimiter", "lexical"])
    table = by_revision([both, Cell("m", "step3", (), "z")])
    counts = table.set_index("type")["heads"]
    assert counts.dropna().to_dict() == {
        "delimiter": 2,
        "induction": 1,
        "lexical": 0,
        "not identifiable": 0,
        "unclassified": 1,
    }
    assert counts.isna().sum() == len(TYPES) - 3
    assert table["all_heads"].unique().tolist() == [3]
    with pytest.raises(RunError, match="complete"):
        by_revision([Cell("m", None, (), "z")])
