"""The measured costs, and how they are chosen and scaled."""

import math

import pytest

from logcl.cli.plan import codec_of
from logcl.core.errors import BadSettings
from logcl.memory.forecast.costs import measured, pick_costs
from logcl.memory.presets import preset


def test_fit_seconds_between_and_beyond_the_measurements():
    row = measured().codecs[0].model_copy(update={"fits": ((1, 2.0), (101, 12.0), (1001, 22.0))})
    assert [row.fit_seconds(count) for count in (1, 51, 101, 551, 1001, 2002)] == [2, 7, 12, 17, 22, 44]


def test_costs_are_proportional_to_image_size():
    small, large = (pick_costs((3, side, side), "cosine") for side in (224, 448))
    assert large.codec.sample_bytes == pytest.approx(4 * small.codec.sample_bytes)
    assert large.codec.fit_seconds(10**4) == pytest.approx(4 * small.codec.fit_seconds(10**4))
    assert large.classifier.train_seconds == pytest.approx(4 * small.classifier.train_seconds)
    assert large.codec.level_bytes == small.codec.level_bytes
    assert large.classifier.weights == small.classifier.weights


@pytest.mark.parametrize(
    ("shape", "usual"),
    [
        ((1, 8, 8), "pixels"), ((1, 28, 28), "pixels"), ((3, 32, 32), "pyramid"),
        ((1, 64, 64), "pyramid"), ((3, 224, 224), "image_file"),
    ],
)  # fmt: skip
def test_every_shape_has_the_costs_of_the_codec_that_it_usually_has(shape, usual):
    settings = preset("fast", shape)
    name, network = codec_of(settings)
    costs = pick_costs(shape, name, network, settings.classifier.width)
    assert (costs.codec.codec, costs.codec.network) == (usual, network)
    assert costs.codec.image_shape == costs.classifier.image_shape == shape
    assert costs.classifier.width == settings.classifier.width


def test_the_most_expensive_images_of_a_size_count():
    rows = [row for row in measured().codecs if (row.image_shape, row.codec) == ((3, 224, 224), "image_file")]
    assert len(rows) == 3
    assert pick_costs((3, 224, 224), "image_file").codec.sample_bytes == max(row.sample_bytes for row in rows)


def test_a_codec_without_measurements_is_refused():
    with pytest.raises(
        BadSettings,
        match=r"codec index were not measured; .* autoencoder or cosine or image_file or pixels or pyramid",
    ):
        pick_costs((1, 28, 28), "index")


def test_the_measurements_are_plausible():
    found = measured()
    assert "--quick" not in found.machine["command"]
    for row in found.codecs:
        seconds = [value for _, value in row.fits if value > 1e-3]  # copying codes takes next to nothing
        assert seconds == sorted(seconds)
        encode = row.encode_seconds or row.fit_seconds(row.fits[-1][0]) / row.fits[-1][0]
        assert row.decode_seconds < encode
        assert row.sample_bytes < math.prod(row.image_shape) / 4
        assert row.ram_bytes > math.prod(row.image_shape)
