"""Engines: results do not depend on where jobs run; lost workers, machines and drivers cost only time.

The cluster is real: two Ray nodes with one processor each, on the loopback interface.
"""

import json
import os
import signal
import subprocess
import sys
import time
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest
import torch

from logcl import Classifier, Memory
from logcl.cli import console
from logcl.core.errors import BadSettings, EngineFailed
from logcl.core.features import from_bytes
from logcl.core.progress import Moment, Silent
from logcl.experiments.bench import grid
from logcl.experiments.bench.grid import Cell, Place, Thinning
from logcl.nn.engines import Job, Local, remote_progress
from logcl.nn.engines.remote_progress import Display, Reporter
from logcl.nn.training import Diverged
from tests.helpers import feature_bytes, tiny_backbone

ray = pytest.importorskip("ray")
pytestmark = [
    pytest.mark.long,
    pytest.mark.xdist_group("ray"),
    pytest.mark.timeout(240),
    pytest.mark.filterwarnings("ignore::ResourceWarning"),  # Ray's own sockets and pipes
]

SETTINGS = {"codec.name": "autoencoder", "codec.min_steps": 200, "codec.epochs": 1, "classifier.epochs": 3}


class Seen(Silent):
    """Records bars and moments; calls `then` at the first moment."""

    def __init__(self, then=lambda: None):
        self.moments, self.steps, self.totals, self.then = [], 0, [], then

    @contextmanager
    def track(self, description, total):
        self.totals.append((description, total))

        def advance(steps=1, note=""):
            self.steps += steps if description.startswith("level") else 0

        yield advance

    def log(self, moment):
        self.moments.append(moment)
        if len(self.moments) == 1:
            self.then()


@pytest.fixture(scope="module")
def cluster():
    from ray.cluster_utils import Cluster

    root = Path(__file__).parents[2]
    with pytest.MonkeyPatch.context() as patch:
        # Workers import the jobs that are defined here, and this source tree rather than an installed one.
        patch.setenv("PYTHONPATH", f"{root}{os.pathsep}{root / 'src'}")
        made = Cluster(initialize_head=True, head_node_args={"num_cpus": 1, "include_dashboard": False})
        made.add_node(num_cpus=1)
        yield made
        ray.shutdown()
        made.shutdown()


@pytest.fixture
def engine(cluster):
    from logcl.nn.engines.ray import Ray

    with Ray(cluster.address, workers=2) as engine:
        yield engine


def memory_of(path, digits):
    """Eight units in level 3; the next seven go to levels 2, 1 and 0, which can be trained in parallel."""
    memory = Memory.open(path, (1, 8, 8), unit=32, settings=SETTINGS)
    memory.absorb(digits[0][:256], digits[1][:256])
    assert [slot.level for slot in memory.plan(224).train] == [2, 1, 0]
    return memory


def task(digits):
    return digits[0][256:480], digits[1][256:480]


@pytest.fixture
def unbroken(tmp_path, digits):
    """Digest of the memory after this process has absorbed the task without interruption."""
    memory = memory_of(tmp_path / "unbroken.logcl", digits)
    memory.absorb(*task(digits))
    return memory.digest


def test_levels_trained_on_a_cluster_are_bit_identical(engine, tmp_path, digits, unbroken):
    memory = memory_of(tmp_path / "pets.logcl", digits)
    seen = Seen()
    memory.absorb(*task(digits), engine=engine, progress=seen)
    assert memory.digest == unbroken
    assert memory.verify() == []
    assert {moment.what.split(" (")[0] for moment in seen.moments} == {
        "level 0",
        "level 1",
        "level 2",
        "memory",
    }
    assert seen.steps == sum(total for what, total in seen.totals if what.startswith("level"))


def test_a_first_task_is_bit_identical_although_levels_wait_for_the_largest(engine, tmp_path, digits):
    found = []
    for name, chosen in (("here", None), ("there", engine)):
        memory = Memory.open(tmp_path / f"{name}.logcl", (1, 8, 8), unit=32, settings=SETTINGS)
        memory.absorb(digits[0][:112], digits[1][:112], engine=chosen)
        found.append(memory.digest)
    assert found[0] == found[1]


def die_once(path, progress):
    """A job whose worker is killed the first time."""
    with progress.track("living", 1):
        with Path(path).open("a") as file:
            print(os.getpid(), file=file)
        with Path(path).open() as file:
            if len(file.readlines()) == 1:
                os.kill(os.getpid(), signal.SIGKILL)
    return "alive"


def test_a_job_whose_worker_is_killed_is_restarted(engine, tmp_path):
    job = Job("a job", die_once, (str(tmp_path / "pids"),))
    assert [value for _, value in engine.run([job], Silent())] == ["alive"]
    first, second = (tmp_path / "pids").read_text().split()
    assert first != second


