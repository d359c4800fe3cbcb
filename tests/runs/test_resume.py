"""A run that is broken off, also by a full disk, goes on and ends with the same bytes."""

from __future__ import annotations

import math
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

import headscope as hs
from headscope.errors import RunError, RunStoppedError
from headscope.measure.batch_reader import BatchReader
from headscope.measure.loss_check import LossCheck
from headscope.measure.second_reading import SecondReading
from headscope.models import stream
from headscope.runs import checkpoint
from headscope.runs.checkpoint import SUMS_VERSION, run_identity
from tests.helpers.disks import disk, fill
from tests.helpers.models import save_model
from tests.helpers.run_folders import content, state_of

TEXT = "Alice was very tired. She looked at the old keys again. "
# windows so short that stretches are merged on the way
OPTIONS = {
    "types": ["induction", "positional"],
    "max_tokens": 1500,
    "max_length": 16,
    "direct_effects": True,
}


class BrokenOffError(Exception):
    """An error that breaks a run off."""


@pytest.fixture(scope="module", autouse=True)
def small_batches():
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(stream, "BATCH_TOKENS", 240)
        patch.setattr(checkpoint, "EVERY", 0.0)
        yield


@pytest.fixture(scope="module")
def corpus(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("corpus")
    for name in ("a", "b"):
        (folder / f"{name}.txt").write_text(TEXT * 90)
    return folder


@pytest.fixture(scope="module")
def progress_of_whole() -> list[int]:
    """Tokens that were read after each batch of the whole run."""
    return []


@pytest.fixture(scope="module")
def whole(gpt2_folder, corpus, progress_of_whole, tmp_path_factory) -> Path:
    def count(done: int, total: int) -> None:
        progress_of_whole.append(done)

    out = tmp_path_factory.mktemp("whole") / "run"
    hs.classify(str(gpt2_folder), corpus, out=out, progress=count, **OPTIONS)
    del progress_of_whole[0]  # the first call says that nothing is done
    return out


def after_batches(number: int, act: Callable[[], None]) -> Callable[[int, int], None]:
    """Progress that acts when so many batches were read, counted."""
    calls = 0

    def count(done: int, total: int) -> None:
        nonlocal calls
        calls += 1
        if calls == number + 1:  # the first call says that nothing is done
            act()

    return count


def broken(model: Path, corpus: Path, out: Path, after: int, **more) -> list[str]:
    """Break a run off after so many batches."""
    told: list[str] = []

    def stop() -> None:
        raise BrokenOffError

    with pytest.raises(BrokenOffError):
        hs.classify(
            str(model),
            corpus,
            out=out,
            progress=after_batches(after, stop),
            on_message=told.append,
            **{**OPTIONS, **more},
        )
    return told


@pytest.fixture(scope="module")
def halted(gpt2_folder, corpus, tmp_path_factory) -> Path:
    """The state of a run that was broken off after three batches."""
    out = tmp_path_factory.mktemp("halted") / "run"
    broken(gpt2_folder, corpus, out, 3)
    return state_of(out)


@pytest.fixture(scope="module")
def another(gpt2_folder, corpus, tmp_path_factory) -> Path:
    """A whole run by another seed."""
    out = tmp_path_factory.mktemp("another") / "run"
    hs.classify(str(gpt2_folder), corpus, out=out, **{**OPTIONS, "seed": 1})
    return out


@pytest.fixture
def unfinished(halted, tmp_path) -> Path:
    """Folder in which that run would have been written, with its state next to it."""
    out = tmp_path / "run"
    shutil.copytree(halted.parent, state_of(out).parent)
    return out


def test_a_run_broken_off_twice_ends_with_the_same_bytes(
    gpt2_folder, corpus, whole, progress_of_whole, tmp_path
):
    count = len(progress_of_whole)
    assert count > 20
    for first, second in ((1, count), (count // 2, count - 1)):
        out = tmp_path / f"{first}"
        assert broken(gpt2_folder, corpus, out, first) == []
        (line,) = broken(gpt2_folder, corpus, out, second)
        assert line.startswith("resumes the interrupted run: ")
        told: list[str] = []
        hs.classify(str(gpt2_folder), corpus, out=out, on_message=told.append, **OPTIONS)
        assert len(told) == 1
        assert content(out) == content(whole)
        # counted and drawn from all of the text, not from what was left of it
        assert hs.load(out).info["text_loss"] == hs.load(whole).info["text_loss"]
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(
        str(n) for n in (1, count // 2)
    )


def test_a_run_stopped_after_its_last_batch_has_kept_all_batches(
    gpt2_folder, corpus, whole, tmp_path, monkeypatch
):
    def stop(second_reading: SecondReading) -> LossCheck:
        raise BrokenOffError

    out = tmp_path / "run"
    with monkeypatch.context() as patch:
        patch.setattr(checkpoint, "EVERY", math.inf)
        patch.setattr(checkpoint, "EVERY_AT_END", 0.0)
        patch.setattr(SecondReading, "text_loss", stop)
        with pytest.raises(BrokenOffError):
            hs.classify(str(gpt2_folder), corpus, out=out, **OPTIONS)
    monkeypatch.setattr(BatchReader, "read", stop)  # no batch is read again
    hs.classify(str(gpt2_folder), corpus, out=out, **OPTIONS)
    assert content(out) == content(whole)


def test_batches_that_are_done_are_not_run_again(gpt2_folder, corpus, tmp_path, monkeypatch):
    from headscope.models.engines.fused import FusedEngine

    out = tmp_path / "run"
    run, seen = FusedEngine.run, []

    def watched(self, tokens, *more, **how):
        seen.append(tokens.shape)
        return run(self, tokens, *more, **how)

    monkeypatch.setattr(FusedEngine, "run", watched)
    broken(gpt2_folder, corpus, out, 12)
    first = len(seen)
    broken(gpt2_folder, corpus, out, 13)
    # one batch, and the checks of the model as it is loaded
    assert first - (len(seen) - first) == 11


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ({"max_tokens": 1200}, "its settings max_tokens was 1500, and here it is 1200"),
        (
            {"engine": "lens", "direct_effects": False},
            "its engine was 'fused', and here it is 'lens'",
        ),
    ],
)
def test_other_settings_are_refused_and_named(gpt2_folder, corpus, unfinished, more, message):
    out = unfinished
    before = state_of(out).read_bytes()
    with pytest.raises(RunError) as error:
        hs.classify(str(gpt2_folder), corpus, out=out, **{**OPTIONS, **more})
    assert str(state_of(out)) in str(error.value)
    assert message in str(error.value)
    assert state_of(out).read_bytes() == before
    assert not out.exists()


def test_sums_that_do_not_fit_into_memory_are_not_called_damaged(
    gpt2_folder, corpus, unfinished, monkeypatch
):
    def fail(*_):
        raise MemoryError

    monkeypatch.setattr(checkpoint, "from_npz", fail)
    with pytest.raises(RunError, match="memory") as error:
        hs.classify(str(gpt2_folder), corpus, out=unfinished, **OPTIONS)
    assert "--overwrite" not in str(error.value)
    assert state_of(unfinished).is_file()


def test_another_model_of_the_same_name_is_refused(tokenizer, corpus, tmp_path):
    model, out = tmp_path / "model", tmp_path / "run"
    save_model("gpt2", tokenizer, model)
    broken(model, corpus, out, 3)
    save_model("gpt2", tokenizer, model, spread=0.5)
    with pytest.raises(RunError, match=r"weights_sha256 model\.safetensors"):
        hs.classify(str(model), corpus, out=out, **OPTIONS)


def test_another_text_is_refused(gpt2_folder, tmp_path):
    corpus, out = tmp_path / "corpus", tmp_path / "run"
    corpus.mkdir()
    for name in ("a", "b"):
        (corpus / f"{name}.txt").write_text(TEXT * 90)
    broken(gpt2_folder, corpus, out, 12)
    (corpus / "c.txt").write_text(TEXT)
    with pytest.raises(RunError, match=r"c\.txt"):
        hs.classify(str(gpt2_folder), corpus, out=out, **OPTIONS)
    (corpus / "c.txt").unlink()
    for name in ("a", "b"):
        (corpus / f"{name}.txt").write_text(TEXT.replace("keys", "doors") * 90)
    with pytest.raises(RunError, match=r"[ab]\.txt"):
        hs.classify(str(gpt2_folder), corpus, out=out, **OPTIONS)


def test_a_damaged_state_is_named_and_overwrite_starts_anew(
    gpt2_folder, corpus, whole, unfinished, tmp_path
):
    out = unfinished
    path = state_of(out)
    raw = path.read_bytes()
    middle = len(raw) // 2
    for damaged in (raw[:-1], raw[:middle] + bytes([raw[middle] ^ 1]) + raw[middle + 1 :]):
        path.write_bytes(damaged)
        with pytest.raises(RunError, match=f"^{path}"):
            hs.classify(str(gpt2_folder), corpus, out=out, **OPTIONS)
    told: list[str] = []
    hs.classify(
        str(gpt2_folder), corpus, out=out, overwrite=True, on_message=told.append, **OPTIONS
    )
    assert told[0].startswith("starts again, because ")
    assert content(out) == content(whole)
    assert [p.name for p in tmp_path.iterdir()] == ["run"]


def test_overwrite_goes_on_with_its_own_run_and_keeps_the_old_one_until_then(
    gpt2_folder, corpus, whole, another, tmp_path
):
    out = tmp_path / "run"
    shutil.copytree(another, out)
    old = content(out)
    broken(gpt2_folder, corpus, out, 9, overwrite=True)
    assert content(out) == old
    told: list[str] = []
    hs.classify(
        str(gpt2_folder), corpus, out=out, overwrite=True, on_message=told.append, **OPTIONS
    )
    assert told[0].startswith("resumes")
    assert content(out) == content(whole)


def test_an_interruption_says_how_to_go_on(gpt2_folder, corpus, tmp_path):
    out = tmp_path / "run"
    with pytest.raises(RunStoppedError, match="resumes") as stop:
        hs.classify(str(gpt2_folder), corpus, out=out, progress=interrupt, **OPTIONS)
    assert str(state_of(out).parent) in str(stop.value)
    with pytest.raises(KeyboardInterrupt) as plain:
        hs.classify(str(gpt2_folder), corpus, progress=interrupt, **OPTIONS)
    assert not isinstance(plain.value, RunStoppedError)


def interrupt(done: int, total: int) -> None:
    if done:
        stop_here()


def stop_here() -> None:
    raise KeyboardInterrupt


@pytest.mark.parametrize(
    ("batches", "cache", "place"),
    [
        (6, "cache", "cache/unfinished"),
        (6, "small/cache", "small/.run.partial"),
        (0, "cache", "cache/unfinished"),
        (0, "small/cache", ""),
    ],
)
def test_a_full_disk_keeps_sums_where_there_is_room_and_the_run_goes_on_from_them(
    batches, cache, place, gpt2_folder, corpus, whole, tmp_path, monkeypatch
):
    """By `place`; without a checkpoint from before and without room the sums are lost."""
    monkeypatch.setenv("HEADSCOPE_CACHE", str(tmp_path / cache))
    with disk(tmp_path / "small", "size=64m") as small:
        out = small / "run"
        with pytest.raises(RunError) as error:
            hs.classify(
                str(gpt2_folder),
                corpus,
                out=out,
                progress=after_batches(batches, lambda: fill(small)),
                **OPTIONS,
            )
        assert "No space left on device" in str(error.value)
        assert str(tmp_path / (place or "small/.run.partial")) in str(error.value)
        assert ("lost" in str(error.value)) == (not place)
        assert not out.exists()
        (small / "filler").unlink()
        told: list[str] = []
        hs.classify(str(gpt2_folder), corpus, out=out, on_message=told.append, **OPTIONS)
        resumes = [line.startswith("resumes the interrupted run") for line in told]
        assert any(resumes) == bool(place)
        assert content(out) == content(whole)
        files = [path for path in tmp_path.rglob("*") if path.is_file()]
        assert all(path.is_relative_to(out) for path in files)


def test_a_user_without_a_home_keeps_the_sums_of_an_interrupted_run(
    gpt2_folder, corpus, whole, tmp_path, monkeypatch
):
    def no_home() -> Path:
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.setattr(checkpoint, "cache_root", no_home)
    out = tmp_path / "run"
    with pytest.raises(KeyboardInterrupt):
        hs.classify(
            str(gpt2_folder), corpus, out=out, progress=after_batches(3, stop_here), **OPTIONS
        )
    told: list[str] = []
    hs.classify(str(gpt2_folder), corpus, out=out, on_message=told.append, **OPTIONS)
    assert any(line.startswith("resumes the interrupted run") for line in told)
    assert content(out) == content(whole)
    assert [path.name for path in tmp_path.iterdir()] == ["run"]


def test_sums_of_another_meaning_are_not_resumed(gpt2_folder, corpus, unfinished, monkeypatch):
    monkeypatch.setattr("headscope.runs.checkpoint.SUMS_VERSION", SUMS_VERSION + 1)
    with pytest.raises(RunError, match="sums_version was"):
        hs.classify(str(gpt2_folder), corpus, out=unfinished, **OPTIONS)


def test_a_haystack_file_with_other_content_is_another_run(tmp_path):
    path = tmp_path / "mine.jsonl"
    path.write_text("{}")
    info = {"settings": {"haystack": [str(path)]}}
    identity = run_identity(info, {}, {})
    assert run_identity(info, {}, {}) == identity
    path.write_text("{} ")
    assert run_identity(info, {}, {}) != identity
    assert run_identity({"settings": {"haystack": ["2048"]}}, {}, {})["haystacks"] == {}
