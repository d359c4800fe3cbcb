"""Runs that are split among processes: the same bits, whatever comes back when, or is killed."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import headscope as hs
from headscope.corpus.window import Window
from headscope.errors import HeadscopeError
from headscope.relations import relations_of
from headscope.relations.relation import Relation
from headscope.schedule import schedule
from headscope.sweep.shards import BATCHES, Shard, Shards, shards
from headscope.sweep.worker import Asked, Failed, Worker, pack, unpack
from headscope.tally import Tally
from tests.test_cli import headscope

TYPES = ["positional", "delimiter", "induction"]
WRITTEN = ("evidence.csv", "heads.csv", "tally.safetensors", "patterns/examples.safetensors")


def windows(count: int) -> Iterator[Window]:
    for i in range(count):
        length = 3 + i % 7
        yield Window(f"w{i}", np.arange(length), ("a",) * length)


def steps(count: int):
    return schedule(windows(count), [], batch_tokens=60, share=lambda each: set())


def test_shards_hold_every_batch_once_and_in_order():
    whole = list(steps(300))
    parts = list(shards(steps(300)))
    found = [[w.name for w in step.batch.windows] for part in parts for step in part.steps]
    assert found == [[w.name for w in step.batch.windows] for step in whole]
    assert all(1 <= len(part.steps) <= BATCHES for part in parts)
    assert sum(part.tokens for part in parts) == sum(len(window) for window in windows(300))
    assert all(step.opens is None for part in parts for step in part.steps)


def test_no_shard_spans_a_halving_and_each_counts_those_before_it():
    # 128 windows fill the blocks; each doubling from there on halves once
    assert {part.halvings for part in shards(steps(128))} == {0}
    parts = list(shards(steps(600)))
    assert [part.halvings for part in parts] == sorted(part.halvings for part in parts)
    starts = {}
    for part in parts:
        starts.setdefault(part.halvings, part.steps[0].batch.windows)
    places = [min(int(w.name[1:]) // 128 for w in each) for each in starts.values()]
    assert places == [0, 1, 2, 4]


TWO = tuple(relation.id for relation in relations_of(["positional"])[:2])


def made_up(seed: int) -> Tally:
    tally = Tally.zeros(TWO, 2, 3)
    rng = np.random.default_rng(seed)
    for array in tally.arrays().values():
        array[...] = rng.integers(0, 3, array.shape)
    return tally


def test_a_tally_is_the_same_after_packing():
    tally = made_up(0)
    back = unpack(pack(tally), made_up(1))
    for name, array in tally.arrays().items():
        assert np.array_equal(array, back.arrays()[name]), name


def test_shards_that_come_late_are_halved_as_often_as_the_total(monkeypatch):
    """The sums of each order equal those of one process, which halves between its chunks."""
    parts = [Shard([], halvings) for halvings in (0, 0, 1, 1, 2)]
    tallies = [made_up(seed) for seed in range(5)]
    expected = Tally.zeros(TWO, 2, 3)
    for place, tally in enumerate(tallies):
        if place in (2, 4):
            expected.halve()
        expected += tally
    relations = relations_of(["positional"])[:2]
    for order in ([0, 1, 2, 3, 4], [2, 0, 4, 1, 3], [4, 3, 2, 1, 0]):
        measurer = Shards(1)
        measurer._shape = (2, 3)
        coming = [(parts[i], pack(tallies[i])) for i in order]
        monkeypatch.setattr(measurer, "_spread", lambda *_, coming=coming: iter(coming))
        monkeypatch.setattr("headscope.sweep.shards.shards", lambda steps: iter(()))
        total = measurer._add([], relations, 0, None, lambda tokens: None)
        for name, array in expected.arrays().items():
            assert np.array_equal(array, total.arrays()[name]), (name, order)


def test_a_worker_tells_errors_as_messages_and_changes_between_model_and_twin(gpt2_folder):
    worker = Worker(1)
    told = worker.facts(Asked("nowhere/at/all", {}))
    assert told == Failed("nowhere/at/all: no such folder")
    # this kind of error cannot be sent as it is
    assert (
        "no dtype named 'int8'" in worker.facts(Asked(str(gpt2_folder), {"dtype": "int8"})).message
    )
    asked, relations = Asked(str(gpt2_folder), {}), relations_of(["positional"])
    facts = worker.facts(asked)
    assert (facts.layers, facts.heads, facts.engine.name) == (2, 4, "fused")
    with pytest.raises(HeadscopeError, match="in other processes"):
        facts.engine.matrices()
    some = list(steps(20))
    sums = [worker.read(asked, some, relations, 0, twin) for twin in (None, 3, None, 3, 4)]
    assert same(sums[0], sums[2])
    assert same(sums[1], sums[3])
    assert not same(sums[0], sums[1])
    assert not same(sums[1], sums[4])


def same(one, other) -> bool:
    return all(
        np.array_equal(a, b) for name in one for a, b in zip(one[name], other[name], strict=True)
    )


@pytest.fixture(scope="module")
def corpus(tmp_path_factory) -> Path:
    """Text of many short documents: enough windows that the sums are halved."""
    words = "Alice looked at the old keys again , and she was tired of them . ".split()
    path = tmp_path_factory.mktemp("corpus") / "many.conllu"
    rows = []
    for document in range(300):
        rows.append(f"# newdoc id = d{document}")
        some = [words[(document + i) % len(words)] for i in range(5 + document % 4)]
        rows += [f"{i}\t{w}\t{w}\tX\t_\t_\t{i - 1}\tdep\t_\t_" for i, w in enumerate(some, 1)]
        rows.append("")
    path.write_text("\n".join([*rows, ""]))
    return path


@pytest.fixture(scope="module")
def cluster():
    pytest.importorskip("ray")
    with Shards(2) as measurer:
        yield measurer


SHORT = {"max_length": 64, "max_tokens": 4000}
OPTIONS = {"types": TYPES, **SHORT}


@pytest.fixture(scope="module")
def alone(gpt2_folder, corpus, tmp_path_factory) -> Path:
    """The run of one process."""
    folder = tmp_path_factory.mktemp("alone") / "run"
    run = hs.classify(str(gpt2_folder), corpus, out=folder, **OPTIONS)
    assert run.info["provenance"]["tokens"] > 4000
    return folder


def test_two_workers_write_the_same_bytes_as_one_process(
    cluster, alone, gpt2_folder, corpus, tmp_path
):
    seen = []
    hs.classify(
        str(gpt2_folder), corpus, out=tmp_path / "run", measurer=cluster,
        progress=lambda done, total: seen.append((done, total)), **OPTIONS,
    )  # fmt: skip
    assert equal_files(alone, tmp_path / "run")
    done, total = seen[-1]
    assert done == total
    assert [done for done, _ in seen] == sorted(done for done, _ in seen)


@pytest.fixture(scope="module")
def unharmed(gpt2_folder, corpus, tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("unharmed") / "run"
    hs.classify(str(gpt2_folder), corpus, out=folder, relations=deadly(None, 0), **SHORT)
    return folder


@pytest.mark.parametrize("look", [1, 2], ids=["model", "twin"])
def test_a_worker_that_is_killed_amid_a_batch_changes_no_bit(
    cluster, unharmed, gpt2_folder, corpus, tmp_path, look
):
    """A window is looked at once for the model, and again if the twin reads it too."""
    deaths = tmp_path / "deaths"
    deaths.mkdir()
    hs.classify(
        str(gpt2_folder), corpus, out=tmp_path / "run", relations=deadly(deaths, look),
        measurer=cluster, **SHORT,
    )  # fmt: skip
    assert (deaths / "killed").exists()
    assert equal_files(unharmed, tmp_path / "run")


def deadly(deaths: Path | None, look: int) -> list[Relation]:
    """The positional relations; the first kills the process that looks this often at a window."""
    first, *rest = relations_of(["positional"])
    here = os.getpid()

    def pairs(window):
        if deaths is not None and os.getpid() != here and not (deaths / "killed").exists():
            looks = deaths / window.name
            looks.write_text(f"{looks.read_text() if looks.exists() else ''}.")
            if len(looks.read_text()) == look:
                (deaths / "killed").touch()
                os.kill(os.getpid(), signal.SIGKILL)
        return first.pairs(window)

    return [replace(first, pairs=pairs), *rest]


def equal_files(one: Path, other: Path) -> bool:
    return all((one / name).read_bytes() == (other / name).read_bytes() for name in WRITTEN
               if (one / name).exists() or (other / name).exists())  # fmt: skip


def test_a_model_that_is_not_there_fails_and_the_workers_go_on(cluster, alone, gpt2_folder, corpus):
    with pytest.raises(HeadscopeError, match="nowhere/at/all: no such folder"):
        hs.classify("nowhere/at/all", measurer=cluster)
    run = hs.classify(str(gpt2_folder), corpus, measurer=cluster, examples=False, **OPTIONS)
    assert run.heads["primary"].tolist() == hs.load(alone).heads["primary"].tolist()


@pytest.fixture
def running_cluster():
    """The address of a Ray cluster that somebody else has started."""
    pytest.importorskip("ray")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{free.getsockname()[1]}"
    process = subprocess.Popen(
        [Path(sys.executable).parent / "ray", "start", "--head", "--block", "--num-cpus=2",
         "--node-ip-address=127.0.0.1", f"--port={address.partition(':')[2]}",
         "--include-dashboard=false", "--disable-usage-stats"],
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
    )  # fmt: skip
    said = []
    while (line := process.stdout.readline()) and "--block" not in line:
        said.append(line)
    assert process.poll() is None, "".join(said)
    yield address
    assert process.poll() is None  # it is not ours to end
    process.terminate()
    process.wait(60)


def test_a_running_cluster_is_joined_and_left_running(
    running_cluster, alone, gpt2_folder, corpus, tmp_path
):
    file = tmp_path / "sweep.yaml"
    settings = {"models": [str(gpt2_folder)], "corpora": [str(corpus)], "out": str(tmp_path / "s")}
    file.write_text(json.dumps(settings | OPTIONS))  # JSON is YAML
    for _ in range(2):  # the second time nothing is left to do
        done = headscope("sweep", file, "--address", running_cluster, "--engine-workers", 2)
        assert done.returncode == 0, done.stderr
    (run,) = (path.parent for path in (tmp_path / "s").rglob("heads.csv"))
    assert equal_files(alone, run)
    assert "as it was" in done.stderr
