"""Settings of the codecs."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from logcl.core.settings import MOST_ADDRESS_BITS, AutoencoderNetwork, ClassifierNetwork, Precision, Recipe

Codes = Literal["quantised", "binary", "index"]


class GeneratorSettings(Recipe):
    """The local models: a decoder, and the codes and labels it is given."""

    network: AutoencoderNetwork = "mlp"
    """`mlp`: one hidden layer; `conv`: planes; `cosine`: a transform, not trained; `binplay`: as published;
    `superposed`: rows of a table that several samples share."""
    width: int = Field(256, ge=1, le=65_536)
    """Hidden units (`mlp`), numbers in a row (`superposed`) or channels of the largest level; smaller levels
    get fewer. `cosine` has none."""
    weights: Precision = "int8"
    """How a decoder's weights are kept: a byte each and a scale a row, or in half precision."""
    codes: Codes = "quantised"
    """`quantised`: integers, entropy coded; `binary`: learned bits, packed; `index`: computed from the sample
    index, nothing is kept."""
    bytes_per_sample: float | None = Field(None, gt=0, le=2**30)
    """Quantised codes: bytes of a sample's code, on average. Either this or `psnr` is set."""
    psnr: float | None = Field(None, gt=0, le=40)
    """Quantised codes: quality of a sample's first encoding in dB, 10 · log10(1 / mean squared error)."""
    symbols: int = Field(64, ge=1, le=65_536)
    """Quantised codes of `mlp` and `conv`: integers in a code, at most three a byte asked for; those not
    worth their bytes stay zero."""
    bits: int = Field(256, ge=1, le=65_536)
    """Binary and index codes: length of a code; for `superposed` of its address, so that the table has 2^bits
    rows at every level."""
    smallest: float = Field(1 / 8, gt=0, le=1)
    """Shard of the largest level's weights that the smallest ones tend to; 1: all levels are alike."""
    warm_start: bool = True
    """Whether a level begins with the networks of the largest one, if it has as many weights."""
    keep_encoder: bool = False
    """Quantised codes of `mlp` and `conv`: whether the largest level keeps what its codes were made with, so
    that later fits begin with it too."""
    warm_share: float = Field(1.0, gt=0, le=1)
    """Shard of the passes and steps that such a fit takes."""
    labels: Literal["stored", "labeller"] = "stored"
    """`stored`: packed integers; `labeller`: the paper's local f(x; θk) applied to the decoded image."""
    warm_up_epochs: int = Field(10, ge=1, le=100_000)
    """Index codes only: passes of the autoencoder before samples are assigned to codes."""
    warm_up_learning_rate: float = Field(1e-3, gt=0)
    """Index codes only: the highest rate of these passes."""
    pull: float = Field(10.0, ge=0)
    """Index codes only: weight of the distance between an embedding and its nearest free code."""
    assignment: Literal["greedy", "optimal", "none"] = "greedy"
    """Index codes only: how samples are matched with codes. `optimal` is cubic in the samples of a level."""
    labeller: ClassifierNetwork = "mlp"
    """Labeller only: its network, one of the classifier's."""
    labeller_width: int = Field(8, ge=1, le=4096)
    """Labeller only: as `classifier.width`, at the largest level; smaller levels get less."""
    labeller_training: Recipe = Recipe(epochs=15, min_steps=600, learning_rate=3e-3)
    """Labeller only: how it is trained on the decoded images."""


NETWORKS: dict[Codes, tuple[AutoencoderNetwork, ...]] = {
    "quantised": ("mlp", "conv", "cosine"),
    "binary": ("mlp", "conv"),
    "index": ("mlp", "binplay", "superposed"),
}
"""The decoders that read a kind of code."""


def check_codes(generator: GeneratorSettings) -> None:
    """Refuse codes that the network cannot read, or a target that says nothing or two things."""
    if generator.network not in NETWORKS[generator.codes]:
        fit = " or ".join(NETWORKS[generator.codes])
        raise ValueError(f"codes = {generator.codes} needs network = {fit}, not {generator.network}")
    if generator.network == "superposed" and generator.bits > MOST_ADDRESS_BITS:
        raise ValueError(f"network = superposed needs bits up to {MOST_ADDRESS_BITS}, for 2^bits rows")
    targets = [name for name in ("bytes_per_sample", "psnr") if getattr(generator, name) is not None]
    if generator.codes == "quantised" and len(targets) != 1:
        raise ValueError("codes = quantised needs either generator.bytes_per_sample or generator.psnr")
    if generator.codes != "quantised" and targets:
        raise ValueError(
            f"generator.{targets[0]} is for codes = quantised; codes = {generator.codes} have generator.bits"
        )
