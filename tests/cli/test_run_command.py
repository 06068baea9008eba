"""`logcl run` on the digits and on a user's own images."""

import json

import numpy as np
import pytest
from PIL import Image

from logcl import Memory
from logcl.core.errors import CannotWrite
from logcl.experiments import checkpoint

QUICK_CLASSIFIER = ["--set", "classifier.min_steps=0", "--set", "classifier.epochs=2"]
QUICK = ["--codec", "autoencoder", "--set", "codec.min_steps=0", "--set", "codec.epochs=2", *QUICK_CLASSIFIER]


@pytest.fixture(autouse=True)
def _own_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def test_three_methods_side_by_side(tmp_path, logcl):
    ran = logcl(
        "run", "digits", "--tasks", 2, "--method", "logcl,finetune,joint", "--seeds", 2, "--out", "r", *QUICK
    )
    assert ran.code == 0, ran.err
    lines = [line.split() for line in ran.out.splitlines()]
    assert [line[0] for line in lines[2:5]] == ["logcl", "finetune", "joint"]
    assert "seeds 0 to 1, mean ± standard error" in ran.out
    assert "r/logcl-seed0/memory.logcl" in ran.out
    assert "distortions  level recognised from the image" in ran.out
    assert "worst level: " in ran.out
    results = sorted(path.parent.name for path in (tmp_path / "r").glob("*/result.json"))
    assert results == sorted(f"{m}-seed{s}" for m in ("logcl", "finetune", "joint") for s in (0, 1))
    assert Memory.open("r/logcl-seed1/memory.logcl").verify() == []


def test_the_codec_is_an_option(tmp_path, logcl):
    ran = logcl("run", "digits", "--tasks", 2, "--codec", "cosine", "--out", "r", *QUICK_CLASSIFIER)
    assert ran.code == 0, ran.err
    assert Memory.open("r/memory.logcl").settings.codec.name == "cosine"


def test_the_table_omits_levels_for_methods_without_them(tmp_path, logcl):
    ran = logcl("run", "digits", "--tasks", 1, "--method", "finetune", "--out", "r", *QUICK)
    assert "distortions" not in ran.out
    ran = logcl("run", "digits", "--tasks", 2, "--set", "unit=5000", "--out", "s", *QUICK)
    assert "no class is in two levels" in ran.out
    assert "worst level: the buffer" in ran.out


def test_an_earlier_run_is_replaced_only_with_overwrite(tmp_path, logcl):
    arguments = ["run", "digits", "--tasks", 2, "--evaluate", "final", "--out", "r", *QUICK]
    first = json.loads(logcl(*arguments, "--json").out)
    assert first["final_accuracy"] > 0.1
    assert first["folder"] == "r"
    digest = Memory.open("r/memory.logcl").digest
    refused = logcl(*arguments)
    assert refused.code == 7
    assert "--overwrite" in refused.err
    assert Memory.open("r/memory.logcl").digest == digest
    again = json.loads(logcl(*arguments, "--overwrite", "--json").out)
    assert again["final_accuracy"] == first["final_accuracy"]
    assert Memory.open("r/memory.logcl").digest == digest  # the same seed gives the same memory


def test_finished_cells_are_not_run_again(tmp_path, logcl):
    arguments = ["run", "digits", "--tasks", 2, "--evaluate", "final", "--out", "r", *QUICK]
    assert logcl(*arguments, "--method", "finetune,joint", "--json").code == 0
    before = {path: path.stat().st_mtime_ns for path in tmp_path.glob("r/*/result.json")}

    for changes in (
        ["--tasks", 3],
        ["--set", "classifier.epochs=3"],
        ["--budget", 7],
        ["--evaluate", "every"],
    ):
        refused = logcl(*arguments, "--method", "gdumb,finetune,joint", *changes)
        assert refused.code == 7, changes
        assert (
            "from a run with other settings or data; choose another --out or add --overwrite" in refused.err
        )
        assert not (tmp_path / "r" / "gdumb-seed0").exists()  # refused before any work

    more = logcl(*arguments, "--method", "gdumb,finetune,joint", "--json")
    assert more.code == 0, more.err
    assert "2 of 3 runs were finished before and are not repeated" in more.err
    assert [result["method"] for result in json.loads(more.out)] == ["gdumb", "finetune", "joint"]
    assert {path: path.stat().st_mtime_ns for path in before} == before
    refused = logcl(*arguments, "--method", "gdumb,finetune,joint")
    assert refused.code == 7
    assert "exists from an earlier run" in refused.err


def test_a_run_that_fails_says_how_to_resume(tmp_path, logcl, monkeypatch):
    arguments = ["run", "digits", "--tasks", 3, "--evaluate", "final", "--method", "finetune", "--out", "r"]
    write = checkpoint.write

    def full(folder, about, state):
        if len(about.records) == 2:
            raise CannotWrite("the checkpoint cannot be written (No space left on device)")
        write(folder, about, state)

    monkeypatch.setattr(checkpoint, "write", full)
    failed = logcl(*arguments, *QUICK)
    assert failed.code == 7
    assert "No space left on device); finished tasks are kept; resume with the same command" in failed.err
    again = logcl(*arguments, *QUICK, "--overwrite")
    assert "resume with the same command without --overwrite" in again.err
    assert "going on" not in again.err
    monkeypatch.setattr(checkpoint, "write", write)
    ran = logcl(*arguments, *QUICK)
    assert ran.code == 0
    assert "resuming after task 1 of 3" in ran.err


