"""Train the networks of `codecs/pyramid/restoration.py` on images that the pyramid decoded.

    python tools/train_restoration.py ~/imagenet ~/clothing/train --start 1 --rate 5e-4 --minutes 4 \
        --out src/logcl/codecs/pyramid/networks-2.npz

The photographs are those that `train_pyramid.py` uses. One core, about twenty minutes.
"""

from __future__ import annotations

import argparse
import math
import time
from pathlib import Path

import numpy as np
import torch
from torch import Tensor
from train_pyramid import batch, photographs

from logcl.codecs.pyramid import context as pyramid_context
from logcl.codecs.pyramid import networks as pyramid_networks
from logcl.codecs.pyramid import streams as pyramid_streams
from logcl.codecs.pyramid.restoration import Restoration

FINEST, COARSEST = 160, 8  # numbers of steps


def pairs(
    sources: list[np.ndarray], count: int, random: np.random.Generator
) -> list[tuple[Tensor, Tensor, Tensor]]:
    """Batches of images, of what they are decoded to, and of the numbers of their steps."""
    found = []
    for _ in range(count):
        x = (batch(sources, 64, random) * 255).round()
        shape = (x.shape[1], x.shape[2], x.shape[3])
        group = pyramid_context.together(shape)
        x = x[: len(x) // group * group]
        # A stream has one step; images that stand together are of all kinds.
        steps = random.integers(COARSEST, FINEST, len(x) // group)
        decoded = pyramid_streams.encode(x / 255, steps, restored=False)[1]
        found.append((x.byte(), decoded, torch.from_numpy(np.repeat(steps, group))))
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("photographs", type=Path, nargs="+")
    parser.add_argument("--batches", type=int, default=300)
    parser.add_argument("--minutes", type=float, default=8)
    parser.add_argument("--rate", type=float, default=2e-3)
    parser.add_argument("--start", type=int, help="version of the networks to start from")
    parser.add_argument("--out", type=Path, required=True)
    given = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    random = np.random.default_rng(1)
    sources = [photographs(folder) for folder in given.photographs]
    began = time.monotonic()
    data = pairs(sources, given.batches, random)
    print(f"{sum(len(x) for x, _, _ in data):,} images, {time.monotonic() - began:.0f} s", flush=True)
    with np.load(given.out) as file:
        arrays = {name: file[name] for name in file.files if not name.startswith("restoration")}
    for channels in (1, 3):
        network = Restoration(channels)
        if given.start:
            network.load_state_dict(pyramid_networks.restoration(given.start, channels).state_dict())
        mine = [pair for pair in data if pair[0].shape[1] == channels]
        optimiser = torch.optim.Adam(network.parameters(), given.rate)
        began, number, gains = time.monotonic(), 0, []
        while (share := (time.monotonic() - began) / (60 * given.minutes)) < 1:
            for group in optimiser.param_groups:
                group["lr"] = (
                    given.rate * min(1, number / 100) * (0.5 + 0.5 * math.cos(math.pi * share)) + 1e-5
                )
            x, decoded, steps = mine[random.integers(len(mine))]
            turn, flip = int(random.integers(4)), random.random() < 0.5
            x, decoded = (
                torch.rot90(image, turn, (2, 3)) for image in (x.float() / 255, decoded.float() / 255)
            )
            x, decoded = (image.flip(3) if flip else image for image in (x, decoded))
            error = (
                (network(decoded, steps.float() / pyramid_context.PER_OCTAVE) - x).square().mean((1, 2, 3))
            )
            before = (decoded - x).square().mean((1, 2, 3))
            optimiser.zero_grad()
            # Relative errors: all steps matter.
            (error / (before + 1e-5)).mean().backward()
            torch.nn.utils.clip_grad_norm_(network.parameters(), 1.0)
            optimiser.step()
            gains.append(float((before / (error.detach() + 1e-7)).clamp(min=1e-3).log10().mean() * 10))
            number += 1
            if number % 500 == 0:
                print(f"{channels} channels: {number:,} steps, {np.mean(gains[-500:]):.3f} dB", flush=True)
        for name, value in network.state_dict().items():
            arrays[f"restoration-{channels}.{name}"] = value.half().numpy()
    np.savez_compressed(given.out, **arrays)


if __name__ == "__main__":
    main()
