"""The folder for HeadVis: what its contract asks, the same each time, and nobody's files lost."""

from __future__ import annotations

import copy
import re
from pathlib import Path

import numpy as np
import pytest

import headscope as hs
from headscope.corpus.window import Window
from headscope.errors import HeadscopeError
from headscope.models.load import load_model
from headscope.studies.headvis import head_export as exporting
from headscope.studies.headvis.cells import SparseCells
from headscope.studies.headvis.head_export import ExportInput
from headscope.studies.headvis.scan import HeadSelection
from headscope.studies.headvis.written import (
    head_file,
    json_bytes,
    rounded,
    sample_sequences,
)
from tests.helpers import encoders
from tests.helpers.headvis import METRICS, check_data, check_sequence, parse_head, read
from tests.helpers.hybrids import save_hybrid
from tests.helpers.models import own_code

FEW = {"sequences": 30, "max_length": 48}


def everything(folder: Path) -> dict[str, bytes]:
    return {
        p.relative_to(folder).as_posix(): p.read_bytes() for p in folder.rglob("*") if p.is_file()
    }


def test_the_folder_holds_what_headvis_asks_and_nothing_else(export):
    config = check_data(Path(export.values["folder"]))
    assert config["heads"] == [[layer, head] for layer in range(2) for head in range(4)]
    assert (config["n_layers"], config["n_heads"]) == (2, 4)
    listed = read(Path(export.values["folder"]) / "headscope.json")["files"]
    assert sorted(listed) == sorted(everything(Path(export.values["folder"])))
    assert {p.split("/")[0] for p in listed} == {
        "attributions", "config.json", "heads", "headscope.json", "scatter_data.json",
        "server_config.json", "umap",
    }  # fmt: skip


BREAKS = {
    "an interval 0": lambda s: s.update(interval=0),
    "an interval 11": lambda s: s.update(interval=11),
    "a token less": lambda s: s["tokens"].pop(),
    "a line end": lambda s: s["tokens"].__setitem__(1, "\n"),
    "a value less": lambda s: s["attention_values"].pop(),
    "an index beyond": lambda s: s["attention_indices"].__setitem__(-1, s["seq_len"] ** 2),
    "no order": lambda s: s["attention_indices"].reverse(),
    "many decimals": lambda s: s["attention_values"].__setitem__(0, 0.123456),
    "the diagonal's largest": lambda s: s.update(max_activation=1.0),
    "another key": lambda s: s.update(name="x"),
    "a key less": lambda s: s.pop("seq_len"),
}


def test_what_breaks_the_contract_is_seen_by_its_reader(export, tmp_path):
    """The reader of these tests stands in for HeadVis' page: it must not take everything."""
    head = read(Path(export.values["folder"]) / "heads" / "L1H0.json")
    sequence = min(head["sequences"], key=lambda each: each["max_activation"])
    check_sequence(sequence)
    for name, breaks in BREAKS.items():
        broken = copy.deepcopy(sequence)
        breaks(broken)
        with pytest.raises((AssertionError, KeyError)):
            check_sequence(broken)
        assert broken != sequence, name
    head["sequences"].reverse()
    with pytest.raises(AssertionError):
        parse_head(head)
    (tmp_path / "nan.json").write_text('{"a": NaN}')
    with pytest.raises(AssertionError, match=r"nan\.json holds NaN"):
        read(tmp_path / "nan.json")


def test_the_config_says_what_was_read_and_how(export, texts):
    """Neuronpedia's loaders ask for all of these, and know two exports apart by them."""
    config = read(Path(export.values["folder"]) / "config.json")
    longest = max(
        each["seq_len"]
        for each in read(Path(export.values["folder"]) / "heads" / "L0H0.json")["sequences"]
    )
    assert config["dataset_name"] == texts.name
    assert config["n_sequences"] == export.values["sequences"]
    assert config["seq_len"] == longest == 64
    assert config["dtype"] == "float32"
    assert config["attn_implementation"] == "headscope fused"


@pytest.mark.parametrize(("length", "sequences"), [(16, 200), (64, 120), (256, 30), (600, 10)])
def test_the_largest_files_of_a_head_have_a_megabyte(length, sequences, gpt2_folder):
    """Eight cells of every token, in windows of any length."""
    windows = [Window("w", np.zeros(length, int), (" tokens",) * length)] * 300
    model = load_model(str(gpt2_folder))
    reading = ExportInput(model, windows, HeadSelection(((0, 0),)), 0)
    assert reading.sampled == sequences
    sample = sample_sequences(np.full(300, 0.1234), np.random.default_rng(0), reading.per_interval)
    assert len(sample) == sequences
    index = np.arange(length)[:, None] * length + length - 8 + np.arange(8)
    cells = SparseCells(index.ravel(), np.full(8 * length, 0.1234))
    file = head_file(windows, np.full(300, 0.1234), sample, {i: cells for i, _ in sample})
    assert 200_000 < len(json_bytes(file)) < 1_000_000


