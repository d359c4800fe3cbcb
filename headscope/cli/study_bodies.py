"""Commands of studies that do more than call their function, write and print."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from headscope.cli.files import CSV, PICTURES, check_targets, print_study, write_study
from headscope.cli.shell_options import (
    ModelOrRun,
    Overwrite,
    Plain,
    Printed,
    Run,
    takes_settings,
)
from headscope.cli.study_command import StudyCall, body, command_of
from headscope.cli.terminal import message_listener, stop_code, warn
from headscope.errors import HeadscopeError
from headscope.options import A_RUN
from headscope.printing import one_line
from headscope.studies.study_table import imported

if TYPE_CHECKING:
    from headscope.runs.folder import RunFolder
    from headscope.runs.tables import RunTable

_LIST = "repeatable, or separated by commas"
_RUNS = "complete runs are kept, and the same command resumes"


@body("sweep")
@takes_settings("types", "quick", "max_tokens")
def sweep(
    call: StudyCall,
    settings: dict[str, Any],
    models: Annotated[
        list[str] | None,
        typer.Option(help=f"Models, as for classify; {_LIST}.", show_default=False),
    ] = None,
    revisions: Annotated[
        list[str] | None,
        typer.Option(
            help=f"Revisions of each model on the hub, or folders in a local one; {_LIST}.",
            show_default=False,
        ),
    ] = None,
    corpus: Annotated[
        list[str] | None,
        typer.Option(help="Corpora, each read on its own. Default: gum, which ships; repeatable."),
    ] = None,
    out: Annotated[
        Path | None, typer.Option(help="Folder of the sweep. Default: runs/FILE.")
    ] = None,
) -> None:
    """Classify models × revisions × corpora: a run folder each, sweep.json and sweep.csv.

    Options override keys of the file, which may be any setting of classify. Complete runs are kept,
    and the same command resumes after a stop. Failed runs are listed in sweep.csv and at the end,
    with exit code 1.
    """
    stated = {"models": models, "revisions": revisions, "corpora": corpus, "out": out}
    settings |= {name: value for name, value in stated.items() if value}
    with _kept_at_stop(_RUNS):
        result = call.result(
            on_message=message_listener(call.quiet), progress=not call.quiet, **settings
        )
    call.show(result, [])
    _exit_on(bool(result.notes))


@body("languages")
@takes_settings(
    *("types", "quick", "max_tokens"),
    help_texts={
        "types": "Head types to score: names separated by commas. Default: syntactic.",
    },
)
def languages(
    call: StudyCall,
    settings: dict[str, Any],
    corpus: Annotated[
        list[str],
        typer.Option(
            help="Treebanks or folders of them, with names of Universal Dependencies such as "
            "de_pud-ud-test.conllu; repeatable.",
            show_default=False,
        ),
    ],
    out: Annotated[Path, typer.Option(help="Folder of the runs and of languages.csv.")] = Path(
        "runs/languages"
    ),
) -> None:
    """Count the languages in which each head has a tag, with a run for each language.

    Parallel treebanks are read up to the same document. Complete runs are kept. Failed languages
    are listed, with exit code 1.
    """
    call.check()
    from headscope.studies.languages import TABLE

    listener, progress = message_listener(call.quiet), not call.quiet
    with _kept_at_stop(_RUNS):
        result = call.result(
            corpus=corpus, out=out, on_message=listener, progress=progress, **settings
        )
    call.show(result, [out / TABLE, *call.write(result)])
    _exit_on(bool(result.notes))


def _exit_on(failure: bool) -> None:
    """End with exit code 1 after a failure, such as a run of a sweep that a note names."""
    if failure:
        raise typer.Exit(1)


@contextmanager
def _kept_at_stop(message: str) -> Iterator[None]:
    """Print at a stop what is kept, and exit with the code of the stop."""
    try:
        yield
    except KeyboardInterrupt as stop:
        warn(f"headscope: stopped; {message}")
        raise typer.Exit(stop_code(stop)) from None


def changed_run(call: StudyCall, run: Path, table: RunTable) -> RunFolder | None:
    """The folder of the run that a table is put into; None if `--out` alone takes the table.

    Raises:
        RunError: it is not a folder, and `--out` is not given.
        WriteError: the run has such a table already, or it cannot be written and `--out` is not
            given.
    """
    from headscope.runs.folder import RunFolder

    folder = RunFolder(run)
    if call.out is not None and not folder.is_writable():
        return None
    folder.check_table(table, overwrite=call.overwrite)
    return folder


@body("verify")
def verify(
    call: StudyCall,
    labels: Annotated[
        Path | None,
        typer.Option(
            help="Judge labels instead: a CSV of head,label, such as L5H1,induction.",
            show_default=False,
        ),
    ] = None,
) -> None:
    """Compare a run with published scores of its heads, or judge labels of its heads.

    A label is a head type, a relation, or a name such as 'previous token' or 'name mover'. The same
    labels are judged at random heads too.
    """
    call.check()
    if labels is None:
        result = call.result()
    else:
        from headscope.studies.verify_labels import judge_labels

        if call.arguments["model"] or call.arguments["scores"]:
            raise HeadscopeError("--labels takes no --as and no --scores")
        result = judge_labels(call.arguments["run"], labels)
    call.show(result, call.write(result))


@body("task")
def task(call: StudyCall) -> None:
    """Explain your task: which heads matter, from where to where, what they write, who feeds them.

    Prompts come from a file, see docs/how-to/your_task.md. The page, the figure, the circuit and
    three tables are written to a folder. The same command goes on after a stop.
    """
    from headscope.studies.task.result import FILES

    # default folder: the name of the task
    name = Path(str(call.arguments["rows"])).stem
    out = Path(call.arguments["out"] or Path("runs/tasks") / name)
    with _kept_at_stop("finished stages are kept, and the same command goes on"):
        result = call.result(
            out=out,
            on_message=message_listener(call.quiet),
            progress=not call.quiet,
        )
    call.show(result, [out / file for file in FILES])


@body("ablate")
def ablate(call: StudyCall, run: Run) -> None:
    """Ablate heads of a run's tags, and write RUN/causal.csv.

    The table of a run that cannot be written, such as atlas:mini, is written with --out.
    """
    call.check()
    from headscope.run import load
    from headscope.runs.contents import REPORT
    from headscope.runs.tables import CAUSE_TABLE

    # the run is saved again with the table and a new report
    loaded = load(run, with_tally=True)
    folder = changed_run(call, run, CAUSE_TABLE)
    # the folder was checked before, because ablation takes minutes
    result = call.result(run=loaded)
    files = call.write(result)
    if folder is not None:
        known = replace(loaded, causes=result.table)
        folder.save(known, report=known.report, overwrite=True)
        files += [folder.path / CAUSE_TABLE.file]
    call.show(result, files)
    if folder is not None:
        warn(f"headscope why --full and {one_line(folder.path / REPORT)} show it")


@body("explain")
def explain(
    call: StudyCall,
    model: ModelOrRun,
    head: Annotated[
        str | None, typer.Argument(help="With --at: L5H1 or 5.1.", show_default=False)
    ] = None,
    at: Annotated[
        str | None,
        typer.Option(
            help="Explain the attention of HEAD at the last token of this text.", show_default=False
        ),
    ] = None,
    query: Annotated[
        int | None,
        typer.Option(
            help="With --at: position of another query, from 0.", min=0, show_default=False
        ),
    ] = None,
    plain: Plain = False,
    programs: Annotated[
        Path | None,
        typer.Option(
            help="Score the functions of this Python file, one per head, such as L5H1(tokens); the "
            "file is run.",
            show_default=False,
        ),
    ] = None,
    replace: Annotated[
        bool,
        typer.Option(
            "--replace",
            help="Run the model with feature models in place of the patterns of 10 to 100 % of the "
            "heads, and print the perplexity.",
        ),
    ] = False,
) -> None:
    """Fit a small feature model to each head; for a run, also write RUN/feature_model.csv.

    With --at the attention of one query of a head is explained, key by key. With --programs the
    heads' patterns are compared with those of your own functions. With --replace the model runs
    with the feature models in place of the patterns. None of these changes the run.
    """
    # options that belong together are checked before anything loads
    call.check()
    is_at = at is not None
    is_named = head is not None
    faults = {
        "--at needs HEAD, and HEAD --at": is_at != is_named,
        "--query needs --at": query is not None and not is_at,
        "--plain needs --at": plain and not is_at,
        "--figure needs --replace": call.figure is not None and not replace,
        "choose one of --at, --programs and --replace": is_at + (programs is not None) + replace
        > 1,
    }
    for fault, is_there in faults.items():
        if is_there:
            raise HeadscopeError(fault)
    # four functions share the command
    arguments: dict[str, Any] = {}
    if is_at:
        function = "explain.one_query:explain_at"
        arguments = {"text": at, "head": head, "query": query, "plain": plain}
    elif programs is not None:
        function = "explain.program_scores:score_programs"
        arguments = {"programs": programs}
    elif replace:
        function = "explain.replace_heads:replace_heads"
    else:
        from headscope.run import Run, load
        from headscope.runs.folder import is_run
        from headscope.runs.tables import FEATURE_MODEL_TABLE
        from headscope.studies.explain.explanation import explained_run

        # a run folder gets the table beside its own
        path = Path(model)
        folder = changed_run(call, path, FEATURE_MODEL_TABLE) if is_run(path) else None
        explanation = call.result()
        files = call.write(explanation)
        if folder is not None:
            run = Run.of(explained_run(load(folder.path, with_tally=True), explanation))
            folder.save(run, report=run.report, overwrite=True)
            files.append(folder.path / FEATURE_MODEL_TABLE.file)
        call.show(explanation, files)
        return
    result = imported(function)(**call.arguments, **arguments)
    call.show(result, call.write(result))


@command_of("compare")
def compare(
    runs: Annotated[list[Path], typer.Argument(help=f"{A_RUN}; two or more.")],
    match: Annotated[
        bool,
        typer.Option(
            "--match",
            help="Find the most similar head of the second run for each head of the first, by "
            "their lifts; the models may differ.",
        ),
    ] = False,
    out: Annotated[Path | None, typer.Option(help="Write the table to this .csv file.")] = None,
    figure: Annotated[
        Path | None,
        typer.Option(help="Draw the lift differences or similarities: a .png, .svg or .pdf file."),
    ] = None,
    fail_on: Annotated[
        list[str] | None,
        typer.Option(
            help="Exit with code 1 if this holds: 'lost induction > 0', 'sure changes > 3'; "
            "repeatable.",
            show_default=False,
        ),
    ] = None,
    overwrite: Overwrite = False,
    format: Printed = "table",
) -> None:
    """Compare runs with the first one, head by head: changed tags and lifts.

    A change counts as sure if the 95 % intervals of the lift do not overlap. With --fail-on the
    command guards a model in CI.
    """
    check_targets(out=(out, CSV), figure=(figure, PICTURES), overwrite=overwrite)
    from headscope.studies.compare import compare as compare_runs
    from headscope.studies.compare import condition_outcomes

    if match:
        from headscope.studies.match import match_heads

        if len(runs) != 2 or fail_on:
            raise HeadscopeError("--match takes two runs, and no --fail-on")
        result = match_heads(*runs)
    else:
        result = compare_runs(*runs)
    # what `--fail-on` states is printed first, and decides the exit code
    outcomes = condition_outcomes(result, fail_on) if fail_on else []
    result = replace(result, notes=(*map(str, outcomes), *result.notes))
    files = write_study(result, out, figure, overwrite=overwrite)
    print_study(result, files, format)
    _exit_on(any(outcome.failed for outcome in outcomes))
