"""A Ray cluster as an engine (`pip install 'logcl[ray]'`): jobs run on any machine with a free processor.

A job whose worker or machine dies is retried on another. Workers send their progress to a small actor on
this machine, which this process polls.
"""

from __future__ import annotations

import os
import socket
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from typing import Any, TypeVar

import torch

from logcl.core.errors import BadSettings, EngineFailed, LogCLError
from logcl.core.progress import Progress, Silent
from logcl.core.sharding import Shard
from logcl.nn.engines import Job
from logcl.nn.engines.remote_progress import Display, Reporter

try:
    import ray
    from ray.exceptions import RayError, RayTaskError
    from ray.util.queue import Queue
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy
except ImportError as missing:
    raise BadSettings(
        "ray is not installed; run pip install 'logcl[ray]', or leave out --engine ray"
    ) from missing

T = TypeVar("T")

_RETRIES = 5
"""How often a job is restarted because its worker died."""
_INTERVAL = 0.3
"""Seconds between two polls for messages."""
_CACHED = 16
"""Number of arguments that stay in Ray's object store: jobs often share a data set or a codec."""


class Ray(AbstractContextManager["Ray"]):
    """Runs jobs on a Ray cluster.

    address: "auto" or host:port of a running cluster; None starts one on this machine and stops it when the
    engine is closed.
    workers: maximum number of simultaneous jobs; by default as many as the cluster has processors for.
    threads: per job; by default as many as torch uses here, which makes results bit-identical to those of
    this process. With one thread (OMP_NUM_THREADS=1) the cluster has room for the most jobs.

    LogCL must be installed on all machines; data and models are sent with the jobs.
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
        self._messages = Queue(actor_options=_here())
        self._sent: list[tuple[Any, Any]] = []

    def run(self, jobs: Iterable[Job[T]], progress: Progress, **options: Any) -> Iterator[tuple[Job[T], T]]:
        """In order of completion. Closing the iterator cancels the jobs that are still running.

        `options` are those of Ray tasks, in place of the processors and retries of a job.
        """
        usual = {"num_cpus": self._cpus, "num_gpus": self._gpus, "runtime_env": self._environment()}
        waiting = iter(jobs)
        running: dict[Any, tuple[int, Job[T]]] = {}
        display = Display(progress)
        number = 0
        call = ray.remote(_call).options(**(options or {**usual, "max_retries": _RETRIES}))
        try:
            while True:
                while len(running) < self.workers and (job := next(waiting, None)) is not None:
                    number += 1
                    sent = [self._reference(argument) for argument in job.arguments]
                    reference = call.remote(self._messages, number, self.threads, job.function, *sent)
                    running[reference] = number, job
                if not running:
                    return
                done, _ = ray.wait(list(running), num_returns=1, timeout=_INTERVAL)
                display.show(self._messages.get_nowait_batch(self._messages.qsize()))
                for reference in done:
                    finished, job = running.pop(reference)
                    display.end(finished)
                    yield job, _result(reference, job.name)
        finally:
            self._sent = []
            display.end()
            for reference in running:
                ray.cancel(reference, force=True)

    def together(self, job: Job[T], progress: Progress) -> T:
        """With Ray Train: gloo between processors, nccl between GPUs."""
        from ray.train import FailureConfig, RunConfig, ScalingConfig  # slow to import

        resources = {"CPU": self._cpus} | ({"GPU": self._gpus} if self._gpus else {})
        with tempfile.TemporaryDirectory(prefix="logcl-") as folder:
            options = {
                "scaling_config": ScalingConfig(
                    num_workers=self.workers, use_gpu=bool(self._gpus), resources_per_worker=resources
                ),
                "run_config": RunConfig(
                    storage_path=folder,
                    failure_config=FailureConfig(max_failures=_RETRIES),
                    worker_runtime_env=self._environment(),
                ),
            }
            sent = [self._reference(argument) for argument in job.arguments]
            whole: Job[T] = Job(job.name, _train, (self.threads, options, job.function, sent))
            ((_, value),) = self.run([whole], progress, max_retries=0, **_here())
            return value

    def close(self) -> None:
        """Disconnect from the cluster, and stop it if this engine started it."""
        if self._owner and ray.is_initialized():
            ray.shutdown()

    def __exit__(self, *_: object) -> None:
        self.close()

    def _environment(self) -> dict[str, Any]:
        """The environment of the workers. Idle threads sleep: there may be more of them than processors."""
        device = {name: value for name, value in os.environ.items() if name == "LOGCL_DEVICE"}
        return {"env_vars": {"OMP_NUM_THREADS": str(self.threads), "OMP_WAIT_POLICY": "PASSIVE", **device}}

    def _reference(self, argument: Any) -> Any:
        """A reference to the argument in Ray's object store."""
        for value, reference in self._sent:
            if value is argument:
                return reference
        reference = ray.put(argument)
        self._sent = [*self._sent[1 - _CACHED :], (argument, reference)]
        return reference


