"""`logcl bench codecs`: its measures, real runs on a few images, and its messages if data is missing."""

import json
import os

import numpy as np
import pytest
from PIL import Image

from logcl.core.errors import EngineFailed
from logcl.core.progress import Silent
from logcl.experiments.bench import codec_rates, codecs
from logcl.experiments.bench.codecs import Cell, finished, grid, in_child, path_of
from logcl.experiments.bench.image_sets import IMAGE_SETS, ImageSet, from_source
from logcl.experiments.bench.quality import bytes_at, ms_ssim, psnr, relative_bytes
from logcl.experiments.report import codecs as pages

CURVE = [(22.0, 80.0), (26.0, 130.0), (30.0, 210.0), (36.0, 400.0)]


@pytest.fixture
def photographs():
    """24 smooth images with weak colours, as of photographs: (24, 3, 32, 32)."""
    generator = np.random.default_rng(0)
    small = generator.integers(0, 200, (24, 6, 6, 1)) + generator.integers(0, 50, (24, 6, 6, 3))
    small = small.astype(np.uint8)
    large = [np.asarray(Image.fromarray(image).resize((32, 32), Image.Resampling.BICUBIC)) for image in small]
    return np.ascontiguousarray(np.stack(large).transpose(0, 3, 1, 2))


@pytest.fixture
def folder(tmp_path, photographs):
    """A data folder with these images as the test part of `clothing`, some of them not square."""
    for number, image in enumerate(photographs):
        place = tmp_path / "data" / "clothing" / "test" / ("hat", "shoe")[number % 2]
        place.mkdir(parents=True, exist_ok=True)
        picture = Image.fromarray(image.transpose(1, 2, 0)).resize((60, 48 + 12 * (number % 2)))
        picture.save(place / f"{number}.png")
    (tmp_path / "data" / "clothing" / "train" / "hat").mkdir(parents=True)
    Image.new("RGB", (60, 60), "red").save(tmp_path / "data" / "clothing" / "train" / "hat" / "learnt.png")
    return tmp_path / "data"


def test_a_curve_against_itself_and_against_twice_the_bytes():
    assert relative_bytes(CURVE, [CURVE]) == (pytest.approx(1), 1)
    double = [(quality, 2 * size) for quality, size in CURVE]
    assert relative_bytes(CURVE, [double]) == (pytest.approx(0.5), 1)
    assert relative_bytes(CURVE, [double, CURVE])[0] == pytest.approx(1)


def test_the_reference_is_the_best_library_at_each_quality():
    low = [(24.0, 50.0), (29.0, 100.0)]
    high = [(29.0, 100.0), (34.0, 200.0)]
    ratio, covered = relative_bytes([(24.0, 50.0), (29.0, 100.0), (34.0, 200.0)], [low, high])
    assert (ratio, covered) == (pytest.approx(1), 1)
    # Below its lowest quality, a library is represented by its smallest file.
    worse = [(20.0, 500.0), (36.0, 1000.0)]
    assert relative_bytes([(24.0, 90.0), (28.0, 90.0)], [worse, [(29.0, 90.0), (30.0, 95.0)]])[0] <= 1


def test_only_the_qualities_that_both_reach_are_compared():
    ratio, covered = relative_bytes([(29.0, 100.0), (40.0, 100.1)], [[(20.0, 200.0), (31.5, 200.1)]])
    assert ratio == pytest.approx(0.5, rel=1e-3)
    assert covered == pytest.approx(0.25, abs=0.01)
    assert relative_bytes([(20.0, 1.0), (22.0, 2.0)], [CURVE]) == (None, 0)
    assert relative_bytes([(26.01, 65.0)], [CURVE]) == (pytest.approx(0.5, rel=0.01), 0)
    assert relative_bytes([], [CURVE]) == (None, 0)
    assert relative_bytes(CURVE, []) == (None, 0)


def test_dominated_rates_do_not_count():
    assert bytes_at([*CURVE, (25.0, 900.0)], [26.0, 28.0]) == pytest.approx(bytes_at(CURVE, [26.0, 28.0]))
    assert bytes_at(CURVE, [28.0])[0] == pytest.approx((130 * 210) ** 0.5)
    assert np.isnan(bytes_at(CURVE, [21.0, 37.0])).all()


