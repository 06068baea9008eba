"""Figures show exactly the data of the results: every bar, cell and point."""

import re
from xml.etree import ElementTree

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from logcl import allocation
from logcl.experiments.report.figures import canvas, counter, maps
from logcl.experiments.report.figures.canvas import INK, on, round_ones, slug
from logcl.experiments.report.figures.counter import history
from logcl.experiments.report.figures.lines import averaged, over_tasks
from logcl.experiments.report.study import headline, studies
from logcl.experiments.result import ERROR_BINS, GenerationError, pooled
from logcl.experiments.table import mean_accuracy

pytestmark = pytest.mark.xdist_group("report")


@pytest.fixture(scope="module")
def study(results):
    (only,) = studies(results)
    return only


def titles(drawing):
    """Hover texts, in the order drawn."""
    root = ElementTree.fromstring(canvas.inline(drawing, "x"))
    return [element.text for element in root.iter("title")]


def test_tasks_that_took_no_time_are_left_out_of_a_logarithmic_axis(results):
    """Joint training takes no time before the last task, and then all of it."""
    idle = [{}, {}, {"train": 10_000.0}]
    joint = results[2].model_copy(
        update={
            "method": "joint",
            "tasks": tuple(
                task.model_copy(update={"seconds": {"other": 0.1, **spent}})
                for task, spent in zip(results[2].tasks, idle, strict=True)
            ),
        }
    )
    (only,) = studies((*results[:2], joint))
    texts = titles(over_tasks(only, "seconds"))
    assert [text for text in texts if text.startswith("joint")] == ["joint, after task 3: 2.78 h"]
    assert len(texts) == 3 + 1


