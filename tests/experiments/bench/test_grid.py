"""A grid: finished cells are never run twice, killed ones resume, several processes share the work."""

import json
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from logcl.core.errors import BadInput
from logcl.core.progress import Silent
from logcl.core.writer_lock import writer_lock
from logcl.experiments import checkpoint
from logcl.experiments.bench import grid
from logcl.experiments.bench.grid import Cell, Place, Thinning, seconds_left
from logcl.experiments.result import find, read

QUICK = {
    "codec.name": "autoencoder",
    "codec.min_steps": 4,
    "codec.epochs": 1,
    "classifier.min_steps": 4,
    "classifier.epochs": 1,
}
CELLS = [
    Cell(stream="digits", method=method, seed=seed, changes=QUICK, tasks=2, thinning=Thinning(per_class=5))
    for seed in (0, 1)
    for method in ("joint", "finetune")
]


def run(cells, place):
    events = []
    grid.run(cells, place, command="a test", happened=events.append, progress=Silent())
    return events


def states(events):
    return [(event.cell.name, event.state) for event in events]


def test_every_cell_leaves_a_file_and_is_not_run_again(tmp_path):
    place = Place(tmp_path / "new", "smoke")
    events = run(CELLS, place)
    names = [cell.name for cell in CELLS]
    assert states(events) == [(name, state) for name in names for state in ("running", "done")]
    assert sorted(path.name for path in place.folder.iterdir()) == sorted(f"smoke-{n}.json" for n in names)
    first = read(place.path(CELLS[0]))
    assert (first.method, first.seed, first.command) == ("joint", 0, "a test")
    assert first.subset == "5 samples per class"
    assert first.settings.classifier.epochs == 1

    before = {path: path.stat().st_mtime_ns for path in place.folder.iterdir()}
    assert states(run(CELLS, place)) == [(name, "done") for name in names]
    assert {path: path.stat().st_mtime_ns for path in place.folder.iterdir()} == before


def test_a_cell_that_another_process_runs_is_skipped(tmp_path):
    place = Place(tmp_path, "smoke")
    with writer_lock(place.path(CELLS[0])):
        events = run(CELLS[:2], place)
    assert (CELLS[0].name, "elsewhere") in states(events)
    assert set(place.finished(CELLS)) == {CELLS[1].name}
    run(CELLS[:2], place)
    assert set(place.finished(CELLS)) == {CELLS[0].name, CELLS[1].name}


def test_a_cell_that_fails_is_reported_and_the_others_continue(tmp_path):
    bad = CELLS[0].model_copy(update={"method": "er", "budget": "1B"})
    place = Place(tmp_path, "smoke")
    events = run([bad, CELLS[1]], place)
    assert [event.state for event in events] == ["running", "failed", "running", "done"]
    assert "does not even hold one sample" in events[1].problem
    assert not place.path(bad).exists()


def test_a_damaged_result_is_named(tmp_path):
    place = Place(tmp_path, "smoke")
    run(CELLS[:1], place)
    path = place.path(CELLS[0])
    path.write_bytes(path.read_bytes()[:100])
    with pytest.raises(BadInput, match=path.name):
        run(CELLS[:1], place)
    with pytest.raises(BadInput, match=path.name):
        list(find(tmp_path))


SCRIPT = """
import sys
from pathlib import Path
from logcl.experiments.bench import grid
from logcl.core.progress import Silent
sys.path.insert(0, {tests!r})
from tests.experiments.bench.test_grid import CELLS, LONG
grid.run(
    {cells}, grid.Place(Path({folder!r}), "smoke"), command="a test", progress=Silent(),
    happened=lambda event: print(event.cell.name, event.state, flush=True),
)
"""


def started(folder, cells="CELLS"):
    script = SCRIPT.format(tests=str(Path(__file__).parents[3]), folder=str(folder), cells=cells)
    return subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True)


