"""A comparison as a guard: it fails on what it was asked to fail on, and says which heads."""

from __future__ import annotations

import pytest
from typer.testing import CliRunner

from headscope.cli import app
from headscope.errors import ChoiceError, RunError
from headscope.studies.compare import changed, compare, condition_of, condition_outcomes

TYPES = ("induction", "positional", "unclassified")


def run(*arguments: object):
    return CliRunner().invoke(app, ["compare", *map(str, arguments)])


def test_a_lost_type_fails_with_exit_code_1_and_names_the_head(before, after):
    done = run(before, after, "--fail-on", "lost induction > 0")
    assert done.exit_code == 1
    assert "FAILED: lost induction > 0: 1 heads (L1H2)" in " ".join(done.stdout.split())


def test_what_is_within_bounds_passes(before, after):
    done = run(before, after, "--fail-on", "lost induction > 1", "--fail-on", "sure lost >= 9")
    assert done.exit_code == 0
    assert "passed: lost induction > 1: 1 heads (L1H2)" in " ".join(done.stdout.split())
    assert run(before, before, "--fail-on", "changes > 0").exit_code == 0


def test_changes_that_may_be_noise_are_told_apart(before, after):
    found = compare(before, after)
    every, sure = condition_outcomes(found, ["changes > 0", "sure changes > 0"])
    rows = found.table[changed(found.table)]
    assert len(every.heads) == len(rows)
    assert len(sure.heads) == every.sure == int((rows["sure"] != "").sum())
    noise = len(rows) - every.sure
    assert (f"{noise} of which may be noise" in str(every)) == (noise > 0)


def test_several_runs_are_named(before, after):
    (found,) = condition_outcomes(compare(before, after, before), ["lost induction > 0"])
    assert found.heads == ("after L1H2",)


@pytest.mark.parametrize(
    "text", ["lost", "lost > x", "more than 3", "changes induction > 0", "lost >= 0", "lost > -1"]
)
def test_what_is_no_condition_is_refused(text):
    with pytest.raises(RunError, match=r"is no condition; write for example"):
        condition_of(text, TYPES)


def test_a_type_that_the_runs_do_not_know_is_refused():
    with pytest.raises(ChoiceError, match="no head type in these runs named 'indction'"):
        condition_of("lost indction > 0", TYPES)
    assert condition_of("sure  gained positional >= 2", TYPES).limit == 1
