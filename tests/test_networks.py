"""Every network takes every image shape from 1x8x8 up and gives back what its signature says."""

import pytest
import torch
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from logcl.networks import AutoencoderSpec, ClassifierSpec, classifier, decoder, encoder
from logcl.training import generator_for, seeded

shapes = st.tuples(st.integers(1, 4), st.integers(8, 41), st.integers(8, 41))


@pytest.mark.parametrize("network", ["mlp", "conv"])
@given(shape=shapes, bits=st.integers(1, 300), width=st.integers(1, 9), count=st.integers(1, 4))
@hypothesis_settings(max_examples=25)
def test_autoencoders(network, shape, bits, width, count):
    spec = AutoencoderSpec(network=network, image_shape=shape, bits=bits, width=width)
    generator = generator_for(0)
    with seeded(generator):
        decode, encode = decoder(spec), encoder(spec, centred=True)
    images = decode(torch.rand(count, bits, generator=generator).sign())
    assert images.shape == (count, *shape)
    assert 0 <= images.min() <= images.max() <= 1
    assert encode(images).shape == (count, bits)  # in training mode, also for a batch of one
    assert encode.eval()(images).shape == (count, bits)


@pytest.mark.parametrize("network", ["convnet", "mlp"])
@given(shape=shapes, classes=st.integers(1, 20))
@hypothesis_settings(max_examples=25)
def test_classifiers(network, shape, classes):
    with seeded(generator_for(0)):
        net = classifier(ClassifierSpec(network=network, image_shape=shape, classes=classes, width=3))
    assert net(torch.zeros(2, *shape)).shape == (2, classes)


def test_every_code_bit_reaches_the_image():
    """A bit that did nothing would be wasted memory."""
    for network in ("mlp", "conv"):
        spec = AutoencoderSpec(network=network, image_shape=(3, 10, 13), bits=37, width=8)
        with seeded(generator_for(3)):
            decode = decoder(spec).eval()
        base = torch.ones(1, 37)
        flipped = 1 - 2 * torch.eye(37)
        changes = (decode(flipped) - decode(base)).abs().flatten(1).amax(dim=1)
        assert (changes > 0).all(), network
