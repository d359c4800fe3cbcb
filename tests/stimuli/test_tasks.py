"""Tasks as they are read: which columns and rows are taken, and what is refused."""

from __future__ import annotations

import json

import pandas as pd
import pytest

from headscope.errors import CorpusError
from headscope.stimuli.tasks import MIN_PROMPTS, read_task

ROWS = [
    {"prompt": "the dog saw the", "answer": " man", "wrong": " dog"},
    {"prompt": "a man and the", "answer": " dog", "wrong": " man"},
]


def with_column(name: object, *texts: str) -> list[dict]:
    return [{**row, name: text} for row, text in zip(ROWS, texts, strict=True)]


def test_further_columns_are_roles_of_every_row(tmp_path):
    rows = [{**ROWS[0], "subject": "dog"}, {**ROWS[1], "attractor": "man"}]
    expected = [{"subject": "dog", "attractor": ""}, {"subject": "", "attractor": "man"}]
    table = pd.DataFrame(rows)
    table.to_csv(tmp_path / "task.csv", index=False)
    lines = [json.dumps(row) for row in rows]
    (tmp_path / "task.jsonl").write_text("\n".join(lines), encoding="utf-8")
    for source in (rows, table, tmp_path / "task.csv", tmp_path / "task.jsonl"):
        assert [dict(row.roles) for row in read_task(source).rows] == expected
    assert [dict(row.roles) for row in read_task(ROWS).rows] == [{}, {}]


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("promt", "prompt"),
        ("anwser", "answer"),
        ("Group", "group"),
        ("corupt", "corrupt"),
        ("wrong_answer", "wrong"),
        ("group-id", "group"),
        ("wrong2", "wrong"),
    ],
)
def test_a_misspelt_column_is_no_role(name, meant):
    with pytest.raises(CorpusError, match=rf"{name}.*is {meant} meant"):
        read_task(with_column(name, "dog", "man"))


@pytest.mark.parametrize("name", ["", " ", "Unnamed: 0", "a\nb", "x" * 41, "1st", 0])
def test_a_column_without_a_usable_name_is_refused(name):
    with pytest.raises(CorpusError, match="named"):
        read_task(with_column(name, "dog", "man"))


@pytest.mark.parametrize("name", ["subject", "indirect_object", "s1", "item_id", "Verb-2", "主语"])
def test_names_of_roles(name):
    assert [row.roles[name] for row in read_task(with_column(name, "a", "b")).rows] == ["a", "b"]


@pytest.mark.parametrize("column", ["prompt", "answer", "wrong", "corrupt", "group", "subject"])
def test_half_a_character_is_refused_with_its_row(column):
    rows = with_column("corrupt", "a", "b")
    rows[1] = {**rows[1], column: "x\ud800"}
    with pytest.raises(CorpusError, match=f"row 1: {column}"):
        read_task(rows)


def test_the_first_rows_of_a_task_are_a_task_or_refused():
    task = read_task([*ROWS, *ROWS])
    assert len(task.first(MIN_PROMPTS).rows) == MIN_PROMPTS
    assert task.first(None) == task
    with pytest.raises(CorpusError, match=str(MIN_PROMPTS)):
        task.first(MIN_PROMPTS - 1)


def test_one_group_gives_no_interval():
    with pytest.raises(CorpusError, match="group"):
        read_task(with_column("group", "a", "a"))
    # blank groups are rows alone, and so is one beside a group
    for groups in (("", ""), ("a", ""), ("a", "b")):
        assert len(read_task(with_column("group", *groups)).rows) == len(ROWS)
    late = [*with_column("group", "a", "a"), *with_column("group", "b", "b")]
    with pytest.raises(CorpusError, match="group"):
        read_task(late).first(2)


def test_answers_that_a_space_makes_equal_are_refused():
    rows = [{"prompt": "In order: a b", "answer": "c", "wrong": " c"}, ROWS[0]]
    with pytest.raises(CorpusError, match=r"row 0: .*space"):
        read_task(rows)
    # after a digit no space is added, so that these are two answers
    rows[0] |= {"prompt": "In order: 1 2"}
    assert read_task(rows).rows[0].wrong == " c"


@pytest.mark.parametrize(
    ("prompt", "answer"),
    [
        ("यह एक लाल", "किताब"),
        ("मैं दिल्ली", "गया"),  # ends in a vowel sign
        ("אני אוהב", "אותך"),
        ("ذهب الولد إلى", "المدرسة"),
        ("나는 사과를", "먹었다"),
        ("un cafe\u0301", "noir"),  # ends in a combining accent
        ("noir", "e\u0301te\u0301"),
        ("Ես սիրում եմ", "քեզ"),
        ("მე მიყვარს", "შენ"),
        ("நான் ஒரு", "புத்தகம்"),
        ("እኔ እወድ", "ሃለሁ"),
        ("drink to", "Mary"),
        ("я люблю", "тебя"),
    ],
)
def test_a_space_is_added_where_the_script_writes_spaces_between_words(prompt, answer):
    rows = [{"prompt": prompt, "answer": answer}, ROWS[0] | {"wrong": ""}]
    assert read_task(rows).rows[0].answer == f" {answer}"


@pytest.mark.parametrize(
    ("prompt", "answer"),
    [
        ("我喜欢", "猫"),
        ("私はコーヒー", "が好き"),  # ー is of no script alone
        ("東京タワー", "は高い"),
        ("ฉันรักเธอที่", "สุด"),
        ("ข้าพเจ้า", "ชอบ"),
        ("ខ្ញុំស្រលាញ់", "អ្នក"),
        ("ကျွန်တော်", "ချစ်"),
        ("ང་ལ་དགའ", "པོ"),
        ("我喜欢", "cats"),
        ("I like", "猫"),
        ("from 1732 to 17", "45"),
        ("drink to ", "Mary"),
        ("यह लड़क", "ी"),  # a vowel sign begins no word
    ],
)
def test_no_space_is_added_elsewhere(prompt, answer):
    rows = [{"prompt": prompt, "answer": answer}, ROWS[0] | {"wrong": ""}]
    assert read_task(rows).rows[0].answer == answer