def test_losing_a_machine_during_a_fit_costs_only_time(cluster, tmp_path, digits, unbroken):
    from logcl.nn.engines.ray import Ray

    doomed = cluster.add_node(num_cpus=1)
    memory = memory_of(tmp_path / "pets.logcl", digits)
    seen = Seen(then=lambda: cluster.remove_node(doomed, allow_graceful=False))
    with Ray(cluster.address, workers=3) as engine:
        memory.absorb(*task(digits), engine=engine, progress=seen)
    assert memory.digest == unbroken
    assert not doomed.any_processes_alive()


DRIVER = """
import sys
import numpy as np
from logcl import Memory
from logcl.memory import memory as module
from logcl.nn.engines.ray import Ray
module._WORTH_STAGING = 0
data = np.load(sys.argv[3])
with Ray(sys.argv[2], workers=1) as engine:
    Memory.open(sys.argv[1]).absorb(data["x"], data["y"], engine=engine)
"""


def test_after_a_killed_driver_the_task_is_resumed_from_the_memory_file(cluster, tmp_path, digits, unbroken):
    memory = memory_of(tmp_path / "pets.logcl", digits)
    x, y = task(digits)
    np.savez(tmp_path / "task.npz", x=x, y=y)
    arguments = [memory.path, cluster.address, tmp_path / "task.npz"]
    driver = subprocess.Popen([sys.executable, "-c", DRIVER, *map(str, arguments)])
    try:
        for _ in range(1000):
            if memory.file.staged():
                break
            assert driver.poll() is None, "the driver finished before it could be killed"
            time.sleep(0.05)
    finally:
        driver.kill()
        driver.wait()
    assert memory.n == 256
    done = memory.absorb(x, y)
    assert done.resumed
    assert memory.digest == unbroken


def refuse(progress):
    raise Diverged("the loss became nan; lower learning_rate")


def test_errors_of_a_job_are_raised_here(engine):
    for chosen in (engine, Local()):
        with pytest.raises(Diverged, match="lower learning_rate"):
            list(chosen.run([Job("a job", refuse)], Silent()))


def wait_long(path, progress):
    Path(path).write_text(str(os.getpid()))
    time.sleep(300)


def test_running_jobs_are_cancelled_after_an_error(engine, tmp_path):
    path = tmp_path / "pid"

    class Impatient(Exception):
        pass

    def jobs():
        yield Job("a long job", wait_long, (str(path),))
        while not path.exists() or not path.read_text():
            time.sleep(0.05)
        raise Impatient

    with pytest.raises(Impatient):
        list(engine.run(jobs(), Silent()))
    pid = int(path.read_text())
    for _ in range(200):
        if not is_alive(pid):
            return
        time.sleep(0.05)
    pytest.fail(f"process {pid} is still running")


def is_alive(pid):
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


QUICK = {
    "codec.name": "autoencoder",
    "codec.min_steps": 4,
    "codec.epochs": 1,
    "classifier.min_steps": 4,
    "classifier.epochs": 1,
}
CELLS = [
    Cell(stream="digits", method=method, changes=QUICK, tasks=2, thinning=Thinning(per_class=5))
    for method in ("logcl", "joint", "er")
]


def finish(cells, folder, engine=None):
    events = []
    place = Place(folder, "smoke")
    grid.run(cells, place, command="a test", happened=events.append, engine=engine, progress=Silent())
    return events, place.finished(cells)


def without_times(found):
    drop = {"seconds": True, "finished": True, "tasks": {"__all__": {"seconds"}}}
    return {name: result.model_dump(exclude=drop) for name, result in found.items()}


def test_a_grid_gives_the_same_results_on_a_cluster(engine, tmp_path):
    _, here = finish(CELLS, tmp_path / "here")
    bad = CELLS[2].model_copy(update={"variant": "bad", "budget": "1B"})
    events, there = finish([*CELLS, bad], tmp_path / "there", engine)
    assert without_times(there) == without_times(here)
    (failed,) = [event for event in events if event.state == "failed"]
    assert "does not even hold one sample" in failed.problem
    assert sorted(path.name for path in (tmp_path / "there").iterdir()) == sorted(
        f"smoke-{cell.name}.json" for cell in CELLS
    )
    again, _ = finish(CELLS, tmp_path / "there", engine)
    assert {event.state for event in again} == {"done"}


def test_several_processes_train_one_classifier(engine, tmp_path, digits):
    memory = memory_of(tmp_path / "pets.logcl", digits)
    seen = Seen()
    recipe = {"epochs": 12, "patience": 3}
    with torch.random.fork_rng():
        hidden = torch.nn.Linear(64, 32), torch.nn.ReLU(), torch.nn.Linear(32, 10)
        network = torch.nn.Sequential(torch.nn.Flatten(), *hidden)
    together = Classifier.train(memory, network, recipe, engine=engine, progress=seen)
    assert together.network is network
    assert (together.predict(digits[0][:256]) == digits[1][:256]).mean() > 0.8
    assert {moment.what for moment in seen.moments} == {"global model"}
    assert (Classifier.load(memory, network).predict(digits[0]) == together.predict(digits[0])).all()