@given(st.lists(st.integers(1, 400), min_size=1, max_size=150), st.integers(1, 130))
def test_the_counter_is_the_allocation(sizes, unit):
    states = history(sizes, unit)
    ends = np.cumsum(sizes)
    assert len(states) == min(len(sizes), 100)
    assert states[-1].task == len(sizes)
    for state in states:
        n = int(ends[state.task - 1])
        assert state.plan.keep + state.plan.train == allocation.layout(n, unit)
        assert list(state.plan.buffer) == list(range(n // unit * unit + 1, n + 1))


def test_what_is_drawn_as_fitted_was_fitted(study):
    result = study.methods[0].first
    states = history([task.samples for task in result.tasks], result.settings.unit)
    assert [sum(s.samples for s in state.plan.train) for state in states] == [t.trained for t in result.tasks]

    drawing = counter.counter(study.methods[0])
    texts = titles(drawing)
    assert len(texts) == sum(
        len(state.plan.keep + state.plan.train) + bool(state.plan.buffer) for state in states
    )
    for state in states:
        for slot in state.plan.train:
            fitted = f"level {slot.level}, samples {slot.start:,}–{slot.stop:,}: fitted in task {state.task}"
            assert fitted in texts
    written = {text.get_text() for text in drawing.figure.axes[0].texts}
    digits = (states[-1].samples // result.settings.unit).bit_length()
    assert {f"{state.samples // result.settings.unit:0{digits}b}" for state in states} <= written
    assert "3 tasks and 1,438 samples" in drawing.alternative
    assert counter.counter(study.methods[1]) is None, "finetune has no levels"


def test_bars_lie_where_their_samples_are(study):
    result = study.methods[0].first
    axes = counter.counter(study.methods[0]).figure.axes[0]
    drawn = {
        tuple(path.get_extents().intervalx)
        for collection in axes.collections
        if collection.get_gid() in ("kept", "trained")
        for path in collection.get_paths()
    }
    ends = np.cumsum([task.samples for task in result.tasks])
    expected = {
        (slot.start - 1, slot.stop) for n in ends for slot in allocation.layout(int(n), result.settings.unit)
    }
    assert drawn == expected


def test_lines_are_means_over_seeds(study):
    line = averaged(study.methods[0], lambda task: task.memory_bytes)
    both = np.array([[task.memory_bytes for task in r.tasks] for r in study.methods[0].results])
    assert np.allclose(line.y, both.mean(axis=0))
    assert np.allclose(line.error, both.std(axis=0, ddof=1) / np.sqrt(2))
    second = [result.tasks[1] for result in study.methods[0].results]
    line = averaged(study.methods[0], lambda task: 0.5 if task in second else None)
    assert (line.x == [2]).all()
    assert (line.y == [0.5]).all()


def test_accuracy_says_where_it_ends(study):
    drawing = over_tasks(study, "accuracy")
    for runs in study.methods:
        assert f"{runs.label} ends at {100 * mean_accuracy(runs.results):.1f} %" in drawing.alternative
    assert len(titles(drawing)) == 2 * 3
    assert titles(drawing)[0].startswith("logcl, after task 1: ")
    assert over_tasks(study, "seconds") is not None
    assert "raw samples" in [text.get_text() for text in over_tasks(study, "memory").figure.legends[0].texts]


def test_the_matrix_has_a_cell_for_each_task_so_far(study):
    result = study.methods[0].first
    drawing = maps.matrix(study.methods[0])
    expected = [
        f"after task {t + 1}, on task {k + 1}: {100 * result.accuracy_matrix[t][k]:.1f} %"
        for t in range(3)
        for k in range(t + 1)
    ]
    assert titles(drawing) == expected
    printed = [text.get_text() for text in drawing.figure.axes[0].texts]
    assert printed == [f"{100 * result.accuracy_matrix[t][k]:.0f}" for t in range(3) for k in range(t + 1)]


def test_a_long_matrix_has_colours_and_no_numbers(long):
    drawing = maps.matrix(studies(long)[0].methods[0])
    assert not drawing.figure.axes[0].texts
    assert len(titles(drawing)) == 100 * 101 // 2
    assert drawing.size == "medium"


def test_evaluated_only_at_the_end(results):
    rows = (None, None, results[0].accuracy_matrix[-1])
    once = results[0].model_copy(update={"accuracy_matrix": rows})
    assert len(titles(maps.matrix(studies([once])[0].methods[0]))) == 3
    never = results[0].model_copy(update={"accuracy_matrix": (None, None, None)})
    assert maps.matrix(studies([never])[0].methods[0]) is None


def test_a_hundred_generations_are_drawn_in_groups():
    bins = len(ERROR_BINS) - 1
    found = [
        GenerationError(generation=g, samples=g + 1, mse=0.01 * g, histogram=(g + 1,) + (0,) * (bins - 1))
        for g in range(100)
    ]
    groups = {name: pooled(members) for name, members in maps.stages(found)}
    assert list(groups) == [
        "0", "1", "2 to 3", "4 to 7", "8 to 15", "16 to 31", "32 to 63", "64 to 99",
    ]  # fmt: skip
    assert sum(group.samples for group in groups.values()) == sum(error.samples for error in found)
    assert all(sum(group.histogram) == group.samples for group in groups.values())
    assert groups["2 to 3"].mse == pytest.approx((3 * 0.02 + 4 * 0.03) / 7)
    assert [name for name, _ in maps.stages(found[:4])] == ["0", "1", "2", "3"]


def test_histograms_hold_all_samples_but_the_buffer(study):
    runs = study.methods[0]
    (drawing,) = maps.errors(study.methods)  # finetune has no replay
    known = [error for error in runs.first.reconstruction if error.generation >= 0]
    assert len(titles(drawing)) == sum(np.count_nonzero(error.histogram) for error in known)
    counted = sum(int(re.search(r": ([\d,]+) of", text)[1].replace(",", "")) for text in titles(drawing))
    assert counted == sum(error.samples for error in known)
    low, high = drawing.figure.axes[0].get_xlim()
    assert ERROR_BINS[0] <= low < min(error.mse for error in known)
    assert max(error.mse for error in known) < high <= ERROR_BINS[-1]


def test_confusion_counts_every_test_sample(study):
    runs = study.methods[1]
    drawing = maps.confusion(runs)
    assert len(titles(drawing)) == len(runs.first.confusion)
    total = sum(count for *_, count in runs.first.confusion)
    wrong = sum(count for true, answer, count in runs.first.confusion if true != answer)
    assert f"{wrong} of {total} are wrong" in drawing.alternative


def test_without_data_there_is_no_figure(old):
    (study,) = studies([old])
    runs = study.methods[0]
    assert over_tasks(study, "accuracy") is None
    assert over_tasks(study, "seconds") is None
    assert maps.confusion(runs) is None
    assert maps.errors([runs]) == ()
    assert counter.counter(runs) is not None
    assert maps.matrix(runs) is not None


def test_headlines(results):
    joint = tuple(r.model_copy(update={"method": "joint", "final_accuracy": 0.5}) for r in results[2:])
    (study,) = studies(results + joint)
    assert study.methods[0].label == "logcl"
    numbers = {number.name: number for number in headline(study)}
    mean = 100 * np.mean([r.final_accuracy for r in results[:2]])
    assert numbers["final accuracy"].value.startswith(f"{mean:.1f} ± ")
    assert numbers["points above joint"].value.startswith(f"{mean - 50:.1f} ± ")
    assert "% of 92 kB raw" in numbers["bytes kept"].detail
    assert {"forgetting", "time to absorb", "time to train"} <= set(numbers)
    (alone,) = studies(results[2:3])
    assert not [number for number in headline(alone) if "joint" in number.name or "absorb" in number.name]


def test_inline_figures_follow_the_page(study):
    for drawing in (
        over_tasks(study, "accuracy"),
        counter.counter(study.methods[0]),
        maps.matrix(study.methods[0]),
    ):
        text = canvas.inline(drawing, "part-1")
        root = ElementTree.fromstring(text)
        assert "currentColor" in text
        assert INK not in text
        assert "font-family: 'DejaVu" not in text
        assert root.get("role") == "img"
        assert root.get("aria-label") == drawing.alternative
        assert "width" not in root.attrib
        ids = [element.get("id") for element in root.iter() if element.get("id")]
        assert all(name.startswith("part-1-") for name in ids)
        assert set(re.findall(r"#(part-1-[\w.-]+)", text)) == set(ids)


def test_the_same_results_give_the_same_bytes(study):
    first, second = (canvas.inline(over_tasks(study, "memory"), "a") for _ in range(2))
    assert first == second


def test_names_are_escaped_in_figures(results):
    names = ("<script>alert(1)</script>", "$x_1$", "a & b", "$\\frac", "Ωχ", "漢字", "a" * 80, "", "'", '"')
    odd = results[0].model_copy(update={"classes": names})
    text = canvas.inline(maps.confusion(studies([odd])[0].methods[0]), "x")
    assert "<script" not in text
    shown = "".join(ElementTree.fromstring(text).itertext())
    assert "$x_1$" in shown
    assert "漢字" in shown
    assert "a" * 80 in shown, "hovering shows the whole name"


def test_files_for_papers(study, tmp_path):
    drawings = [over_tasks(study, "accuracy"), counter.counter(study.methods[0])]
    written = canvas.save(drawings, tmp_path / "new")
    assert [path.name for path in written] == [
        "accuracy.png", "accuracy.svg", "counter-logcl.png", "counter-logcl.svg",
    ]  # fmt: skip
    image = Image.open(written[2])
    assert image.width == pytest.approx(9 * 150, abs=1)
    assert image.convert("RGB").getpixel((1, 1)) == (255, 255, 255)
    text = written[1].read_text()
    assert INK not in text
    assert "#000000" in text
    assert "hit-0" not in text, "targets for a pointer are for pages only"
    assert titles(drawings[0]), "and are back afterwards"


@given(st.lists(st.integers(1, 10**6), min_size=1, unique=True).map(sorted), st.integers(1, 30))
def test_axes_are_labelled_with_round_numbers(numbers, most):
    shown = round_ones(numbers, most)
    assert 1 <= len(shown) <= max(most, 1)
    assert all(0 <= k < len(numbers) for k in shown)


def test_labels_of_a_hundred_tasks():
    assert [k + 1 for k in round_ones(range(1, 101), 12)] == list(range(10, 101, 10))


def test_text_on_colours_and_names_of_files():
    assert on("#fde725") == "#000000"
    assert on("#440154") == "#ffffff"
    assert slug("LogCL, paper-cpu (漢)") == "logcl-paper-cpu"
    assert slug("漢") == "x"
