"""`headscope serve`: a model on a page of this machine."""

from __future__ import annotations

from typing import Annotated

import typer

from headscope.cli import complete
from headscope.cli.app import LOOK, command
from headscope.cli.options import Device, ModelOrRun, Revision, Source
from headscope.cli.terminal import say, warn


@command(
    LOOK,
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
    from headscope.serve.run import lets_others_in, live_of
    from headscope.serve.run import serve as answer

    live = live_of(model, source=source, revision=revision, device=device)
    beside = None if other is None else live_of(other, revision=revision, device=device)
    if live.run is None:
        say(f"no tags without a run; `headscope classify {model}` finds what its heads do")

    def started(address: str) -> None:
        if lets_others_in(host):
            warn(f"headscope: listening on {host}: other machines can reach this page")
        say(f"{address} (Ctrl-C ends it)")
        if not no_open:
            import webbrowser

            webbrowser.open(address)

    answer(live, beside, host=host, port=port, on_start=started)
