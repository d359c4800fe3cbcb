"""Runs split among processes, on this machine or a Ray cluster; the sums are the same bit by bit.

The driver reads the corpora, makes the batches and adds up; workers hold the model. What tallies
add is exact (`headscope.tally.GRAIN`), so that the order in which shards come back is of no matter.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from types import TracebackType
from typing import TYPE_CHECKING, Any, NamedTuple

from headscope.corpus.window import Window
from headscope.errors import HeadscopeError
from headscope.measurer import Keep, Progress, ProgressOf, batch_tokens_on
from headscope.relations.relation import Relation
from headscope.schedule import Choose, Step, schedule
from headscope.sweep.worker import Asked, Failed, Worker, unpack
from headscope.tally import Pass, Tally

if TYPE_CHECKING:
    import pandas as pd

    from headscope.example import Example
    from headscope.models import Model

BATCHES = 4
"""Batches of a shard: some seconds of work, so that few are lost with a worker."""
WAITING = 2
"""Shards that a worker has at most, the one that it reads included; bounds memory."""
RETRIES = 3
"""How often a shard is given to a worker that was started anew, before its cell fails."""


class Shard(NamedTuple):
    """Batches that one worker reads at once."""

    steps: list[Step]
    halvings: int
    """How often the sums had been halved before these are added."""

    @property
    def tokens(self) -> int:
        """Its tokens, padding left out."""
        return sum(len(window) for step in self.steps for window in step.batch.windows)


def shards(steps: Iterable[Step]) -> Iterator[Shard]:
    """Steps in groups; one before and one after a halving are never together."""
    group: list[Step] = []
    halvings = 0
    for step in steps:
        if group and (step.halves or len(group) == BATCHES):
            yield Shard(group, halvings)
            group = []
        halvings += step.halves
        # a chunk has many more windows than its first batch
        group.append(replace(step, opens=None))
    if group:
        yield Shard(group, halvings)


class Shards:
    """A measurer whose models are held by Ray workers. Use it in a `with` statement.

    Args:
        workers: processes that each hold the model.
        address: a running Ray cluster; a local one is started when None.
        threads: of torch, in each worker.

    Raises:
        HeadscopeError: the cluster cannot be reached, or has fewer processors than workers.
    """

    resumes = False

    def __init__(self, workers: int, *, address: str | None = None, threads: int = 1) -> None:
        self.again = 0
        self.count, self.threads = workers, threads
        self._address = address
        self._workers: list[Any] = []
        self._kept: list[Step] = []
        self._asked = Asked("", {})
        self._shape: tuple[int, int] = (0, 0)
        self._batch_tokens = 0

    def __enter__(self) -> Shards:
        os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # nothing is reported to anyone
        # Ray's own 15 would let any other process go first
        os.environ.setdefault("RAY_worker_niceness", "0")
        import ray

        local = {"num_cpus": self.count, "include_dashboard": False} if not self._address else {}
        try:
            ray.init(
                address=self._address or "local", log_to_driver=False, logging_level="ERROR",
                **local,
            )  # fmt: skip
        except (ConnectionError, RuntimeError, ValueError) as error:
            reason = str(error).strip().split("\n")[0]
            raise HeadscopeError(
                f"Ray at {self._address or 'this machine'} cannot be used: {reason:.300}; "
                "--engine-workers 0 runs without it"
            ) from error
        has = ray.cluster_resources()
        if has.get("CPU", 0) < self.count:
            ray.shutdown()
            raise HeadscopeError(
                f"{self.count} workers were asked for, and the cluster has {has.get('CPU', 0):g} "
                "processors; give --engine-workers at most as many"
            )
        # workers share what graphics processors there are
        gpus = min(1.0, has.get("GPU", 0) / self.count)
        # a killed worker is started anew, and the shard that it had is read again
        remote = ray.remote(
            num_cpus=1, num_gpus=gpus, max_restarts=-1, max_task_retries=RETRIES
        )(Worker)  # fmt: skip
        self._workers = [remote.remote(self.threads) for _ in range(self.count)]
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:  # fmt: skip
        import ray

        self._workers = []
        ray.shutdown()

    def load(self, name: str, **how: Any) -> Model:
        """What is known of the model, which all workers load meanwhile.

        Raises:
            HeadscopeError: it cannot be loaded; see `headscope.models.load_model`.
        """
        self._asked = Asked(name, how)
        first, *_ = [worker.facts.remote(self._asked) for worker in self._workers]
        model: Model = _got(first)
        self._shape = model.layers, model.heads
        self._batch_tokens = batch_tokens_on(model.device)
        return model

    def check_twin(self) -> None:
        """The workers find out by themselves."""

    def measure(
        self, text: Iterable[Window], synthetic: Sequence[Window], relations: Sequence[Relation],
        *, seed: int, share: Choose, progress: Progress, so_far: Pass, keep: Keep,
    ) -> Tally:  # fmt: skip
        """The sums of the loaded model, from the start; see `headscope.measure.measure`."""
        self._kept = []
        steps = schedule(text, synthetic, batch_tokens=self._batch_tokens, share=share)
        tally = self._add(self._keep(steps), relations, seed, None, progress)
        self.again = sum(len(window) for step in self._kept for window in step.batch.windows)
        return tally

    def measure_twin(
        self, relations: Sequence[Relation], *, seed: int, progress: Progress, so_far: Pass,
        keep: Keep,
    ) -> Tally:  # fmt: skip
        """The sums of its twin on the windows that `share` chose before."""
        return self._add(self._kept, relations, seed, seed, progress)

    def find_examples(
        self, windows: Sequence[Window], relations: Sequence[Relation], evidence: pd.DataFrame,
        *, seed: int, progress: ProgressOf = lambda done, total: None,
    ) -> list[Example]:  # fmt: skip
        """Examples of the tagged heads, by one worker, whose progress is not heard of."""
        found: list[Example] = _got(
            self._workers[0].find_examples.remote(self._asked, windows, relations, evidence, seed)
        )
        return found

    def _keep(self, steps: Iterable[Step]) -> Iterator[Step]:
        for step in steps:
            if step.shared:
                self._kept.append(replace(step, opens=None))  # the twin's sums are never halved
            yield step

    def _add(
        self, steps: Iterable[Step], relations: Sequence[Relation], seed: int, twin: int | None,
        progress: Progress,
    ) -> Tally:  # fmt: skip
        """The sums of all shards: an earlier one is halved as often as the total was since."""
        total = Tally.zeros(tuple(relation.id for relation in relations), *self._shape)
        halved = 0
        for shard, packed in self._spread(shards(steps), relations, seed, twin):
            own = unpack(packed, total)
            while halved < shard.halvings:
                total.halve()
                halved += 1
            for _ in range(halved - shard.halvings):
                own.halve()
            total += own
            progress(shard.tokens)
        return total

    def _spread(
        self, parts: Iterable[Shard], relations: Sequence[Relation], seed: int, twin: int | None
    ) -> Iterator[tuple[Shard, Any]]:
        """Each shard with its sums, in the order in which they come."""
        import ray

        sent = ray.put(relations)
        waiting: dict[Any, tuple[int, Shard]] = {}
        load = Counter(dict.fromkeys(range(len(self._workers)), 0))

        def next_done() -> tuple[Shard, Any]:
            (done,), _ = ray.wait(list(waiting), num_returns=1)
            worker, shard = waiting.pop(done)
            load[worker] -= 1
            return shard, _got(done)

        for shard in parts:
            if len(waiting) == WAITING * len(self._workers):
                yield next_done()
            worker = min(load, key=load.__getitem__)
            load[worker] += 1
            read = self._workers[worker].read
            waiting[read.remote(self._asked, shard.steps, sent, seed, twin)] = (worker, shard)
        while waiting:
            yield next_done()


def _got(answer: Any) -> Any:
    """A worker's answer.

    Raises:
        HeadscopeError: the worker says why there is none, or was killed again and again.
    """
    import ray

    try:
        found = ray.get(answer)
    except ray.exceptions.RayActorError as error:
        raise HeadscopeError(
            f"a worker died {RETRIES + 1} times over the same shard, perhaps for want of memory; "
            "give fewer --engine-workers"
        ) from error
    if isinstance(found, Failed):
        raise HeadscopeError(found.message)
    return found
