"""Commands whose tables are kept, and the models and texts that they read."""

from __future__ import annotations

import lzma
import sys
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from headscope.models.packaged import PACKAGED

HERE = Path(__file__).parent
MODULES = HERE / "modules"
"""Files of code as they once were, compressed so that nothing takes them for source."""


class Case(NamedTuple):
    """Commands run in one folder, and the files of it whose numbers are kept.

    In a command's words `@name` is a file or folder that `INPUTS` makes, and `run` names the run
    folder that an earlier case left in the same workplace.
    """

    name: str
    commands: tuple[str, ...]
    files: tuple[str, ...]
    """Names as `Path.glob` takes them."""
    needs: str | None = None
    """A packaged model that must be in the cache, or the case is left out."""


RUN = ("*.csv", "evidence.csv.gz", "run.json", "patterns/*.safetensors", "sums.npz")
"""Files of a run folder."""
TYPES = (
    "--types positional,sink,lexical,delimiter,induction,syntactic,coreference,"
    "semantic,retrieval,code"
)


def _classify(name: str, words: str, needs: str | None = None) -> Case:
    command = f"classify {words} {TYPES} --keep-sums --out {name} --overwrite --quiet"
    return Case(name, (command,), tuple(f"{name}/{file}" for file in RUN), needs)


def _study(name: str, *commands: str, files: tuple[str, ...] = ()) -> Case:
    return Case(name, commands, files or (f"{name}*.csv",))


CASES = (
    _classify("mini", "mini"),
    _classify(
        "smollm2", f"{PACKAGED['smollm2'].path} --max-tokens 8000 --direct-effects", "smollm2"
    ),
    _classify("encoder", "@encoder --corpus @pairs --max-tokens 6000"),
    _classify("code", "mini --corpus @modules --max-tokens 6000"),
    _classify("lens", "mini --engine lens --max-tokens 2000 --corpus gold"),
    _study(
        "languages",
        "sweep languages mini --corpus @treebanks --languages en,fr,ja --max-tokens 3000 "
        "--out languages "
        "--overwrite --quiet",
        files=("languages/*.csv", "languages/*/evidence.csv.gz"),
    ),
    _study(
        "sweep",
        f"sweep run {TYPES} --models mini --corpus gold --corpus controlled --max-tokens 2000 "
        "--out sweep "
        "--quiet",
        "sweep emergence sweep --out emergence.csv --overwrite",
        files=("sweep/sweep.csv", "emergence.csv", "sweep/*/evidence.csv.gz"),
    ),
    _study("compare", "compare mini code --out compare.csv --overwrite"),
    _study("verify", "verify mini --scores @scores --as mini --out verify.csv --overwrite"),
    _study("prune", "study prune mini --max-tokens 2048 --out prune.csv --overwrite"),
    _study("explain", "explain mini --windows 8 --out explain.csv --overwrite"),
    _study("weights", "study weights mini --out weights.csv --overwrite"),
    _study("redundancy", "study redundancy mini --windows 8 --out redundancy.csv --overwrite"),
    _study(
        "collapse", "study collapse mini --mixing --max-tokens 2048 --out collapse.csv --overwrite"
    ),
    _study("anatomy", "study anatomy mini --out anatomy.csv --overwrite"),
    _study(
        "headvis",
        "export headvis mini --heads L5H1,L1H0 --sequences 40 --out headvis --overwrite",
        files=("headvis/**/*.json",),
    ),
    _study("ablate", "ablate mini --queries 16 --overwrite", files=("mini/causal.csv",)),
    _study("listed", "heads mini --format csv", files=("listed.out",)),
)


def modules(folder: Path) -> None:
    """The kept files of code."""
    folder.mkdir()
    for path in sorted(MODULES.glob("*.py.xz")):
        (folder / path.stem).write_bytes(lzma.decompress(path.read_bytes()))


def encoder(folder: Path) -> None:
    """The encoder built by hand."""
    from tests.helpers.encoders import save_hand_built

    save_hand_built(folder)


def pairs(path: Path) -> None:
    """Text for that encoder."""
    from tests.helpers.encoders import corpus

    path.mkdir()
    (path / "pairs.conllu").write_text(corpus(32, seed=1), encoding="utf-8")


def scores(path: Path) -> None:
    """Scores as a paper might publish them, of `mini`'s 6 layers × 8 heads."""
    rows = ["model,revision,metric,layer,head,value"]
    for metric in ("induction_next_token_random", "retrieval_score"):
        values = (f"{metric},{i // 8},{i % 8},{i * 37 % 100 / 100}" for i in range(48))
        rows += [f"mini,main,{value}" for value in values]
    path.write_text("\n".join(rows) + "\n", encoding="utf-8")


def treebanks(folder: Path) -> None:
    """Parallel treebanks made by hand."""
    from tests.helpers.treebanks import save_treebanks

    save_treebanks(folder)


INPUTS: dict[str, Callable[[Path], None]] = {
    make.__name__: make for make in (modules, encoder, pairs, scores, treebanks)
}


def words_of(command: str, inputs: Path) -> list[str]:
    """A command's words, with the inputs that it names made where they are not yet."""
    words = [sys.executable, "-m", "headscope"]
    for word in command.split():
        if word.startswith("@"):
            target = inputs / word[1:]
            if not target.exists():
                INPUTS[word[1:]](target)
            word = str(target)
        words.append(word)
    return words
