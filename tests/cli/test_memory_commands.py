"""The command line on a user's own images."""

import json
import re
import shutil
import unicodedata
from datetime import datetime
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from hypothesis import example, given
from hypothesis import strategies as st
from PIL import Image

from logcl import Memory
from logcl.cli import export
from logcl.cli.export import _folder_names
from logcl.core.text import human_bytes
from logcl.memory.classifier import Description, OwnNetwork
from logcl.nn import blobs
from tests.torture import resources

BRIEF = {"codec.name": "autoencoder", "codec.min_steps": 0, "codec.epochs": 2}
QUICK = [word for name, value in BRIEF.items() for word in ("--set", f"{name}={value}")]


@pytest.fixture
def folder(tmp_path, digits):
    """Class-named folders of images: several sizes and modes, and files that are no images."""
    x, y = digits
    root = tmp_path / "monday"
    for row in range(60):
        place = root / f"digit {y[row]}"
        place.mkdir(parents=True, exist_ok=True)
        image = Image.fromarray(x[row, 0]).resize((8 + row % 3, 8))
        mode = ("L", "RGB", "RGBA", "P", "I;16")[row % 5]
        if mode == "I;16":
            image = Image.fromarray(np.asarray(image).astype(np.uint16) * 257)
        elif mode != "L":
            image = image.convert(mode)
        image.save(place / f"{row}.{'png' if row % 2 else 'tif'}")
    (root / "digit 0" / "notes.txt").write_text("not an image")
    return root


@pytest.fixture
def npz(tmp_path, digits):
    path = tmp_path / "task.npz"
    np.savez(path, x=digits[0][:150], y=digits[1][:150])
    return path


@pytest.fixture(scope="module")
def absorbed(tmp_path_factory, digits):
    """150 samples in units of 32, with quick settings."""
    memory = Memory.open(tmp_path_factory.mktemp("absorbed") / "m.logcl", (1, 8, 8), unit=32, settings=BRIEF)
    memory.absorb(digits[0][:150], digits[1][:150])
    return memory.path


@pytest.fixture
def memory(tmp_path, absorbed):
    return shutil.copy(absorbed, tmp_path / "m.logcl")


def test_a_folder_of_images_from_absorb_to_predict(tmp_path, folder, logcl):
    path = tmp_path / "pets.logcl"
    ran = logcl(
        "absorb",
        path,
        folder,
        "--image-shape",
        "1x8x8",
        "--unit",
        16,
        "--codec",
        "autoencoder",
        "--set",
        "codec.min_steps=200",
    )
    assert ran.code == 0, ran.err
    assert "absorbed 60 samples" in ran.out
    assert "new memory" in ran.err
    assert Memory.open(path).classes == tuple(f"digit {d}" for d in range(10))
    assert logcl("verify", path).code == 0

    missing = logcl("predict", path, folder / "digit 3" / "3.png")
    assert missing.code == 8
    assert f"logcl train {path}" in missing.err
    trained = logcl("train", path, "--set", "classifier.epochs=60")
    assert trained.code == 0
    assert "10 classes on 60 replayed samples" in trained.out
    files = sorted((folder / "digit 3").iterdir())
    ran = logcl("predict", path, *files)
    labels = [line.split("\t")[1] for line in ran.out.splitlines()]
    assert labels.count("digit 3") > len(files) / 2
    answers = json.loads(logcl("predict", path, files[0], "--json").out)
    assert set(answers[0]) == {"image", "label", "probability"}


def test_a_second_task_grows_the_memory_and_the_classifier_is_then_old(tmp_path, folder, memory, npz, logcl):
    assert logcl("train", memory).code == 0
    ran = logcl("absorb", memory, npz, "--again", "--json")
    report = json.loads(ran.out)
    assert report["samples"] == 300
    assert report["tasks"][0]["absorbed"] == 150
    assert ran.err == ""  # quiet when it is no terminal
    ran = logcl("predict", memory, npz)
    assert len(ran.out.splitlines()) == 150
    assert "has grown from 150 to 300 samples" in ran.err
    np.savez(tmp_path / "unlabelled.npz", x=np.zeros((3, 8, 8), np.uint8))
    assert len(logcl("predict", memory, tmp_path / "unlabelled.npz").out.splitlines()) == 3
    assert len(json.loads(logcl("predict", memory, folder, "--json").out)) == 60
    np.savez(tmp_path / "other.npz", a=np.zeros(3), b=np.zeros(3))
    assert logcl("predict", memory, tmp_path / "other.npz").code == 2


