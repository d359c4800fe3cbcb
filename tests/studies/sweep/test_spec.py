"""What a sweep is asked to do, from a file and from the command line."""

from __future__ import annotations

from pathlib import Path

import pytest

from headscope.errors import HeadscopeError
from headscope.studies.sweep.spec import read_spec

FILE = """\
models: [mini, EleutherAI/pythia-70m]
revisions: [step0, 1000]
corpora:
  - a.conllu
  - [b.conllu, c.txt]
types: [induction, positional]
max_tokens: 5000
twin: false
"""


@pytest.fixture
def file(tmp_path) -> Path:
    path = tmp_path / "stages.yaml"
    path.write_text(FILE)
    return path


def test_a_file_gives_lists_and_settings(file):
    spec = read_spec(file)
    assert spec.models == ("mini", "EleutherAI/pythia-70m")
    assert spec.revisions == ("step0", "1000")
    assert spec.corpora == (("a.conllu",), ("b.conllu", "c.txt"))
    assert spec.out == Path("runs/stages")
    assert spec.settings == {
        "types": ["induction", "positional"], "max_tokens": 5000, "twin": False,
    }  # fmt: skip


def test_an_option_replaces_the_files_key(file):
    spec = read_spec(file, models=["mini"], revisions=None, corpora=None, max_tokens=7, twin=True)
    assert spec.models == ("mini",)
    assert spec.revisions == ("step0", "1000")
    assert spec.settings["max_tokens"] == 7
    assert spec.settings["twin"] is True


def test_options_alone_are_enough_and_what_is_not_said_is_one_of_each():
    spec = read_spec(None, models=["mini"], types="induction, delimiter", seed=0)
    assert (spec.revisions, spec.corpora, spec.out) == ((None,), ((),), Path("runs/sweep"))
    assert spec.settings == {"types": ["induction", "delimiter"], "seed": 0}


def test_what_is_named_twice_is_run_once():
    assert read_spec(None, models=["mini", "mini"]).models == ("mini",)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("models: [mini]\nmax_token: 5", "'max_token' is no key of a sweep; choose from: models, "),
        (
            "models: [mini]\nmax_tokens: many",
            "max_tokens is 'many', expected a whole number from 1",
        ),
        ("models: [mini]\nmax_tokens: true", "max_tokens is True, expected a whole number"),
        ("models: [mini]\nseed: -1", "seed is -1, expected a whole number from 0"),
        ("models: [mini]\ntwin: 1", "twin is 1, expected True or False"),
        ("models: [[mini]]", "models is [['mini']], expected a name or a list of names"),
        ("models: []", "models is [], expected a name or a list of names, one at least"),
        (
            "models: [mini]\ncorpora: []",
            "corpora is [], expected a path or a list of paths, one at",
        ),
        ("models: [mini]\ncorpora: [a.txt, []]", "corpora is ['a.txt', []], expected a path or a"),
        ("models: [mini]\nrevisions: []", "revisions is [], expected a name or a list of names"),
        ("models: [mini]\nrevisions:", "revisions is empty, expected a name or a list of names"),
        ("models: [mini]\ntypes: []", "types is an empty list, expected a head type"),
        ("models: [a]\nseed: 1\nmodels: [b]", "models is given twice, on line 1 and on line 3;"),
        ("models: [a]\n'models': [b]", "models is given twice, on line 1 and on line 2"),
        ("models: [a]\n<<: {seed: 1}\n<<: {seed: 2}", "<< is given twice, on line 2 and on line 3"),
        ("models: [a]\nout: {b: 1,\n b: 2}", "b is given twice, on line 2 and on line 3; keep one"),
        ("seed: 1", "no models"),
        ("models: [mini]\ncorpora: 3", "corpora is 3, expected a path or a list of paths"),
        ("- mini", "holds ['mini'], but a sweep is keys with values"),
        ("", "holds None, but a sweep is keys"),
        ("models: [mini", "cannot be read as YAML: while parsing"),
        ("models: !!python/object/apply:os.system [ls]", "cannot be read as YAML: could not"),
        ("models: [mini]\n1: 2", "1 is no key of a sweep"),
    ],
)
def test_what_is_wrong_is_said_with_the_file_and_what_would_do(tmp_path, text, message):
    path = tmp_path / "bad.yaml"
    path.write_text(text)
    with pytest.raises(HeadscopeError) as error:
        read_spec(path)
    assert str(error.value).startswith(f"{path}: ")
    assert message in str(error.value)


def test_a_file_that_is_not_there_or_endless_is_named(tmp_path):
    with pytest.raises(HeadscopeError, match=r"none\.yaml: cannot be read \(No such file"):
        read_spec(tmp_path / "none.yaml")
    path = tmp_path / "long.yaml"
    path.write_text("#" * 2**21)
    with pytest.raises(HeadscopeError, match="more than 1,048,576 bytes"):
        read_spec(path)


def test_a_wrong_option_names_the_command_line(file):
    with pytest.raises(HeadscopeError, match="the command line: max_tokens is 0, expected a whole"):
        read_spec(file, max_tokens=0)


def test_python_gives_paths_and_tuples_where_yaml_has_texts_and_lists(tmp_path):
    given = read_spec(
        None, models=(tmp_path / "a", "b"), corpora=[tmp_path / "c", [tmp_path / "d", "e"]],
        out=tmp_path / "out",
    )  # fmt: skip
    assert given.models == (str(tmp_path / "a"), "b")
    assert given.corpora == ((str(tmp_path / "c"),), (str(tmp_path / "d"), "e"))
    assert given.revisions == (None,)
    assert given.out == tmp_path / "out"


def test_a_key_of_a_merge_may_be_given_again_and_an_anchor_is_read_once(tmp_path):
    path = tmp_path / "merged.yaml"
    path.write_text("<<: &own {seed: 3, max_tokens: 7}\nmodels: [mini]\nmax_tokens: 9\n")
    assert read_spec(path).settings == {"seed": 3, "max_tokens": 9}
