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
from types import SimpleNamespace

import numpy as np
import pytest

import headscope as hs
from headscope.corpus.window import Window
from headscope.errors import HeadscopeError, RunStoppedError
from headscope.measure.schedule import schedule
from headscope.measure.tally import Tally
from headscope.relations import relations_of
from headscope.relations.relation import Relation
from headscope.studies.sweep import shards as shards_module
from headscope.studies.sweep.shard_worker import (
    Failed,
    ModelRequest,
    Worker,
    pack_tally,
    unpack_tally,
)
from headscope.studies.sweep.shards import BATCHES, Shards, shards
from tests.helpers.shell import headscope

TYPES = ["positional", "delimiter", "induction"]
WRITTEN = ("evidence.csv", "heads.csv", "sums.npz", "patterns/examples.safetensors")


def windows(count: int) -> Iterator[Window]:
    for i in range(count):
        length = 3 + i % 7
        yield Window(f"w{i}", np.arange(length), ("a",) * length)


def steps(count: int):
    return schedule(windows(count), [], batch_tokens=60, share=lambda each: set())


def test_shards_hold_every_batch_once_and_in_order():
    whole = list(steps(300))
    parts = list(shards(steps(300)))
    found = [[w.name for w in step.batch.windows] for part in parts for step in part]
    assert found == [[w.name for w in step.batch.windows] for step in whole]
    assert all(1 <= len(part) <= BATCHES for part in parts)
    tokens = sum(step.tokens for part in parts for step in part)
    assert tokens == sum(len(window) for window in windows(300))


