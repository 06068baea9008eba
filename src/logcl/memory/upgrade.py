"""What earlier versions wrote, as this one reads it. Files of older formats can always be opened.

Up to format 3 all settings of local models were one group, `generator`, and the description of a level had
its decoder's network and kind of codes in place of a codec.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor

from logcl.codecs.coding import bits, entropy
from logcl.codecs.quantised import FINENESS
from logcl.core.descriptions import damaged
from logcl.core.settings import Recipe

_CODES = ("quantised", "index", "binary")
_RECIPE = tuple(Recipe.model_fields)
_TRAINED = ("network", "width", "weights", "smallest", *_RECIPE)
_AUTOENCODER = ("bytes_per_sample", "psnr", "symbols", "warm_start", "keep_encoder", "warm_share", *_TRAINED)
_INDEX = ("bits", "warm_up_epochs", "warm_up_learning_rate", "pull", "assignment", *_TRAINED)


def settings(data: Mapping[str, Any]) -> dict[str, Any]:
    """Settings of formats 1 to 3: `generator` becomes `codec` and `labels`."""
    data = dict(data)
    old = data.pop("generator")
    if not isinstance(old, Mapping) or not isinstance(old.get("bits", 256), (int, float)):
        raise ValueError("generator is not a group of settings")
    old = dict(old)
    network, codes = old.get("network", "mlp"), old.get("codes", "quantised")
    if codes not in _CODES:
        raise ValueError(f"generator.codes is {codes!r}")
    if codes == "binary":  # learned bits, a kind of code that is no longer made
        old |= {"bytes_per_sample": old.get("bits", 256) / 8, "psnr": None}
    if old.get("assignment") == "optimal":
        old["assignment"] = "greedy"
    name, names = "autoencoder", _AUTOENCODER
    if codes == "index":
        name, names = "index", _INDEX
    elif network == "cosine":
        name, names = "cosine", ("bytes_per_sample", "psnr")
    data["codec"] = {"name": name, **{key: old[key] for key in names if key in old}}
    labels = {
        "kind": "labels", "network": "labeller", "width": "labeller_width", "training": "labeller_training",
        "smallest": "smallest",
    }  # fmt: skip
    # Where labels are stored, settings of the labeller had no effect.
    read = old.get("labels") == "labeller"
    data["labels"] = {new: old[key] for new, key in labels.items() if key in old} if read else {}
    return data


def level(
    about: Mapping[str, Any], tensors: Mapping[str, Tensor], name: str
) -> tuple[dict[str, Any], dict[str, Tensor], dict[str, Tensor]]:
    """A level of formats 1 to 3: its description with a codec, its tensors, and its codec's weights."""
    about = dict(about)
    weights = {k: v for k, v in tensors.items() if k.startswith(("decoder.", "analysis."))}
    found = {k: v for k, v in tensors.items() if k.startswith(("codes.", "labels", "labeller."))}
    try:
        decoder, codes, precision = about.pop("decoder"), about.pop("codes"), about.pop("weights")
        first = about.pop("first_code", None)
        if decoder["network"] == "cosine":
            step = float(weights["decoder.unit"].reshape(())) / FINENESS
            about["codec"] = {"name": "cosine", "image_shape": decoder["image_shape"], "step": step}
            return about, found, {}
        if codes not in _CODES:
            raise ValueError(f"codes are {codes}")
        codec = "index" if codes == "index" else "autoencoder"
        about["codec"] = {"name": codec, "decoder": decoder, "weights": precision}
        if codes == "binary":
            signs = bits.signs(bits.unpack(tensors["codes"].numpy(), decoder["length"]))
            coded = entropy.encode((signs * FINENESS).astype(np.int16))
            found |= {f"codes.{key}": torch.from_numpy(value) for key, value in coded.tensors().items()}
        if codes == "index" and first is not None:
            found["codes.first"] = torch.tensor([first])
    except (LookupError, TypeError, ValueError, RuntimeError, AttributeError) as error:
        raise damaged(name, error) from error
    return about, found, weights
