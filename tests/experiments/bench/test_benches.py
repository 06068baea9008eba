"""The benches: cells are distinct and valid, and give the tables of the paper."""

import numpy as np
import pytest

from logcl import allocation
from logcl.experiments.bench.benches import BENCHES, COLOUR_BYTES, MNIST_BYTES, TABLE2_SETTINGS
from logcl.experiments.bench.tables import PUBLISHED, TABLES, fits_of_one_model, planned_fits, published
from logcl.experiments.table import Table, summary
from logcl.memory.presets import preset
from logcl.memory.settings import applicable, override
from logcl.methods import METHODS, options_of
from logcl.methods.parts.exemplars import check_budget
from logcl.nn.training import shortened, total_steps
from logcl.streams import CATALOG


@pytest.mark.parametrize("scale", ["smoke", "small", "full"])
@pytest.mark.parametrize("name", list(BENCHES))
def test_every_cell_has_its_own_name_and_valid_settings(name, scale):
    cells = BENCHES[name].grid(scale)
    assert len({cell.name for cell in cells}) == len(cells)
    for cell in cells:
        shape = CATALOG[cell.stream].image_shape
        settings = preset(cell.preset, shape, cell.stream)
        settings = override(settings, applicable(settings, cell.changes))
        assert settings.image_shape == shape
        options_of(cell.method, cell.options)
        check_budget(cell.budget or "20/class")
    if scale == "full":
        assert all(cell.thinning is None for cell in cells)


def test_the_papers_tables_are_covered():
    table1 = {(cell.stream, cell.method) for cell in BENCHES["table1"].grid("full", 1)}
    assert {(s, m) for s in ("mnist", "omniglot") for m in PUBLISHED[s]} <= table1
    table2 = {cell.method: cell.preset for cell in BENCHES["table2"].grid("full", 1)}
    assert set(PUBLISHED["cifar100"]) <= set(table2)
    assert {method: table2[method] for method in TABLE2_SETTINGS} == TABLE2_SETTINGS
    extreme = {cell.method for cell in BENCHES["extreme"].grid("full", 1)}
    assert {"logcl", "replay-buffer", "generative-replay", "joint"} <= extreme
    assert len(MNIST_BYTES) == len(COLOUR_BYTES) == 8
    assert {m for cell in BENCHES["bytes"].grid("full", 1) for m in [cell.options.get("codec")]} >= {
        "webp", "jpeg", "avif",
    }  # fmt: skip


@pytest.mark.parametrize(("scale", "samples"), [("small", 1500), ("full", 4500)])
def test_joint_training_of_extreme_takes_as_many_steps_as_the_others(scale, samples):
    def recipe(method):
        (cell,) = BENCHES["extreme"].grid(scale, 1, {method})
        return override(preset(cell.preset, (1, 28, 28), cell.stream), cell.changes).classifier

    seen = [round(samples * task / 100) for task in range(1, 101)]
    for method in ("logcl", "replay-buffer", "generative-replay"):
        mine = recipe(method)
        assert mine.warm_start
        brief = shortened(mine, mine.warm_share)
        steps = total_steps(mine, seen[0]) + sum(total_steps(brief, n) for n in seen[1:])
        assert steps == total_steps(recipe("joint"), samples)


def test_seeds_and_methods_can_be_chosen():
    cells = BENCHES["table1"].grid("small", 4, {"logcl", "joint"})
    assert {cell.method for cell in cells} == {"logcl", "joint"}
    assert {cell.seed for cell in cells} == {0, 1, 2, 3}


def test_published_accuracies_are_those_of_the_paper():
    assert published("mnist", "logcl") == "98.65 ± 0.09"
    assert published("cifar100", "hypercl") == "8.8"
    assert published("mnist", "joint") == "–"
    assert all(method in METHODS for methods in PUBLISHED.values() for method in methods)


def test_planned_fits_follow_the_allocation():
    rows = planned_fits(20_000, 100, 200)
    assert [n for n, _ in rows] == [200, 400, 1000, 2000, 5000, 10000, 20000]  # 500 is not a multiple of 200
    n, fitted = rows[-1]
    ends = range(200, n + 1, 200)
    plans = [allocation.plan(m - 200, m, 100) for m in ends]
    assert fitted == sum(s.samples for plan in plans for s in plan.train)
    assert fitted - n == sum(s.samples for plan in plans for s in plan.retire)
    assert fits_of_one_model(n, 200) == sum(ends) / n
    # The lemma: at most log2(n / L) re-encodings, and the first encoding.
    assert fitted / n <= np.log2(n / 100) + 1


