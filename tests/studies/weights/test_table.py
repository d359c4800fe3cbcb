"""The table of `headscope study weights`, for planted heads, `mini` and a run."""

from __future__ import annotations

import pandas as pd
import pytest
from transformers import GPT2Config, GPT2LMHeadModel

import headscope as hs
from headscope.corpus.shipped import MINI, data_folder
from headscope.errors import RunError
from headscope.models.load import load_model
from headscope.studies.weights import head_factors, k_composition
from tests.helpers.formats import columns_of
from tests.helpers.models import save_model
from tests.oracles.planted import HEADS, LAYOUTS, save_planted

BESIDE = ["primary", "relation", "mass", "k_from_relation"]
COLUMNS = [name for name in columns_of("weights") if name not in BESIDE]


@pytest.fixture(scope="module")
def mini():
    return hs.weights(MINI)


def test_a_row_per_head_with_the_best_earlier_head(mini):
    model = load_model(MINI, device="cpu", engine="lens")
    pd.testing.assert_frame_equal(mini.table, hs.weights(model).table)
    assert mini.table.columns.tolist() == COLUMNS
    assert list(zip(mini.table["layer"], mini.table["head"], strict=True)) == [
        (layer, head) for layer in range(6) for head in range(8)
    ]
    first = mini.table.query("layer == 0")
    assert first["ov_copying_mlp0"].isna().all()
    assert (first["k_from"] == "").all()
    scores = k_composition(head_factors(model))
    for row in mini.table.query("layer > 0").itertuples():
        own = scores[: row.layer, :, row.layer, row.head]
        assert row.k_composition == own.max().item()
        assert row.k_from == "L{}H{}".format(*divmod(int(own.argmax()), own.shape[1]))


def test_minis_induction_heads_compose_with_its_previous_token_head_and_copy_behind_the_first_mlp(
    mini,
):
    """Patterns alone say which heads those are: the last checkpoint's masses."""
    masses = pd.read_csv(data_folder() / "mini" / "emergence.csv")
    masses = masses[masses["step"] == masses["step"].max()]
    found = mini.table.merge(masses, on=["layer", "head"])
    previous = found.loc[found["previous"].idxmax()]
    induction = found[found["induction"] > 0.6]
    others = found[found["layer"].isin(induction["layer"]) & (found["induction"] < 0.2)]
    assert min(len(induction), len(others)) >= 2
    assert set(induction["k_from"]) == {f"L{previous['layer']:.0f}H{previous['head']:.0f}"}
    random = mini.values["k_random_p999"]
    assert (induction["k_composition"] > 1.3 * random).all()
    assert (others["k_composition"] < 1.2 * random).all()
    assert (induction["ov_copying_mlp0"] > 0.95).all()
    assert (others["ov_copying_mlp0"] < 0.8).all()


@pytest.mark.parametrize("layout", LAYOUTS)
def test_the_planted_induction_head_finds_its_keys_by_the_planted_previous_token_head(
    layout, tmp_path
):
    words = "<bos> <unk> the old king lost a ring . he near Anna".split()
    found = hs.weights(str(save_planted(layout, words, tmp_path, noise=0.01)))
    place = {}
    for layer in (0, 1):
        for head, planted in enumerate(h for h in HEADS if h.layer == layer):
            place[planted.name] = (layer, head)
    best = found.table.loc[found.table["k_composition"].idxmax()]
    assert best["k_from"] == "L{}H{}".format(*place["previous token"])
    assert (best["layer"], best["head"]) == place["induction"]
    assert best["k_composition"] > 2 * found.values["k_random_p999"]


def test_one_layer_of_one_head_has_no_pairs(tokenizer, tmp_path):
    config = GPT2Config(
        n_embd=16, n_layer=1, n_head=1, n_positions=64, vocab_size=len(tokenizer),
        bos_token_id=tokenizer.bos_token_id, eos_token_id=tokenizer.eos_token_id,
    )  # fmt: skip
    GPT2LMHeadModel(config).save_pretrained(tmp_path)
    tokenizer.save_pretrained(tmp_path)
    found = hs.weights(str(tmp_path))
    assert found.table["k_from"].tolist() == [""]
    assert found.table["k_composition"].isna().all()


def test_tags_of_a_run_stand_beside_the_weights(tokenizer, tmp_path):
    folder = save_model("gpt2", tokenizer, tmp_path / "model")
    corpus = tmp_path / "alice.txt"
    corpus.write_text("Alice was very tired. She looked at the old keys again. " * 40)
    run = hs.classify(str(folder), corpus, max_tokens=600, twin=False, types=["positional"])
    found = hs.weights(run).table
    assert found.columns.tolist() == [*COLUMNS, *BESIDE]
    pd.testing.assert_frame_equal(found[COLUMNS], hs.weights(str(folder)).table)
    heads = run.heads.set_index(["layer", "head"])
    for row in found.itertuples():
        own = heads.loc[(row.layer, row.head)]
        assert (row.primary, row.relation) == (own["primary"], own["relation"])
        if row.layer == 1:
            source = heads.loc[(0, int(row.k_from.removeprefix("L0H")))]
            assert row.k_from_relation == source["relation"]
    with pytest.raises(RunError, match=r"'main' is for the name of a model"):
        hs.weights(run, revision="main")
