"""Commands that intervene: `ablate` and `explain`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from headscope.cli.files import say_written
from headscope.cli.options import ModelOrRun, Overwrite, Run
from headscope.cli.study_command import StudyCall, body
from headscope.cli.terminal import print_rich, say
from headscope.printing import one_line


@body("ablate")
def ablate(call: StudyCall, run: Run, overwrite: Overwrite = False) -> None:
    """Silence heads, and the edges their tags speak of; writes RUN/causal.csv."""
    from headscope.run import Run as Loaded
    from headscope.run import load
    from headscope.runs.folder import REPORT
    from headscope.runs.run_tables import CAUSE_TABLE
    from headscope.runs.study_tables import check_study_table, save_study_table
    from headscope.studies.ablate.ablate_result import causes_table

    loaded = load(run)
    check_study_table(run, CAUSE_TABLE, overwrite=overwrite)
    ablation = call.result(run=loaded)
    known = Loaded.of(ablation.run)
    path = save_study_table(known, run, CAUSE_TABLE, report=known.report, overwrite=overwrite)
    print_rich(causes_table(ablation.causes))
    say(f"\nwritten to {one_line(path)}; headscope why and {one_line(Path(run) / REPORT)} show it")


@body("explain")
def explain(
    call: StudyCall,
    model: ModelOrRun,
    propose: Annotated[
        bool, typer.Option("--propose", help="Print relation files for frequent rules instead.")
    ] = False,
) -> None:
    """Say what each head does as a small rule, and run the model on its rules.

    Of a run it also writes RUN/rules.csv, which headscope why and the report show.
    """
    call.check()
    from headscope.run import Run, load
    from headscope.runs.folder import is_run
    from headscope.runs.run_tables import RULE_TABLE
    from headscope.runs.study_tables import check_study_table, save_study_table
    from headscope.studies.explain.explain_view import explanation_lines

    folder = Path(model) if is_run(Path(model)) else None
    run = None if folder is None else load(folder)
    if folder is not None:
        check_study_table(folder, RULE_TABLE, overwrite=call.overwrite)
    explanation = call.result(model=run or model)
    files = call.write(explanation)
    if run is not None and folder is not None:
        known = Run.of(explanation.put_into(run))
        table = save_study_table(
            known, folder, RULE_TABLE, report=known.report, overwrite=call.overwrite
        )
        files.append(table)
    if propose:
        say(explanation.proposals())
    else:
        print_rich(explanation_lines(explanation))
    say_written(files)