def test_the_same_seed_gives_the_same_bytes_whatever_else_is_read(
    run_folder, tmp_path, monkeypatch
):
    first = Path(hs.headvis(run_folder, tmp_path / "a", **FEW).values["folder"])
    monkeypatch.setattr(exporting, "MEMORY", 1)  # a head at a time
    again = Path(hs.headvis(run_folder, tmp_path / "b", **FEW).values["folder"])
    assert everything(first) == everything(again)
    some = Path(hs.headvis(run_folder, tmp_path / "c", heads="L1H2,0.3", **FEW).values["folder"])
    assert check_data(some)["heads"] == [[0, 3], [1, 2]]
    for name in ("heads/L0H3.json", "heads/L1H2.json"):
        assert (some / name).read_bytes() == (first / name).read_bytes()
    assert len(list((some / "heads").iterdir())) == 2


def test_text_with_odd_characters_comes_through(export):
    tokens = [
        token
        for each in read(Path(export.values["folder"]) / "heads" / "L0H0.json")["sequences"]
        for token in each["tokens"]
    ]
    text = "".join(tokens)
    for shown in ("<b>&amp;</b>", "⇥", "�", '"', "\\", "{"):
        assert shown in text, shown
    assert "<|endoftext|>" in tokens
    assert any(token.startswith(" ") for token in tokens)
    assert "\u202e" not in text


def test_a_model_of_the_other_engine_has_all_metrics(gpt2_folder, texts, tmp_path):
    folder = tmp_path / "openai"
    folder.mkdir()
    model = own_code(gpt2_folder, folder)
    run = hs.classify(model, texts, max_tokens=600, types=["positional"], max_length=48)
    found = hs.headvis(run, tmp_path / "data", **FEW)
    check_data(Path(found.values["folder"]))
    assert set(METRICS[:9]) <= set(found.table)


def test_an_encoder_s_heads_look_both_ways(tmp_path):
    folder = tmp_path / "bert"
    encoders.hand_built().save_pretrained(folder)
    encoders.save_tokenizer(encoders.WORDS, folder)
    text = tmp_path / "made.conllu"
    text.write_text(encoders.corpus(12, seed=0), encoding="utf-8")
    run = hs.classify(folder, text, max_tokens=2_000, types=["positional"], twin=False)
    found = hs.headvis(run, tmp_path / "data")
    check_data(Path(found.values["folder"]))
    rows = found.table.set_index("head")
    assert rows.loc[1, "prev_token_score"] > 0.8
    assert rows.loc[0, "prev_token_score"] < 0.1
    ahead = read(Path(found.values["folder"]) / "heads" / "L0H0.json")
    for each in ahead["sequences"]:
        size = each["seq_len"]
        kept = dict(zip(each["attention_indices"], each["attention_values"], strict=True))
        inner = range(1, size - 2)
        assert all(kept.get(q * size + q + 1, 0) > 0.8 for q in inner)
        assert each["max_activation"] > 0.8


def test_an_old_export_goes_only_when_asked_and_what_others_put_there_stays(run_folder, tmp_path):
    data = tmp_path / "data"
    hs.headvis(run_folder, data, **FEW)
    mine = {"custom_sequences/L0H0.json": b"{}", "notes.txt": b"precious"}
    for name, content in mine.items():
        (data / name).write_bytes(content)
    before = everything(data)
    with pytest.raises(HeadscopeError, match="data holds a HeadVis export already; choose another"):
        hs.headvis(run_folder, data, **FEW)
    assert everything(data) == before
    hs.headvis(run_folder, data, heads="L0H0", overwrite=True, **FEW)
    after = everything(data)
    assert {name: after[name] for name in mine} == mine
    assert [name for name in after if name.startswith("heads/")] == ["heads/L0H0.json"]
    (data / "heads" / "L1H0.json").write_bytes(b"mine")
    before = everything(data)
    with pytest.raises(HeadscopeError, match=r"L1H0\.json is in the way, and no HeadVis export"):
        hs.headvis(run_folder, data, overwrite=True, **FEW)
    assert everything(data) == before
    assert [p.name for p in tmp_path.iterdir()] == ["data"]


