"""A disk that fills while a run is read costs no sums, and a run without room is not begun."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest

import headscope as hs
from headscope.errors import RunError
from headscope.models import batching
from headscope.runs import study_tables as beside
from headscope.runs.fallback import fallback_folders
from headscope.runs.run_tables import RULE_TABLE
from headscope.runs.study_tables import save_study_table
from headscope.runs.workplace import CHECKPOINT
from headscope.studies.explain.explanation import explained_run
from tests.helpers.disks import disk, fill
from tests.kill.kill import content

TEXT = "Alice was very tired. She looked at the old keys again. "
OPTIONS = {"types": ["induction", "positional"], "max_tokens": 2400, "max_length": 64}


@pytest.fixture(scope="module", autouse=True)
def small_batches():
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(batching, "BATCH_TOKENS", 240)
        yield


@pytest.fixture
def cache(tmp_path, monkeypatch) -> Path:
    monkeypatch.setenv("HEADSCOPE_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache" / "unfinished"


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


@pytest.mark.parametrize("keep_every", [0.0, 1e9], ids=["mid-run", "at the end"])
def test_sums_that_no_longer_fit_are_kept_elsewhere_and_found_there(
    keep_every, gpt2_folder, corpus, whole, tmp_path, cache
):
    with disk(tmp_path / "small", "size=64m") as small:
        out = small / "run"
        with pytest.raises(RunError) as error:
            hs.classify(
                str(gpt2_folder), corpus, out=out, keep_every=keep_every,
                progress=filling(small, 6), **OPTIONS,
            )  # fmt: skip
        (kept,) = cache.glob(f"*/{CHECKPOINT}")
        assert "No space left on device" in str(error.value)
        assert f"tokens are kept in {kept.parent}; free " in str(error.value)
        assert "give the same command again, which goes on from there" in str(error.value)
        assert not out.exists()
        (small / "filler").unlink()
        assert gone_on(gpt2_folder, corpus, out).startswith("goes on with the run")
        assert content(out) == content(whole)
        assert sorted(path.name for path in small.iterdir()) == ["run"]
        assert list(cache.iterdir()) == []


def test_sums_that_were_kept_before_stay_where_nothing_else_has_room(
    gpt2_folder, corpus, whole, tmp_path, monkeypatch
):
    monkeypatch.setenv("HEADSCOPE_CACHE", "")
    with disk(tmp_path / "small", "size=64m") as small:
        monkeypatch.setattr(tempfile, "tempdir", str(small))
        out = small / "run"
        with pytest.raises(RunError, match=r"sums that were kept before in .* are still there"):
            hs.classify(
                str(gpt2_folder), corpus, out=out, keep_every=0.0,
                progress=filling(small, 6), **OPTIONS,
            )  # fmt: skip
        (small / "filler").unlink()
        assert "were read" in gone_on(gpt2_folder, corpus, out)
        assert content(out) == content(whole)


def test_that_nothing_could_be_kept_is_said(gpt2_folder, corpus, tmp_path, monkeypatch):
    monkeypatch.setenv("HEADSCOPE_CACHE", "")
    with disk(tmp_path / "small", "size=64m") as small:
        monkeypatch.setattr(tempfile, "tempdir", str(small))
        with pytest.raises(RunError, match="could be kept nowhere else and are lost; free "):
            hs.classify(
                str(gpt2_folder), corpus, out=small / "run", progress=filling(small, 6), **OPTIONS
            )


def test_sums_in_a_folder_that_others_may_write_to_are_not_taken(
    gpt2_folder, corpus, tmp_path, cache
):
    with disk(tmp_path / "small", "size=64m") as small:
        out = small / "run"
        with pytest.raises(RunError):
            hs.classify(str(gpt2_folder), corpus, out=out, progress=filling(small, 6), **OPTIONS)
        (small / "filler").unlink()
        (folder,) = cache.iterdir()
        assert folder in fallback_folders(small / ".run.partial")
        folder.chmod(0o777)
        assert gone_on(gpt2_folder, corpus, out) == ""


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


def test_a_table_that_no_longer_fits_into_its_run_is_kept_elsewhere(
    whole, gpt2_folder, tmp_path, monkeypatch
):
    (tmp_path / "temporary").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "temporary"))
    with disk(tmp_path / "small", "size=64m") as small:
        out = shutil.copytree(whole, small / "run")
        before = content(out)
        explained = hs.explain(str(gpt2_folder), "gold", windows=8)
        run = hs.Run.of(explained_run(hs.load(out), explained))
        fill(small)
        # the disk had room when it was checked
        monkeypatch.setattr(beside, "check_study_table", lambda *_, **__: None)
        with pytest.raises(RunError, match="what was to be written there is kept in ") as error:
            save_study_table(run, out, RULE_TABLE, report=run.report)
        kept = Path(str(error.value).rpartition(" is kept in ")[2])
        assert (kept / "rules.csv").read_text().startswith("layer,head,")
        assert content(out) == before
