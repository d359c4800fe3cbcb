"""Labels of other work: planted heads, lazy labels, random heads, and files with faults."""

from __future__ import annotations

from dataclasses import asdict, replace

import numpy as np
import pandas as pd
import pytest

import headscope as hs
from headscope.corpus.shipped import data_folder
from headscope.errors import RunError
from headscope.relations.effects import EFFECTS
from headscope.relations.label_names import label_meanings, normalised, published_names
from headscope.statistics.columns import EFFECT_COLUMNS
from tests.helpers.shell import headscope

N = 12
LENGTH = 2 * N + 1
PREVIOUS = np.eye(LENGTH, k=-1)
PREVIOUS[0, 0] = 1
SINK = np.zeros((LENGTH, LENGTH))
SINK[:, 0] = 1
EVEN = np.tril(np.ones((LENGTH, LENGTH))) / np.arange(1, LENGTH + 1)[:, None]
PLANTED = np.stack([PREVIOUS, PREVIOUS, SINK, EVEN, EVEN, EVEN])


@pytest.fixture(scope="module")
def planted() -> hs.Run:
    """Two heads that attend to the previous token, one to the first, and three lazy heads."""
    tokens = [["<bos>", *[f"w{i}-{j}" for j in range(2 * N)]] for i in range(16)]
    patterns = [PLANTED[None]] * len(tokens)
    return hs.score_patterns(patterns, None, tokens, types=["positional", "sink"])


def labels(heads: str, label: str) -> pd.DataFrame:
    return pd.DataFrame({"head": heads.split(), "label": label})


def test_a_label_is_true_of_planted_heads_and_not_of_lazy_ones(planted):
    table = hs.judge_labels(planted, labels("L0H0 L0H1 L0H2 L0H3", "Previous-Token heads")).table
    assert table["verdict"].tolist() == ["tagged", "tagged", "no", "no"]
    assert table["mass"].iloc[0] == pytest.approx(1)
    assert table["control"].iloc[0] == pytest.approx(0)
    # a query after n tokens spreads its attention evenly over n + 1 keys
    by_hand = np.mean([1 / (query + 1) for query in range(2, LENGTH)])
    assert table["mass"].iloc[3] == pytest.approx(by_hand, rel=0.05)
    assert table["share_of_heads"].tolist() == pytest.approx([2 / 6] * 4)


def test_random_heads_get_what_chance_gives(planted):
    summary = hs.judge_labels(planted, labels("L0H0 L0H1", "previous token")).summary
    (row,) = summary.to_dict("records")
    assert (row["heads"], row["tagged"]) == (2, 2)
    # two of six heads are drawn: 2 × 2/6 are true on average, both with probability 1/15
    assert row["shuffled"] == pytest.approx(2 / 3, abs=0.07)
    assert row["p_value"] == pytest.approx(1 / 15, abs=0.03)
    # the model has one layer
    assert row["p_value_in_layer"] == row["p_value"]


def test_the_same_label_for_every_head_is_no_better_than_chance(planted):
    everyone = " ".join(f"L0H{head}" for head in range(6))
    (row,) = hs.judge_labels(planted, labels(everyone, "previous token")).summary.to_dict("records")
    assert row["tagged"] == row["shuffled"] == 2
    assert row["p_value"] == 1


@pytest.mark.parametrize(
    "names",
    [
        ["previous token", "Previous Token", "previous-token head", "Previous_Token Heads"],
        ["first token", "First-token sink", "first_token_sink heads"],
        ["S-inhibition", "s inhibition", "S_Inhibition head"],
    ],
)
def test_labels_of_a_head_that_mean_the_same_count_once(planted, names):
    rows = pd.DataFrame({"head": "L0H0", "label": names})
    others = labels("L0H1 L0H3", names[0])
    judged = hs.judge_labels(planted, pd.concat([rows, others, rows]))
    assert judged.table["label"].tolist() == [names[0]] * 3
    alone = hs.judge_labels(planted, labels("L0H0 L0H1 L0H3", names[0]))
    assert judged.summary.equals(alone.summary)


def test_depth_alone_is_no_better_than_chance_within_layers():
    """Most induction heads of `mini` are in its last layer."""
    last = " ".join(f"L5H{head}" for head in range(8))
    (row,) = hs.judge_labels("atlas:mini", labels(last, "induction")).summary.to_dict("records")
    assert row["p_value"] < 0.05
    assert row["tagged"] == row["shuffled_in_layer"] == 4
    assert row["p_value_in_layer"] == 1


def test_every_tag_of_a_run_is_true_as_a_label_and_nothing_else_is():
    run = hs.load("atlas:mini")
    rows = run.evidence[run.evidence["n"] > 0]
    names = "L" + rows["layer"].astype(str) + "H" + rows["head"].astype(str)
    full_names = rows["type"] + "/" + rows["relation"]
    some = pd.DataFrame({"head": names, "label": full_names, "tagged": rows["tagged"]})
    some = pd.concat([some[some["tagged"]], some[~some["tagged"]].sample(60, random_state=0)])
    judged = hs.judge_labels(run, some).table
    assert (judged["verdict"] == "tagged").tolist() == some["tagged"].tolist()
    assert judged["relation"].tolist() == some["label"].tolist()


