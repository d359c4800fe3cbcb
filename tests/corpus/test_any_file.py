"""Whatever is in a corpus file, it is read soundly or refused with its name."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, given, settings

from tests.fuzz.corpora import check_corpus_file, conllu_bytes, text_bytes
from tests.limits import TIMES


@pytest.mark.parametrize(("name", "contents"), [("a.conllu", conllu_bytes), ("a.txt", text_bytes)])
def test_any_file_is_read_soundly_or_refused(tmp_path, name, contents):
    read = []

    @settings(
        max_examples=60 * TIMES,
        derandomize=TIMES == 1,
        deadline=None,
        database=None,
        suppress_health_check=list(HealthCheck),
    )
    @given(contents)
    def check(raw):
        read.append(check_corpus_file(tmp_path / name, raw))

    check()
    assert sum(read) > len(read) / 8
