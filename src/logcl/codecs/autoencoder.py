"""An autoencoder trained on rate and distortion (Ballé et al. 2017), for small grey images.

    image ── encoder ── embedding ── × gain ── position ── round ── symbol ── entropy coder
                                                             symbol / 4 ── decoder ── image

The user sets the bytes of a code or its quality; the fit finds λ, the exchange rate between the two. Levels
share weights as long as new samples are coded about as well as those that the weights were trained on. Where
training does not reach the quality, the cosine transform takes over.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Literal

import numpy as np
import torch
from numpy.typing import NDArray
from pydantic import Field
from torch import Tensor, nn

from logcl.codecs.base import Codec, CodecSpec, FitInput, Fitted, NetworkSpec, RateSettings, masking_noise
from logcl.codecs.cosine import Cosine, CosineSettings, CosineSpec
from logcl.codecs.quantised import FINENESS, QuantisedCodec, QuantisedCodes, joined
from logcl.core.images import squared_errors
from logcl.core.progress import Silent
from logcl.core.settings import ImageShape, Precision, Recipe, parse_as
from logcl.nn import blobs, networks
from logcl.nn.device import choose_device
from logcl.nn.images import in_blocks, to_unit
from logcl.nn.networks import AutoencoderSpec
from logcl.nn.training import Work, fit, seeded, shortened, total_steps

_ENOUGH = 16  # images of a batch whose mean error is a good estimate
_POORER = 1.05  # times the error asked for: 0.2 dB; or times the loss that training reached


class AutoencoderSettings(RateSettings, Recipe):
    """How the networks are built and trained."""

    name: Literal["autoencoder"] = "autoencoder"
    """Which codec."""
    network: Literal["mlp", "conv"] = "mlp"
    """`mlp`: one hidden layer, for tiny images; `conv`: convolutions on planes of symbols."""
    width: int = Field(256, ge=1, le=65_536)
    """Hidden units (`mlp`) or channels (`conv`) of the largest level; smaller levels get fewer."""
    weights: Precision = "int8"
    """How weights are stored: one byte each and a scale per row, or in half precision."""
    symbols: int = Field(64, ge=1, le=65_536)
    """Integers in a code, at most three per byte asked for; those not worth their bytes stay zero."""
    smallest: float = Field(1 / 8, gt=0, le=1)
    """Size of the smallest levels' networks relative to the largest; 1: all levels are alike."""
    warm_start: bool = True
    """Whether a level starts from the networks of a similar level that has as many weights."""
    keep_encoder: bool = False
    """Whether the largest level stores its encoder, so that later fits can start from that too."""
    warm_share: float = Field(1.0, gt=0, le=1)
    """Fraction of the epochs and steps that a fit with both networks to start from takes."""

    @classmethod
    def noise(cls, image_shape: ImageShape) -> float:
        """As levels have decoders of their own."""
        return masking_noise(image_shape)

    @classmethod
    def for_images(cls, image_shape: ImageShape) -> AutoencoderSettings:
        """An MLP up to 256 values, convolutions above."""
        _, height, width = image_shape
        values = math.prod(image_shape)
        if values <= 256:
            return cls(
                network="mlp", bytes_per_sample=max(8, values / 28), symbols=max(16, min(64, values // 2)),
                width=max(64, values // 2), epochs=20, min_steps=800, learning_rate=1e-2, patience=8,
            )  # fmt: skip
        # Three planes of symbols at a quarter of the resolution. Convolutions are so small that all levels
        # can have equally many, and so start from the largest.
        return cls(
            network="conv", psnr=26.5, symbols=3 * -(-height // 4) * -(-width // 4), width=24, smallest=1,
            keep_encoder=True, warm_share=0.35, epochs=20, min_steps=1600, learning_rate=5e-3, patience=8,
        )  # fmt: skip

    def describes(self, spec: CodecSpec) -> bool:
        """Its own levels, and those that it left to the cosine transform."""
        return isinstance(spec, (AutoencoderCodecSpec, CosineSpec))

    def for_codes(self, left: float) -> AutoencoderSettings:
        """As they are: the networks follow from the bytes, and levels could not share them."""
        del left
        return self

    def decoder(self, image_shape: ImageShape) -> AutoencoderSpec:
        """The networks of the largest level."""
        length = self.symbols
        if self.bytes_per_sample is not None:
            # With only fractions of a bit for each, all symbols would be rounded to zero.
            length = min(length, math.ceil(3 * self.bytes_per_sample))
        spec = {"network": self.network, "image_shape": image_shape, "length": length, "width": self.width}
        return parse_as(AutoencoderSpec, spec)


class AutoencoderCodecSpec(NetworkSpec):
    """The decoder; the encoder's networks follow from it."""

    name: Literal["autoencoder"] = "autoencoder"
    loss: float = Field(0, ge=0)
    """What training reached: mean squared error + λ · bits. 0: not known."""


class Autoencoder(QuantisedCodec):
    """A trained decoder, and the encoder if that was kept."""

    Settings = AutoencoderSettings
    Spec = AutoencoderCodecSpec
    warm_starts = True
    spec: AutoencoderCodecSpec

    def __init__(self, spec: AutoencoderCodecSpec, decoder: nn.Module, analysis: Analysis | None) -> None:
        self.spec, self.decoder, self.analysis = spec, decoder, analysis

    @classmethod
    def fit(
        cls, samples: FitInput, settings: AutoencoderSettings, work: Work, starts: Sequence[Codec] = ()
    ) -> Fitted:
        """Use the networks of another level if they suit, or train; see the top of this file."""
        shape = samples.image_shape
        if settings.psnr is not None and any(isinstance(start, Cosine) for start in starts):
            with work.counting(cls.steps(settings, len(samples), warm=True)):
                return _left_to_cosine(samples, settings.psnr, work, starts)
        spec = networks.sized(settings.decoder(shape), samples.size_ratio(settings.smallest))
        alike = [s for s in starts if isinstance(s, Autoencoder) and s.spec.decoder == spec]
        # One that has an encoder too makes the fit much shorter.
        alike.sort(key=lambda start: start.analysis is None)
        start = alike[0] if alike and settings.warm_start else None
        if start is not None and start._suffices(samples.new, settings):
            with work.counting(cls.steps(settings, len(samples), warm=True)):
                return start._extended(samples)
        fitted = cls._trained(samples, spec, settings, work, start)
        if settings.psnr is not None and not _reached(fitted, samples, settings.psnr):
            return _left_to_cosine(samples, settings.psnr, work, starts)
        return fitted

    @classmethod
    def _trained(
        cls,
        samples: FitInput,
        decoder_spec: AutoencoderSpec,
        settings: AutoencoderSettings,
        work: Work,
        start: Autoencoder | None,
    ) -> Fitted:
        """Train encoder and decoder, starting from those of a similar level if they have the same size."""
        device, recipe = choose_device(), settings
        with seeded(work.generator):
            analysis = Analysis(decoder_spec).to(device)
            decoder = networks.decoder(decoder_spec).to(device)
        usual = float(analysis.exchange)
        if start is not None:
            decoder.load_state_dict(start.decoder.state_dict())
            if start.analysis is not None:
                analysis.load_state_dict(start.analysis.state_dict())
                recipe = shortened(settings, settings.warm_share)
        loss = RateDistortion(analysis, decoder, samples, settings, usual)
        fit(nn.ModuleList([analysis, decoder]), loss, len(samples), recipe, work)
        analysis.exchange.fill_(loss.exchange)
        codes = analysis.codes(samples.x)
        blobs.round_weights(decoder, settings.weights)
        blobs.round_weights(analysis, settings.weights)
        spec = AutoencoderCodecSpec(decoder=decoder_spec, weights=settings.weights)
        if settings.keep_encoder and samples.level == samples.top_level:
            codec = cls(spec, decoder, analysis)
            if len(samples.new):
                codec.spec = spec.model_copy(update={"loss": codec._loss(samples.new)[0]})
        else:
            codec = cls(spec, decoder, None)
        return Fitted(codec, codes, np.arange(len(samples)))

    def _loss(self, x: NDArray[np.uint8]) -> tuple[float, float]:
        """Mean squared error + λ · bits of images, and the mean squared error alone."""
        assert self.analysis is not None
        codes = self.encode(x)
        error = float(squared_errors(x, self.decode(codes, np.arange(len(x))).numpy()).mean())
        bits = 8 * len(codes.coded.data) / len(x)
        return error + float(self.analysis.exchange) * bits, error

    def _suffices(self, x: NDArray[np.uint8], settings: AutoencoderSettings) -> bool:
        """Whether new images are coded about as well as after another training."""
        if self.analysis is None or not self.spec.loss:
            return False
        if not len(x):
            return True
        loss, error = self._loss(x)
        asked = math.inf if settings.psnr is None else 10 ** (-settings.psnr / 10)
        return loss <= _POORER * self.spec.loss and error <= _POORER * asked

    def _extended(self, samples: FitInput) -> Fitted:
        """A fit without training. Samples of merged levels with the same weights keep their codes."""
        every, same = np.arange(len(samples)), self.to_bytes()
        parts = [
            codes
            for codec, codes in samples.merged
            if codec.to_bytes() == same and isinstance(codes, QuantisedCodes) and codes.factor == 1
        ]
        if len(parts) < len(samples.merged):
            return Fitted(self, self.encode(samples.x), every)
        if len(samples.new):
            parts.append(self.encode(samples.new))
        return Fitted(self, joined(parts), every, kept=bool(samples.merged))

    @property
    def can_encode(self) -> bool:
        """Whether the encoder was kept."""
        return self.analysis is not None

    def encode(self, x: NDArray[np.uint8]) -> QuantisedCodes:
        """Codes of other images at the rate this codec was trained for."""
        if self.analysis is None:
            raise ValueError("this level did not keep its encoder")
        return self.analysis.codes(x)

    @property
    def length(self) -> int:
        """Symbols of an image."""
        return self.spec.decoder.length

    @property
    def widest(self) -> int:  # type: ignore[override]
        """Values per image in the widest layer of the decoder."""
        return self.spec.decoder.widest

    def images(self, inputs: Tensor) -> Tensor:
        """Through the decoder."""
        image: Tensor = self.decoder(inputs)
        return image

    def weights(self) -> dict[str, Tensor]:
        """Of the decoder, and of the encoder if that is kept."""
        precision = self.spec.weights
        found = blobs.weights(self.decoder, "decoder", precision)
        return found | (blobs.weights(self.analysis, "analysis", precision) if self.analysis else {})

    @classmethod
    def restore(cls, spec: AutoencoderCodecSpec, weights: Mapping[str, Tensor], name: str) -> Autoencoder:
        """Build the networks and check their weights."""
        decoder = blobs.restore(networks.decoder, spec.decoder, weights, "decoder", name)
        analysis = None
        if any(key.startswith("analysis.") for key in weights):
            analysis = blobs.restore(Analysis, spec.decoder, weights, "analysis", name)
        return cls(spec, decoder, analysis)

    @classmethod
    def steps(cls, settings: AutoencoderSettings, samples: int, *, warm: bool) -> int:
        """Optimiser steps."""
        if warm and settings.warm_start and settings.keep_encoder:
            settings = shortened(settings, settings.warm_share)
        return total_steps(settings, samples)


def _reached(fitted: Fitted, samples: FitInput, psnr: float) -> bool:
    """Whether raw samples have the quality that was asked for."""
    if not len(samples.new):
        return True
    first = len(samples) - len(samples.new)
    decoded = fitted.codec.decode(fitted.codes, np.arange(first, len(samples))).numpy()
    return float(squared_errors(samples.new, decoded).mean()) <= _POORER * 10 ** (-psnr / 10)


def _left_to_cosine(samples: FitInput, psnr: float, work: Work, starts: Sequence[Codec]) -> Fitted:
    """These samples with the cosine transform, which reaches any quality."""
    quiet = replace(work, progress=Silent())  # its steps were not announced, and take moments
    return Cosine.fit(samples, CosineSettings(psnr=psnr), quiet, starts)


class Analysis(nn.Module):
    """The half of the codec that decoding does not need: where an image's symbols lie, and what they cost."""

    exchange: Tensor
    """λ, the squared error that one bit is worth: what the last fit arrived at."""

    def __init__(self, spec: AutoencoderSpec) -> None:
        super().__init__()
        self.encoder = networks.encoder(spec, centred=True)
        self.prior = Logistic(spec.length)
        self.register_buffer("exchange", torch.tensor(0.016 / math.prod(spec.image_shape)))

    def forward(self, image: Tensor) -> Tensor:
        """Images (n, C, H, W) in [0, 1] → positions (n, length)."""
        position: Tensor = self.prior.log_gain.exp() * self.encoder(image)
        return position

    def codes(self, x: NDArray[np.uint8]) -> QuantisedCodes:
        """The codes of images (n, C, H, W): their positions, rounded."""
        positions = in_blocks(self, x, self.encoder.spec.widest)
        return QuantisedCodes.of(positions.round(), len(x))


class Logistic(nn.Module):
    """The probability of each integer of a code: logistic distributions of learned location and scale.

    The embedding has unit variance; the number of integers that it is spread over is learned here as well.
    """

    def __init__(self, length: int) -> None:
        super().__init__()
        # Integers per standard deviation of the embedding.
        self.log_gain = nn.Parameter(torch.full((length,), math.log(0.4 * FINENESS)))
        self.place = nn.Parameter(torch.zeros(length))
        self.log_width = nn.Parameter(torch.zeros(length))

    def bits(self, symbols: Tensor) -> Tensor:
        """Mean bits of a row: -log2 of the mass between half an integer below and above."""
        width = self.log_width.exp()
        above = torch.sigmoid((symbols + 0.5 - self.place) / width)
        below = torch.sigmoid((symbols - 0.5 - self.place) / width)
        total: Tensor = -(above - below).clamp(min=1e-9).log2().sum(dim=1).mean()
        return total


class RateDistortion:
    """The loss, distortion + λ · bits, of a batch of rows.

    Bits come from `Logistic`, with uniform noise in place of rounding; the decoder sees the rounded symbols.
    λ drifts until the target is met: bytes are judged on all images, quality on the raw ones. Images that
    were decoded before have lost what is hard to encode. If they counted, every merge would find its quality
    too good and the next would be coarser.
    """

    distortion = staticmethod(nn.functional.mse_loss)
    """Of decoded images and images, both in [0, 1]."""

    def __init__(
        self,
        analysis: Analysis,
        decoder: nn.Module,
        samples: FitInput,
        settings: AutoencoderSettings,
        usual: float,
    ) -> None:
        self.analysis, self.decoder, self.settings = analysis, decoder, settings
        self.images = torch.from_numpy(samples.x).to(choose_device())
        self.exchange, self.usual = float(analysis.exchange), usual
        self.wanted = 8 * (settings.bytes_per_sample or 0)
        judged = samples.raw if settings.psnr is not None else np.ones(len(samples))
        self.judged = torch.from_numpy(judged).to(torch.float32)

    def __call__(self, rows: Tensor) -> Tensor:
        """The loss; moves λ."""
        image = to_unit(self.images[rows.to(self.images.device)])
        position = self.analysis(image)
        bits = self.analysis.prior.bits(position + torch.rand_like(position) - 0.5)
        rounded = position + (position.round() - position).detach()
        decoded = self.decoder(rounded / FINENESS)
        # Minus a constant, so that the loss of a code on target is its error, whatever λ is.
        total: Tensor = self.distortion(decoded, image) + self.exchange * (bits - self.wanted)
        errors, say = (decoded.detach() - image).square().flatten(1).mean(dim=1).cpu(), self.judged[rows]
        error = float((say * errors).sum() / say.sum().clamp(min=1))
        excess = self.settings.excess(float(bits.detach()) / 8, error)
        # More slowly where few images are judged: a single one says little about the others.
        pace = 0.1 * min(float(say.sum()) / _ENOUGH, 1)
        exchange = self.exchange * math.exp(pace * max(min(excess, 1), -1))
        self.exchange = min(max(exchange, self.usual / 100), 100 * self.usual)
        return total
