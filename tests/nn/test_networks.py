"""Networks: every image shape from 1x8x8 up, published sizes, and scaling to a fraction of the weights."""

import pytest
import torch
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from torch import nn

from logcl.core.settings import ClassifierSettings
from logcl.nn.networks import (
    AutoencoderSpec,
    ClassifierSpec,
    classifier,
    decoder,
    encoder,
    sized,
    weight_count,
)
from logcl.nn.networks.stem import Stem, blocks
from logcl.nn.training import generator_for, seeded

shapes = st.tuples(st.integers(1, 4), st.integers(8, 41), st.integers(8, 41))


@pytest.mark.parametrize("network", ["mlp", "conv", "binplay"])
@given(shape=shapes, bits=st.integers(1, 300), width=st.integers(1, 9), count=st.integers(1, 4))
@hypothesis_settings(max_examples=25)
def test_autoencoders(network, shape, bits, width, count):
    spec = AutoencoderSpec(network=network, image_shape=shape, length=bits, width=width)
    generator = generator_for(0)
    with seeded(generator):
        decode, encode = decoder(spec), encoder(spec, centred=True)
    images = decode(torch.rand(count, bits, generator=generator).sign())
    assert images.shape == (count, *shape)
    assert 0 <= images.min() <= images.max() <= 1
    assert encode(images).shape == (count, bits)  # in training mode, also for a batch of one
    assert encode.eval()(images).shape == (count, bits)


@pytest.mark.parametrize("network", ["convnet", "mlp", "lenet", "resnet18"])
@given(shape=shapes, classes=st.integers(1, 20), count=st.integers(1, 3))
@hypothesis_settings(max_examples=25)
def test_classifiers(network, shape, classes, count):
    with seeded(generator_for(0)):
        net = classifier(ClassifierSpec(network=network, image_shape=shape, classes=classes, width=3))
        assert net(torch.zeros(count, *shape)).shape == (count, classes)  # in training mode, also one image
    assert net.eval()(torch.zeros(count, *shape)).shape == (count, classes)


def test_every_code_bit_reaches_the_image():
    """A bit that did nothing would be wasted memory."""
    for network in ("mlp", "conv", "binplay"):
        spec = AutoencoderSpec(network=network, image_shape=(3, 10, 13), length=37, width=8)
        with seeded(generator_for(3)):
            decode = decoder(spec).eval()
        base = torch.ones(1, 37)
        flipped = 1 - 2 * torch.eye(37)
        changes = (decode(flipped) - decode(base)).abs().flatten(1).amax(dim=1)
        assert (changes > 0).all(), network


@pytest.mark.parametrize(("shape", "bits", "millions"), [((1, 28, 28), 200, 1.2), ((3, 32, 32), 1000, 5.5)])
def test_the_published_decoders_size(shape, bits, millions):
    spec = AutoencoderSpec(network="binplay", image_shape=shape, length=bits, width=32)
    assert round(weight_count(spec) / 1e6, 1) == millions
    with seeded(generator_for(0)), torch.no_grad():
        net = decoder(spec)
        assert net.layers(torch.zeros(1, 32, 8, 8)).shape == (1, *shape)  # no cropping where it was published


@pytest.mark.parametrize(
    ("network", "shape", "classes", "width", "millions"),
    [
        ("resnet18", (3, 32, 32), 100, 64, 11.2),
        ("resnet18", (3, 32, 32), 100, 20, 1.1),
        ("lenet", (1, 28, 28), 10, 64, 0.9),
    ],
)
def test_the_published_classifiers_sizes(network, shape, classes, width, millions):
    spec = ClassifierSpec(network=network, image_shape=shape, classes=classes, width=width)
    assert round(weight_count(spec) / 1e6, 1) == millions


networks = st.one_of(
    st.builds(
        AutoencoderSpec,
        network=st.sampled_from(["mlp", "conv", "binplay"]),
        image_shape=shapes,
        length=st.integers(1, 300),
        width=st.integers(1, 200),
    ),
    st.builds(
        AutoencoderSpec,
        network=st.just("superposed"),
        image_shape=shapes,
        length=st.integers(1, 12),
        width=st.integers(1, 200),
    ),
    st.builds(
        ClassifierSpec,
        network=st.sampled_from(["convnet", "mlp", "lenet", "resnet18"]),
        image_shape=shapes,
        classes=st.integers(1, 20),
        width=st.integers(1, 80),
    ),
)


