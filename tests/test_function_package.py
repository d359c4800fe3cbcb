"""`hs` lists few names, and `hs.studies.` and tab the rest: functions, whatever was imported."""

from __future__ import annotations

import inspect
import subprocess
import sys
import warnings

import pytest

import headscope as hs
from headscope.studies.study_table import STUDIES


def test_few_names_are_listed_and_each_is_there():
    assert len(hs.__all__) <= 24
    assert set(dir(hs)) == {*hs.__all__, "__version__"}
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert all(getattr(hs, name) is not None for name in dir(hs))


@pytest.mark.parametrize("package", [hs.studies, hs.validation], ids=lambda p: p.__name__)
def test_tab_offers_what_can_be_called_and_no_module(package):
    assert dir(package) == package.__all__ == sorted(package.__all__)
    assert all(
        inspect.isfunction(value) or inspect.isclass(value)
        for value in (getattr(package, name) for name in dir(package))
    )
    with pytest.raises(AttributeError, match=r"has no attribute 'haruspicy'"):
        _ = package.haruspicy


def test_every_study_is_offered():
    assert {study.name for study in STUDIES} <= {*dir(hs.studies), *dir(hs.validation)}


FOLDERS = """
import headscope as hs
import headscope.studies.prune.pruning_curve
from headscope.studies.prune.prune_result import Pruning
from headscope.studies import prune
from headscope.studies.prune import smaller
assert hs.studies.prune is prune is headscope.studies.prune
assert prune.__module__ == "headscope.studies.prune.pruning_curve"
assert smaller.__name__ == "headscope.studies.prune.smaller"
"""


def test_a_folder_that_is_imported_does_not_take_the_place_of_its_function():
    subprocess.run([sys.executable, "-c", FOLDERS], check=True)


@pytest.mark.parametrize(
    ("name", "new"),
    [
        ("prune", "hs.studies.prune"),
        ("gallery", "hs.studies.gallery"),
        ("Pruning", "headscope.studies.prune.prune_result.Pruning"),
    ],
)
def test_a_name_of_an_older_headscope_works_and_says_the_new_one(name, new):
    with pytest.warns(DeprecationWarning, match=rf"^hs\.{name} is now {new}; the old name") as said:
        value = getattr(hs, name)
    assert value.__name__ == name
    assert len(said) == 1
    assert name not in dir(hs)


def test_the_line_that_has_an_old_name_is_named():
    words = ("-W", "error::DeprecationWarning:__main__", "-c", "import headscope as hs; hs.prune")
    done = subprocess.run([sys.executable, *words], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "DeprecationWarning: hs.prune is now hs.studies.prune" in done.stderr


def test_names_for_extensions_work_without_a_word():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for name in (
            "Document",
            "Study",
            "controls",
            "data_folder",
            "read_corpus",
            "window_of_tokens",
        ):
            assert getattr(hs, name).__name__.rpartition(".")[2] == name


def test_a_name_that_never_was_is_refused():
    with pytest.raises(AttributeError, match="module 'headscope' has no attribute 'haruspicy'"):
        _ = hs.haruspicy
