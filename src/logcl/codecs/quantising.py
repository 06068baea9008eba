"""Images to integers that cost few bytes once they are entropy coded. Two ways, one kind of code.

`trained`: an autoencoder learns which integers are worth their bytes (rate against distortion, Ballé 2017).
`cosine_coded`: rounded cosine coefficients; nothing is trained, and what was once rounded stays as it is.

The user sets the bytes of a code or the quality; the rate of exchange between the two is found on the way.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from logcl.codecs import entropy
from logcl.codecs.encoding import Encoding
from logcl.codecs.settings import GeneratorSettings
from logcl.codecs.stored import FINENESS, QuantisedCodes
from logcl.core.images import rows_at_once
from logcl.nn import networks
from logcl.nn.device import choose_device
from logcl.nn.images import to_unit
from logcl.nn.training import Work, fit, seeded, shortened

_ROUNDING = 0.4  # of a step: coefficients nearer to zero than this fall to it, which saves more than it loses
_ENOUGH = 16  # images of a batch whose mean error is as good as that of all
_TOLERANCE = 0.1  # by what share a kept step may miss the bytes it is meant for


class Analysis(nn.Module):
    """The half of a codec that replay does without: where an image's symbols lie, and what they cost.

    image ── encoder ── embedding ── times gain ── position ── rounded ── symbol
    """

    exchange: Tensor
    """Squared error that is worth a bit: what the last fit arrived at."""

    def __init__(self, spec: networks.AutoencoderSpec) -> None:
        super().__init__()
        self.encoder = networks.encoder(spec, centred=True)
        self.prior = _Logistic(spec.length)
        self.register_buffer("exchange", torch.tensor(0.016 / math.prod(spec.image_shape)))

    def forward(self, image: Tensor) -> Tensor:
        """Images (n, C, H, W) in [0, 1] → positions (n, length)."""
        position: Tensor = self.prior.gain() * self.encoder(image)
        return position


@dataclass(frozen=True)
class Start:
    """Networks of another level to begin with, instead of random weights."""

    decoder: nn.Module
    analysis: nn.Module | None = None


def trained(
    x: NDArray[np.uint8],
    spec: networks.AutoencoderSpec,
    settings: GeneratorSettings,
    work: Work,
    start: Start | None,
    raw: NDArray[np.bool_] | None = None,
    distortion: Callable[[Tensor, Tensor], Tensor] = nn.functional.mse_loss,
) -> Encoding:
    """Encoder and decoder trained together for the least error at the rate asked for; x (n, C, H, W).

    loss = squared error + exchange · bits, where the bits come from a logistic distribution that is learned
    for each symbol, and rounding is uniform noise for the bits, the rounded value itself for the decoder.
    `exchange` drifts until the target is met: bytes by all images, quality by the `raw` ones (n,), all by
    default. What was decoded before has lost what was hard to encode. If it were judged as well, every merge
    would find its quality too good, and the next one be coarser.
    `distortion` of (decoded, image), both in [0, 1], takes the place of the squared error in the loss.
    """
    device = choose_device()
    with seeded(work.generator):
        analysis = Analysis(spec).to(device)
        decoder = networks.decoder(spec).to(device)
    usual = float(analysis.exchange)
    if start is not None:
        decoder.load_state_dict(start.decoder.state_dict())
        if start.analysis is not None:
            analysis.load_state_dict(start.analysis.state_dict())
    warm = start is not None and start.analysis is not None
    recipe = shortened(settings, settings.warm_share) if warm else settings
    images = torch.from_numpy(x).to(device)
    exchange = float(analysis.exchange)
    wanted = 0.0 if settings.bytes_per_sample is None else 8 * settings.bytes_per_sample
    judged = torch.ones(len(x))
    if settings.psnr is not None and raw is not None:
        judged = torch.from_numpy(raw).to(torch.float32)

    def loss(rows: Tensor) -> Tensor:
        nonlocal exchange
        image = to_unit(images[rows.to(device)])
        position = analysis(image)
        bits = analysis.prior.bits(position + torch.rand_like(position) - 0.5)
        rounded = position + (position.round() - position).detach()
        decoded = decoder(rounded / FINENESS)
        # Less a constant, so that the loss of a code on target is its error, whatever the exchange is.
        total: Tensor = distortion(decoded, image) + exchange * (bits - wanted)
        errors, say = (decoded.detach() - image).square().flatten(1).mean(dim=1).cpu(), judged[rows]
        error = float((say * errors).sum() / say.sum().clamp(min=1))
        excess = _excess(settings, float(bits.detach()) / 8, error)
        # Slower where few have a say: one image is no measure of the others.
        pace = 0.1 * min(float(say.sum()) / _ENOUGH, 1)
        exchange *= math.exp(pace * max(min(excess, 1), -1))
        exchange = min(max(exchange, usual / 100), 100 * usual)
        return total

    fit(nn.ModuleList([analysis, decoder]), loss, len(x), recipe, work)
    analysis.exchange.fill_(exchange)
    with torch.no_grad():
        blocks = [
            analysis(to_unit(block)).round().clamp(-entropy.LARGEST, entropy.LARGEST).cpu()
            for block in images.split(rows_at_once(spec.image_shape))
        ]
    return _encoding(decoder, torch.cat(blocks).to(torch.int16), len(x), analysis)


def cosine_coded(
    x: NDArray[np.uint8],
    spec: networks.AutoencoderSpec,
    settings: GeneratorSettings,
    work: Work,
    start: nn.Module | None,
) -> Encoding:
    """Cosine coefficients in steps of one size for all, x (n, C, H, W).

    The step of `start` is kept if quality is asked for, and while it comes near the bytes asked for: what was
    rounded with it before is then rounded to itself, so that samples lose nothing when levels are merged.
    """
    device = choose_device()
    decoder = networks.CosineDecoder(spec.image_shape).to(device)
    step = float(start.unit.detach()) / FINENESS if isinstance(start, networks.CosineDecoder) else None
    # Quality follows from the step alone; bytes also depend on what the images are like.
    if step is None or settings.psnr is None:
        step = _calibrated(x[:: max(len(x) // 2048, 1)], spec, settings, step)
    with torch.no_grad():
        decoder.unit.fill_(step * FINENESS)
    with work.progress.track(work.description, 1) as advance:
        symbols = [
            _rounded(networks.coefficients(to_unit(part.to(device))), step).cpu().to(torch.int16)
            for part in torch.from_numpy(x).split(rows_at_once(spec.image_shape))
        ]
        result = _encoding(decoder, torch.cat(symbols), len(x))
        advance()
    return result


def _calibrated(
    x: NDArray[np.uint8], spec: networks.AutoencoderSpec, settings: GeneratorSettings, kept: float | None
) -> float:
    """The step that meets the target on these images, or the `kept` one if that comes near it."""
    some = torch.from_numpy(x).to(choose_device())
    parts = [networks.coefficients(to_unit(part)) for part in some.split(rows_at_once(spec.image_shape))]
    exact = torch.cat(parts)

    def excess(step: float) -> float:
        rounded = _rounded(exact, step)
        error = float((rounded * step - exact).square().mean())
        blocks = len(exact) // len(some)
        spent = blocks * entropy.mean_bytes(rounded.cpu().numpy().astype(np.int16))
        return _excess(settings, spent, error)

    if kept is not None and abs(excess(kept)) <= _TOLERANCE:
        return kept
    # Finer steps than this would need larger symbols than there are: an image all white would turn grey.
    return _bisect(excess, finest=0.5 * math.sqrt(spec.length) / entropy.LARGEST)


def _encoding(
    decoder: nn.Module, symbols: Tensor, samples: int, analysis: nn.Module | None = None
) -> Encoding:
    stored = QuantisedCodes(entropy.encode(symbols.numpy()), len(symbols) // samples)
    return Encoding(decoder, stored, np.arange(samples), analysis)


def _excess(settings: GeneratorSettings, spent: float, error: float) -> float:
    """How far the code is too expensive (> 0) or too poor (< 0), as a share of the target."""
    if settings.psnr is not None:
        return 1 - error / 10 ** (-settings.psnr / 10)
    assert settings.bytes_per_sample is not None
    return spent / settings.bytes_per_sample - 1


def _rounded(exact: Tensor, step: float) -> Tensor:
    """Coefficients in whole steps, those near zero left out."""
    size = (exact.abs() / step + _ROUNDING).floor().clamp(max=entropy.LARGEST)
    return size * exact.sign()


def _bisect(excess: Callable[[float], float], finest: float, coarsest: float = 4.0) -> float:
    """The step at which nothing is in excess: larger steps cost fewer bytes and more error."""
    for _ in range(14):
        middle = math.sqrt(finest * coarsest)
        finest, coarsest = (middle, coarsest) if excess(middle) > 0 else (finest, middle)
    # Exactly as the memory file keeps it, in half precision.
    return float(np.float16(coarsest * FINENESS)) / FINENESS


class _Logistic(nn.Module):
    """How probable each integer of a code is: logistic distributions whose place and width are learned.

    The embedding comes with unit spread; how many integers that spread covers is learned here as well.
    """

    def __init__(self, length: int) -> None:
        super().__init__()
        self.log_gain = nn.Parameter(torch.full((length,), math.log(0.4 * FINENESS)))
        self.place = nn.Parameter(torch.zeros(length))
        self.log_width = nn.Parameter(torch.zeros(length))

    def gain(self) -> Tensor:
        """Integers to one spread of the embedding, by position in the code."""
        return self.log_gain.exp()

    def bits(self, symbols: Tensor) -> Tensor:
        """Mean bits of a row: -log2 of the mass between half an integer below and above."""
        width = self.log_width.exp()
        above = torch.sigmoid((symbols + 0.5 - self.place) / width)
        below = torch.sigmoid((symbols - 0.5 - self.place) / width)
        total: Tensor = -(above - below).clamp(min=1e-9).log2().sum(dim=1).mean()
        return total