def test_train_says_whether_it_was_warm_started(memory, npz, logcl):
    warm = ["--set", "classifier.warm_start=true", "--set", "classifier.epochs=2"]
    first = logcl("train", memory, *warm)
    assert "trained from scratch" in first.err
    assert "warm-started" not in first.out
    logcl("absorb", memory, npz, "--again")
    second = logcl("train", memory, *warm)
    assert "warm-started from that of 150 samples, on 300 replayed samples" in second.out
    assert re.fullmatch("global model: takes about .* images per second\n", second.err)
    assert json.loads(logcl("train", memory, *warm, "--json").out)["from"] == 300
    wider = logcl("train", memory, *warm, "--set", "classifier.width=5")
    assert "trained from scratch" in wider.err
    assert json.loads(logcl("train", memory, "--json").out)["from"] is None


def test_folders_of_folders_are_tasks(tmp_path, folder, logcl):
    week = tmp_path / "week"
    week.mkdir()
    folder.rename(week / "task1")
    (week / "task10" / "new class").mkdir(parents=True)
    Image.new("RGB", (50, 40), "red").save(week / "task10" / "new class" / "a.jpg")
    path = tmp_path / "w.logcl"
    report = json.loads(logcl("absorb", path, week, "--unit", 16, "--json").out)
    assert [task["absorbed"] for task in report["tasks"]] == [60, 1]
    assert Memory.open(path).settings.image_shape == (3, 8, 8), "the shorter side of most"
    again = json.loads(logcl("absorb", path, week, "--again", "--from-task", 2, "--json").out)
    assert again["samples"] == 62
    nothing = logcl("absorb", path, week, "--from-task", 3)
    assert nothing.code == 2
    assert "has no task 3" in nothing.err


def test_a_named_data_set(tmp_path, logcl):
    path = tmp_path / "d.logcl"
    ran = logcl("absorb", path, "digits", "--unit", 256, *QUICK)
    assert ran.code == 0
    assert len(ran.out.splitlines()) == 5
    assert Memory.open(path).n == 1438


def test_plan_says_what_absorb_then_does(memory, npz, logcl):
    plan = json.loads(logcl("plan", memory, "--incoming", 150, "--json").out)
    done = json.loads(logcl("absorb", memory, npz, "--again", "--json").out)["tasks"][0]
    assert [slot["level"] for slot in plan["train"]] == done["levels_trained"]
    assert plan["samples_trained"] == done["samples_trained"]
    assert plan["buffer"] == done["buffer"]
    text = logcl("plan", memory, "--incoming", 1).out
    assert "stays" in text
    assert "0 samples go through training" in text


def test_inspect(memory, logcl):
    about = json.loads(logcl("inspect", memory, "--json").out)
    assert about["samples"] == 150
    assert [level["level"] for level in about["levels"]] == [2]
    assert about["buffer"] == 150 - 128
    assert 0 < about["buffer_bytes"] < about["memory_bytes"] - about["levels"][0]["bytes"]
    assert about["raw_bytes"] == 150 * 64
    assert about["memory_bytes"] == about["file_bytes"] == memory.stat().st_size
    assert about["classifier_bytes"] == 0
    assert about["levels"][0]["runs"][0]["generation"] == 0
    text = logcl("inspect", memory).out
    assert "4 units of 32 samples = 100 in binary" in text
    assert "not trained yet" in text
    logcl("train", memory)
    about = json.loads(logcl("inspect", memory, "--json").out)
    assert about["classifier"]["state"] == "up to date"
    assert 0 < about["classifier_bytes"] < about["file_bytes"] == memory.stat().st_size
    assert about["memory_bytes"] < about["file_bytes"]
    assert "(up to date), file" in logcl("inspect", memory).out


@pytest.mark.parametrize("codec", [3, None, {}, ["x"]])
def test_inspect_shows_a_forged_codec(tmp_path, logcl, codec):
    fields = resources._fields(0, (1, 8, 8), 16)
    fields["settings"]["codec"] = codec
    path = tmp_path / "m.logcl"
    path.write_bytes(resources._file(tmp_path, fields, {}, {}))
    assert "codec" in logcl("inspect", path).out


def test_inspect_shows_what_each_encoding_added(memory, npz, logcl):
    assert logcl("absorb", memory, npz, "--again").code == 0
    about = json.loads(logcl("inspect", memory, "--json").out)
    (level, small) = about["levels"]
    assert level["generations"] == [0, 1]
    assert small["generations"] == [0, 0]
    assert about["max_generation"] == 3  # floor(log2(300 / 32))
    assert about["highest_generation"] == 1
    assert [(age["generation"], age["samples"]) for age in about["generations"]] == [(0, 160), (1, 128)]
    young, old = about["generations"]
    assert old["error"] == pytest.approx(sum(old["errors"]))
    assert level["errors"][1] == pytest.approx(old["errors"][1])
    held = sum(level["samples"] * level["error"] for level in about["levels"])
    assert held == pytest.approx(160 * young["error"] + 128 * old["error"])
    text = logcl("inspect", memory).out
    assert re.search(f"{level['errors'][0]:.4f} +{level['errors'][1]:.4f}", text)
    assert "at most floor(log2(n/L)) = 3 times, so far at most 1" in text


