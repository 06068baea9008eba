"""A codec that comes from outside: one file and one entry point, and nothing of LogCL is touched."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import textwrap
from pathlib import Path

import numpy as np
import pytest

import logcl

CODEC = '''
"""Pixels deflated without loss."""

import zlib
from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
from pydantic import Field

from logcl.codecs.base import Codec, CodecSettings, CodecSpec, Fitted
from logcl.core.errors import Damaged
from logcl.core.settings import ImageShape


class DeflateSettings(CodecSettings):
    name: Literal["deflate"] = "deflate"
    effort: int = Field(6, ge=1, le=9)
    """How hard zlib tries."""


class DeflateSpec(CodecSpec):
    name: Literal["deflate"] = "deflate"
    image_shape: ImageShape

    @property
    def shape(self):
        return self.image_shape


@dataclass(frozen=True)
class Pixels:
    x: np.ndarray
    effort: int

    def __len__(self):
        return len(self.x)

    def select(self, rows):
        return Pixels(self.x[rows], self.effort)

    def tensors(self):
        packed = np.frombuffer(zlib.compress(self.x.tobytes(), self.effort), np.uint8).copy()
        return {"pixels": torch.from_numpy(packed), "effort": torch.tensor([self.effort])}


class Deflate(Codec):
    Settings = DeflateSettings
    Spec = DeflateSpec

    def __init__(self, spec, effort=6):
        self.spec, self.effort = spec, effort

    @classmethod
    def fit(cls, samples, settings, work, starts):
        codec = cls(DeflateSpec(image_shape=samples.x.shape[1:]), settings.effort)
        with work.progress.track(work.description, 1) as advance:
            codes = codec.encode(samples.x)
            advance()
        return Fitted(codec, codes, np.arange(len(samples)))

    def encode(self, x):
        return Pixels(x, self.effort)

    def decode(self, codes, rows):
        return torch.from_numpy(codes.x[rows])

    @classmethod
    def restore(cls, spec, weights, name):
        return cls(spec)

    def restore_codes(self, tensors, indices, level_bytes, name):
        shape = (len(indices), *self.spec.shape)
        size = int(np.prod(shape))
        pixels = zlib.decompressobj().decompress(tensors["pixels"].numpy().tobytes(), size + 1)
        if len(pixels) != size:
            raise Damaged(f"{name} has another number of pixels")
        return Pixels(np.frombuffer(pixels, np.uint8).reshape(shape), int(tensors["effort"]))

    @classmethod
    def steps(cls, settings, samples, *, warm):
        return 1
'''

USE = """
import sys
import numpy as np
from logcl import Memory
from logcl.codecs import registry
from logcl.memory.salvage import salvage

path, target = sys.argv[1:]
assert "deflate" in registry.names()
draw = np.random.default_rng(0)
x, y = draw.integers(0, 256, (45, 1, 8, 8), dtype=np.uint8), draw.integers(0, 4, 45)
memory = Memory.open(path, (1, 8, 8), unit=4, settings={"codec.name": "deflate", "codec.effort": 9})
assert memory.settings.codec.effort == 9
levels = []
for start in range(0, 45, 9):
    memory.absorb(x[start : start + 9], y[start : start + 9], source=f"from {start}")
    levels.append([level.slot.level for level in memory.snapshot().levels])
assert levels == [[1], [2], [2, 1], [3, 0], [3, 1, 0]], levels  # merged again and again

again = Memory.open(path, settings={"codec.name": "deflate"})
assert again.verify() == []
now = again.snapshot()
images, classes = now.everything()
assert np.array_equal(images.numpy(), x)
assert now.label_values[classes].tolist() == y.tolist()
assert [run.errors for run in now.levels[0].runs] and all(sum(run.errors) == 0 for run in now.runs)
batch, labels = next(again.replay(64))
known = {image.tobytes() for image in x}
assert all(image.tobytes() in known for image in (batch * 255).round().byte().numpy())
assert len(again.dataset()) == 45
assert salvage(path, target).samples_lost == 0
assert np.array_equal(Memory.open(target).snapshot().everything()[0].numpy(), x)
"""


def install(folder: Path) -> Path:
    """What installing the package would leave in site-packages."""
    about = folder / "logcl_deflate-1.0.dist-info"
    about.mkdir(parents=True)
    (folder / "logcl_deflate.py").write_text(CODEC)
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: logcl-deflate\nVersion: 1.0\n")
    (about / "entry_points.txt").write_text("[logcl.codecs]\ndeflate = logcl_deflate:Deflate\n")
    return folder


@pytest.fixture
def package(tmp_path) -> Path:
    return install(tmp_path / "site")


def run(*arguments: object, package: Path | None = None) -> subprocess.CompletedProcess[str]:
    """Python in a process of its own, with or without the package installed."""
    source = Path(logcl.__file__).parents[1]
    path = os.pathsep.join(map(str, [package, source] if package else [source]))
    environment = {**os.environ, "PYTHONPATH": path, "OMP_NUM_THREADS": "1"}
    return subprocess.run(
        [sys.executable, *map(str, arguments)], capture_output=True, text=True, env=environment, timeout=120
    )


COMMANDS = """
import contextlib, io, json, sys
from logcl.cli import main

