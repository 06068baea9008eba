"""A decoder whose rows are shared: each holds the sum of its samples' latents, told apart by signs.

    address ── row of the table ─┐
    signs ─────────────────────── × ── hidden layer ── pixels

Samples i, i + rows, i + 2·rows, … have one row e of `width` numbers, and a mask of ±1 each. Through its mask
m a sample sees W (m ∘ e): other masks, other projections of the same numbers. As long as the samples of a row
have fewer latent numbers together than the row is wide, e can satisfy all of them at once (the superposition
of Cheung et al. 2019, with data in place of tasks), and `superpose` finds it by least squares.

The rows are as many at every level, and the width carries the level's size: a table with a row for each
sample would be another way to write stored codes, and would grow with the level instead of with its size.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from logcl.settings import ImageShape

_SPARE = 1.15  # numbers a row has for each latent number it must hold: 1.0 is solvable, but ill-conditioned
_SPREAD = 0.5  # standard deviation of the table after `superpose`: sets its learning rate beside the layers'


class SuperposedDecoder(nn.Module):
    """2^bits rows of `width` numbers → hidden units → pixels."""

    def __init__(self, image_shape: ImageShape, bits: int, width: int) -> None:
        super().__init__()
        channels, height, columns = image_shape
        values = channels * height * columns
        units = hidden_units(image_shape)
        self.image_shape = image_shape
        self.bits = bits
        self.table = nn.Embedding(2**bits, width)
        self.hidden = nn.Linear(width, units)
        self.pixels = nn.Linear(units, values)

    def forward(self, code: Tensor) -> Tensor:
        """Address and signs (n, bits + width) of ±1 → (n, C, H, W)."""
        places = 2 ** torch.arange(self.bits, device=code.device)
        address = ((code[:, : self.bits] > 0) * places).sum(dim=1)
        return self.look_up(address, code[:, self.bits :])

    def look_up(self, address: Tensor, signs: Tensor) -> Tensor:
        """Row numbers (n,) and masks (n, width) of ±1 → (n, C, H, W)."""
        return self.paint(self.hidden(self.table(address) * signs))

    def paint(self, hidden: Tensor) -> Tensor:
        """Hidden units before their ReLU (n, units) → (n, C, H, W) in [0, 1]."""
        image: Tensor = torch.sigmoid(self.pixels(nn.functional.relu(hidden))).unflatten(1, self.image_shape)
        return image


def hidden_units(image_shape: ImageShape) -> int:
    """A third of the pixel values, from 32 to 512; not part of the size by level, which is the table's."""
    channels, height, width = image_shape
    return min(max(channels * height * width // 3, 32), 512)


def latent_numbers(width: int, sharing: int, image_shape: ImageShape) -> int:
    """Latent numbers for each of `sharing` samples that one row of `width` numbers can hold."""
    channels, height, columns = image_shape
    return min(max(int(width / sharing / _SPARE), 1), channels * height * columns)


@torch.no_grad()
def superpose(decoder: SuperposedDecoder, latents: Tensor, masks: Tensor, hidden: nn.Linear) -> None:
    """Set table and hidden layer so that row a under mask q acts like hidden(latents[q, a]).

    latents (sharing, rows, d), masks (sharing, width) of ±1, hidden d → units. With a random projection P,
    d x width, the rows solve P (m_q ∘ e_a) = z_qa for all q at once: one system, the same for every row.
    """
    sharing, rows, numbers = latents.shape
    width = masks.shape[1]
    projection = decoder.hidden.weight.new_empty(numbers, width).normal_(std=width**-0.5)
    system = (projection * masks[:, None]).reshape(sharing * numbers, width).double()
    wanted = latents.transpose(0, 1).reshape(rows, sharing * numbers).double()
    # The ridge keeps the numbers small where masks are nearly dependent, and decides where they are free.
    normal = system.T @ system + 1e-5 * torch.eye(width, dtype=torch.float64, device=system.device)
    table = torch.linalg.solve(normal, system.T @ wanted.T).T
    scale = table.std().clamp(min=1e-9) / _SPREAD
    decoder.table.weight.copy_(table / scale)
    decoder.hidden.weight.copy_(hidden.weight @ projection * scale)
    decoder.hidden.bias.copy_(hidden.bias)
