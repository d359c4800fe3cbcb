"""A smaller model: it loads anywhere, and its loss is that of the masked one."""

from __future__ import annotations

import json
import shutil

import numpy as np
import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from headscope.errors import HeadscopeError, ModelError
from headscope.measure.study_windows import text_windows
from headscope.models.intervention import HeadsScaled
from headscope.models.layout.modules import attention_modules
from headscope.models.load import load_model
from headscope.models.loss import loss
from headscope.studies.prune.smaller import choose, save_smaller
from tests.helpers.models import save_model


@pytest.fixture(scope="module")
def llama_folder(tokenizer, tmp_path_factory):
    return save_model("llama", tokenizer, tmp_path_factory.mktemp("big"))


def biased(tokenizer, folder):
    """Qwen2: biases on Q, K and V, no head_dim in its configuration, three query heads a group."""
    from transformers import Qwen2Config, Qwen2ForCausalLM

    torch.manual_seed(1)
    config = Qwen2Config(
        hidden_size=48, num_hidden_layers=2, num_attention_heads=6, num_key_value_heads=2,
        intermediate_size=32, vocab_size=len(tokenizer), max_position_embeddings=256,
        initializer_range=0.3, bos_token_id=tokenizer.bos_token_id, tie_word_embeddings=True,
    )  # fmt: skip
    network = Qwen2ForCausalLM(config)
    with torch.no_grad():
        for attention in attention_modules(network):
            for part in (attention.q_proj, attention.k_proj, attention.v_proj):
                part.bias.normal_()
    network.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


IMPORTANCE = {
    # the highest are one head of each group of two, then all of the second group
    4: np.array([[0.1, 0.9, 0.8, 0.2], [0.1, 0.2, 0.9, 0.8]]),
    6: np.array([[0.1, 0.9, 0.5, 0.8, 0.2, 0.3], [0.1, 0.2, 0.3, 0.9, 0.8, 0.7]]),
}


@pytest.mark.parametrize(
    ("layout", "keep", "heads", "groups"),
    [("llama", 0.5, 2, 2), ("llama", 0.01, 2, 2), ("qwen", 0.66, 4, 2), ("qwen", 0.5, 3, 1)],
)
def test_the_smaller_model_has_the_loss_of_the_masked_one(
    llama_folder, tokenizer, story, tmp_path, layout, keep, heads, groups
):
    """Loaded by transformers and by headscope, from the folder alone."""
    big = llama_folder if layout == "llama" else biased(tokenizer, tmp_path / "big")
    model = load_model(str(big))
    windows = text_windows(model, story)
    importance = IMPORTANCE[model.heads]
    small = save_smaller(model, importance, keep, tmp_path / "small", windows=windows)
    shutil.copytree(tmp_path / "small", tmp_path / "moved")
    loaded = load_model(str(tmp_path / "moved"))
    assert (loaded.heads, loaded.key_value_heads) == (heads, groups)
    assert small.kept.sum(1).tolist() == [heads, heads]
    mask = HeadsScaled.by_row(model, torch.from_numpy(small.kept).float())
    expected = loss(model, windows, mask)
    own = loss(loaded, windows)
    assert own.nats / own.tokens == pytest.approx(expected.nats / expected.tokens, abs=1e-4)
    assert own.mean == pytest.approx(small.loss, abs=1e-5)
    assert abs(small.before - small.loss) > 1e-3
    assert small.before == pytest.approx(loss(model, windows).mean)
    plain = AutoModelForCausalLM.from_pretrained(tmp_path / "moved", attn_implementation="eager")
    tokens = torch.from_numpy(windows[0].tokens)[None]
    with torch.no_grad():
        mean = float(plain(tokens, labels=tokens).loss)
    assert mean == pytest.approx(own.nats[0] / own.tokens[0], abs=1e-4)
    assert sum(weight.numel() for weight in plain.parameters()) == small.parameters
    assert small.parameters < small.parameters_before
    spoken = AutoTokenizer.from_pretrained(tmp_path / "moved")("the keys")
    assert spoken["input_ids"] == tokenizer("the keys")["input_ids"]