found = []
for line in json.loads(sys.argv[1]):
    sys.argv = ["logcl", *line]
    code, out, err = 0, io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            main()
        except SystemExit as leaving:
            code = int(leaving.code or 0)
    found.append([code, out.getvalue(), err.getvalue()])
print(json.dumps(found))
"""


def commands(*lines: list[object], package: Path | None = None) -> list[tuple[int, str, str]]:
    """Exit code, stdout and stderr of command lines, all in one process, because it is slow to start."""
    ran = run("-c", COMMANDS, json.dumps([[str(word) for word in line] for line in lines]), package=package)
    assert ran.returncode == 0, ran.stderr
    return json.loads(ran.stdout)


@pytest.fixture(scope="module")
def made(tmp_path_factory) -> Path:
    """A memory that was made with the package."""
    folder = tmp_path_factory.mktemp("made")
    done = run("-c", USE, folder / "m.logcl", folder / "saved.logcl", package=install(folder / "site"))
    assert done.returncode == 0, done.stderr
    return folder / "m.logcl"


@pytest.fixture
def memory(made, tmp_path) -> Path:
    return shutil.copy(made, tmp_path / "m.logcl")


def test_it_is_absorbed_merged_saved_reopened_and_verified(memory, package):
    refused = run("-c", f"from logcl import Memory; Memory.open({str(memory)!r}, seed=4)", package=package)
    assert "other settings than seed = 4" in refused.stderr


def test_on_the_command_line(memory, package, tmp_path):
    images = np.random.default_rng(1).integers(0, 256, (20, 1, 8, 8), dtype=np.uint8)
    new = tmp_path / "new.logcl"
    np.savez(tmp_path / "task.npz", x=images, y=np.zeros(20, np.int64))
    cases = (
        (["verify", memory], "45 samples"),
        (["absorb", memory, tmp_path / "task.npz"], ""),
        (["verify", memory], "65 samples"),
        (["inspect", memory], "deflate"),
        (["export", memory, tmp_path / "out"], ""),
        (["absorb", new, tmp_path / "task.npz", "--set", "codec.name=deflate", "--set", "unit=8"], ""),
        (["verify", new], "20 samples"),
    )  # fmt: skip
    ran = commands(*(line for line, _ in cases), package=package)
    for (_, told), (code, out, err) in zip(cases, ran, strict=True):
        assert code == 0, err
        assert told in out
    with np.load(tmp_path / "out.npz") as exported:
        assert np.array_equal(exported["x"][45:], images)


def test_without_the_package_one_sentence_says_what_to_do(memory, tmp_path):
    wanted = "there is no codec 'deflate' here; install the package that provides it"
    program = """
        import sys
        from logcl import Memory
        from logcl.core.errors import BadSettings
        memory = Memory(sys.argv[1])
        reopen = lambda: Memory.open(sys.argv[1], (1, 8, 8))
        for use in (reopen, memory.snapshot, memory.replay, lambda: memory.n):
            try:
                use()
            except BadSettings as error:
                print(error)
            else:
                raise SystemExit("used")
    """
    before = memory.read_bytes()
    done = run("-c", textwrap.dedent(program), memory)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count(wanted) == len(done.stdout.splitlines()) == 4
    new = run("-c", f"from logcl import Memory; Memory.open({str(tmp_path / 'new.logcl')!r}, (1, 8, 8), "
                    "settings={'codec.name': 'deflate'})")  # fmt: skip
    assert wanted in new.stderr
    assert not (tmp_path / "new.logcl").exists()
    assert memory.read_bytes() == before


def test_without_the_package_on_the_command_line(memory):
    shown, *others = commands(["inspect", memory], ["verify", memory], ["train", memory])
    code, out, err = shown  # needs no codec
    assert code == 0, err
    assert "codec deflate" in out
    for code, out, err in others:
        assert code != 0
        assert "install the package that provides it" in out + err
        assert "Traceback" not in err


def test_a_package_that_cannot_be_imported(memory, package):
    (package / "logcl_deflate.py").write_text("import something_that_is_not_installed\n")
    done = run("-c", f"from logcl import Memory; Memory({str(memory)!r}).snapshot()", package=package)
    assert done.returncode != 0
    last = done.stderr.strip().splitlines()[-1]
    assert last.startswith("logcl.core.errors.BadSettings")
    assert "deflate" in last
    assert "something_that_is_not_installed" in last


def test_a_codec_of_logcl_cannot_be_replaced(package):
    """An installed package must not change what existing memories replay."""
    about = package / "logcl_deflate-1.0.dist-info"
    (about / "entry_points.txt").write_text("[logcl.codecs]\ncosine = logcl_deflate:Deflate\n")
    program = "from logcl.codecs import registry; print(registry.find('cosine').__module__, registry.names())"
    done = run("-c", program, package=package)
    assert done.stdout.split()[0] == "logcl.codecs.cosine"
    assert done.stdout.count("cosine") == 2
