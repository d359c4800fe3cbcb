"""Whatever was done to a run folder, it is used soundly or refused with a reason."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.fuzz.folders import changes, check_folder, header_changes, make_run


@pytest.mark.parametrize(("keep_sums", "count"), [(False, 14), (True, 9)])
def test_any_run_folder_is_used_soundly_or_refused(tmp_path, keep_sums, count):
    """The same few folders each time; `make fuzz` draws others."""
    sound = make_run(tmp_path / "sound", keep_sums=keep_sums)
    assert check_folder(sound, tmp_path, [], sign=False)
    assert check_folder(sound, tmp_path, [], sign=True)
    used = []

    @settings(
        max_examples=count, derandomize=True, deadline=None, database=None,
        suppress_health_check=list(HealthCheck),
    )  # fmt: skip
    @given(
        st.one_of(
            changes.map(lambda made: (made, False)), header_changes.map(lambda made: (made, True))
        )
    )
    def alter(drawn):
        made, sign = drawn
        used.append(check_folder(sound, tmp_path, [made], sign=sign))

    alter()
    assert not all(used)
