"""Measure all head types of models and pack the results as atlases.

    make atlas                                                  # those that ship, into data/atlas
    python data/atlas/make.py gpt2 EleutherAI/pythia-1.4b --out atlases --gallery site

The atlases that ship are of all text that ships. MODELS are names as for `headscope classify`,
`mini`, `minilm` and `smollm2` by default; others are fetched from the hub. Each run is kept in
RUNS, and an interrupted run goes on. A model that cannot be read is said at the end, and the others
are packed. `--gallery` writes their reports as a site as well. Where --out is this folder,
`data/README.md` gets the new checksum.
"""

from __future__ import annotations

import argparse
import re
import sys
from pathlib import Path

from pack import export_atlases

import headscope as hs
from headscope.corpus.read import file_sha256
from headscope.models.locate import run_name
from headscope.models.packaged import reserved_names
from headscope.runs.atlas import TABLE
from headscope.runs.site import check_site
from headscope.views.gallery import gallery

HERE = Path(__file__).parent
README = HERE.parent / "README.md"
ALL_THAT_SHIPS = 1_000_000
"""More tokens than the text that ships has in any tokenizer."""


def main() -> None:
    """Read the command line, and do what it says."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("models", nargs="*", default=sorted(reserved_names()))
    parser.add_argument("--out", type=Path, default=HERE, help="folder of the atlases")
    parser.add_argument("--runs", type=Path, default=Path("runs/atlas"), help="folder of the runs")
    parser.add_argument("--gallery", type=Path, help="write a site of the reports, too")
    parser.add_argument("--device", default="auto")
    parser.add_argument(
        "--max-tokens", type=int, help="default: all text that ships for its atlases, else 40,000"
    )
    arguments = parser.parse_args()
    check_site(arguments.out, overwrite=True)  # before minutes of work
    is_shipped = arguments.out.resolve() == HERE.resolve()
    # one maker waits so that every reader has verdicts on all text
    whole = is_shipped and arguments.max_tokens is None
    settings = hs.Settings(
        types="all",
        max_tokens=ALL_THAT_SHIPS if whole else arguments.max_tokens or hs.Settings().max_tokens,
        all=whole,
        device=arguments.device,
        # so that another processor gives the same numbers
        dtype="float32",
    )
    runs, refusals = [], []
    for model in arguments.models:
        try:
            runs.append(measure(model, arguments.runs / run_name(model), settings))
        except hs.HeadscopeError as error:
            refusals.append(f"{model}: {error}")
    if runs:
        print(export_atlases(runs, arguments.out, with_tables=not is_shipped))
        state_checksum(arguments.out)
        if arguments.gallery:
            print(gallery(*runs, out=arguments.gallery, light=True, overwrite=True))
    if refusals:
        sys.exit("\n".join(refusals))


def measure(model: str, folder: Path, settings: hs.Settings) -> Path:
    """Classify a model into its run folder."""
    print(f"{model} → {folder}", file=sys.stderr)
    hs.classify(model, settings=settings, out=folder, overwrite=True)
    return folder


def state_checksum(out: Path) -> None:
    """Have `data/README.md` state the checksum of the table, where the table is this folder's."""
    if out.resolve() == HERE.resolve():
        row = re.compile(rf"(sha256 of `atlas/{TABLE}` \| `)[0-9a-f]{{64}}`")
        text = README.read_text(encoding="utf-8")
        README.write_text(row.sub(rf"\g<1>{file_sha256(out / TABLE)}`", text), encoding="utf-8")


if __name__ == "__main__":
    main()
