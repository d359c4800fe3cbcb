"""Files that take long come first, and nothing else is moved."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

from tests.order import LONG, pytest_collection_modifyitems

HERE = Path(__file__).parent


def test_every_long_file_is_there_and_listed_once():
    assert [name for name in LONG if not (HERE / name).is_file()] == []
    assert len(set(LONG)) == len(LONG)


def test_long_files_come_first_longest_first_and_each_file_keeps_its_order():
    names = ("a.py", LONG[1], "b.py", LONG[0], LONG[1], "a.py")
    items = [SimpleNamespace(path=HERE / name, number=number) for number, name in enumerate(names)]
    pytest_collection_modifyitems(SimpleNamespace(rootpath=HERE.parent), items)
    assert [item.number for item in items] == [3, 1, 4, 0, 2, 5]
