"""Runs split among processes, on this machine or a Ray cluster; the sums are the same bit by bit.

The driver reads the corpora, makes the batches and adds up; workers hold the model. What tallies
add is exact (`headscope.measure.tally.GRAIN`), so that the order in which shards come back is of no
matter.
"""

from __future__ import annotations

import os
from collections import Counter, deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from types import TracebackType
from typing import TYPE_CHECKING, Any

from jaxtyping import Float
from numpy import ndarray

from headscope.errors import HeadscopeError, first_line
from headscope.measure.measure import empty_state
from headscope.measure.plan import BatchResult, Plan, read_plan
from headscope.measure.progress import OnProgress
from headscope.measure.schedule import Step
from headscope.models.batching import batch_tokens_on
from headscope.studies.sweep.cell_order import Turns
from headscope.studies.sweep.shard_worker import (
    Failed,
    ModelRequest,
    Worker,
    own_termination,
    silent_core,
    unpack_tally,
)

if TYPE_CHECKING:
    from headscope.measure.example import Example
    from headscope.measure.loss_check import Targets
    from headscope.measure.shadow import ShadowScore
    from headscope.models.load import Model


BATCHES = 4
"""Batches of a shard: some seconds of work, so that few are lost with a worker."""
WAITING = 2
"""Shards that a worker has at most, the one that it reads included; bounds memory."""
HELD = 4
"""Shards for each of those, whose sums may wait for those of an earlier one."""
RETRIES = 3
"""How often a shard is given to a worker that was started anew, before its cell fails."""


def shards(steps: Iterable[Step]) -> Iterator[list[Step]]:
    """Steps in groups; one before and one after a merging are never together."""
    group: list[Step] = []
    for step in steps:
        if group and (step.merges is not None or len(group) == BATCHES):
            yield group
            group = []
        group.append(step)
    if group:
        yield group