def test_a_sink_hides_no_function():
    """Programs that attend to the first token fit induction heads, which rest there."""
    both = pd.DataFrame({"head": "L5H3", "label": ["first token", "induction"]})
    first, second = hs.judge_labels("atlas:mini", both).table.to_dict("records")
    assert first["verdict"] == second["verdict"] == "tagged"
    assert "induction/repeat" in first["tags"]
    assert "induction/repeat" in first["sentence"]


def test_the_copy_itself_is_not_what_other_work_calls_induction():
    both = pd.DataFrame({"head": "L1H0", "label": ["induction", "duplicate_token"]})
    assert hs.judge_labels("atlas:mini", both).table["verdict"].tolist() == ["no", "tagged"]


@pytest.mark.parametrize("name", ["S-inhibition", "backup name mover", "function vector"])
def test_a_label_without_a_measure_states_a_test(name):
    label = name.upper().replace(" ", "_")
    (row,) = hs.judge_labels("atlas:mini", labels("L0H0", label)).table.to_dict("records")
    assert row["verdict"] == "not measured"
    assert published_names()[name].test in row["sentence"]


def test_a_direct_effect_decides_once_it_is_measured(planted):
    name_movers = labels("L0H0 L0H1", "name mover")
    unmeasured = hs.judge_labels(planted, name_movers).table
    assert unmeasured["verdict"].tolist() == ["not measured"] * 2
    assert all("--direct-effects" in sentence for sentence in unmeasured["sentence"])
    (effect,) = [effect for effect in EFFECTS if effect.type == "name-mover"]
    is_mover = np.arange(6) == 0
    lift = np.where(is_mover, 1.0, 0.0)
    rows = pd.DataFrame({"layer": 0, "head": range(6)}, columns=EFFECT_COLUMNS)
    rows = rows.assign(type=effect.type, effect=effect.name, threshold=0.3, n=100, on=lift)
    rows = rows.assign(lift=lift, ci_low=lift - 0.1, ci_high=lift + 0.1, tagged=is_mover)
    rows = rows.assign(second_lift=lift, second_low=lift - 0.1, moved=lift, moved_low=lift - 0.1)
    rows = rows.assign(q_value=np.where(is_mover, 1e-9, 1.0))
    facts = asdict(effect.thresholds) | {"second": effect.second}
    measured = replace(planted, effects=rows, info=planted.info | {"effects": {effect.id: facts}})
    judged = hs.judge_labels(measured, name_movers)
    assert judged.table["verdict"].tolist() == ["tagged", "no"]
    assert judged.table["relation"].unique().tolist() == [effect.id]
    assert judged.summary["shuffled"].iloc[0] == pytest.approx(2 / 6, abs=0.07)


def test_every_name_stands_for_relations_that_exist():
    known = label_meanings()
    for name, meaning in published_names().items():
        assert bool(meaning.relations) != bool(meaning.test), name
        for relation in meaning.relations:
            assert known[normalised(relation)].relations == (relation,)


def test_the_labels_of_the_literature_are_known():
    known = label_meanings()
    table = pd.read_csv(data_folder() / "known_heads.csv")
    for label in {*table["type"], *table["relation"]} - {
        "function-vectors/effect",
        "filter/inline",
    }:
        assert normalised(label) in known, label


FAULTS = "head,label\nL0H0,inductoin\nL9H9,induction\nL0H0,induction\n5,sink\nL0H0,sink,x\n"


def test_all_invalid_rows_are_reported_at_once(tmp_path):
    path = tmp_path / "labels.csv"
    path.write_text(FAULTS)
    call = headscope("verify", "atlas:mini", "--labels", path, "--out", tmp_path / "judged.csv")
    assert call.returncode == 2
    for number in (2, 3, 5, 6):
        assert f"row {number}: " in call.stderr
    assert "row 4: " not in call.stderr
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize(
    "content", [b"head,label\n", b"", b"head,name\nL0H0,sink\n", b"\xff\xfe\x00"]
)
def test_a_file_without_labels_is_refused(tmp_path, content):
    path = tmp_path / "labels.csv"
    path.write_bytes(content)
    with pytest.raises(RunError, match=r"labels\.csv"):
        hs.judge_labels("atlas:mini", path)


def test_a_file_of_a_spreadsheet_equals_a_table(tmp_path):
    path = tmp_path / "labels.csv"
    path.write_bytes(b"\xef\xbb\xbfsource,head,label\r\na,5.3,Induction\r\nb,L5H3,Induction\r\n")
    judged = hs.judge_labels("atlas:mini", path).table
    assert judged.equals(hs.judge_labels("atlas:mini", labels("L5H3", "Induction")).table)