@pytest.mark.parametrize("shape", [(1, 8, 8), (1, 28, 28), (3, 64, 64), (3, 192, 180)])
def test_ms_ssim_is_one_for_equal_images_and_falls_with_noise(shape):
    generator = np.random.default_rng(0)
    columns = np.linspace(40, 215, shape[2])[:, None] * np.ones(shape[1])[None]
    x = np.broadcast_to(columns.T, (3, *shape)).astype(np.uint8).copy()
    found = [ms_ssim(x, x)]
    for strength in (5, 20, 60):
        noise = generator.normal(0, strength, x.shape)
        found.append(ms_ssim(x, (x + noise).clip(0, 255).astype(np.uint8)))
    assert found[0] == pytest.approx(np.ones(3), abs=1e-5)
    assert (np.diff(found, axis=0) < 0).all()
    assert (np.array(found) >= 0).all()


def test_ms_ssim_of_one_scale_is_ssim():
    """Of constant images only luminance is left: (2ab + C1) / (a² + b² + C1)."""
    x, z = np.full((1, 1, 16, 16), 100, np.uint8), np.full((1, 1, 16, 16), 150, np.uint8)
    a, b = 100 / 255, 150 / 255
    assert ms_ssim(x, z)[0] == pytest.approx((2 * a * b + 1e-4) / (a * a + b * b + 1e-4), rel=1e-4)


def test_psnr_of_equal_images_is_finite():
    assert psnr([1e-2, 0.0]) == pytest.approx([20, 60])


def test_photographs_are_cropped_not_squashed(tmp_path):
    wide = np.zeros((40, 80, 3), np.uint8)
    wide[:, 20:60] = 255
    (tmp_path / "a").mkdir()
    Image.fromarray(wide).save(tmp_path / "a" / "wide.png")
    for shape in ((3, 20, 20), (1, 20, 20)):
        x = ImageSet("own", str(tmp_path), shape).load(8, None, Silent())
        assert x.shape == (1, *shape)
        assert x.mean() > 250


def test_the_sample_is_of_photographs_that_no_network_learnt_and_always_the_same(folder):
    one, two = (IMAGE_SETS["clothing-32"].load(10, folder, Silent()) for _ in range(2))
    assert one.shape == (10, 3, 32, 32)
    assert np.array_equal(one, two)
    assert IMAGE_SETS["clothing-grey"].load(100, folder, Silent()).shape == (24, 1, 28, 28)


def test_sets_of_own_images(tmp_path, digits):
    np.savez(tmp_path / "own.npz", x=digits[0][:20], y=digits[1][:20])
    (own,) = from_source(str(tmp_path / "own.npz"), []).values()
    assert own.load(5, None, Silent()).shape == (5, 1, 8, 8)
    (own,) = from_source(str(tmp_path / "own.npz"), [(3, 16, 16)]).values()
    assert own.load(50, None, Silent()).shape == (20, 3, 16, 16)
    assert len(from_source(str(tmp_path), [])) == 4


def test_memories_and_files_are_measured_alike(photographs):
    for codec in ("cosine", "fast", "webp", "jpeg-444"):
        points, peak = codec_rates.measure(photographs[:10], codec, "smoke")
        assert len(points) >= 2
        assert peak is None or peak > 0
        by_bytes = sorted(points, key=lambda point: (point.bytes, point.psnr))
        assert [p.psnr for p in by_bytes] == sorted(p.psnr for p in points)
        for point in points:
            assert point.bytes > 20
            assert 0 < point.ms_ssim <= 1
            assert point.encode_seconds >= 0
            if point.rate.endswith("dB"):
                assert point.psnr == pytest.approx(float(point.rate.split()[0]), abs=1)


def test_every_codec_with_a_rate_is_measured_where_it_is_meant_for():
    cells = grid(list(IMAGE_SETS.values()), None, "small")
    by_set = {name: {cell.codec for cell in cells if cell.image_set.name == name} for name in IMAGE_SETS}
    assert {"fast", "cosine", "autoencoder", "webp", "avif-400", "jpeg"} <= by_set["mnist"]
    assert {"fast", "cosine", "webp", "avif-444", "avif-420", "jpeg-444"} <= by_set["clothing-224"]
    assert not {"index", "autoencoder"} & by_set["clothing-224"]
    assert {cell.codec for cell in grid(list(IMAGE_SETS.values()), {"webp"}, "full")} == {"webp"}


def test_without_the_plugin_jpeg_xl_is_left_out(monkeypatch):
    monkeypatch.setattr(codec_rates, "find_spec", lambda name: None)
    assert "logcl[jxl]" in codec_rates.missing_libraries()["jxl"]
    assert "jxl" not in {cell.codec for cell in grid([IMAGE_SETS["mnist"]], None, "small")}


def test_a_process_that_dies_is_an_error_with_a_remedy():
    with pytest.raises(EngineFailed, match="run the command again"):
        in_child(os._exit, 1)