def test_inspect_of_an_empty_memory_and_of_a_buffer(tmp_path, digits, logcl):
    memory = Memory.open(tmp_path / "e.logcl", (1, 8, 8), unit=100)
    assert logcl("inspect", memory.path).code == 0
    assert json.loads(logcl("inspect", memory.path, "--json").out)["buffer_bytes"] == 0
    memory.absorb(digits[0][:5], digits[1][:5])
    assert "error added" not in logcl("inspect", memory.path).out
    about = json.loads(logcl("inspect", memory.path, "--json").out)
    assert (about["levels"], about["generations"], about["buffer"]) == ([], [], 5)
    blobs = memory.file.snapshot()[1]
    assert about["buffer_bytes"] == len(blobs["buffer-1"])
    row = next(line for line in logcl("inspect", memory.path).out.splitlines() if "buffer" in line)
    assert row.split()[1] == "5"
    assert human_bytes(about["buffer_bytes"]) in row
    memory.absorb(digits[0][5:6], digits[1][5:6])
    about = json.loads(logcl("inspect", memory.path, "--json").out)
    assert about["buffer_bytes"] > len(blobs["buffer-1"])  # of all chunks


def test_inspect_shows_the_ledger(tmp_path, folder, logcl):
    memory = Memory.open(tmp_path / "e.logcl", (1, 8, 8), unit=100)
    assert json.loads(logcl("inspect", memory.path, "--json").out)["tasks"] == []
    assert "task" not in logcl("inspect", memory.path).out
    assert logcl("absorb", memory.path, folder).code == 0
    (task,) = json.loads(logcl("inspect", memory.path, "--json").out)["tasks"]
    entry = memory.ledger[0]
    assert datetime.fromisoformat(task.pop("when").replace("Z", "+00:00")) == entry.when
    classes = [f"digit {d}" for d in range(10)]
    assert task == {"samples": 60, "start": 1, "stop": 60, "source": str(folder), "classes": classes}
    shown = logcl("inspect", memory.path).out
    assert re.search(rf"1 +{entry.when:%Y-%m-%d %H:%M:%S} UTC +60 +10 \(digit 0, .*, ...\) +{folder}", shown)
    for row in range(12):
        memory.absorb(np.full((1, 1, 8, 8), row), ["digit 0"], source=f"\x1b[31m{row}")
    shown = logcl("inspect", memory.path).out
    assert "the last 10 of 13 tasks" in shown
    assert "[31m0\n" not in shown
    assert "[31m1\n" not in shown
    assert [f"\\x1b[31m{row}" in shown for row in range(2, 12)] == [True] * 10
    assert "\x1b" not in shown
    assert len(json.loads(logcl("inspect", memory.path, "--json").out)["tasks"]) == 13


def test_the_same_images_are_absorbed_again_only_on_request(tmp_path, folder, logcl):
    path = tmp_path / "pets.logcl"
    assert logcl("absorb", path, folder, "--unit", 100).code == 0
    before = path.read_bytes()
    again = logcl("absorb", path, folder)
    assert again.code == 2
    assert again.out == ""
    assert re.search(rf"as samples 1 to 60, absorbed on .* UTC from {folder}; .* --again", again.err)
    assert path.read_bytes() == before
    assert logcl("absorb", path, folder, "--again").code == 0
    assert Memory.open(path).n == 120


def test_contradictory_labels_are_one_sentence(tmp_path, logcl):
    for name in ("cat", "dog"):
        (tmp_path / "yard" / name).mkdir(parents=True)
        Image.new("RGB", (8, 8), "red").save(tmp_path / "yard" / name / "a.png")
    ran = logcl("absorb", tmp_path / "m.logcl", tmp_path / "yard")
    assert ran.code == 0
    warned = [line for line in ran.err.splitlines() if "another label" in line]
    assert len(warned) == 1
    assert warned[0].startswith(f"logcl: {tmp_path / 'yard'}: 1 image has identical copies")


def test_narrow_terminals_lose_nothing(memory, logcl, monkeypatch):
    wide = logcl("inspect", memory).out
    monkeypatch.setattr("logcl.cli.console.out.width", 50)
    narrow = logcl("inspect", memory).out
    assert "…" not in narrow
    assert "1 to 128" in wide
    assert re.search(r"^level 2$", narrow, re.MULTILINE)
    assert re.search(r"^  indices +1 to 128$", narrow, re.MULTILINE)
    level = json.loads(logcl("inspect", memory, "--json").out)["levels"][0]
    assert re.search(rf"^  error +{level['error']:.4f}$", narrow, re.MULTILINE)
    plan = logcl("plan", memory, "--incoming", 3000).out
    assert "  what     is replayed and retired\n" in plan