@pytest.mark.skipif(sys.platform == "win32", reason="needs SIGKILL")
def test_a_killed_grid_resumes(tmp_path):
    process = started(tmp_path)
    for line in process.stdout:
        if line.startswith(f"{CELLS[1].name} running"):
            process.send_signal(signal.SIGKILL)
            break
    process.wait()
    process.stdout.close()
    place = Place(tmp_path, "smoke")
    assert set(place.finished(CELLS)) == {CELLS[0].name}
    run(CELLS, place)
    assert len(place.finished(CELLS)) == len(CELLS)
    assert not list(tmp_path.glob("*.lock"))


LONG = Cell(
    stream="digits",
    method="logcl",
    changes={**QUICK, "unit": 32, "codec.min_steps": 60, "classifier.min_steps": 60},
    evaluate="every",
    tasks=4,
    thinning=Thinning(per_class=20),
)


@pytest.mark.skipif(sys.platform == "win32", reason="needs SIGKILL")
def test_a_killed_cell_resumes_after_its_last_finished_task(tmp_path):
    unbroken, broken = Place(tmp_path / "a", "smoke"), Place(tmp_path / "b", "smoke")
    run([LONG], unbroken)
    process = started(broken.folder, "[LONG]")
    while (found := checkpoint.read(broken.workplace(LONG))) is None or not found[0].records:
        assert process.poll() is None
        time.sleep(0.01)
    process.send_signal(signal.SIGKILL)
    process.communicate()
    assert not broken.path(LONG).exists()
    assert list(find(broken.folder)) == []

    run([LONG], broken)
    results = [read(place.path(LONG)) for place in (unbroken, broken)]
    seconds = {"seconds": True, "finished": True, "tasks": {"__all__": {"seconds"}}}
    assert results[0].model_dump(exclude=seconds) == results[1].model_dump(exclude=seconds)
    assert [path.name for path in broken.folder.iterdir()] == [broken.path(LONG).name]


def test_a_cell_with_other_settings_starts_from_scratch(tmp_path):
    place = Place(tmp_path, "smoke")
    folder = place.workplace(CELLS[0])
    folder.mkdir()
    for left in (b"damaged", None):
        if left is None:
            checkpoint.write(folder, checkpoint.Checkpoint(fingerprint="of another run"), {})
        else:
            (folder / checkpoint.NAME).write_bytes(left)
        (folder / "memory.logcl").write_bytes(b"something")
        assert [event.state for event in run(CELLS[:1], place)] == ["running", "done"]
        assert [path.name for path in tmp_path.iterdir()] == [place.path(CELLS[0]).name]
        place.path(CELLS[0]).unlink()
        folder.mkdir()


def test_two_processes_share_a_grid(tmp_path):
    processes = [started(tmp_path) for _ in range(2)]
    said = [process.communicate()[0].split("\n") for process in processes]
    assert all(process.returncode == 0 for process in processes)
    ran = [line.removesuffix(" running") for lines in said for line in lines if line.endswith(" running")]
    assert sorted(ran) == sorted(cell.name for cell in CELLS)  # each exactly once
    assert len(Place(tmp_path, "smoke").finished(CELLS)) == len(CELLS)


def test_the_time_left_is_estimated_from_the_same_method():
    cells = [Cell(stream=s, method=m) for s in ("digits", "mnist") for m in ("joint", "logcl")]
    seconds = {"digits-joint-seed0": 10.0, "digits-logcl-seed0": 100.0}
    assert seconds_left(seconds, cells, cells[2:]) == 110
    assert seconds_left(seconds, cells, [Cell(stream="mnist", method="er")]) == 55
    assert seconds_left({}, cells, cells) is None


def test_results_without_a_bench_are_found_among_other_files(tmp_path):
    run(CELLS[:1], Place(tmp_path, "smoke"))
    (tmp_path / "other.json").write_text(json.dumps({"not": "a result"}))
    assert [path.name for path, _ in find(tmp_path)] == [f"smoke-{CELLS[0].name}.json"]
    with pytest.raises(BadInput, match="does not exist"):
        list(find(tmp_path / "nowhere"))
