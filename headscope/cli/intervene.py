"""Commands that intervene: `ablate` and `explain`."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from headscope.cli.options import ModelOrRun, Overwrite, Run
from headscope.cli.study_command import StudyCall, body
from headscope.cli.terminal import print_rich, say
from headscope.printing import one_line


@body("ablate")
def ablate(call: StudyCall, run: Run, overwrite: Overwrite = False) -> None:
    """Ablate heads, and knock out the edges of their tags; writes RUN/causal.csv."""
    from headscope.run import load
    from headscope.runs.folder import REPORT
    from headscope.runs.store import check_study_table, save_study_table
    from headscope.runs.tables import CAUSE_TABLE

    loaded = load(run)
    check_study_table(run, CAUSE_TABLE, overwrite=overwrite)
    result = call.result(run=loaded)
    known = replace(loaded, causes=result.table)
    path = save_study_table(known, run, CAUSE_TABLE, report=known.report, overwrite=overwrite)
    print_rich(result.lines())
    say(f"\nwritten to {one_line(path)}; headscope why and {one_line(Path(run) / REPORT)} show it")


@body("explain")
def explain(call: StudyCall, model: ModelOrRun) -> None:
    """Fit a small rule to each head; for a run, also write RUN/rules.csv."""
    call.check()
    from headscope.run import Run, load
    from headscope.runs.folder import is_run
    from headscope.runs.store import check_study_table, save_study_table
    from headscope.runs.tables import RULE_TABLE

    folder = Path(model) if is_run(Path(model)) else None
    if folder is not None:
        check_study_table(folder, RULE_TABLE, overwrite=call.overwrite)
    from headscope.studies.explain.explanation import explained_run

    explanation = call.result()
    files = call.write(explanation)
    if folder is not None:
        run = Run.of(explained_run(load(folder), explanation))
        files.append(
            save_study_table(run, folder, RULE_TABLE, report=run.report, overwrite=call.overwrite)
        )
    call.show(explanation, files)
