"""BinPlay (Deja et al. 2021): one binary autoencoder whose codes are computed from the sample index."""

from __future__ import annotations

from logcl.codecs.index import IndexSettings
from logcl.memory.presets import preset
from logcl.memory.settings import Settings
from logcl.methods.parts.single_model import SingleModel


class BinPlay(SingleModel):
    """Keeps a single decoder: sample i is what it decodes from code c(i).

    With the preset `paper` it has the published networks and hyperparameters, which take days on a CPU. With
    other presets it has the decoder of `paper-cpu`, whose codes also depend on the index alone.
    """

    name = "binplay"
    summary = "one decoder with codes from sample indices"

    def model_settings(self) -> Settings:
        """Settings whose codes are computed from the sample index."""
        settings = self.problem.settings
        if isinstance(settings.codec, IndexSettings):
            return settings
        published = preset("paper-cpu", settings.image_shape)
        return settings.model_copy(update={"codec": published.codec, "labels": published.labels})