class Shards:
    """A backend whose models are held by Ray workers. Use it in a `with` statement.

    Args:
        workers: processes that each hold the model.
        address: a running Ray cluster; a local one is started when None.
        threads: of torch, in each worker.

    Raises:
        HeadscopeError: the cluster cannot be reached, or has fewer processors than workers.
    """

    def __init__(self, workers: int, *, address: str | None = None, threads: int = 1) -> None:
        self.count, self.threads = workers, threads
        self._address = address
        self._workers: list[Any] = []
        self._turns = Turns(workers)
        self._request = ModelRequest("", {})
        self._like: Any = None

    def __enter__(self) -> Shards:
        os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # nothing is reported to anyone
        # Ray's own 15 would let any other process go first
        os.environ.setdefault("RAY_worker_niceness", "0")
        import ray

        local = {"num_cpus": self.count, "include_dashboard": False} if not self._address else {}
        logging = {"log_to_driver": False, "logging_level": "ERROR"}
        try:
            with own_termination():
                ray.init(address=self._address or "local", **logging, **local)
        except (ConnectionError, RuntimeError, ValueError) as error:
            reason = first_line(error)
            token = "a cluster that asks for a token takes RAY_AUTH_MODE=token; " * bool(
                self._address
            )
            raise HeadscopeError(
                f"Ray at {self._address or 'this machine'} cannot be used: {reason:.300}; "
                f"{token}--engine-workers 0 runs without it"
            ) from error
        has = ray.cluster_resources()
        if has.get("CPU", 0) < self.count:
            _shutdown()
            raise HeadscopeError(
                f"{self.count} workers were asked for, and the cluster has {has.get('CPU', 0):g} "
                "processors; give --engine-workers at most as many"
            )
        # workers share what graphics processors there are
        gpus = min(1.0, has.get("GPU", 0) / self.count)
        # a killed worker is started anew, and the shard that it had is read again
        remote = ray.remote(num_cpus=1, num_gpus=gpus, max_restarts=-1, max_task_retries=RETRIES)(
            Worker
        )
        self._workers = [remote.remote(self.threads) for _ in range(self.count)]
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._workers = []
        _shutdown()

    def for_cell(self, turns: Turns) -> Shards:
        """The same workers for one of several cells, which take turns."""
        other = Shards(self.count, address=self._address, threads=self.threads)
        other._workers, other._turns = self._workers, turns
        return other

    def open(self, model: Any, **load_options: Any) -> Model:
        """Facts known of the model, which all workers load meanwhile.

        Raises:
            HeadscopeError: it cannot be loaded; see `headscope.models.load.load_model`.
        """
        if not isinstance(model, str):
            raise HeadscopeError(
                "Ray's workers load a model by its name or path; one that is in memory is read "
                "without Ray"
            )
        self._request = ModelRequest(model, load_options)
        self._turns.begin(self)
        first, *_ = [worker.facts.remote(self._request) for worker in self._mine]
        facts: Model = _got(first)
        self._like = facts
        return facts

    def close(self) -> None:
        """The workers keep it until they are asked for another; others may use them."""
        self._turns.end(self)

    @property
    def _mine(self) -> list[Any]:
        return [self._workers[number] for number in self._turns.workers(self)]

    def read(self, plan: Plan) -> None:
        """Read a plan, shard by shard; see `headscope.measure.plan.read_plan`."""
        import ray

        relations = ray.put(plan.relations)
        like = empty_state(self._like, plan.relations).tally

        def read(steps: Iterable[Step], twin: bool) -> Iterator[BatchResult]:
            for shard, (packed, halved) in self._spread(shards(steps), relations, plan.seed, twin):
                yield BatchResult(shard, unpack_tally(packed, like).add_to, halved)

        read_plan(plan, read, batch_tokens=batch_tokens_on(self._like.device))
        self._turns.hand_on(self)

    def token_losses(self, targets: Sequence[Targets]) -> Float[ndarray, " target"]:
        """The loaded model's loss of some tokens, by one worker."""
        losses: ndarray = self._call("token_losses", targets)
        return losses

    def score_shadows(
        self, *sample: Any, progress: OnProgress = lambda done, total: None, **limits: Any
    ) -> list[ShadowScore]:
        """Shadows of some heads, by one worker, whose progress is not heard of."""
        scores: list[ShadowScore] = self._call("score_shadows", *sample, **limits)
        return scores

    def find_examples(
        self, *sample: Any, progress: OnProgress = lambda done, total: None, **limits: Any
    ) -> list[Example]:
        """Examples of some heads, by one worker, whose progress is not heard of."""
        examples: list[Example] = self._call("find_examples", *sample, **limits)
        self._turns.end(self)
        return examples

    def _call(self, method: str, *arguments: Any, **options: Any) -> Any:
        """What a method of `InProcess` gives in the first of this cell's workers."""
        return _got(self._mine[0].call.remote(self._request, method, *arguments, **options))

    def _spread(
        self, parts: Iterable[list[Step]], relations: Any, seed: int, twin: bool
    ) -> Iterator[tuple[list[Step], Any]]:
        """Each shard with its sums, in the order in which they were sent."""
        import ray

        shuffled_by = seed if twin else None
        pending: deque[tuple[list[Step], Any]] = deque()
        worker_of: dict[Any, int] = {}
        costs: dict[Any, int] = {}
        load = Counter[int]()

        def finished() -> None:
            (done,), _ = ray.wait(list(worker_of), num_returns=1)
            load[worker_of.pop(done)] -= costs.pop(done)

        def ready() -> Iterator[tuple[list[Step], Any]]:
            # sums that came before those of an earlier shard wait for them
            while pending and pending[0][1] not in worker_of:
                shard, answer = pending.popleft()
                yield shard, _got(answer)

        for shard in parts:
            while True:
                mine = self._turns.workers(self)  # more of them when another cell has ended
                at_work = WAITING * len(mine)
                if len(worker_of) < at_work and len(pending) < HELD * at_work:
                    break
                finished()
                yield from ready()
            worker = min(mine, key=load.__getitem__)
            cost = sum(step.cost for step in shard)
            load[worker] += cost
            # a chunk has many more windows than its first batch
            light = [replace(step, opens=None) for step in shard]
            answer = self._workers[worker].read.remote(
                self._request, light, relations, seed, shuffled_by
            )
            worker_of[answer], costs[answer] = worker, cost
            pending.append((shard, answer))
        for shard, answer in pending:
            yield shard, _got(answer)


def _shutdown() -> None:
    import ray

    with own_termination(), silent_core():
        ray.shutdown()


def _got(answer: Any) -> Any:
    """A worker's answer.

    Raises:
        HeadscopeError: the worker says why there is none, or was killed again and again.
    """
    import ray

    try:
        result = ray.get(answer)
    except ray.exceptions.RayActorError as error:
        raise HeadscopeError(
            f"a worker died {RETRIES + 1} times over the same shard, perhaps for want of memory; "
            "give fewer --engine-workers"
        ) from error
    if isinstance(result, Failed):
        raise HeadscopeError(result.message)
    return result
