"""Files that the user names: what is none, or never ends, is refused in a line."""

from __future__ import annotations

import os

import pytest

import headscope as hs
from headscope.errors import HeadscopeError
from headscope.studies.sweep import read_spec
from headscope.studies.verify import read_scores

READERS = {
    "scores": read_scores,
    "file": read_spec,
    "corpus": lambda path: list(hs.read_corpus(path)),
}
"""By the name of the option."""


@pytest.mark.parametrize("option", READERS)
@pytest.mark.parametrize("kind", ["pipe", "folder", "missing"])
def test_what_is_no_file_is_refused_by_every_option(option, kind, tmp_path):
    path = tmp_path / {"corpus": "given.conllu"}.get(option, "given")
    if kind == "pipe":
        os.mkfifo(path)  # to open it would take forever
    elif kind == "folder":
        path.mkdir()
    with pytest.raises(HeadscopeError, match="given") as error:
        READERS[option](path)
    assert "\n" not in str(error.value)
