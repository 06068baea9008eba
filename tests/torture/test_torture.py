"""A sample of `make torture`: killed writers, changed bytes, readers beside a writer."""

import os
import signal
import subprocess
import sys
import textwrap
import time

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader

from logcl import Memory
from logcl.core.errors import Busy
from tests.torture import after_commit, first_writers, flips, interrupts, kills, readers

QUICK = {"codec.name": "autoencoder", "codec.epochs": 1, "codec.min_steps": 20}


@pytest.mark.long
@pytest.mark.timeout(900)
def test_killed_at_any_moment_the_memory_is_the_one_before_or_the_one_after(tmp_path):
    """`logcl absorb` in separate processes; every fifth may finish, with the result of an unbroken run."""
    outcome = kills.trial(9, 0, tmp_path)
    assert outcome.lost == 0, outcome
    assert outcome.survived == outcome.tried == 9
    assert outcome.details["the memory before"] > 3
    assert not (tmp_path / "lost").exists()


def test_a_changed_byte_is_reported_or_made_no_difference(tmp_path):
    outcome = flips.trial(250, 0, tmp_path)
    assert outcome.lost == 0, outcome
    assert outcome.details["refused and reported"] > 150


@pytest.mark.timeout(900)
def test_readers_see_the_memory_before_or_after_and_second_writers_are_refused(tmp_path):
    outcome = readers.trial(2, 1, tmp_path)
    assert outcome.lost == 0, outcome
    assert outcome.tried > 20
    assert outcome.details["different memories seen"] > 2
    assert outcome.details["second writers, all refused"] > 10


@pytest.mark.timeout(300)
def test_two_first_writers_lose_nothing_they_reported(tmp_path):
    outcome = first_writers.trial(3, 16, tmp_path)
    assert outcome.lost == 0, outcome
    assert outcome.tried == 3
    assert outcome.details["one killed"] == 1


@pytest.mark.timeout(300)
def test_a_failure_after_the_commit_is_no_failure_of_the_task(tmp_path):
    outcome = after_commit.trial(len(after_commit.FAILURES), 0, tmp_path)
    assert outcome.lost == 0, outcome
    assert set(outcome.details) == set(after_commit.FAILURES)


@pytest.mark.long
@pytest.mark.timeout(300)
def test_an_interrupted_command_says_what_the_file_holds(tmp_path):
    outcome = interrupts.trial(40, 0, tmp_path)
    assert outcome.lost == 0, outcome
    # Both were tried; how often depends on how many lines there are before and after the commit.
    assert outcome.details["interrupted, and it is in"] > 2
    assert outcome.details["interrupted, and nothing changed"] > 2


@pytest.fixture
def memory(tmp_path, digits) -> Memory:
    memory = Memory.open(tmp_path / "m.logcl", (1, 8, 8), unit=16, settings=QUICK)
    memory.absorb(digits[0][:50], digits[1][:50])
    return memory


FORK_AND_WAIT = """
import os, sys, time
from logcl.memory.file.memory_file import MemoryFile
with MemoryFile(sys.argv[1]).writing():
    child = os.fork()
    if child:
        print(child, flush=True)
    time.sleep(120)
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system does not fork")
def test_a_forked_child_does_not_keep_a_dead_writers_lock(memory):
    """Like a data loader's worker that was started while its parent absorbed a task."""
    holder = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(FORK_AND_WAIT), str(memory.path)], stdout=subprocess.PIPE
    )
    child = int(holder.stdout.readline())
    try:
        with pytest.raises(Busy, match=f"process {holder.pid} on"), memory.file.writing():
            pytest.fail("two writers")
        holder.kill()
        holder.wait()
        os.kill(child, 0)  # it is still there
        deadline = time.monotonic() + 10  # on a busy machine the child may not have started yet
        while True:
            try:
                with memory.file.writing():
                    break
            except Busy:
                assert time.monotonic() < deadline
                time.sleep(0.01)
    finally:
        os.kill(child, signal.SIGKILL)
        holder.stdout.close()


@pytest.mark.parametrize("start", ["fork", "spawn"])
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_workers_of_a_data_loader_see_one_memory_while_it_changes(memory, digits, start):
    dataset = memory.dataset()
    expected = {index: dataset[index] for index in range(50)}
    loader = DataLoader(
        dataset, batch_size=10, num_workers=2 if start == "fork" else 1, multiprocessing_context=start,
        generator=torch.Generator(),
    )  # fmt: skip
    batches = iter(loader)
    first = next(batches)
    memory.absorb(digits[0][50:130], digits[1][50:130])
    seen = [first, *batches]
    assert sum(len(labels) for _, labels in seen) == 50
    images = np.concatenate([images.numpy() for images, _ in seen])
    labels = np.concatenate([labels.numpy() for _, labels in seen])
    assert all(np.array_equal(images[index], image.numpy()) for index, (image, _) in expected.items())
    assert labels.tolist() == [label for _, label in expected.values()]
    assert len(memory.dataset()) == 130
