"""A forecast: what is asked of a memory that is too large to try, and the answer. `simulation` finds it."""

from __future__ import annotations

import math

from pydantic import Field, model_validator

from logcl.core.settings import MOST_SAMPLES, Frozen, ImageShape


class Load(Frozen):
    """What comes, and what there is to work with."""

    image_shape: ImageShape
    samples: int = Field(ge=1, lt=MOST_SAMPLES)
    """Held at the end."""
    start: int = Field(0, ge=0)
    """Held already."""
    per_day: int = Field(ge=1, lt=MOST_SAMPLES)
    """Samples that come in a day."""
    per_task: int = Field(ge=1, lt=MOST_SAMPLES)
    """Samples that are absorbed together."""
    unit: int = Field(ge=1, le=2**40)
    nodes: int = Field(1, ge=1, le=10**6)
    cores: int = Field(1, ge=1, le=10**6)
    """Of a node."""
    network: float = Field(10.0, gt=0)
    """Between a node and the others, Gbit/s."""

    @model_validator(mode="after")
    def _grows(self) -> Load:
        if self.start >= self.samples:
            raise ValueError(f"{self.samples:,} samples in all are no more than the {self.start:,} there are")
        return self

    @property
    def days(self) -> float:
        """Until all samples are there."""
        return (self.samples - self.start) / self.per_day

    @property
    def tasks(self) -> int:
        """Until then."""
        return -(-(self.samples - self.start) // self.per_task)

    @property
    def values(self) -> int:
        """Bytes of a raw image."""
        return math.prod(self.image_shape)

    @property
    def elsewhere(self) -> float:
        """The share of the work that another node does than the first."""
        return (self.nodes - 1) / self.nodes

    @property
    def link(self) -> float:
        """Bytes a second in or out of a node."""
        return self.network * 1e9 / 8


class Spread(Frozen):
    """Of a figure over all tasks."""

    median: float
    mean: float
    high: float
    """99 of 100 tasks have no more."""
    worst: float


class Way(Frozen):
    """A way to spread the memory and its work over the nodes."""

    traffic: float
    """Bytes a day through the busiest node's link."""
    worst_traffic: float
    """For the worst task."""
    seconds: Spread
    """From a task's arrival to its commit."""
    busy: float
    """Shard of the time in which a task is being absorbed; above 1, tasks pile up."""


class Ways(Frozen):
    """From what there is today to what there could be."""

    today: Way
    """One file; each level is fitted on one core, levels side by side; pixels travel (`--engine ray`)."""
    codes: Way
    """One file; every level is worked on by all cores; codes travel to them and back, new images raw."""
    shares: Way
    """Every node keeps its share of each level, sample i on node i mod N; only new images travel."""


class WorstTask(Frozen):
    """The task that fits the most samples."""

    before: int
    after: int
    """Samples held before and after it."""
    day: float
    """When it comes."""
    levels: tuple[int, ...]
    """That it fits."""
    encoded: int
    """Samples that it fits."""
    seconds: float
    """On one core."""
    ram_bytes: float
    """In one process, as today."""
    disk_bytes: float
    """Of one file and its journal during the commit."""
    waiting: int
    """Samples that arrive meanwhile, if every node has its share."""


class Retraining(Frozen):
    """Of the global model on everything, once."""

    steps: int
    batch: int
    """Samples of a step, all nodes together."""
    core_seconds: float
    seconds: float
    node_bytes: float
    """Gradients through each node's link."""


class Today(Frozen):
    """What the memory file and `Memory.absorb` can do as they are."""

    top_level: int
    """The highest level that fits into a part of the file; -1 if none does."""
    level_samples: int
    """Samples at which the next level would be needed, less one."""
    file_samples: int
    """Samples that fit into a file."""
    files: int
    """Memories that would be needed side by side."""
    ram_bytes: float
    """That the worst task of one of these files takes."""
    load_seconds: float
    """To read and check the whole memory, which each new process begins with."""


class Forecast(Frozen):
    """The answer. Seconds are those of one core where nothing else is said."""

    tasks: int
    days: float
    task_samples: int
    """Samples that tasks were taken to have: see `carries`."""
    levels: tuple[int, ...]
    """Levels in use at the end, highest first."""
    top_samples: int
    top_bytes: float
    """Of the highest level."""
    memory_bytes: float
    raw_bytes: int
    encoded: int
    """Samples that all fits together are given."""
    encodings: float
    """The same for each sample that came."""
    most_reencodings: int
    """The lemma's bound."""
    task_encoded: Spread
    """Samples that a task fits."""
    task_seconds: Spread
    day_encoded: float
    day_seconds: float
    """On average."""
    worst_day_encoded: int
    worst_day_seconds: float
    """Of the day that begins with the worst task."""
    worst: WorstTask
    next_carry: int
    """Number of samples at which the next higher level will be begun with."""
    next_carry_days: float
    """Days from the end until then."""
    ways: Ways
    one_model_encodings: float
    """Of each sample, if one model of everything were fitted anew for every task."""
    one_model_day_seconds: float
    """That this would take a day, at the end."""
    retraining: Retraining
    """With the batch shared by all nodes, as `Classifier.train` does."""
    retraining_wide: Retraining
    """With a batch for each node."""
    today: Today
