"""BinPlay (Deja et al. 2021): one binary autoencoder whose codes are computed from the sample index."""

from __future__ import annotations

from logcl.codecs.settings import GeneratorSettings
from logcl.memory.presets import preset
from logcl.methods.parts.single_model import SingleModel


class BinPlay(SingleModel):
    """Keeps a single decoder: sample i is what it decodes from code c(i).

    With the preset `paper` it has the published networks and hyperparameters, which take days on a CPU. With
    the presets for a CPU it has the decoder of `paper-cpu`, which reads codes of the index alone as well.
    """

    name = "binplay"
    summary = "one decoder with codes from sample indices"

    def generator(self) -> GeneratorSettings:
        """Settings with codes of the index."""
        settings = self.problem.settings
        if settings.generator.codes == "index":
            return settings.generator
        return preset("paper-cpu", settings.image_shape).generator