def test_export_npz_and_png_hold_the_same_samples(tmp_path, memory, digits, logcl):
    assert logcl("export", memory, tmp_path / "out").code == 0
    with np.load(tmp_path / "out.npz") as file:
        x, y = file["x"], file["y"]
    assert x.shape == (150, 1, 8, 8)
    assert y.tolist() == digits[1][:150].tolist()
    assert np.array_equal(x[128:], digits[0][128:150])  # the buffer is raw
    assert logcl("export", memory, tmp_path / "tree", "--format", "png").code == 0
    files = sorted((tmp_path / "tree").rglob("*.png"), key=lambda path: path.stem)
    assert [path.parent.name for path in files] == y.astype(str).tolist()
    assert np.array_equal(np.stack([np.asarray(Image.open(path)) for path in files]), x[:, 0])
    again = logcl("export", memory, tmp_path / "tree", "--format", "png")
    assert again.code == 7
    assert "tree already exists" in again.err


def test_export_replaces_nothing(tmp_path, memory, logcl, monkeypatch):
    link = tmp_path / "link.npz"
    link.symlink_to("nowhere.npz")
    assert "link.npz already exists" in logcl("export", memory, link).err
    assert link.is_symlink()
    inside = export._write_npz

    def slow(*given):
        inside(*given)
        (tmp_path / "out.npz").write_text("written by someone else meanwhile")

    monkeypatch.setattr(export, "_write_npz", slow)
    assert logcl("export", memory, tmp_path / "out").code == 7
    assert (tmp_path / "out.npz").read_text() == "written by someone else meanwhile"
    assert not [path for path in tmp_path.iterdir() if path.name.endswith(".new")]


@pytest.mark.long
def test_export_of_more_than_two_gibibytes(tmp_path, memory, logcl, monkeypatch):
    """Zip files need to be told beforehand."""
    x, n = np.zeros((64, 1, 2048, 2048), np.uint8), 520
    x[:, 0, 0, 0] = 7
    blocks = [
        (start, torch.from_numpy(x[: n - start]), np.zeros(min(64, n - start), int))
        for start in range(0, n, 64)
    ]
    now = SimpleNamespace(
        n=n,
        classes=("a",),
        settings=SimpleNamespace(image_shape=x.shape[1:], backbone=None),
        pieces=lambda _: blocks,
    )
    monkeypatch.setattr(Memory, "snapshot", lambda _: now)
    assert logcl("export", memory, tmp_path / "out").code == 0
    with np.load(tmp_path / "out.npz") as file:
        assert file["y"].tolist() == ["a"] * n
        found = file["x"]
    assert found.nbytes > 2**31
    assert found.shape == (n, 1, 2048, 2048)
    assert (found[:, 0, 0, 0] == 7).all()
    assert found[-1].sum() == 7


def test_export_writes_labels_in_blocks(tmp_path, digits, logcl, quick, monkeypatch):
    monkeypatch.setattr("logcl.cli.export._BLOCK", 4000)
    names = ["x" * 1000 if label == 3 else f"digit {label}" for label in digits[1][:60].tolist()]
    Memory.open(tmp_path / "m.logcl", (1, 8, 8), settings=quick).absorb(digits[0][:60], names)
    assert logcl("export", tmp_path / "m.logcl", tmp_path / "out").code == 0
    with np.load(tmp_path / "out.npz") as arrays:
        assert arrays["y"].tolist() == names
        assert arrays["y"].dtype == "<U1000"
    monkeypatch.setattr("logcl.cli.export._MOST_LABELS", 10_000)
    refused = logcl("export", tmp_path / "m.logcl", tmp_path / "more")
    assert refused.code == 2
    assert "60 labels of up to 1000 characters do not fit an .npz" in refused.err


@pytest.mark.parametrize("value", [float("nan"), float("inf"), 3e38])
def test_networks_whose_outputs_are_nan(tmp_path, memory, digits, logcl, value):
    """`verify` reports weights that are not finite; `predict` never prints NaN."""
    from logcl import Classifier

    classifier = Classifier.train(Memory.open(memory))
    tensors = blobs.weights(classifier.network, "network")
    tensors = {k: v * 0 + value if v.is_floating_point() else v for k, v in tensors.items()}
    Memory.open(memory).file.write_classifier(blobs.pack(classifier.about, tensors))
    Image.fromarray(digits[0][0, 0]).save(tmp_path / "a.png")
    verified, predicted = logcl("verify", memory), logcl("predict", memory, tmp_path / "a.png", "--json")
    assert predicted.code == 5
    assert "NaN" not in predicted.out
    if value != 3e38:  # finite, but no image gives a finite result
        assert verified.code == 1
        assert "infinite or NaN values" in verified.out


