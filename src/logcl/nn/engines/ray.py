"""A Ray cluster as an engine (`pip install 'logcl[ray]'`): jobs run on whichever machine has room.

A job whose worker or machine dies is run again on another. What jobs say on the way comes back through a
small actor on this machine, which this process asks a few times a second.
"""

from __future__ import annotations

import os
import socket
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, TypeVar

import torch

from logcl.core.errors import BadSettings, EngineFailed, LogCLError
from logcl.core.progress import Progress, Silent
from logcl.core.settings import Frozen
from logcl.core.sharding import Shard
from logcl.nn.engines import Job
from logcl.nn.engines.remote_progress import Message, Reporter, Shown

try:
    import ray
    from ray.exceptions import RayError, RayTaskError
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy
except ImportError as missing:
    raise BadSettings("ray is not installed; run pip install 'logcl[ray]', or use this machine") from missing

T = TypeVar("T")

_RETRIES = 5
"""How often a job is begun again because its worker died."""
_PAUSE = 0.3
"""Seconds between two looks at what jobs say."""
_SMALL = (str, int, float, bool, Path, type(None), Frozen)
"""What travels with every job; anything else is sent once, however many jobs share it."""
_HELD = 4
"""How many of these are remembered."""


class Ray:
    """Runs jobs on a Ray cluster.

    address: "auto" or host:port of a running cluster; None starts Ray on this machine for as long as the
    engine is open.
    workers: at most so many jobs at once; by default as many as the cluster has processors for.
    threads: of each job; by default as many as torch has here, so that results are the same to the bit as
    without a cluster. With one (OMP_NUM_THREADS=1) a cluster has room for the most jobs.

    LogCL must be installed on all machines; data and models travel with the jobs.
    """

    def __init__(
        self, address: str | None = None, *, workers: int | None = None, threads: int | None = None
    ) -> None:
        for name, value in (("workers", workers), ("threads", threads)):
            if value is not None and value < 1:
                raise BadSettings(f"{name} is {value}; it must be at least 1")
        self.threads = threads or torch.get_num_threads()
        self._owner = not ray.is_initialized()
        if self._owner:
            _connect(address)
        nodes = [node["Resources"] for node in ray.nodes() if node["Alive"]]
        largest = int(max(node.get("CPU", 0) for node in nodes))
        self._cpus = max(min(self.threads, largest), 1)
        self._gpus = int(any(node.get("GPU", 0) for node in nodes))
        room = sum(int(node.get("CPU", 0)) // self._cpus for node in nodes)
        self.workers = workers or max(room, 1)
        self._here = NodeAffinitySchedulingStrategy(ray.get_runtime_context().get_node_id(), soft=False)
        self._board = ray.remote(_Board).options(num_cpus=0, scheduling_strategy=self._here).remote()
        self._sent: list[tuple[Any, Any]] = []

    def run(self, jobs: Iterable[Job[T]], progress: Progress) -> Iterator[tuple[Job[T], T]]:
        """As they are done. If nobody waits for them any more, those under way are stopped."""
        waiting = iter(jobs)
        running: dict[Any, tuple[int, Job[T]]] = {}
        shown = Shown(progress)
        number = 0
        call = ray.remote(_call).options(
            num_cpus=self._cpus, num_gpus=self._gpus, max_retries=_RETRIES, runtime_env=self._environment()
        )
        try:
            while True:
                while len(running) < self.workers and (job := next(waiting, None)) is not None:
                    number += 1
                    sent = [self._reference(argument) for argument in job.arguments]
                    running[call.remote(self._board, number, self.threads, job.function, *sent)] = number, job
                if not running:
                    return
                done, _ = ray.wait(list(running), num_returns=1, timeout=_PAUSE)
                shown.show(self._news())
                for reference in done:
                    finished, job = running.pop(reference)
                    shown.end(finished)
                    yield job, _result(reference, job.name)
        finally:
            self._sent = []
            shown.close()
            for reference in running:
                ray.cancel(reference, force=True)

    def together(self, job: Job[T], progress: Progress) -> T:
        """With Ray Train: gloo between processors, nccl between GPUs."""
        sent = [self._reference(argument) for argument in job.arguments]
        shown = Shown(progress)
        with tempfile.TemporaryDirectory(prefix="logcl-") as folder:
            group = _Group(self.workers, self.threads, self._cpus, self._gpus, self._environment(), folder)
            lead = ray.remote(_lead).options(num_cpus=0, max_retries=0, scheduling_strategy=self._here)
            reference = lead.remote(self._board, group, job.function, sent)
            try:
                while not ray.wait([reference], timeout=_PAUSE)[0]:
                    shown.show(self._news())
                _result(reference, job.name)
                shown.show(self._news())
            except KeyboardInterrupt:
                ray.cancel(reference, force=True)
                raise
            finally:
                self._sent = []
                shown.close()
        value: T = ray.get(self._board.handed_over.remote())
        return value

    def close(self) -> None:
        """Leave the cluster; one that this engine started ends."""
        if self._owner and ray.is_initialized():
            ray.shutdown()

    def __enter__(self) -> Ray:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _environment(self) -> dict[str, Any]:
        """What workers are started with. Threads that wait do not spin: there may be more than processors."""
        variables = {"OMP_NUM_THREADS": str(self.threads), "OMP_WAIT_POLICY": "PASSIVE"}
        if "LOGCL_DEVICE" in os.environ:
            variables["LOGCL_DEVICE"] = os.environ["LOGCL_DEVICE"]
        return {"env_vars": variables}

    def _reference(self, argument: Any) -> Any:
        if isinstance(argument, _SMALL):
            return argument
        for value, reference in self._sent:
            if value is argument:
                return reference
        reference = ray.put(argument)
        self._sent = [*self._sent[1 - _HELD :], (argument, reference)]
        return reference

    def _news(self) -> list[Message]:
        news: list[Message] = ray.get(self._board.news.remote())
        return news


def _connect(address: str | None) -> None:
    try:
        host, colon, port = (address or "").rpartition(":")
        if colon and port.isdigit() and "/" not in host:
            # Ray itself would try for minutes.
            socket.create_connection((host, int(port)), timeout=10).close()
        # Silent: what Ray says of itself would break the progress bars.
        ray.init(address=address, log_to_driver=False, logging_level="ERROR", include_dashboard=False)
    except (OSError, ValueError, RuntimeError) as error:
        reason = " ".join(str(error).split())[:200]
        raise EngineFailed(
            f"there is no Ray cluster at {address or 'this machine'} ({reason}); start one with "
            f"`ray start --head`"
        ) from error


def _result(reference: Any, name: str) -> Any:
    """What a job gave, or why it failed: LogCL's own errors as they are."""
    try:
        return ray.get(reference)
    except RayTaskError as error:
        if isinstance(error.cause, LogCLError):
            raise error.cause from error
        raise
    except RayError as error:
        raise EngineFailed(
            f"{name} could not be run on the Ray cluster ({type(error).__name__}: "
            f"{' '.join(str(error).split())[:200]}); run the same again"
        ) from error


class _Board:
    """Where jobs leave letters for the process that waits for them."""

    def __init__(self) -> None:
        self._letters: list[Message] = []
        self._value: Any = None

    def post(self, letter: Message) -> None:
        self._letters.append(letter)

    def news(self) -> list[Message]:
        letters, self._letters = self._letters, []
        return letters

    def hand_over(self, value: Any) -> None:
        self._value = value

    def handed_over(self) -> Any:
        value, self._value = self._value, None
        return value


def _call(board: Any, number: int, threads: int, function: Callable[..., T], *arguments: Any) -> T:
    """Run one job in a worker."""
    torch.set_num_threads(threads)
    reporter = Reporter(number, lambda letter: board.post.remote(letter))
    try:
        return function(*arguments, reporter)
    finally:
        reporter.send()


@dataclass(frozen=True)
class _Group:
    """The processes that work together."""

    workers: int
    threads: int
    cpus: int
    gpus: int
    environment: dict[str, Any]
    folder: str
    """Where Ray Train keeps its own notes."""


def _lead(board: Any, group: _Group, function: Callable[..., Any], arguments: Sequence[Any]) -> None:
    """Start the processes, wait for them, begin again if one of them is lost."""
    from ray.train import FailureConfig, RunConfig, ScalingConfig
    from ray.train.torch import TorchTrainer

    def loop() -> None:
        context = ray.train.get_context()
        shard = Shard(context.get_world_rank(), context.get_world_size())
        torch.set_num_threads(group.threads)
        values = [ray.get(a) if isinstance(a, ray.ObjectRef) else a for a in arguments]
        if shard.rank:
            function(*values, shard, Silent())
            return
        reporter = Reporter(0, lambda letter: board.post.remote(letter))
        ray.get(board.hand_over.remote(function(*values, shard, reporter)))
        reporter.send()

    resources = {"CPU": group.cpus} | ({"GPU": group.gpus} if group.gpus else {})
    TorchTrainer(
        loop,
        scaling_config=ScalingConfig(
            num_workers=group.workers, use_gpu=bool(group.gpus), resources_per_worker=resources
        ),
        run_config=RunConfig(
            storage_path=group.folder,
            failure_config=FailureConfig(max_failures=_RETRIES),
            worker_runtime_env=group.environment,
        ),
    ).fit()
