"""Train the networks that `codecs/pyramid` ships with, on photographs of which nothing else is measured.

    python tools/train_pyramid.py ~/imagenet ~/clothing/train \
        --start src/logcl/codecs/pyramid/networks-1.npz \
        --out src/logcl/codecs/pyramid/networks-2.npz

The photographs are a thousand of ImageNet, one of each class (github.com/EliSchwartz/imagenet-sample-images),
and those of the public-domain clothing data set's training folder. Crops of any size, in colour and in grey,
with changed contrast, stand for the images that users have. One core, about an hour.
"""

from __future__ import annotations

import argparse
import math
import time
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from torch import Tensor, nn

from logcl.codecs.pyramid import layout
from logcl.codecs.pyramid.predictor import FLATTEST, INPUT_UNIT, LARGEST_ACTIVATION, OUTPUTS, SHARPEST, UNIT

SIZE = 256  # photographs are cropped and resized to this side first
HIDDEN = {0: 48, 1: 32, 2: 32}  # units per channel
FINEST, COARSEST = 0.02, 0.9  # steps, for colour
SIDES = {28: 0.3, 32: 0.4, 64: 0.2, 20: 0.1}  # of crops, and how often
PICKED = 320  # blocks per stage and optimiser step


def photographs(folder: Path) -> np.ndarray:
    found = []
    for path in sorted(
        path for path in folder.rglob("*") if path.suffix.lower() in (".jpg", ".jpeg", ".png")
    ):
        with Image.open(path) as file:
            picture = file.convert("RGB")
        scale = SIZE / min(picture.size)
        width, height = (max(SIZE, round(side * scale)) for side in picture.size)
        left, top = (width - SIZE) // 2, (height - SIZE) // 2
        resized = picture.resize((width, height), Image.Resampling.LANCZOS)
        found.append(np.asarray(resized.crop((left, top, left + SIZE, top + SIZE))))
    return np.stack(found)