def test_verify_reports_a_network_of_ones_own_with_nan(tmp_path, memory, logcl):
    """It cannot be loaded without its code, but its weights can be looked at."""
    stored = Memory.open(memory)
    about = OwnNetwork(kind="Mine", image_shape=(1, 8, 8), classes=len(stored.classes))
    model = Description(network=about, classes=stored.classes, samples=1, memory="")
    for kind in (torch.float32, torch.float8_e4m3fn):
        for value in (1.0, float("nan")):
            tensors = {"network.a": torch.ones(3), "network.b": torch.full((3,), value).to(kind)}
            stored.file.write_classifier(blobs.pack(model, tensors))
            verified = logcl("verify", memory)
            if value == 1 and kind == torch.float32:
                assert verified.code == 0
            elif kind == torch.float32:
                assert verified.code == 1
                assert "b has infinite or NaN values" in verified.out
            assert verified.code in (0, 1)


def test_class_names_cannot_lead_out_of_the_export(tmp_path, digits, logcl, quick):
    memory = Memory.open(tmp_path / "m.logcl", (1, 8, 8), settings=quick)
    names = ["../../evil", "/etc/passwd", "a/b", "a\\b", "..", "", "A/B", "con\x01", "x" * 300]
    memory.absorb(digits[0][:9], names)
    assert logcl("export", tmp_path / "m.logcl", tmp_path / "deep" / "er", "--format", "png").code == 7
    (tmp_path / "deep").mkdir()
    assert logcl("export", tmp_path / "m.logcl", tmp_path / "deep" / "er", "--format", "png").code == 0
    assert sorted(path.name for path in tmp_path.iterdir()) == ["deep", "m.logcl"]
    written = list((tmp_path / "deep").rglob("*.png"))
    assert len(written) == 9
    assert all(path.parent.parent == tmp_path / "deep" / "er" for path in written)


@given(st.lists(st.text(max_size=20), unique=True, max_size=10))
@example(
    [
        "\x7f",
        "\x9b31m",
        "\u202egnp",
        "-rf",
        "--",
        "~root",
        "~",
        "\ufffe",
        "CON",
        "nul.txt",
        "con",
        "lpt1 .x",
        "\u200b",
    ]
)
def test_folder_names_cannot_deceive_a_shell_or_a_terminal(names):
    folders = _folder_names(names)
    assert len(set(folders)) == len(names)
    assert all(folder.isprintable() and not folder.startswith(("-", "~", ".")) for folder in folders)
    assert all(folder.partition(".")[0].strip().lower() not in ("con", "nul", "lpt1") for folder in folders)


@given(st.lists(st.text(st.sampled_from("aAé\u0301e/_-012. 語"), max_size=120), unique=True, max_size=30))
@example(["a_b-2", "a/b", "a_b"])
@example(["é", "e\u0301", "É"])
@example(["語" * 120, "語" * 110])
def test_no_two_classes_share_a_folder(names):
    folders = _folder_names(names)
    assert len(folders) == len(names)
    assert len({unicodedata.normalize("NFC", folder).casefold() for folder in folders}) == len(names)
    assert all(len(folder.encode()) <= 255 and "/" not in folder and folder.strip(". ") for folder in folders)


