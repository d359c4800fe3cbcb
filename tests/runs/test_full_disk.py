"""A disk that fills leaves nothing half-written, and a run without room is not begun."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

import headscope as hs
from headscope.errors import RunError
from headscope.models import stream
from headscope.runs import store
from headscope.runs.store import save_study_table
from headscope.runs.tables import RULE_TABLE
from headscope.studies.explain.explanation import explained_run
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
    """What a second process says of the first."""
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


def test_a_run_without_room_for_its_sums_is_refused_before_it_is_read(
    gpt2_folder, corpus, whole, tmp_path
):
    """What is refused would not have fitted: the sums are the largest file of a run, not all."""
    out = tmp_path / "whole"
    hs.classify(str(gpt2_folder), corpus, out=out, keep_sums=True, **OPTIONS)
    sums = (out / "tally.safetensors").stat().st_size
    size = sum(path.stat().st_size for path in whole.rglob("*") if path.is_file())
    assert size < sums
    with disk(tmp_path / "small", f"size={sums - 50_000}") as small:
        with pytest.raises(RunError, match=r"will take at least .* MB, and .* MB are free there"):
            hs.classify(str(gpt2_folder), corpus, out=small / "run", keep_sums=True, **OPTIONS)
        assert list(small.iterdir()) == []
    with disk(tmp_path / "large", f"size={size + 200_000}") as large:
        hs.classify(str(gpt2_folder), corpus, out=large / "run", **OPTIONS)
        assert content(large / "run") == content(whole)


def test_a_table_that_no_longer_fits_leaves_its_run_whole(
    whole, gpt2_folder, tmp_path, monkeypatch
):
    with disk(tmp_path / "small", "size=64m") as small:
        out = shutil.copytree(whole, small / "run")
        before = content(out)
        explained = hs.explain(str(gpt2_folder), "gold", windows=8)
        run = hs.Run.of(explained_run(hs.load(out), explained))
        fill(small)
        # the disk had room when it was checked
        monkeypatch.setattr(store, "check_study_table", lambda *_, **__: None)
        with pytest.raises(RunError, match="cannot be written: No space left on device"):
            save_study_table(run, out, RULE_TABLE, report=run.report)
        assert content(out) == before