def crop(sources: list[np.ndarray], side: int, random: np.random.Generator) -> np.ndarray:
    """One square image, (side, side, 3); all sources are equally probable."""
    photos = sources[random.integers(len(sources))]
    whole = random.random() < 0.4
    size = SIZE if whole else int(np.exp(random.uniform(np.log(side), np.log(SIZE))))
    x, y = random.integers(0, SIZE - size + 1, 2)
    filters = (Image.Resampling.LANCZOS, Image.Resampling.BICUBIC, Image.Resampling.BOX)
    picture = Image.fromarray(photos[random.integers(len(photos))])
    image = np.asarray(picture.resize((side, side), random.choice(filters), box=(x, y, x + size, y + size)))
    if random.random() < 0.5:
        image = image[:, ::-1]
    if random.random() < 0.2:
        image = image.transpose(1, 0, 2)
    if random.random() < 0.25:  # flat black or white regions, as of objects that were cut out
        gain, level = random.uniform(1.2, 2.5), random.uniform(0, 255)
        image = ((image.astype(np.float32) - level) * gain + 128).clip(0, 255).astype(np.uint8)
    elif random.random() < 0.2:
        gain = random.uniform(0.5, 1)
        image = (image * gain + random.uniform(0, 255 * (1 - gain))).astype(np.uint8)
    if random.random() < 0.2:
        image = 255 - image
    if random.random() < 0.07:  # noise of a camera
        noise = random.normal(0, random.uniform(2, 12), image.shape)
        image = (image + noise).clip(0, 255).astype(np.uint8)
    if random.random() < 0.08:  # on a uniform ground
        border = random.integers(1, side // 4)
        framed = np.full_like(image, random.choice([0, 255, random.integers(256)]))
        framed[border : side - border, border : side - border] = image[
            border : side - border, border : side - border
        ]
        image = framed
    return image


def batch(sources: list[np.ndarray], count: int, random: np.random.Generator) -> Tensor:
    side = int(random.choice(list(SIDES), p=list(SIDES.values())))
    count = max(int(count * 32**2 / side**2), 8)
    images = np.stack([crop(sources, side, random) for _ in range(count)]).transpose(0, 3, 1, 2)
    x = torch.from_numpy(np.ascontiguousarray(images)).float() / 255
    if random.random() < 0.4:
        x = (x * torch.tensor([0.299, 0.587, 0.114])[:, None, None]).sum(1, keepdim=True)
    return x


def squash(values: Tensor) -> Tensor:
    return torch.sign(values) * torch.log2(1 + values.abs()).clamp(max=8)


def around(plane: Tensor, places: tuple[tuple[int, int], ...], mode: str) -> Tensor:
    """(n, k, rows, columns) → (n, k, places, rows, columns)."""
    rows, columns = plane.shape[2:]
    padded = nn.functional.pad(plane, (1, 1, 1, 1), mode=mode)
    parts = [padded[:, :, 1 + y : 1 + y + rows, 1 + x : 1 + x + columns] for y, x in places]
    return torch.stack(parts, dim=2)


def inputs(symbols: Tensor, means: Tensor, channel: int, number: int, step: float) -> tuple[Tensor, Tensor]:
    """All rows of a channel, (blocks, rows), and which blocks are on black squares."""
    n, channels, classes, rows, columns = symbols.shape
    black = (torch.arange(rows)[:, None] + torch.arange(columns)) % 2
    flat = torch.ones(n, rows, columns)
    parts = [
        flat * black, flat * layout.fineness(step, channels, channel), flat * number,
    ]  # fmt: skip
    squashed = squash(symbols)
    rings = squash(around(means, layout.RING, "replicate") - means[:, :, None])
    for other in range(channel):
        parts += [*squashed[:, other].unbind(1), *rings[:, other].unbind(1)]
    parts += rings[:, channel].unbind(1)
    near = around(squashed[:, channel], layout.AROUND, "constant")
    for k in range(classes):
        parts += [*near[:, k].unbind(1), squashed[:, channel, k]]
    x = torch.stack(parts[: layout.all_rows(math.isqrt(classes + 1), channel)], dim=3)
    return x.flatten(0, 2), (flat * black).flatten().bool()


class Networks(nn.Module):
    """One network for each coefficient of a channel, all of them at once."""

    def __init__(self, side: int, channel: int) -> None:
        super().__init__()
        self.side, self.channel = side, channel
        classes, hidden, rows = side**2 - 1, HIDDEN[channel], layout.all_rows(side, channel)
        masks = torch.zeros(2, classes, rows, 1)
        for black in (0, 1):
            for number in range(classes):
                masks[black, number, : layout.known_rows(side, channel, number, bool(black))] = 1
        self.register_buffer("masks", masks)
        fan = masks[1].sum(1, keepdim=True)
        self.weights = nn.ParameterList([
            torch.randn(classes, rows, hidden) / fan.sqrt() * 0.7,
            torch.randn(classes, hidden, hidden) / math.sqrt(hidden),
            torch.randn(classes, hidden, OUTPUTS) / math.sqrt(hidden) * 0.3,
        ])  # fmt: skip
        self.biases = nn.ParameterList(
            [torch.zeros(classes, 1, width) for width in (hidden, hidden, OUTPUTS)]
        )
        with torch.no_grad():
            self.biases[2][:, :, 3] -= 1
            self.biases[2][:, :, 4] += 1

    def take_over(self, arrays: Mapping[str, np.ndarray], name: str) -> None:
        """Start with networks that `rounded` wrote; units that they lack start with little effect."""
        before = INPUT_UNIT
        with torch.no_grad():
            for layer, (weights, biases) in enumerate(zip(self.weights, self.biases, strict=True)):
                scale = torch.from_numpy(2.0 ** arrays[f"{name}.shifts.{layer}"].astype(np.float32))
                stored = torch.from_numpy(arrays[f"{name}.weights.{layer}"].astype(np.float32))
                _, rows, columns = stored.shape
                weights[:, rows:] *= 0.1
                weights[:, :rows, :columns] = stored / scale[:, None]
                total = torch.from_numpy(arrays[f"{name}.biases.{layer}"].astype(np.float32))
                biases[:, 0, :columns] = total / (scale * before) - 0.5 / UNIT
                before = UNIT

    def forward(self, x: Tensor, black: Tensor) -> Tensor:
        """(blocks, rows) → (classes, blocks, 5)."""
        known = x * 1.0
        first = self.weights[0] * self.masks[1]
        values = torch.matmul(known[None], first)
        # What is only known on black squares.
        late = first * (1 - self.masks[0])
        values = values - torch.matmul((known * ~black[:, None])[None], late) + self.biases[0]
        limit = LARGEST_ACTIVATION / UNIT
        values = torch.bmm(values.clamp(0, limit), self.weights[1]) + self.biases[1]
        return torch.bmm(values.clamp(0, limit), self.weights[2]) + self.biases[2]


def bits(outputs: Tensor, symbols: Tensor) -> Tensor:
    odds, first, second, *log_scales = outputs.unbind(-1)
    share = torch.sigmoid(odds)
    total = torch.zeros_like(symbols)
    for part, mean, scale in zip((share, 1 - share), (first, second), log_scales, strict=True):
        sharp = torch.exp(-scale.clamp(SHARPEST, FLATTEST))
        inside = torch.sigmoid((symbols + 0.5 - mean) * sharp) - torch.sigmoid((symbols - 0.5 - mean) * sharp)
        total = total + part * inside
    return -torch.log2(total.clamp(min=2**-13))


def symbols_of(x: Tensor, step: float, rounding: float) -> tuple[list[Tensor], list[Tensor]]:
    """Integers of each stage, and its decoded means in steps; the finest first."""
    coefficients, last = layout.analyse(x)
    shape = (x.shape[1], x.shape[2], x.shape[3])
    means = (last / step).round()[:, :, None, None]
    symbols, known = [], []
    for stage, exact in reversed(list(zip(layout.stages(shape), coefficients, strict=True))):
        rounded = torch.sign(exact) * torch.floor(exact.abs() / step + rounding)
        symbols.append(rounded)
        known.append(means)
        means = layout.raise_stage(stage, means, rounded)
    return symbols[::-1], known[::-1]


def key(side: int, number: int, channel: int) -> str:
    return f"{side}-{min(number, 1) if side == layout.SIDE else 1}-{channel}"


def loss(networks: nn.ModuleDict, x: Tensor, step: float, rounding: float, picked: int | None) -> Tensor:
    """Bits per image."""
    with torch.no_grad():
        symbols, means = symbols_of(x, step, rounding)
    total = torch.zeros(())
    for number, (found, mean) in enumerate(zip(symbols, means, strict=True)):
        n, channels, classes, rows, columns = found.shape
        side = math.isqrt(classes + 1)
        pick = torch.randperm(n * rows * columns)[:picked]
        for channel in range(channels):
            with torch.no_grad():
                given, black = inputs(found, mean, channel, number, step)
                wanted = found[:, channel].permute(1, 0, 2, 3).flatten(1)
            outputs = networks[key(side, number, channel)](given[pick], black[pick])
            total = total + bits(outputs, wanted[:, pick]).sum(0).mean() * rows * columns
    return total


def rounded(networks: nn.ModuleDict) -> dict[str, np.ndarray]:
    """8-bit weights with a shift per unit, as `predictor.Networks` reads them."""
    arrays = {}
    for name, module in networks.items():
        before = INPUT_UNIT
        for layer, (weights, biases) in enumerate(zip(module.weights, module.biases, strict=True)):
            w = weights.detach() * (module.masks[1] if layer == 0 else 1)
            largest = w.abs().amax(1).clamp(min=1e-6)  # (classes, units)
            shifts = torch.floor(torch.log2(127 / largest)).clamp(-2, 12)
            scale = 2.0 ** shifts[:, None]
            arrays[f"{name}.weights.{layer}"] = torch.round(w * scale).to(torch.int8).numpy()
            # What comes out is in units of 1/64; a half more, because it is rounded down.
            total = biases.detach() * scale * before + 0.5 * scale * before / UNIT
            arrays[f"{name}.biases.{layer}"] = torch.round(total[:, 0]).to(torch.int32).numpy()
            arrays[f"{name}.shifts.{layer}"] = shifts.to(torch.int8).numpy()
            before = UNIT
    return arrays


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("photographs", type=Path, nargs="+")
    parser.add_argument("--start", type=Path, help="networks of an earlier version, at most as wide")
    parser.add_argument("--steps", type=int, default=26_000)
    parser.add_argument("--images", type=int, default=48)
    parser.add_argument("--rate", type=float, default=3e-3)
    parser.add_argument("--out", type=Path, default=Path("networks-1.npz"))
    given = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    random = np.random.default_rng(0)
    sources = [photographs(folder) for folder in given.photographs]
    names = [(4, number, channel) for number in (0, 1) for channel in range(3)] + [
        (2, 1, c) for c in range(3)
    ]
    networks = nn.ModuleDict({key(*name): Networks(name[0], name[2]) for name in names})
    if given.start:
        with np.load(given.start) as arrays:
            for name, module in networks.items():
                module.take_over(arrays, name)
    weights = sum(int(module.masks[1].sum()) * HIDDEN[module.channel] for module in networks.values())
    print(f"{weights:,} weights in first layers")
    optimiser = torch.optim.Adam(networks.parameters(), given.rate)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimiser, given.rate, given.steps, pct_start=0.1)
    began, seen = time.monotonic(), 0.0
    for number in range(given.steps):
        step = math.exp(random.uniform(math.log(FINEST), math.log(COARSEST)))
        x = batch(sources, given.images, random)
        if x.shape[1] == 1:
            step /= math.sqrt(3)
        found = loss(networks, x, step, random.uniform(0.3, 0.45), PICKED)
        # Fine steps have many bits; all steps should matter.
        optimiser.zero_grad()
        (found / x[0].numel() / (0.02 + float(found.detach()) / x[0].numel()) * 10).backward()
        nn.utils.clip_grad_norm_(networks.parameters(), 5.0)
        optimiser.step()
        schedule.step()
        seen += float(found.detach()) / x[0].numel()
        if number % 1000 == 999:
            seconds = time.monotonic() - began
            print(f"{number + 1:,} steps, {seconds:.0f} s, {seen / 1000:.4f} bits per value", flush=True)
            seen = 0.0
            np.savez_compressed(given.out, **rounded(networks))
            torch.save(networks.state_dict(), given.out.with_suffix(".pt"))


if __name__ == "__main__":
    main()