def test_memories_of_features_on_a_cluster(engine, tmp_path):
    """The backbone stays here: workers get features."""
    backbone, (x, y) = tiny_backbone(), feature_bytes(64, values=24)
    features = from_bytes(x.reshape(len(x), -1), backbone.spec.scale)
    found = []
    for name, chosen in (("here", None), ("there", engine)):
        memory = Memory.open(tmp_path / name, backbone=backbone, unit=64, settings={"codec.step": 4})
        memory.absorb(features, y, engine=chosen)
        found.append(memory.digest)
    assert found[0] == found[1]
    with torch.random.fork_rng():
        network = torch.nn.Linear(24, 6)
    own = Classifier.train(
        memory, network, {"epochs": 60, "learning_rate": 0.1, "weight_decay": 0}, engine=engine
    )
    assert (own.predict(features) == y).mean() > 0.6
    assert (Classifier.load(memory, network).predict(features) == own.predict(features)).all()


def test_an_unreachable_cluster_is_an_error_in_one_sentence(tmp_path, logcl, digits):
    from logcl.nn.engines.ray import Ray

    with pytest.raises(EngineFailed, match=r"no Ray cluster at 127\.0\.0\.1:1 "):
        Ray("127.0.0.1:1")
    with pytest.raises(BadSettings, match="workers is 0"):
        Ray(workers=0)
    memory = memory_of(tmp_path / "pets.logcl", digits)
    ran = logcl("train", memory.path, "--engine", "ray", "--address", "127.0.0.1:1")
    assert (ran.code, ran.err.count("\n")) == (9, 1), ran.err
    ran = logcl("train", memory.path, "--address", "127.0.0.1:1")
    assert ran.code == 2
    assert "--engine ray" in ran.err


LONER = """
import ray
from logcl.nn.engines.ray import Ray
with Ray(workers=1):
    print(ray.get_runtime_context().gcs_address)
"""


def test_without_an_address_a_new_cluster_is_started(cluster):
    """A driver that joined a running cluster would be ended with it, without a message.

    In its own process, because Ray requires authentication in all of a process that has started a cluster.
    """
    ran = subprocess.run([sys.executable, "-c", LONER], capture_output=True, text=True, check=True)
    assert ran.stdout.strip() not in ("", cluster.gcs_address)


def test_commands_use_a_cluster(cluster, tmp_path, logcl, digits):
    x, y = task(digits)
    np.savez(tmp_path / "task.npz", x=x, y=y)
    where = ("--engine", "ray", "--address", cluster.address)
    settings = [f"--set={name}={value}" for name, value in SETTINGS.items()]
    found = {}
    for name, extra in (("here", ()), ("there", where)):
        path = tmp_path / f"{name}.logcl"
        ran = logcl("absorb", path, tmp_path / "task.npz", "--unit", "32", *settings, *extra, "--json")
        assert ran.code == 0, ran.err
        assert json.loads(ran.out)["samples"] == 224
        found[name] = Memory.open(path).digest
    assert found["here"] == found["there"]


def test_only_results_reach_standard_output(cluster, capsys):
    """Ray prints from a thread of its own, for example when a node dies; JSON must stay JSON."""
    with console.chosen_engine("ray", cluster.address):
        print("(raylet) The node with node id 2b08 has been marked dead")
        console.print_json({"samples": 224})
        console.out.print("a line")
    console.out.print("the last line")
    shown = capsys.readouterr()
    assert shown.out == '{\n  "samples": 224\n}\na line\nthe last line\n'
    assert "marked dead" in shown.err


def test_bars_and_moments_cross_processes_and_a_restart_undoes_counted_steps(monkeypatch):
    monkeypatch.setattr(remote_progress, "_INTERVAL", 0)  # send every step
    messages = []
    seen = Seen()
    display = Display(seen)
    lost = Reporter(7, messages.append)
    with lost.track("level 0", 10) as advance:
        advance(4)
        lost.log(Moment("level 0", 4, 10, {"loss": 1.0}))
        lost.send()  # killed before its bar was closed
    display.show(messages)
    assert seen.steps == 4
    messages.clear()
    again = Reporter(7, messages.append)
    with again.track("level 0", 10) as advance:
        advance(10)
    again.send()
    display.show(messages)
    display.end()
    assert seen.steps == 10
    assert [moment.values for moment in seen.moments] == [{"loss": 1.0}]