@given(spec=networks, ratio=st.floats(0.01, 1.5))
@hypothesis_settings(max_examples=60)
def test_a_smaller_network_is_the_largest_that_the_ratio_allows(spec, ratio):
    small = sized(spec, ratio)
    assert 1 <= small.width <= spec.width
    assert small == spec.model_copy(update={"width": small.width})
    if small.width > 1:
        assert weight_count(small) <= ratio * weight_count(spec)
    if small.width < spec.width:
        wider = spec.model_copy(update={"width": small.width + 1})
        assert weight_count(wider) > ratio * weight_count(spec)


@pytest.mark.parametrize("shape", [(1, 28, 28), (3, 32, 32), (16, 64, 48), (1, 105, 105), (3, 224, 224)])
@pytest.mark.parametrize("width", [1, 16, 40])
def test_activations_are_estimated_from_above(shape, width):
    """What blocks and batches are bounded by; measured without allocating anything."""

    def measured(build, spec, *given):
        found = []
        with torch.device("meta"):
            network = build(spec)
            network.eval()
            for layer in network.modules():
                if not list(layer.children()) and not isinstance(layer, torch.nn.Flatten):
                    layer.register_forward_hook(lambda _, a, b: found.append((a[0].numel(), b.numel())))
            network(torch.empty(1, *given))
        return max(a + b for a, b in found), sum(b for _, b in found)

    for kind in ("convnet", "mlp", "lenet", "resnet18"):
        spec = ClassifierSpec.of(ClassifierSettings(network=kind, width=width), shape, 10)
        widest, total = measured(classifier, spec, *shape)
        assert widest <= 1.3 * spec.widest
        assert total <= 1.1 * spec.activations
    for kind in ("mlp", "conv", "binplay", "superposed"):
        spec = AutoencoderSpec(network=kind, image_shape=shape, length=10, width=width)
        assert measured(decoder, spec, spec.code_length)[0] <= 1.3 * spec.widest


@pytest.mark.parametrize(
    ("shape", "stem"),
    [
        ((3, 64, 64), 1),
        ((3, 100, 100), 4),
        ((1, 105, 105), 4),
        ((3, 128, 128), 4),
        ((3, 224, 224), 8),
        ((3, 80, 300), 8),
    ],
)
@pytest.mark.parametrize("network", ["convnet", "mlp", "lenet", "resnet18"])
def test_large_images_have_a_stem(network, shape, stem):
    settings = ClassifierSettings(network=network, width=2)
    spec = ClassifierSpec.of(settings, shape, 5)
    assert spec.stem == (1 if network == "mlp" else stem)
    with seeded(generator_for(0)):
        net = classifier(spec).eval()
    assert net(torch.zeros(2, *shape)).shape == (2, 5)
    if spec.stem > 1:
        assert net.stem(torch.zeros(1, *shape)).shape[1:] == spec.grid
        assert max(spec.grid[1:]) <= 64


def test_every_pixel_reaches_the_grid():
    """Also those in incomplete blocks at the edges."""
    generator = generator_for(0)
    with seeded(generator):
        stem = Stem((1, 13, 9), 4, 16).eval()
    image = torch.rand(1, 1, 13, 9, generator=generator, requires_grad=True)
    stem.convolution(blocks(nn.functional.pad(image, (0, 3, 0, 3), mode="replicate"), 2)).sum().backward()
    assert (image.grad != 0).all()
    assert stem(image).shape == (1, 16, 4, 3)


def test_blocks_of_pixels_become_cells():
    image = torch.arange(2 * 4 * 6, dtype=torch.float32).reshape(1, 2, 4, 6)
    assert torch.equal(blocks(image, 2), nn.functional.pixel_unshuffle(image, 2))
    assert blocks(image, 1) is image
