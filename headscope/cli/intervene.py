"""Commands that intervene: `ablate` and `explain`."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from headscope.cli.shell_options import ModelOrRun, Overwrite, Run
from headscope.cli.study_command import StudyCall, body
from headscope.cli.terminal import print_rich, print_text
from headscope.printing import one_line


@body("ablate")
def ablate(call: StudyCall, run: Run, overwrite: Overwrite = False) -> None:
    """Ablate heads and knock out the edges of their tags; write RUN/causal.csv."""
    from headscope.run import load
    from headscope.runs.contents import REPORT
    from headscope.runs.folder import RunFolder
    from headscope.runs.tables import CAUSE_TABLE

    loaded, folder = load(run, with_tally=True), RunFolder(run)
    folder.check_table(CAUSE_TABLE, overwrite=overwrite)
    result = call.result(run=loaded)
    known = replace(loaded, causes=result.table)
    folder.save(known, report=known.report, overwrite=True)
    print_rich(result.lines())
    path, report = (one_line(folder.path / name) for name in (CAUSE_TABLE.file, REPORT))
    print_text(f"\nwritten to {path}; headscope why --full and {report} show it")


@body("explain")
def explain(call: StudyCall, model: ModelOrRun) -> None:
    """Fit a small feature model to each head; for a run, also write RUN/feature_model.csv."""
    call.check()
    from headscope.run import Run, load
    from headscope.runs.folder import RunFolder, is_run
    from headscope.runs.tables import FEATURE_MODEL_TABLE

    folder = RunFolder(model) if is_run(Path(model)) else None
    if folder is not None:
        folder.check_table(FEATURE_MODEL_TABLE, overwrite=call.overwrite)
    from headscope.studies.explain.explanation import explained_run

    explanation = call.result()
    files = call.write(explanation)
    if folder is not None:
        run = Run.of(explained_run(load(folder.path, with_tally=True), explanation))
        folder.save(run, report=run.report, overwrite=True)
        files.append(folder.path / FEATURE_MODEL_TABLE.file)
    call.show(explanation, files)
