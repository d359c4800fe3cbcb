"""Entropy: the mean entropy of each head's attention."""

from __future__ import annotations

from headscope.runs.resolve import RunName, the_run
from headscope.studies.study import Study, study, table_columns
from headscope.views.study import StudyResult

STUDY = Study(
    rows="head",
    columns=table_columns("""
        layer | count, ≥ 0 | layer of the head
        head | count, ≥ 0 | number of the head in its layer
        entropy | nats, ≥ 0 | mean entropy of a query's attention
    """),
    bad_call={"run": 3},
)


@study(STUDY)
def entropy(run: RunName) -> StudyResult:
    """List the heads of a run by the mean entropy of their attention.

    Raises:
        RunError: no run there.
    """
    heads = the_run(run).heads[STUDY.names]
    return StudyResult(title="Entropy of each head", table=heads.sort_values("entropy"))