def test_verify_distinguishes_damage_from_other_files(tmp_path, memory, logcl):
    good = logcl("verify", memory)
    assert good.code == 0
    assert "intact; 150 samples" in good.out
    content = bytearray(memory.read_bytes())
    content[len(content) // 2] ^= 1
    memory.write_bytes(content)
    bad = logcl("verify", memory, "--json")
    assert bad.code == 1
    assert json.loads(bad.out)["problems"]
    assert logcl("inspect", memory).code == 5
    (tmp_path / "text").write_text("text" * 1000)
    assert logcl("verify", tmp_path / "text").code == 4
    assert logcl("verify", tmp_path / "absent").code == 4


@pytest.mark.parametrize(
    ("arguments", "code", "sentence"),
    [
        (
            ["absorb", "{memory}", "{tmp}/absent"],
            3,
            "absent is not a file, a folder or a named data set; give a folder of",
        ),
        (["absorb", "{memory}", "{tmp}/empty"], 3, "has no class folders"),
        (
            ["absorb", "{memory}", "{tmp}/text.txt"],
            3,
            "is not an .npz file; give one, or a folder of class-named folders",
        ),
        (["absorb", "{memory}", "{tmp}/bad.npz"], 2, "holds images; save x and y"),
        (["absorb", "{memory}", "{tmp}/nan.npz"], 2, "NaN or infinite"),
        (["absorb", "{memory}", "{tmp}/large.npz"], 2, "this memory takes (n, 1, 8, 8)"),
        (["absorb", "{memory}", "{tmp}/broken"], 3, "broken/a/1.png is damaged or truncated"),
        (["absorb", "{memory}", "{npz}", "--image-shape", "3x32x32"], 2, "is for images of shape (1, 8, 8)"),
        (["absorb", "{memory}", "{npz}", "--image-shape", "8x9"], 2, "not (1, 8, 9)"),
        (["absorb", "{memory}", "{npz}", "--image-shape", ""], 2, "is not a size of images"),
        (["absorb", "{memory}", "{npz}", "--set", "unit"], 2, "--set unit has no value"),
        (["absorb", "{tmp}/no/m.logcl", "{npz}"], 7, "does not exist; create it first"),
        (["absorb", "{tmp}/text.txt", "{npz}"], 4, "is not a LogCL memory"),
        (["plan", "{memory}", "--incoming", "0"], 2, "incoming"),
        (["plan", "{tmp}/absent", "--incoming", "5"], 4, "does not exist"),
        (["inspect", "a" * 300], 4, "cannot be reached"),
        (["absorb", "{memory}", "a" * 300], 3, "cannot be"),
        (["absorb", "{tmp}/new.logcl", "{npz}", "--preset", "foo"], 2, "no preset 'foo'"),
        (["train", "{memory}", "--set", "unit=7"], 2, "fixed when a memory is created"),
        (["run", "digits", "--set", "seed=5"], 2, "use --seed"),
        (["run", "{tmp}/broken", "--out", "{tmp}/broken/runs"], 2, "is inside the images"),
        (["train", "{memory}", "--set", "classifier.epochs=no"], 2, "classifier.epochs"),
        (["predict", "{memory}", "{tmp}/absent.png"], 8, "has no trained classifier"),
        (["inspect", "{tmp}/empty"], 4, "is a folder"),
        (["run", "nowhere"], 3, "nowhere is not a file, a folder or a named data set"),
        (["run", "digits", "--method", "magic"], 2, "no method 'magic'"),
        (["run", "digits", "--preset", "magic"], 2, "no preset 'magic'"),
        (["run", "digits", "--tasks", "0"], 2, "tasks"),
    ],
)
def test_bad_input_is_one_sentence_and_changes_nothing(
    tmp_path, memory, npz, digits, logcl, monkeypatch, arguments, code, sentence
):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "empty").mkdir()
    (tmp_path / "text.txt").write_text("hello")
    (tmp_path / "broken" / "a").mkdir(parents=True)
    Image.fromarray(digits[0][0, 0]).save(tmp_path / "broken" / "a" / "0.png")
    whole = (tmp_path / "broken" / "a" / "0.png").read_bytes()
    (tmp_path / "broken" / "a" / "1.png").write_bytes(whole[:-30])
    np.savez(tmp_path / "bad.npz", images=np.zeros(3))
    np.savez(tmp_path / "nan.npz", x=np.full((2, 8, 8), np.nan), y=[0, 1])
    np.savez(tmp_path / "large.npz", x=np.zeros((2, 9, 9), np.uint8), y=[0, 1])
    before = memory.read_bytes()
    ran = logcl(*(str(a).format(memory=memory, tmp=tmp_path, npz=npz) for a in arguments))
    assert ran.code == code, ran
    assert sentence in " ".join(ran.err.split()).replace("│ ", ""), ran.err
    assert "Traceback" not in ran.err
    assert memory.read_bytes() == before


def test_a_source_that_fails_halfway_reports_the_tasks_absorbed(tmp_path, digits, logcl):
    for task, name in (("t1", "a"), ("t2", "b")):
        (tmp_path / "tasks" / task / name).mkdir(parents=True)
        for row in range(3):
            Image.fromarray(digits[0][row, 0]).save(tmp_path / "tasks" / task / name / f"{row}.png")
    bad = tmp_path / "tasks" / "t2" / "b" / "1.png"
    good = bad.read_bytes()
    path = tmp_path / "m.logcl"
    bad.write_bytes(b"rubbish")
    assert logcl("absorb", path, tmp_path / "tasks", *QUICK).code == 3
    assert not path.exists(), "headers are read before anything is committed"
    bad.write_bytes(good[:-30])  # a good header, but no pixels
    ran = logcl("absorb", path, tmp_path / "tasks", *QUICK)
    assert ran.code == 3
    assert "tasks up to 1 are in" in ran.err
    assert "--from-task 2" in ran.err
    assert Memory.open(path).n == 3
    assert logcl("absorb", path, tmp_path / "tasks", "--from-task", 2, "--skip-bad").code == 0
    assert Memory.open(path).n == 5


