"""Where CI is set, a skip that nobody foresaw fails the run: a test that never runs holds nothing."""

from __future__ import annotations

import os

import pytest

FORESEEN = (
    "needs GPT-2's vocabulary in",
    "needs smollm2 in the cache",
    "needs minilm in the cache",
    "needs a GPU",
    "needs a browser",
    "nothing can be mounted here",
    "needs Neuronpedia's programs in",
    "needs psycopg2 and python-dotenv",
    "needs Postgres",
)
"""How the reasons of those begin that depend on the machine and not on what is installed."""
OUTPUT = "unforeseen_skips"


def pytest_configure(config: pytest.Config) -> None:
    if os.environ.get("CI"):
        config.pluginmanager.register(Watch())


class Watch:
    """Notes unforeseen skips; xdist's workers tell theirs when they end."""

    def __init__(self) -> None:
        self.found: dict[str, str] = {}

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self._note(report)

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        self._note(report)

    def _note(self, report: pytest.TestReport | pytest.CollectReport) -> None:
        if not report.skipped or hasattr(report, "wasxfail"):
            return
        place = report.longrepr
        reason = place[2] if isinstance(place, tuple) else str(place)
        reason = reason.removeprefix("Skipped: ")
        if not reason.startswith(FORESEEN):
            self.found[report.nodeid] = reason

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: object) -> None:
        self.found |= getattr(node, "workeroutput", {}).get(OUTPUT, {})

    @pytest.hookimpl(tryfirst=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        if hasattr(session.config, "workeroutput"):
            session.config.workeroutput[OUTPUT] = self.found
        if self.found:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        if self.found:
            terminalreporter.section("skips that were not foreseen", red=True)
        for name, reason in self.found.items():
            terminalreporter.line(f"{name}: {reason}")
