"""Backbones of timm: by name, with weights from a file, found again by their digest without it.

They run here because this environment has torchvision, which timm needs. Nothing is downloaded.
"""

import json
import os
import pickle
import subprocess
import sys
import textwrap
import time

import numpy as np
import pytest
import safetensors.torch
import torch

from logcl import Classifier, Memory
from logcl.core.errors import BadSettings, DataError
from logcl.nn import backbones
from logcl.nn.backbones import Backbone
from tests.helpers import smooth

timm = pytest.importorskip("timm")

NAME, OTHER = "test_resnet", "test_vit"
"""Two models of timm that are as small as tests need them."""
SIDE = (3, 64, 64)


@pytest.fixture(autouse=True)
def _offline(monkeypatch):
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")


@pytest.fixture(scope="module")
def weights() -> dict[str, torch.Tensor]:
    return random_weights(0)


def random_weights(seed: int, name: str = NAME) -> dict[str, torch.Tensor]:
    torch.manual_seed(seed)
    return timm.create_model(name, pretrained=False, num_classes=7).state_dict()


@pytest.fixture
def file(weights, tmp_path):
    safetensors.torch.save_file(weights, tmp_path / "w.safetensors")
    return tmp_path / "w.safetensors"


def test_a_model_by_its_name_with_weights_from_a_file(weights, file, tmp_path):
    torch.save({"state_dict": weights}, tmp_path / "w.pth")
    first = backbones.named(f"{NAME}={file}", SIDE)
    second = backbones.named(f"{NAME}={tmp_path / 'w.pth'}", SIDE)
    assert first.spec == second.spec
    assert first.spec.name == NAME
    model = timm.create_model(NAME, pretrained=False, num_classes=0).eval()
    model.load_state_dict({name: weights[name] for name in model.state_dict()})
    x = torch.from_numpy(smooth(3, SIDE)) / 255
    settings = timm.data.resolve_model_data_config(model)
    mean, std = (torch.tensor(settings[key])[:, None, None] for key in ("mean", "std"))
    with torch.no_grad():
        expected = model((x - mean) / std).numpy()
    found = first.features(smooth(3, SIDE))
    assert found.shape == (3, model.num_features)
    assert np.allclose(found, expected, atol=1e-4)
    assert backbones.named(f"{NAME}={file}").spec.image_shape == tuple(settings["input_size"])


def test_a_memory_finds_its_weights_without_the_file(file, tmp_path, own_cache):
    """In a new process, where nothing has declared torchvision's operators yet."""
    images, path = smooth(12, (3, 50, 70)), tmp_path / "m.logcl"
    memory = Memory.open(path, 64, backbone=f"{NAME}={file}", settings={"classifier.epochs": 2})
    memory.absorb(images, [0, 1] * 6)
    expected = Classifier.train(memory).predict_proba(images)
    np.save(tmp_path / "images.npy", images)
    file.unlink()
    code = """
        import json, sys, numpy as np
        from logcl import Classifier, Memory
        images = np.load("images.npy")
        found = Classifier.load(Memory.open("m.logcl", backbone=sys.argv[1])).predict_proba(images)
        again = Memory.open("m.logcl")
        again.absorb(images[:3], [0, 1, 2], again=True)
        print(json.dumps([found.tolist(), again.n]))
    """
    ran = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code), NAME],
        cwd=tmp_path, env={**os.environ, "LOGCL_CACHE": str(own_cache)}, capture_output=True, text=True,
        timeout=120,
    )  # fmt: skip
    assert ran.returncode == 0, ran.stderr
    found, count = json.loads(ran.stdout.splitlines()[-1])
    assert np.allclose(found, expected, atol=1e-5)
    assert count == 15
    backbones.matching.cache_clear()
    for kept in (own_cache / "backbones").iterdir():
        kept.unlink()
    with pytest.raises(BadSettings, match=f"computed by {NAME}, which cannot be had here .*{NAME}=FILE"):
        Memory.open(path).absorb(images[:1], [0], again=True)


def test_other_weights_under_the_same_name_are_refused(file, tmp_path):
    images = smooth(4, SIDE)
    memory = Memory.open(tmp_path / "m.logcl", 64, backbone=f"{NAME}={file}")
    memory.absorb(images, [0, 1, 0, 1])
    safetensors.torch.save_file(random_weights(1), tmp_path / "other.safetensors")
    other = f"{NAME}={tmp_path / 'other.safetensors'}"
    with pytest.raises(BadSettings, match=f"features of {NAME} with weights .* not features of {NAME}") as it:
        Memory.open(tmp_path / "m.logcl", backbone=other)
    assert "\n" not in str(it.value)
    assert Memory.open(tmp_path / "m.logcl", backbone=f"{NAME}={file}").n == 4  # the size is the file's own


class Harmful:
    def __init__(self, path) -> None:
        self.path = path

    def __reduce__(self):
        return type(self.path).write_text, (self.path, "ran")


def test_files_that_hold_something_else(weights, file, tmp_path):
    data = file.read_bytes()
    torch.save({"state_dict": weights, "more": Harmful(tmp_path / "ran")}, tmp_path / "code.pth")
    torch.save(weights, tmp_path / "whole.pth")
    files = {
        "half.safetensors": data[: len(data) // 2],
        "half.pth": (tmp_path / "whole.pth").read_bytes()[:-1000],
        "pickle.pth": pickle.dumps(Harmful(tmp_path / "ran")),
        "text.pth": b"no weights",
        "code.pth": (tmp_path / "code.pth").read_bytes(),
        "another.safetensors": safetensors.torch.save(random_weights(0, OTHER)),
    }
    for name, content in files.items():
        (tmp_path / name).write_bytes(content)
        with pytest.raises(DataError, match="weights") as raised:
            backbones.named(f"{NAME}={tmp_path / name}")
        assert name in str(raised.value)
        assert "\n" not in str(raised.value)
    assert not (tmp_path / "ran").exists()
    with pytest.raises(DataError, match="does not exist"):
        backbones.named(f"{NAME}={tmp_path / 'absent.pth'}")


@pytest.mark.parametrize(
    "name", ["no_such_model", "test_resne", "hf-hub:someone/model", "local-dir:/tmp", "../x", "", "resnet*"]
)
def test_unknown_names(name):
    """Of a memory file, too, which must not make timm fetch whatever it names."""
    with pytest.raises(BadSettings, match="there is no backbone") as raised:
        backbones.load(name)
    assert "\n" not in str(raised.value)


def test_near_names_are_suggested():
    with pytest.raises(BadSettings, match=r"e\.g\. .*test_resnet"):
        backbones.load("test_resne")


def test_without_weights_here_or_on_the_hub():
    began = time.monotonic()
    with pytest.raises(BadSettings, match=f"timm has no weights for {NAME} .* --backbone {NAME}=FILE"):
        backbones.load(NAME)
    assert time.monotonic() - began < 30


def test_transformers_take_their_own_size_only(tmp_path):
    safetensors.torch.save_file(random_weights(0, OTHER), tmp_path / "w.safetensors")
    found = backbones.named(f"{OTHER}={tmp_path / 'w.safetensors'}")
    assert isinstance(found, Backbone)
    assert found.features(smooth(2, SIDE)).shape == (2, found.spec.features)
    with pytest.raises(BadSettings, match=f"{OTHER} takes no images of 3x50x50 .*it usually takes 3x160x160"):
        backbones.named(f"{OTHER}={tmp_path / 'w.safetensors'}", (3, 50, 50))