def test_a_run_measures_every_cell_once(logcl, folder, tmp_path):
    source = folder / "clothing" / "test"
    arguments = ("bench", "codecs", "--scale", "smoke", "--out", tmp_path)
    arguments += ("--source", source, "--sides", "32")
    ran = logcl(*arguments, "--codecs", "cosine,webp")
    assert ran.code == 0, ran.err
    assert "Bytes against the best library" in ran.out
    assert "test-3x32x32: 16 images, 3x32x32" in ran.out
    assert "test-3x32x32-webp: " in ran.err
    place = tmp_path / "codecs"
    files = {path: path.stat().st_mtime_ns for path in place.glob("*.json")}
    assert {path.name for path in files} == {
        "smoke-test-3x32x32-cosine.json", "smoke-test-3x32x32-webp.json"
    }  # fmt: skip
    assert (place / "smoke-curves-test-3x32x32.svg").exists()
    assert (place / "smoke-curves-test-3x32x32.png").exists()
    assert (place / "report.html").exists()
    readme = (place / "README.md").read_text()
    assert f"logcl bench codecs --scale smoke --codecs cosine,webp --source {source}" in readme
    assert "| webp | 1.00 |" in readme

    again = logcl(*arguments, "--codecs", "cosine", "--json")
    assert again.code == 0
    assert again.err == ""  # nothing was measured
    assert {path: path.stat().st_mtime_ns for path in place.glob("*.json")} == files
    document = json.loads(again.out)
    assert [cell["codec"] for cell in document["cells"]] == ["cosine", "webp"]
    assert document["tables"][0]["rows"][1] == {"codec": "webp", "test-3x32x32": "1.00"}

    # A damaged file, and one of another source, are measured again.
    (sets,) = from_source(str(source), [(3, 32, 32)]).values()
    cell = Cell(sets, "webp")
    other = Cell(ImageSet(sets.name, "/another/clothing", sets.shape), "webp")
    assert set(finished([cell], place, "smoke")) == {cell.name}
    assert finished([other], place, "smoke") == {}
    path_of(place, "smoke", cell).write_text("{")
    assert finished([cell], place, "smoke") == {}
    assert [found.codec for found in pages.found_in(place)["smoke"]] == ["cosine"]


def test_absent_data_is_reported_and_the_rest_is_measured(logcl, folder, tmp_path):
    arguments = ("bench", "codecs", "--scale", "smoke", "--out", tmp_path, "--codecs", "webp", "--sets")
    ran = logcl(*arguments, "mnist,clothing-32", "--data-dir", folder)
    assert ran.code == 0, ran.err
    assert "mnist is absent: the data set mnist is missing" in ran.err
    assert "clothing-32: 16 images" in ran.out
    ran = logcl(*arguments, "clothing-64")
    assert ran.code == 1
    assert "clothing-64 is absent: the clothing photographs are missing; get them from" in ran.err


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (("codecs", "--methods", "er"), "--methods is not an option of the bench codecs"),
        (("codecs", "--engine", "ray"), "--engine is not an option of the bench codecs"),
        (("table1", "--sets", "mnist"), "--sets is not an option of the bench table1"),
        (("codecs", "--sets", "magic"), "there is no image set 'magic'"),
        (("codecs", "--codecs", "magic"), "there is no codec 'magic'"),
        (("codecs", "--sides", "64"), "--sides is for your own images; add --source"),
        (("codecs", "--sets", "mnist", "--codecs", "jpeg-420"), "none of these codecs can be measured"),
    ],
)
def test_unknown_names_are_refused_with_the_known_ones(logcl, tmp_path, arguments, problem):
    ran = logcl("bench", *arguments, "--out", tmp_path)
    assert ran.code == 2
    assert problem in ran.err


def test_a_codec_that_fails_is_reported_and_measured_next_time(monkeypatch, photographs, tmp_path):
    def failing(*_):
        raise RuntimeError("out of order")

    np.savez(tmp_path / "own.npz", x=photographs, y=np.zeros(24, np.int64))
    (own,) = from_source(str(tmp_path / "own.npz"), []).values()
    cells = [Cell(own, "webp"), Cell(own, "jpeg-444")]
    choices = {"command": "", "data_dir": None, "progress": Silent()}
    with monkeypatch.context() as patched:
        patched.setattr(codecs, "in_child", failing)
        events = list(codecs.run(cells, tmp_path, "smoke", **choices))
    assert [event.state for event in events] == ["failed", "failed"]
    assert "out of order" in events[0].problem
    monkeypatch.setattr(codecs, "in_child", lambda function, *arguments: function(*arguments))
    assert [event.state for event in codecs.run(cells, tmp_path, "smoke", **choices)] == ["done", "done"]
    assert len(finished(cells, tmp_path, "smoke")) == 2
