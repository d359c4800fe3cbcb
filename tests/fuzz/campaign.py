"""Bad input for as long as one likes: `make fuzz`, or `python -m tests.fuzz.campaign --minutes 10`.

Hypothesis draws treebanks, texts, altered run folders, bad command lines and bad calls. A fault is
an exception that is none of headscope's, an input that takes ten seconds, or a gigabyte.
"""

from __future__ import annotations

import argparse
import resource
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Callable
from pathlib import Path

from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st

from tests.limits import MEGABYTES, Hang, no_hang

ROUND = 200  # inputs drawn from one seed


class BadEndError(AssertionError):
    """A bad command line or call that was not refused as it should be."""


def main() -> None:
    asked = _arguments()
    with tempfile.TemporaryDirectory() as name:
        sys.exit(_draw(Path(name), asked.minutes * 60, asked.seed))


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=10)
    parser.add_argument("--seed", type=int, default=0)
    return parser.parse_args()


def _draw(work: Path, seconds: float, first_seed: int) -> int:
    """Rounds over all targets until the time is over; the number of different faults."""
    targets, tried, read = _targets(work), Counter[str](), Counter[str]()
    faults: dict[str, str] = {}
    end, number = time.monotonic() + seconds, first_seed
    while time.monotonic() < end:
        for name, (strategy, check) in targets.items():

            @seed(number)
            @settings(
                max_examples=ROUND, database=None, deadline=None, print_blob=False,
                phases=(Phase.generate,), suppress_health_check=list(HealthCheck),
            )  # fmt: skip
            @given(strategy)
            def round_of_inputs(value: object) -> None:
                tried[name] += 1  # noqa: B023  (called before the next name)
                with no_hang():
                    read[name] += check(value)  # noqa: B023

            try:
                round_of_inputs()
            except (Exception, Hang) as error:
                where = f"{name}: {_place(error)}"
                if where not in faults:
                    faults[where] = "".join(traceback.format_exception(error))[-3000:]
                    print(f"FAULT {where}\n{faults[where]}", flush=True)
        number += 1
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
    for name, count in tried.items():
        print(f"{name}: {count} inputs tried, {read[name]} could be used")
    print(f"{sum(tried.values())} inputs, {len(faults)} different faults, {memory} MB at most")
    return len(faults) + (memory > MEGABYTES)


def _place(error: BaseException) -> str:
    """The kind of a fault, and where in headscope it arose, if there."""
    if isinstance(error, BadEndError):
        return str(error)
    frames = traceback.extract_tb(error.__traceback__)
    own = [frame for frame in frames if "/headscope/" in frame.filename] or frames
    return f"{type(error).__name__} at {Path(own[-1].filename).name}:{own[-1].lineno}"


def _targets(work: Path) -> dict[str, tuple[st.SearchStrategy, Callable[..., bool]]]:
    from tests.fuzz import calls, commands
    from tests.fuzz.corpora import check_corpus_file, conllu_bytes, text_bytes
    from tests.fuzz.desk import make_desk
    from tests.fuzz.folders import changes, check_folder, header_changes, make_run

    sound = make_run(work / "sound")
    desk = make_desk(work / "desk")
    alterations = st.one_of(
        st.tuples(st.lists(changes, min_size=1, max_size=3), st.just(False), st.booleans()),
        st.tuples(st.lists(header_changes, min_size=1), st.just(True), st.booleans()),
    )
    return {
        "conllu": (conllu_bytes, lambda raw: check_corpus_file(work / "any.conllu", raw)),
        "txt": (text_bytes, lambda raw: check_corpus_file(work / "any.txt", raw)),
        "folder": (
            alterations,
            lambda made: check_folder(sound, work, made[0], sign=made[1], pictures=made[2]),
        ),
        "command": (
            st.sampled_from(list(commands.attempts(desk))),
            lambda line: _refused(commands.try_command(desk, line)),
        ),
        "call": (
            st.sampled_from(list(calls.attempts(desk))),
            lambda each: _refused(calls.try_call(desk, *each)),
        ),
    }


def _refused(fault: object | None) -> bool:
    if fault is not None:
        raise BadEndError(str(fault))
    return False


if __name__ == "__main__":
    main()