def test_no_shard_spans_a_merging():
    # a single document: its stretches are merged as it doubles
    parts = list(shards(steps(600)))
    starts = [part[0].batch.windows for part in parts if part[0].merges is not None]
    assert [min(int(w.name[1:]) // 128 for w in each) for each in starts] == [1, 2, 4]
    assert not any(step.merges is not None for part in parts for step in part[1:])


TWO = tuple(relation.id for relation in relations_of(["positional"])[:2])


def made_up(seed: int) -> Tally:
    tally = Tally.zeros(TWO, 2, 3)
    rng = np.random.default_rng(seed)
    for array in tally.arrays().values():
        array[...] = rng.integers(0, 3, array.shape)
    return tally


def test_a_tally_is_the_same_after_packing():
    tally = made_up(0)
    back = unpack_tally(pack_tally(tally), made_up(1))
    for name, array in tally.arrays().items():
        assert np.array_equal(array, back.arrays()[name]), name


class Ray:
    """Answers come back in an order of one's own choice."""

    def __init__(self, order):
        self.order, self.sent = order, []

    def wait(self, answers, num_returns):
        return [min(answers, key=self.order.index)], []

    def get(self, answer):
        return answer


@pytest.mark.parametrize("order", [[0, 1, 2, 3, 4, 5], [2, 0, 5, 1, 3, 4], [5, 4, 3, 2, 1, 0]])
def test_sums_come_in_the_order_of_their_steps_whichever_worker_is_done_first(monkeypatch, order):
    ray = Ray(order)
    monkeypatch.setitem(sys.modules, "ray", ray)
    monkeypatch.setattr(shards_module, "_got", lambda answer: answer)
    backend = Shards(2)
    number = iter(range(6))
    worker = SimpleNamespace(read=SimpleNamespace(remote=lambda *_: next(number)))
    backend._workers = [worker, worker]
    parts = [[step] for step in list(steps(300))[:6]]
    found = list(backend._spread(iter(parts), (None, None), 0, False))
    assert [answer for _, answer in found] == [0, 1, 2, 3, 4, 5]
    assert [shard for shard, _ in found] == parts


def test_a_shard_goes_to_the_worker_with_the_least_work_and_not_with_the_fewest_shards(monkeypatch):
    given: list[tuple[int, int]] = []

    class Sent:
        def __init__(self, number: int) -> None:
            self.number = number

        def remote(self, asked, shard, *_):
            given.append((self.number, max(len(w) for step in shard for w in step.batch.windows)))
            return len(given)

    monkeypatch.setitem(sys.modules, "ray", Ray(list(range(1, 20))))
    monkeypatch.setattr(shards_module, "_got", lambda answer: answer)
    backend = Shards(2)
    backend._workers = [SimpleNamespace(read=Sent(number)) for number in range(2)]
    lengths = [4_000, 100, 100, 100]
    text = [Window(f"w{n}", np.arange(n), ("a",) * n) for n in lengths]
    parts = [
        [step]
        for one in text
        for step in schedule([one], [], batch_tokens=60, share=lambda _: set())
    ]
    list(backend._spread(iter(parts), (None, None), 0, False))
    assert given == [(0, 4_000), (1, 100), (1, 100), (1, 100)]


def test_a_worker_tells_errors_as_messages_and_changes_between_model_and_twin(gpt2_folder):
    worker = Worker(1)
    told = worker.facts(ModelRequest("nowhere/at/all", {}))
    assert told == Failed("nowhere/at/all: no such folder")
    # this kind of error cannot be sent as it is
    assert (
        "no dtype named 'int8'"
        in worker.facts(ModelRequest(str(gpt2_folder), {"dtype": "int8"})).message
    )
    asked, relations = ModelRequest(str(gpt2_folder), {}), relations_of(["positional"])
    facts = worker.facts(asked)
    assert (facts.layers, facts.heads, facts.engine.name) == (2, 4, "fused")
    with pytest.raises(HeadscopeError, match="in other processes"):
        facts.engine.matrices()
    some = list(steps(20))
    sums = [worker.read(asked, some, relations, 0, twin) for twin in (None, 3, None, 3, 4)]
    sums = [packed for packed, _ in sums]
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
    """Text of many short documents: enough of them that their stretches are joined."""
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
    with Shards(2) as backend:
        yield backend


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
        str(gpt2_folder), corpus, out=tmp_path / "run", backend=cluster,
        progress=lambda done, total: seen.append((done, total)), **OPTIONS,
    )  # fmt: skip
    assert equal_files(alone, tmp_path / "run")
    loss, split = (hs.load(run).info["text_loss"] for run in (alone, tmp_path / "run"))
    assert split == pytest.approx(loss, abs=2e-3)  # a worker has another number of threads
    done, total = seen[-1]
    assert done == total
    assert [done for done, _ in seen] == sorted(done for done, _ in seen)


def test_workers_end_a_reading_where_one_process_does(cluster, tmp_path):
    asked = {"types": ["positional"], "max_tokens": 20_000, "examples": False, "twin": False}
    hs.classify("mini", out=tmp_path / "one", **asked)
    run = hs.classify("mini", out=tmp_path / "two", backend=cluster, **asked)
    assert run.info["text_read"]["tokens"] < run.info["text_read"]["of"]
    assert equal_files(tmp_path / "one", tmp_path / "two")


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
        backend=cluster, **SHORT,
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
        hs.classify("nowhere/at/all", backend=cluster)
    run = hs.classify(str(gpt2_folder), corpus, backend=cluster, examples=False, **OPTIONS)
    assert run.heads["primary"].tolist() == hs.load(alone).heads["primary"].tolist()


@pytest.fixture
def running_cluster(monkeypatch):
    """The address of a Ray cluster that somebody else has started, and that asks for no token."""
    pytest.importorskip("ray")
    # else Ray takes one where an earlier cluster has left it, and clients do not
    monkeypatch.setenv("RAY_AUTH_MODE", "disabled")
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


@pytest.mark.slow
def test_a_running_cluster_is_joined_and_left_running(
    running_cluster, alone, gpt2_folder, corpus, tmp_path
):
    file = tmp_path / "sweep.yaml"
    settings = {"models": [str(gpt2_folder)], "corpora": [str(corpus)], "out": str(tmp_path / "s")}
    file.write_text(json.dumps(settings | OPTIONS))  # JSON is YAML
    for _ in range(2):  # the second time nothing is left to do
        done = headscope("sweep", "run", file, "--address", running_cluster, "--engine-workers", 2)
        assert done.returncode == 0, done.stderr
    (run,) = (path.parent for path in (tmp_path / "s").rglob("heads.csv"))
    assert equal_files(alone, run)
    assert "as it was" in done.stderr


@pytest.mark.parametrize("then", ["cluster", "here"])
def test_a_run_of_workers_that_was_broken_off_goes_on_in_any_backend(
    cluster, alone, gpt2_folder, corpus, tmp_path, then
):
    told = []

    def stop(done, total):
        if done > 2000:
            raise KeyboardInterrupt

    with pytest.raises(RunStoppedError, match="the same command goes on from there"):
        hs.classify(
            str(gpt2_folder), corpus, out=tmp_path / "run", backend=cluster, keep_every=0,
            progress=stop, **OPTIONS,
        )  # fmt: skip
    hs.classify(
        str(gpt2_folder), corpus, out=tmp_path / "run", tell=told.append,
        backend=cluster if then == "cluster" else None, **OPTIONS,
    )  # fmt: skip
    assert "goes on with the run that was broken off" in told[0]
    assert equal_files(alone, tmp_path / "run")