def test_a_first_task_that_fails_leaves_no_memory(tmp_path, npz, logcl):
    path = tmp_path / "new.logcl"
    ran = logcl(
        "absorb",
        path,
        npz,
        "--unit",
        32,
        "--codec",
        "autoencoder",
        "--set",
        "codec.learning_rate=1e30",
        "--set",
        "codec.epochs=9",
    )
    assert ran.code == 2
    assert "lower learning_rate" in ran.err
    assert not path.exists()


def test_names_with_brackets_are_shown_as_they_are(tmp_path, npz, logcl):
    path = tmp_path / "a[bold]b[x].logcl"
    assert str(path) in logcl("absorb", path, npz, *QUICK).out
    assert str(path) in logcl("plan", path, "--incoming", 3).out
    assert str(path) in logcl("train", path, "--set", "classifier.epochs=1").out


def test_an_array_with_a_false_header(tmp_path, memory, logcl):
    import io
    import zipfile

    header = io.BytesIO()
    np.lib.format.write_array_header_1_0(header, {"descr": "<i8", "fortran_order": False, "shape": (10**12,)})
    pixels = io.BytesIO()
    np.save(pixels, np.zeros((3, 8, 8), np.uint8))
    with zipfile.ZipFile(tmp_path / "liar.npz", "w") as archive:
        archive.writestr("y.npy", header.getvalue() + bytes(96))
        archive.writestr("x.npy", pixels.getvalue())
    ran = logcl("absorb", memory, tmp_path / "liar.npz")
    assert ran.code == 3
    assert "truncated" in ran.err


def test_skip_bad_continues_and_says_what_it_left_out(tmp_path, digits, logcl):
    for name in ("a", "b"):
        (tmp_path / "data" / name).mkdir(parents=True)
        for row in range(4):
            Image.fromarray(digits[0][row, 0]).save(tmp_path / "data" / name / f"{row}.png")
    (tmp_path / "data" / "a" / "2.png").write_bytes(b"rubbish")
    (tmp_path / "data" / "b" / "9.jpg").write_bytes(b"")
    path = tmp_path / "m.logcl"
    refused = logcl("absorb", path, tmp_path / "data", *QUICK)
    assert refused.code == 3
    assert "2.png" in refused.err
    assert "--skip-bad" in refused.err
    assert not path.exists()
    ran = logcl("absorb", path, tmp_path / "data", "--skip-bad", "--json", *QUICK)
    assert ran.code == 0
    assert json.loads(ran.out)["samples"] == 7
    assert [entry["file"][-5:] for entry in json.loads(ran.out)["tasks"][0]["skipped"]] == ["2.png", "9.jpg"]
    assert "skipped" in ran.err


def test_absorb_says_what_it_ignores(tmp_path, folder, logcl):
    (folder / "digit 3" / "more").mkdir()
    Image.new("L", (8, 8)).save(folder / "digit 3" / "more" / "a.png")
    ran = logcl("absorb", tmp_path / "m.logcl", folder, "--image-shape", "1x8x8", "--json", *QUICK)
    assert json.loads(ran.out)["samples"] == 60
    assert f"logcl: {folder}: images ignored: 1 in sub-folders of class folders\n" in ran.err


def test_a_newer_format_is_refused(memory, logcl):
    import sqlite3

    database = sqlite3.connect(memory)
    database.execute("PRAGMA user_version = 7")
    database.close()
    for command in (["inspect"], ["verify"], ["plan", "--incoming", "3"], ["train"]):
        ran = logcl(command[0], memory, *command[1:])
        assert ran.code == 4
        assert "upgrade LogCL" in ran.err


def test_a_missing_device(memory, npz, logcl, monkeypatch):
    monkeypatch.setenv("LOGCL_DEVICE", "auto")  # restored afterwards, whatever --device does to it
    before = memory.read_bytes()
    for device in ("cuda:77", "abacus"):
        ran = logcl("--device", device, "absorb", memory, npz)
        assert ran.code == 2
        assert f"the device '{device}' cannot be used here" in ran.err
    assert memory.read_bytes() == before
    assert logcl("--device", "cpu", "absorb", memory, npz, "--again").code == 0


def test_help_and_usage(logcl):
    assert logcl("--version").out.startswith("logcl 0.")
    ran = logcl("--help")
    assert ran.code == 0
    for command in ("absorb", "plan", "train", "predict", "inspect", "verify", "export", "run", "data"):
        assert command in ran.out
        assert logcl(command, "--help").code == 0
    assert logcl("absorb").code == 2
    assert logcl("frobnicate").code == 2


@pytest.mark.parametrize(
    ("option", "expected"),
    [
        (("--bytes-per-sample", "6.5"), (6.5, None)),
        (("--psnr", 17), (None, 17)),
    ],
)
def test_the_size_or_the_quality_of_a_code_is_an_option(tmp_path, npz, logcl, option, expected):
    path = tmp_path / "m.logcl"
    assert logcl("absorb", path, npz, "--unit", 32, *option, *QUICK).code == 0
    codec = Memory.open(path).settings.codec
    assert (codec.bytes_per_sample, codec.psnr) == expected
    assert logcl("absorb", path, npz, "--again", *option).code == 0  # the same again agrees
    other = logcl("absorb", path, npz, "--psnr", 23)
    assert other.code == 2
    assert "has other settings than codec.psnr = 23" in other.err
    assert Memory.open(path).n == 300


