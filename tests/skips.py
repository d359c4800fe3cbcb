"""Where CI is set, a skip that nobody foresaw is a failure: a test that never runs holds nothing."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

import pytest

FORESEEN = (
    "needs GPT-2's vocabulary in",
    "needs smollm2 in the cache",
    "needs minilm in the cache",
    "needs a GPU",
    "needs a browser",
    "nothing can be mounted here",
    "needs Neuronpedia's programs in",
)
"""How the reasons of those begin that depend on the machine and not on what is installed."""


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Iterator[Any]:
    return _without_skip((yield))


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report() -> Iterator[Any]:
    return _without_skip((yield))


def _without_skip(report: Any) -> Any:
    if os.environ.get("CI") and report.skipped and not hasattr(report, "wasxfail"):
        *_, reason = report.longrepr
        if not reason.removeprefix("Skipped: ").startswith(FORESEEN):
            report.outcome, report.longrepr = "failed", f"not foreseen: {reason}"
    return report