def test_nothing_is_left_where_it_fails(run_folder, tmp_path, monkeypatch):
    def fail(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(exporting, "head_file", fail)
    with pytest.raises(HeadscopeError, match="data cannot be written: No space left on device"):
        hs.headvis(run_folder, tmp_path / "above" / "data", **FEW)
    assert list((tmp_path / "above").iterdir()) == []
    (tmp_path / "thesis").mkdir()
    (tmp_path / "thesis" / "a.tex").write_text("precious")
    (tmp_path / "link").symlink_to(tmp_path / "thesis")
    for name in ("thesis", "link"):
        with pytest.raises(HeadscopeError, match="holds other files and no HeadVis export"):
            hs.headvis(run_folder, tmp_path / name, overwrite=True, **FEW)
    assert everything(tmp_path / "thesis") == {"a.tex": b"precious"}


def test_what_cannot_be_shown_is_said_in_a_sentence(run_folder, tmp_path, texts):
    out = tmp_path / "data"
    with pytest.raises(HeadscopeError, match="no head L9H9 in this run; up to L1H3"):
        hs.headvis(run_folder, out, heads="L9H9")
    with pytest.raises(HeadscopeError, match="sequences is 0, expected a whole number from 1"):
        hs.headvis(run_folder, out, sequences=0)
    with pytest.raises(TypeError, match="has no argument 'dvice'"):
        hs.headvis(run_folder, out, dvice="cpu")
    (tmp_path / "short.txt").write_text("a")
    with pytest.raises(HeadscopeError, match=r"short\.txt: no sequence of 3 tokens"):
        hs.headvis(run_folder, out, corpus=tmp_path / "short.txt")
    assert not out.exists()
    few = hs.headvis(run_folder, out, corpus=texts / "00.txt", **FEW)
    assert tuple(few.notes) == (
        f"the text has {few.values['sequences']} sequences, and 30 were asked for",
        "fewer than ten sequences: some tenths hold none",
    )


def test_the_command_writes_it_and_says_what(run_folder, tmp_path, command):
    options = ("--sequences", 20, "--max-length", 40, "--quiet")
    code, told, err = command("export", "headvis", run_folder, "--out", tmp_path / "data", *options)
    assert code == 0, err
    check_data(tmp_path / "data")
    assert "8 heads on 20 sequences" in told
    assert "prev_token_score" in told
    code, _, err = command("export", "headvis", run_folder, "--out", tmp_path / "data", *options)
    assert code == 2
    assert err.startswith("headscope: ")
    assert "add --overwrite" in err
    assert err.count("\n") == 1
    code, _, err = command("export", "headvis", tmp_path, "--out", tmp_path / "new", *options)
    assert code == 2
    assert not (tmp_path / "new").exists()


def test_no_number_that_is_none_is_ever_written():
    with pytest.raises(ValueError, match="JSON compliant"):
        json_bytes({"a": float("nan")})
    assert json_bytes({"a": "½\ud800"}) == b'{"a":"\xc2\xbd\\ud800"}\n'
    assert str(rounded([-0.00001, 0.12346])) == "[0.0, 0.1235]"


def test_the_page_on_formats_names_every_file_and_metric(export):
    page = (Path(__file__).parents[3] / "docs" / "formats.md").read_text(encoding="utf-8")
    section = page.split("### HeadVis' data folder")[1].split("\n### ")[0]
    for name in everything(Path(export.values["folder"])):
        assert f"`{re.sub('L[0-9]H[0-9]', 'L5H1', name)}`" in section, name
    for metric in read(Path(export.values["folder"]) / "config.json")["metrics"]:
        assert f"`{metric}`" in section, metric
    for key in read(Path(export.values["folder"]) / "heads" / "L0H0.json"):
        assert f"`{key}`" in section, key


def test_a_hybrid_s_layers_keep_their_numbers(tokenizer, texts, tmp_path):
    folder = save_hybrid("qwen3_next", tokenizer, tmp_path / "hybrid")
    run = hs.classify(folder, texts, max_tokens=600, types=["positional"], twin=False)
    found = hs.headvis(run, tmp_path / "data", **FEW)
    config = check_data(Path(found.values["folder"]))
    layers = {layer for layer, _ in config["heads"]}
    assert layers == set(run.heads["layer"])
    assert layers < set(range(config["n_layers"]))