def _connect(address: str | None) -> None:
    try:
        host, colon, port = (address or "").rpartition(":")
        if colon and port.isdigit() and "/" not in host:
            # Fail fast: Ray itself would retry for minutes.
            socket.create_connection((host, int(port)), timeout=10).close()
        # "local", because None would join any cluster on this machine, and when its owner stops it, Ray ends
        # this process too, without a message. Quiet, because Ray's own output would break the progress bars.
        ray.init(
            address=address or "local", log_to_driver=False, logging_level="ERROR", include_dashboard=False
        )
    except (OSError, ValueError, RuntimeError) as error:
        what, remedy = f"there is no Ray cluster at {address}", "start one with `ray start --head`"
        if address is None:
            what, remedy = "Ray does not start on this machine", "try again"
        raise EngineFailed(f"{what} ({_short(error)}); {remedy}") from error


def _result(reference: Any, name: str) -> Any:
    """The result of a job; raises LogCL's own errors as the job raised them."""
    try:
        return ray.get(reference)
    except RayTaskError as error:
        if isinstance(error.cause, LogCLError):
            raise error.cause from error
        raise
    except RayError as error:
        raise EngineFailed(
            f"{name} failed on the Ray cluster ({type(error).__name__}: {_short(error)}); "
            f"run the same command again"
        ) from error


def _short(error: Exception) -> str:
    """The beginning of Ray's message, which may have many lines."""
    return " ".join(str(error).split())[:200]


def _here() -> dict[str, Any]:
    """Options of an actor or task that must live as long as this process: on this machine, beside any job."""
    node = ray.get_runtime_context().get_node_id()
    return {"num_cpus": 0, "scheduling_strategy": NodeAffinitySchedulingStrategy(node, soft=False)}


def _call(messages: Queue, number: int, threads: int, function: Callable[..., T], *arguments: Any) -> T:
    """Run one job in a worker."""
    torch.set_num_threads(threads)
    reporter = Reporter(number, messages.put)
    try:
        return function(*arguments, reporter)
    finally:
        reporter.send()


def _train(
    threads: int, options: Any, function: Callable[..., T], arguments: Sequence[Any], reporter: Reporter
) -> T:
    """Run a job in all workers at once, restarting them if one is lost; the result of rank 0."""
    from ray.train.torch import TorchTrainer

    results = Queue(actor_options=_here())

    def loop() -> None:
        context = ray.train.get_context()
        shard = Shard(context.get_world_rank(), context.get_world_size())
        torch.set_num_threads(threads)
        values = ray.get(list(arguments))
        if shard.rank:
            function(*values, shard, Silent())
            return
        results.put(function(*values, shard, reporter))
        reporter.send()

    TorchTrainer(loop, **options).fit()
    value: T = results.get_nowait()
    return value
