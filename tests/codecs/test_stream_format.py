"""Decoders of streams, written in plain Python from docs/memory-file.md alone: it says all there is."""

from __future__ import annotations

import math
import zlib
from importlib.resources import files
from io import BytesIO

import numpy as np
import pytest

from logcl.codecs.pixels.codec import Pixels, PixelsSpec
from logcl.codecs.pixels.model import ContextModel
from logcl.codecs.pyramid.codec import _encoded

TOTAL = 2**14


class Stream:
    """A stream of words, decoded as the documentation says."""

    def __init__(self, words):
        self.words = list(words)
        self.x = self.words.pop(0) << 16 | self.words.pop(0)

    def take(self, edges):
        """The number of the interval between these edges."""
        slot = self.x % TOTAL
        number = next(k for k in range(len(edges) - 1) if edges[k] <= slot < edges[k + 1])
        self.x = (edges[number + 1] - edges[number]) * (self.x // TOTAL) + slot - edges[number]
        if self.x < 2**16:
            self.x = self.x << 16 | self.words.pop(0)
        return number

    def number(self, bits):
        """A number without a prediction."""
        return self.take([number << 14 - bits for number in range(2**bits + 1)])

    @property
    def finished(self):
        return self.x == 2**16 and not self.words


def streams(tensors):
    """The words of each stream."""
    packed, words = tensors["lengths"].numpy(), tensors["words"].numpy().view("<u2").tolist()
    bits = np.unpackbits(packed[1:], bitorder="little").astype(int).tolist()
    b, found = int(packed[0]), []
    while words:
        length = sum(bit << place for place, bit in enumerate(bits[:b]))
        found.append(Stream(words[:length]))
        words, bits = words[length:], bits[b:]
    return found


def rounded(value):
    return round(value)  # a half to the even one


def shades_decoded(spec, weights, stream, images):
    """Images of one stream of `pixels`."""
    _, height, width = spec.image_shape
    shifts = weights["shifts"].tolist()
    layers = [(weights[f"weights.{at}"].tolist(), weights[f"biases.{at}"].tolist()) for at in range(3)]
    around = [(0, -1), (0, -2), (0, -3), *((-1, dx) for dx in range(-3, 4))]
    around += [*((-2, dx) for dx in range(-3, 4)), *((-3, dx) for dx in range(-1, 2))]
    found = [{} for _ in range(images)]
    for y, x in sorted(np.ndindex(height, width), key=lambda at: (at[1] + 4 * at[0], at[0])):
        for image in found:
            seen = [image.get((y + dy, x + dx)) for dy, dx in around]
            values = [rounded(spec.shades[s] * 63 / 255) if s is not None else 0 for s in seen]
            r = rounded((2 * y / max(height - 1, 1) - 1) * 63)
            k = rounded((2 * x / max(width - 1, 1) - 1) * 63)
            values += [r, k, abs(r), abs(k)]
            for (matrix, biases), shift in zip(layers, shifts, strict=True):
                sums = [
                    sum(w * v for w, v in zip(row, values, strict=True)) + bias
                    for row, bias in zip(matrix, biases, strict=True)
                ]
                values = [min(max(value, 0) >> shift, 1023) for value in sums]
            below = [min((max(sums) - value) >> shifts[2] + 1, 511) for value in sums]
            powers = [rounded(2 ** (16 - d / 32)) for d in below]
            sizes = [p * (TOTAL - len(powers)) // sum(powers) + 1 for p in powers]
            sizes[powers.index(max(powers))] += TOTAL - sum(sizes)
            image[y, x] = stream.take(np.cumsum([0, *sizes]).tolist())
    grid = [[[spec.shades[image[y, x]] for x in range(width)] for y in range(height)] for image in found]
    return np.array(grid)[:, None]


def test_shades_are_decoded_as_documented():
    rng = np.random.default_rng(0)
    shape = (1, 7, 5)
    sizes = [24, 6, 5, 4]
    layers = [
        (
            rng.integers(-90, 90, (b, a)).astype(np.float32),
            rng.integers(-900, 900, b).astype(np.float32),
            shift,
        )
        for a, b, shift in zip(sizes, sizes[1:], (6, 7, 8), strict=False)
    ]
    spec = PixelsSpec(image_shape=shape, shades=(3, 90, 91, 250), trained=1, quality=9)
    codec = Pixels(spec, ContextModel(layers))
    x = rng.choice(spec.shades, (21, *shape)).astype(np.uint8)
    tensors = codec.encode(x).tensors()
    again = []
    for number, stream in enumerate(streams(tensors)):
        again.append(shades_decoded(spec, codec.weights(), stream, min(16, 21 - 16 * number)))
        assert stream.finished
    decoded = codec.decode(codec.encode(x), np.arange(21)).numpy()
    assert np.array_equal(np.concatenate(again), decoded)


ORDER = {2: [(0, 1), (1, 0), (1, 1)]}
ORDER[4] = [*ORDER[2], (0, 2), (2, 0), (1, 2), (2, 1), (0, 3), (3, 0), (2, 2)]
ORDER[4] += [(1, 3), (3, 1), (2, 3), (3, 2), (3, 3)]


def logistic(n):
    n = min(max(n, -1024), 1023)
    return round(2**16 / (1 + math.exp(-(n + 0.5) / 64)))


def q(value):
    size = round(16 * math.log2(1 + min(abs(value), 16383) / 64))
    return size if value > 0 else -size


def predicted(arrays, name, place, values):
    """o, m1, m2, l1, l2."""
    for layer in range(3):
        weights = arrays[f"{name}.weights.{layer}"][place][: len(values)].astype(int)
        sums = np.array(values) @ weights + arrays[f"{name}.biases.{layer}"][place]
        shifts = arrays[f"{name}.shifts.{layer}"][place].astype(int)
        values = [int(v) * (4 if layer == 0 else 1) >> int(s) for v, s in zip(sums, shifts, strict=True)]
        if layer < 2:
            values = [min(max(value, 0), 1023) for value in values]
    return values


def edges_of(o, m1, m2, l1, l2):
    """The expected integer, and the edges of the intervals."""
    a = logistic(o) >> 8
    e = (a * m1 + (256 - a) * m2 + 2**13) >> 14
    edges = [0]
    for k in range(1, 25):
        f = []
        for m, scale in ((m1, l1), (m2, l2)):
            sharpness = round(2**16 * math.exp(-min(max(scale, -192), 384) / 64))
            f.append(logistic(((k + e - 12) * 64 - 32 - m) * sharpness >> 16))
        edges.append(((a * f[0] + (256 - a) * f[1]) * (TOTAL - 25) >> 24) + k)
    return e, [*edges, TOTAL]


def pyramid_integers(arrays, shape, step, stream, images):
    """The means (C, images), and the integers {(stage, channel, order, y, x): value} of each image."""
    channels, height, width = shape
    stages = []
    while height * width > 1:
        side = 4 if max(height, width) > 3 else 2
        rows, columns = -(-height // side), -(-width // side)
        stages.append((side, rows, columns, height, width))
        height, width = rows, columns
    gain = math.prod(stage[0] for stage in stages)
    bits = math.ceil(math.log2(math.sqrt(channels) * gain * 2 ** (step / 32) + 3))
    means = [[0] * images for _ in range(channels)]
    for low in range(0, bits, 6):
        for mean in means:
            for image in range(images):
                mean[image] += stream.number(min(6, bits - low)) << low
    means = [[value - 2 ** (bits - 1) for value in mean] for mean in means]
    planes = [[{(0, 0): 64 * mean[image]} for mean in means] for image in range(images)]
    found = [{} for _ in range(images)]
    for stage in range(len(stages) - 1, -1, -1):
        side, rows, columns, height, width = stages[stage]
        blocks = [(y, x) for y in range(rows) for x in range(columns)]
        for channel in range(channels):
            name = f"{side}-{0 if stage == 0 and side == 4 else 1}-{channel}"

            def ring(image, c, y, x, rows=rows, columns=columns):
                plane, here = planes[image][c], planes[image][c][y, x]
                places = [(-1, 0), (0, -1), (0, 1), (1, 0), (-1, -1), (-1, 1), (1, -1), (1, 1)]
                near = ((min(max(y + a, 0), rows - 1), min(max(x + b, 0), columns - 1)) for a, b in places)
                return [q(plane[at] - here) for at in near]

            for place in range(side**2 - 1):
                for black in (0, 1):
                    square = [at for at in blocks if sum(at) % 2 == black]
                    escaped = []
                    for y, x in square:
                        for image in range(images):
                            held = found[image]
                            grey = math.log2(3) / 2 if channels == 3 and channel == 0 else 0
                            values = [16 * black, rounded(16 * (step / 32 + grey)), 16 * stage]
                            for c in range(channel):
                                values += [q(64 * held[stage, c, k, y, x]) for k in range(side**2 - 1)]
                                values += ring(image, c, y, x)
                            values += ring(image, channel, y, x)
                            for k in range(place + black):
                                for a, b in ((-1, 0), (0, -1), (0, 1), (1, 0)):
                                    values.append(q(64 * held.get((stage, channel, k, y + a, x + b), 0)))
                                if k < place:
                                    values.append(q(64 * held[stage, channel, k, y, x]))
                            e, edges = edges_of(*predicted(arrays, name, place, values))
                            k = stream.take(edges)
                            held[stage, channel, place, y, x] = e - 12 + k
                            if k in (0, 24):
                                escaped.append((held, (stage, channel, place, y, x), -1 if k == 0 else 1))
                    for low in (0, 6):
                        for held, at, sign in escaped:
                            held[at] += sign * (stream.number(6) << low)
        basis = [
            [
                round(
                    4096 * math.sqrt((1 if u == 0 else 2) / side) * math.cos(math.pi * u * (i + 0.5) / side)
                )
                for i in range(side)
            ]
            for u in range(side)
        ]
        for image in range(images):
            for channel in range(channels):
                old, new = planes[image][channel], {}
                for y, x in np.ndindex(height, width):
                    at = (y // side, x // side)
                    total = old[at] * basis[0][y % side] * basis[0][x % side]
                    for k, (u, v) in enumerate(ORDER[side]):
                        value = 64 * found[image][(stage, channel, k, *at)]
                        total += value * basis[u][y % side] * basis[v][x % side]
                    new[y, x] = (total + 2**23) >> 24
                planes[image][channel] = new
    return means, found


@pytest.mark.parametrize(
    ("shape", "step", "noise"), [((1, 9, 6), 60, True), ((3, 6, 5), 90, False), ((3, 2, 13), 230, True)]
)
@pytest.mark.parametrize("version", [1, 2])
def test_pyramids_are_decoded_as_documented(shape, step, noise, version):
    rng = np.random.default_rng(1)
    x = rng.choice([0, 255], (5, *shape)) if noise else rng.integers(0, 256, (5, *shape)) // 3 + 90
    codes, _ = _encoded(x.astype(np.uint8), step, version)
    tensors = codes.tensors()
    described = zlib.decompress(tensors["streams"].numpy().tobytes())
    assert described == bytes([step, 5])
    (stream,) = streams(tensors)
    content = files("logcl.codecs").joinpath(f"pyramid/networks-{version}.npz").read_bytes()
    with np.load(BytesIO(content)) as arrays:
        means, found = pyramid_integers(dict(arrays), shape, step, stream, 5)
    assert stream.finished
    whole = codes.integers(np.arange(5))
    assert np.array_equal(np.array(means), whole.means)
    for image, held in enumerate(found):
        for (stage, channel, place, y, across), value in held.items():
            columns = max(at[4] for at in held if at[0] == stage) + 1
            assert whole.symbols[stage][channel, place, y * columns + across, image] == value
