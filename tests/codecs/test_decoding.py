"""Images through networks in blocks: large ones a few at a time."""

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from logcl.codecs import decoding
from logcl.nn.classification import predict_proba


class Recorder(nn.Module):
    """Any network, as far as blocks are concerned: (n, ...) → (n, *shape) of zeros; notes each n."""

    def __init__(self, *shape: int) -> None:
        super().__init__()
        self.anything = nn.Parameter(torch.zeros(()))
        self.shape = shape
        self.seen: list[int] = []

    def forward(self, block: Tensor) -> Tensor:
        self.seen.append(len(block))
        return self.anything + torch.zeros((len(block), *self.shape))


@pytest.mark.parametrize(("shape", "most"), [((1, 8, 8), 1024), ((3, 128, 128), 85), ((3, 1024, 1024), 1)])
def test_no_block_is_larger_than_its_bytes_allow(shape, most):
    count = most + 2
    decoder, network = Recorder(*shape), Recorder(5)
    images = decoding.decode(
        decoder, lambda rows: np.zeros((len(rows), 8), np.float32), np.arange(count), shape
    )
    assert images.shape == (count, *shape)
    assert images.dtype == torch.uint8
    assert predict_proba(network, images.numpy()).shape == (count, 5)
    assert decoding.in_blocks(network, images).shape == (count, 5)
    rest = [most, 2] if most > 1 else [1, 1, 1]
    assert decoder.seen == rest
    assert network.seen == rest * 2