def test_the_codec_is_an_option(tmp_path, npz, logcl):
    path = tmp_path / "m.logcl"
    assert logcl("absorb", path, npz, "--codec", "cosine", "--psnr", 30).code == 0
    assert Memory.open(path).settings.codec.name == "cosine"
    assert logcl("absorb", path, npz, "--codec", "cosine", "--again").code == 0
    refused = logcl("absorb", path, npz, "--codec", "autoencoder", "--again")
    assert refused.code == 2
    assert "has other settings than codec.name = autoencoder" in refused.err
    assert "there is no codec 'gif' here" in logcl("absorb", tmp_path / "n.logcl", npz, "--codec", "gif").err


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (("--psnr", 9, "--bytes-per-sample", 1), "exclude each other; give only one"),
        (("--psnr", 30, "--set", "codec.bytes_per_sample=2"), "needs either"),
        (("--psnr", 30, "--preset", "paper-cpu"), "there is no setting 'codec.psnr' for codec index"),
        (("--bytes-per-sample", 0), "greater than 0"),
        (("--bytes-per-sample", "nan"), "finite number"),
        (("--psnr", 99), "less than or equal to 40"),
    ],
)
def test_impossible_rates_are_refused_in_a_sentence(tmp_path, npz, logcl, options, sentence):
    path = tmp_path / "m.logcl"
    refused = logcl("absorb", path, npz, *options)
    assert refused.code == 2
    assert sentence in refused.err
    assert len(refused.err.splitlines()) == 1
    assert not path.exists()


class TestInterruptedTrain:
    @pytest.fixture
    def interrupted(self, memory, logcl, monkeypatch):
        """`logcl train` that gets Ctrl-C at a step."""

        def run(step, *arguments):
            def log_to(place):
                def stop(moment):
                    if moment.step >= step:
                        raise KeyboardInterrupt

                return stop

            with monkeypatch.context() as patch:
                patch.setattr("logcl.integrations.logs.log_to", log_to)
                ran = logcl("train", memory, "--set", "classifier.min_steps=0", "--log", "x.csv", *arguments)
            assert ran.code == 130
            assert ran.out == ""
            return ran.err

        return run

    EPOCHS = ("--set", "classifier.epochs=6")

    def test_its_message_after_an_interrupt_is_true(self, memory, logcl, interrupted):
        told, said = interrupted(0, *self.EPOCHS).splitlines()
        assert re.fullmatch("global model: takes about .* images per second", told)
        assert said == f"logcl: interrupted; {memory} has no classifier yet"
        said = interrupted(5, *self.EPOCHS)
        kept = re.search(r"has no classifier yet; epoch ([0-9]) of 6 is kept, and the same command", said)
        unfinished = {"epoch": int(kept[1]), "epochs": 6}
        about = json.loads(logcl("inspect", memory, "--json").out)
        assert about["classifier"] == {"state": "not trained yet", "unfinished": unfinished}
        assert about["staged"] == []
        assert about["memory_bytes"] < about["file_bytes"]
        assert f"interrupted after epoch {kept[1]} of 6" in logcl("inspect", memory).out
        assert logcl("verify", memory).code == 0
        minutes = "--minutes", "1000"
        done = logcl("train", memory, "--set", "classifier.min_steps=0", *self.EPOCHS, *minutes)
        assert f"continued after epoch {kept[1]}, on 150 replayed samples" in done.out
        sizes = json.loads(logcl("inspect", memory, "--json").out)
        shown = ", ".join(
            f"{name} {human_bytes(sizes[f'{name}_bytes'])}" for name in ("memory", "classifier", "file")
        )
        assert done.out.endswith(f"; {shown}\n")
        about = json.loads(logcl("inspect", memory, "--json").out)["classifier"]
        assert (about["state"], "unfinished" in about) == ("up to date", False)
        assert interrupted(0).endswith("keeps its previous classifier\n")
        said = interrupted(5, *self.EPOCHS)
        assert "keeps its previous classifier; epoch" in said


def test_lines_report_the_progress_of_a_training_unless_quiet(memory, logcl, monkeypatch):
    monkeypatch.setattr("logcl.core.bars.EVERY", 0.05)
    told = logcl("train", memory).err
    assert re.search(r"^global model [0-9]+%(, about .* left)?(, loss [0-9.]+)?$", told, re.MULTILINE)
    assert logcl("train", memory, "--quiet").err == ""