@pytest.mark.parametrize(
    ("keep", "expected"),
    [
        (0.5, [[0, 1, 1, 0], [0, 1, 1, 0]]),  # 1.7 and 1.1 of importance; whole groups 1.0 and 1.7
        (0.99, [[1, 1, 1, 1]] * 2),
        (0.1, [[0, 1, 1, 0], [0, 1, 1, 0]]),  # nearer would be no group at all
    ],
)
def test_heads_are_chosen_regularly_by_importance(keep, expected):
    assert choose(IMPORTANCE[4], keep, groups=2).astype(int).tolist() == expected


def test_whole_groups_go_where_their_number_is_nearer_or_their_heads_matter_more():
    # three query heads in two groups: a half is one group, and no number of each
    assert choose(IMPORTANCE[6], 0.5, groups=2).astype(int).tolist() == [
        [1, 1, 1, 0, 0, 0],
        [0, 0, 0, 1, 1, 1],
    ]
    skewed = np.array([[0.9, 0.8, 0.1, 0.2]])
    assert choose(skewed, 0.5, groups=2).astype(int).tolist() == [[1, 1, 0, 0]]
    ungrouped = choose(IMPORTANCE[4], 0.5, groups=4).astype(int).tolist()
    assert ungrouped == [[0, 1, 1, 0], [0, 0, 1, 1]]


@pytest.mark.parametrize("layout", ["gpt2", "gpt_neox"])
def test_layouts_of_a_fixed_head_width_say_why_not(tokenizer, tmp_path, command, layout):
    folder = save_model(layout, tokenizer, tmp_path / "model")
    code, out, err = command(
        "study", "prune", folder, "--save", tmp_path / "s", "--keep", 0.5, "-q"
    )
    assert (code, out) == (2, "")
    assert "the width of a head is d_model / heads by definition" in err
    assert len(err.splitlines()) == 1
    assert [p.name for p in tmp_path.iterdir()] == ["model"]


def test_the_command_writes_the_model_and_says_how_small_it_is(
    llama_folder, story, tmp_path, command
):
    out = tmp_path / "deep" / "small"
    words = (
        "study",
        "prune",
        llama_folder,
        "--corpus",
        story,
        "-q",
        "--save",
        out,
        "--keep",
        "0.5",
    )
    code, told, err = command(*words)
    assert (code, err) == (0, "")
    assert "2 of 4 heads kept in each of 2 layers" in told
    assert f"written to {out}" in told
    assert json.loads((out / "config.json").read_text())["head_dim"] == 8
    assert [p.name for p in out.parent.iterdir()] == ["small"]
    code, told, err = command(*words)
    assert (code, told) == (2, "")
    assert "is there already; --save names a new or empty folder" in err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--save", "s"], "--save FOLDER and --keep SHARE go together"),
        (["--keep", "0.5"], "--save FOLDER and --keep SHARE go together"),
        (["--save", "s", "--keep", "1.5"], "--keep 1.5: the share of heads to keep is above 0"),
        (["--save", "s", "--keep", "0"], "--keep 0: the share of heads to keep is above 0"),
    ],
)
def test_bad_input_ends_with_one_message_and_nothing_written(
    llama_folder, tmp_path, monkeypatch, command, arguments, message
):
    monkeypatch.chdir(tmp_path)
    code, out, err = command("study", "prune", llama_folder, *arguments, "-q")
    assert (code, out) == (2, "")
    assert message in err
    assert list(tmp_path.iterdir()) == []


def test_a_full_disk_leaves_nothing_behind(llama_folder, story, tmp_path, monkeypatch):
    from headscope.models.tokenizer import Tokenizer

    def fail(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Tokenizer, "save", fail)
    model = load_model(str(llama_folder))
    with pytest.raises(HeadscopeError, match="cannot be written: No space left"):
        save_smaller(
            model, IMPORTANCE[4], 0.5, tmp_path / "small", windows=text_windows(model, story)
        )
    assert list(tmp_path.iterdir()) == []


def test_a_model_that_would_not_be_the_masked_one_is_not_written(
    llama_folder, story, tmp_path, monkeypatch
):
    from headscope.studies.prune import smaller

    cut = smaller._cut
    monkeypatch.setattr(smaller, "_cut", lambda *given: 2 * cut(*given))
    model = load_model(str(llama_folder))
    with pytest.raises(ModelError, match="keeps something else by head; nothing was written"):
        save_smaller(
            model, IMPORTANCE[4], 0.5, tmp_path / "small", windows=text_windows(model, story)
        )
    assert list(tmp_path.iterdir()) == []