def test_a_table_is_written_in_many_ways():
    table = Table("t", ("a", "b|c"), (("1", "x, y"), ("2", "–")), ("A note.",))
    assert table.markdown().splitlines()[:3] == ["| a | b\\|c |", "|---|---|", "| 1 | x, y |"]
    assert table.markdown().endswith("\nA note.\n")
    assert table.csv() == 'a,b|c\n1,"x, y"\n2,–\n'
    assert table.records() == [{"a": "1", "b|c": "x, y"}, {"a": "2", "b|c": "–"}]


@pytest.fixture(scope="module")
def result(tmp_path_factory):
    """One real result, which tests modify."""
    from logcl.experiments import run as experiment
    from logcl.streams import open_stream

    changes = {
        "classifier.min_steps": 5,
        "classifier.epochs": 1,
    }
    settings = override(preset("fast", (1, 8, 8)), changes)
    stream = open_stream("digits", tasks=3, seed=0).thinned(15)
    return experiment.run(stream, "logcl", settings, tmp_path_factory.mktemp("run"))


def dressed(result, **changes):
    return result.model_copy(update=changes)


def test_tables_hold_means_over_seeds_beside_published_accuracies(result):
    runs = [
        dressed(result, stream=stream, method=method, seed=seed, final_accuracy=accuracy + 0.01 * seed)
        for stream in ("mnist", "omniglot")
        for method, accuracy in (("logcl", 0.9), ("joint", 0.8))
        for seed in (0, 1)
    ]
    (table,) = TABLES["table1"](runs)
    assert table.rows[0][:3] == ("logcl", "90.50 ± 0.50", "98.65 ± 0.09")
    assert table.rows[0][-1] == "2, 2"
    assert [row[0] for row in table.rows] == ["logcl", "joint"]
    # A method that was only run on the easier stream does not rank higher for it.
    easy = dressed(result, stream="mnist", method="er", final_accuracy=0.85)
    (table,) = TABLES["table1"]([easy, *runs])
    assert [row[0] for row in table.rows] == ["logcl", "er", "joint"]
    assert table.rows[1][-1] == "1, 0"
    assert any("15 samples per class" in note for note in table.notes)
    (table,) = TABLES["table2"]([dressed(result, stream="cifar100")])
    assert table.rows[0][2:5] == ("56.75 ± 1", "offline", "all 150")
    (table,) = TABLES["extreme"](
        [dressed(result, memory_bytes=100), dressed(result, method="replay-buffer", memory_bytes=1000)]
    )
    shares = {row["method"]: row["% of the buffer"] for row in table.records()}
    assert shares == {"logcl": "10.0", "replay-buffer": "100.0"}
    measured, plan = TABLES["growth"]([result])
    fits = sum(task.trained for task in result.tasks) / 150
    found = dict(zip(measured.columns, measured.rows[0], strict=True))
    assert found["fits per sample"] == f"{fits:.1f}"
    assert found["replays per sample"] == f"{sum(task.replayed for task in result.tasks) / 150:.1f}"
    assert plan.rows[-1][0] == "1,000,000"
    for name in TABLES:
        assert all(
            len(row) == len(table.columns) for table in TABLES[name]([result]) for row in table.rows
        ), name


def test_the_summary_shows_the_classifier_beside_what_is_kept(result):
    given = dressed(result, memory_bytes=2000, classifier_bytes=500)
    early = dressed(result, method="er", memory_bytes=7000, classifier_bytes=None)
    (row,) = summary([given]).records()
    assert (row["bytes kept"], row["classifier"], row["file"]) == ("2,000 B", "500 B", "2,500 B")
    old = next(row for row in summary([given, early]).records() if row["method"] == "er")
    assert (old["bytes kept"], old["classifier"], old["file"]) == ("7,000 B", "–", "–")
    assert "classifier" not in summary([early]).columns


def test_the_summary_tells_settings_apart(result):
    smaller = override(result.settings, {"codec.bytes_per_sample": 5})
    table = summary([result, dressed(result, settings=smaller), dressed(result, method="er", budget="7")])
    assert {row[0] for row in table.rows} == {"logcl", "logcl, 5 B", "er, 7"}