def test_a_memory_without_a_run_is_refused(tmp_path, logcl, digits):
    np.savez("few.npz", x=digits[0][:10], y=digits[1][:10])
    (tmp_path / "r").mkdir()
    assert logcl("absorb", "r/memory.logcl", "few.npz").code == 0
    content = (tmp_path / "r" / "memory.logcl").read_bytes()
    refused = logcl("run", "digits", "--out", "r", *QUICK)
    assert refused.code == 7
    assert "r/memory.logcl exists from an earlier run" in refused.err
    assert (tmp_path / "r" / "memory.logcl").read_bytes() == content


@pytest.mark.parametrize(
    ("mode", "size"),
    [("L", (9, 12)), ("RGB", (16, 16)), ("RGBA", (20, 31)), ("P", (8, 8)), ("I;16", (33, 10))],
)
def test_own_images_of_every_mode_and_size(tmp_path, logcl, mode, size):
    draw = np.random.default_rng(0)
    for name in ("cat", "dog", "eel"):
        (tmp_path / "pets" / name).mkdir(parents=True)
        for number in range(10):
            pixels = draw.integers(0, 256, (size[1], size[0]), dtype=np.uint8)
            image = Image.fromarray(pixels)
            if mode == "I;16":
                image = Image.fromarray(pixels.astype(np.uint16) << 8)
            elif mode != "L":
                image = image.convert("RGB").convert(mode)
            image.save(tmp_path / "pets" / name / f"{number}.png")
    codec = [] if mode == "RGBA" else ["--codec", "cosine"]  # chosen once, because it takes longer than a run
    ran = logcl("run", "pets", "--tasks", 3, "--set", "unit=4", "--json", *codec, *QUICK_CLASSIFIER)
    assert ran.code == 0, ran.err
    result = json.loads(ran.out)
    channels = 1 if mode in ("L", "I;16") else 3  # the palette has colours
    assert result["settings"]["image_shape"][1:] == [size[1], size[0]]
    assert result["settings"]["image_shape"][0] == channels
    assert result["classes"] == ["cat", "dog", "eel"]
    assert [task["samples"] for task in result["tasks"]] == [8, 8, 8]
    assert logcl("verify", f"{result['folder']}/memory.logcl").code == 0


@pytest.mark.parametrize("shape", [(9, 9), (8, 11), (3, 10, 10), (12, 12, 3), (1, 16, 8)])
def test_own_arrays_of_every_layout(tmp_path, logcl, shape):
    draw = np.random.default_rng(0)
    np.savez("my.npz", x_train=draw.random((60, *shape)), y_train=np.arange(60) % 7 * 10,
             x_test=draw.random((14, *shape)), y_test=np.arange(14) % 7 * 10)  # fmt: skip
    codec = [] if shape == (9, 9) else ["--codec", "cosine"]
    ran = logcl("run", "my.npz", "--tasks", 5, "--set", "unit=8", "--json", *codec, *QUICK_CLASSIFIER)
    assert ran.code == 0, ran.err
    result = json.loads(ran.out)
    assert len(result["tasks"]) == 5
    assert result["classes"] == ["0", "10", "20", "30", "40", "50", "60"]
    assert result["raw_bytes"] == 60 * np.prod(shape)


def test_a_stream_without_test_samples_is_refused(tmp_path, logcl, digits):
    np.savez("one.npz", x=digits[0][:3], y=[0, 1, 2])
    ran = logcl("run", "one.npz", *QUICK)
    assert ran.code == 2
    assert "no test samples" in ran.err


def test_a_method_named_twice_runs_once(tmp_path, logcl):
    ran = logcl(
        "run", "digits", "--tasks", 1, "--method", "finetune,finetune", "--out", "r", "--json", *QUICK
    )
    assert json.loads(ran.out)["method"] == "finetune"


def test_more_tasks_than_classes(tmp_path, logcl, digits):
    np.savez("few.npz", x=digits[0][:40], y=digits[1][:40] % 2)
    result = json.loads(logcl("run", "few.npz", "--tasks", 32, "--set", "unit=4", "--json", *QUICK).out)
    assert [task["samples"] for task in result["tasks"]] == [1] * 32


@pytest.mark.parametrize(
    ("option", "expected"),
    [(("--bytes-per-sample", 6), (6, None)), (("--psnr", 17), (None, 17))],
)
def test_the_size_or_the_quality_of_a_code_is_an_option(logcl, digits, option, expected):
    np.savez("few.npz", x=digits[0][:100], y=digits[1][:100])
    ran = logcl("run", "few.npz", "--tasks", 1, "--set", "unit=32", "--json", *option, *QUICK)
    assert ran.code == 0, ran.err
    codec = json.loads(ran.out)["settings"]["codec"]
    assert (codec["bytes_per_sample"], codec["psnr"]) == expected


def test_two_sizes_of_a_code_are_refused(tmp_path, logcl):
    refused = logcl("run", "digits", "--bytes-per-sample", 6, "--psnr", 20, "--out", "r")
    assert refused.code == 2
    assert "--bytes-per-sample and --psnr exclude each other; give only one" in refused.err
    assert len(refused.err.splitlines()) == 1
    assert not (tmp_path / "r").exists()
