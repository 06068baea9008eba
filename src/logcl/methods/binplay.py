"""BinPlay (Deja et al. 2021): one binary autoencoder whose codes are computed from the sample index."""

from __future__ import annotations

from logcl.codecs.settings import GeneratorSettings
from logcl.memory.presets import preset
from logcl.methods.parts.single_model import SingleModel


class BinPlay(SingleModel):
    """A single decoder is all that is kept: sample i is whatever it makes of code c(i).

    With the preset `paper` it has the published networks and hyperparameters. Those take days on a CPU; with
    the presets for a CPU it has the decoder of `paper-cpu`, which also reads codes of the index alone.
    """

    def generator(self) -> GeneratorSettings:
        """Codes of the index."""
        settings = self.problem.settings
        if settings.generator.codes == "index":
            return settings.generator
        return preset("paper-cpu", settings.image_shape).generator
