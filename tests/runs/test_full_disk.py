"""A disk that fills leaves nothing half-written, and the run goes on when there is room."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

import headscope as hs
from headscope.errors import RunError
from headscope.models import stream
from tests.helpers.disks import disk, fill
from tests.kill.kill import content

TEXT = "Alice was very tired. She looked at the old keys again. "
OPTIONS = {"types": ["induction", "positional"], "max_tokens": 2400, "max_length": 64}


@pytest.fixture(scope="module", autouse=True)
def small_batches():
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(stream, "BATCH_TOKENS", 240)
        yield


@pytest.fixture(scope="module")
def corpus(tmp_path_factory) -> Path:
    path = tmp_path_factory.mktemp("corpus") / "a.txt"
    path.write_text(TEXT * 180)
    return path


@pytest.fixture(scope="module")
def whole(gpt2_folder, corpus, tmp_path_factory) -> Path:
    out = tmp_path_factory.mktemp("whole") / "run"
    hs.classify(str(gpt2_folder), corpus, out=out, **OPTIONS)
    return out


def filling(folder: Path, after: int) -> Callable[[int, int], None]:
    """Progress that fills a disk when so many batches were read."""
    calls = 0

    def count(done: int, total: int) -> None:
        nonlocal calls
        calls += 1
        if calls == after + 1:  # the first call says that nothing is done
            fill(folder)

    return count


def gone_on(model: Path, corpus: Path, out: Path) -> str:
    """Lines that a second process says of the first."""
    told: list[str] = []
    hs.classify(str(model), corpus, out=out, tell=told.append, **OPTIONS)
    return "; ".join(told)


def test_sums_that_were_kept_before_stay_and_the_run_goes_on_from_them(
    gpt2_folder, corpus, whole, tmp_path
):
    with disk(tmp_path / "small", "size=64m") as small:
        out = small / "run"
        with pytest.raises(RunError) as error:
            hs.classify(
                str(gpt2_folder), corpus, out=out, keep_every=0.0,
                progress=filling(small, 6), **OPTIONS,
            )  # fmt: skip
        assert "No space left on device" in str(error.value)
        assert "; the sums are kept in " in str(error.value)
        assert not out.exists()
        (small / "filler").unlink()
        assert gone_on(gpt2_folder, corpus, out).startswith("goes on with the run")
        assert content(out) == content(whole)
        assert sorted(path.name for path in small.iterdir()) == ["run"]


def test_that_nothing_could_be_kept_is_said_in_one_message(gpt2_folder, corpus, tmp_path):
    with disk(tmp_path / "small", "size=64m") as small:
        with pytest.raises(RunError, match="No space left on device; the sums are lost; free "):
            hs.classify(
                str(gpt2_folder), corpus, out=small / "run", progress=filling(small, 6), **OPTIONS
            )
        (small / "filler").unlink()
        assert list(small.iterdir()) == []
