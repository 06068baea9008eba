# %% [markdown]
# # An edge device with a budget of 5 MB
# A camera sees new things every day, may keep 5 MB, and cannot send pictures away. How many bytes may a
# picture have, if 20,000 are to be kept for good? The memory is told, and the file stays below the budget.

# %%
import numpy as np
from sklearn.datasets import load_digits

from logcl import Classifier, Memory

BUDGET = 5_000_000
EXPECTED = 20_000  # pictures in the device's life
SHAPE = (3, 32, 32)
digits = load_digits()
random = np.random.default_rng(0)


def seen(rows: np.ndarray) -> np.ndarray:
    """What the camera sees: a coloured sign on a coloured ground, with noise."""
    signs = np.repeat(np.repeat(digits.images[rows] / 16, 3, axis=1), 3, axis=2)[:, None]  # 24x24
    ink, ground = random.uniform(0.55, 1, (len(rows), 3, 1, 1)), random.uniform(0, 0.4, (len(rows), 3, 1, 1))
    pictures = np.broadcast_to(ground, (len(rows), *SHAPE)).copy()
    window = pictures[:, :, 4:28, 4:28]
    window += signs * (ink - window)
    noisy = pictures + random.normal(0, 0.03, pictures.shape)
    return np.uint8(np.clip(noisy, 0, 1) * 255)


# %% [markdown]
# Codes are most of the file. The newest pictures, which do not fill a unit yet, wait raw: they are part of
# the budget too, so the unit is small.

# %%
UNIT = 128
waiting = UNIT * int(np.prod(SHAPE))
per_picture = 0.9 * (BUDGET - waiting) / EXPECTED  # a tenth for tables and labels
memory = Memory.open(
    "camera.logcl", image_shape=SHAPE, unit=UNIT, settings={"generator.bytes_per_sample": per_picture}
)
print(f"{per_picture:.0f} bytes a picture of {np.prod(SHAPE):,}")

# %% [markdown]
# Day by day two new signs appear. `memory.plan` says what a day will cost before it is paid.

# %%
for day in range(5):
    rows = np.flatnonzero(digits.target[:1500] // 2 == day)
    rows = random.choice(rows, 600)
    plan = memory.plan(len(rows))
    memory.absorb(seen(rows), digits.target[rows])
    encoded = sum(slot.samples for slot in plan.train)
    print(f"day {day + 1}: {memory.n:,} pictures in {memory.nbytes():,} bytes; {encoded:,} were encoded")

share = memory.nbytes() / (memory.n * np.prod(SHAPE))
life = (memory.nbytes() - waiting) / memory.n * EXPECTED + waiting
print(
    f"{share:.1%} of raw; at this rate {EXPECTED:,} pictures take {life / 1e6:.1f} of {BUDGET / 1e6:.0f} MB"
)
assert life < BUDGET

# %%
classifier = Classifier.train(memory, recipe={"width": 16, "epochs": 6})
rows = np.arange(1500, 1797)
right = (classifier.predict(seen(rows)) == digits.target[rows]).mean()
print(f"{right:.0%} of new pictures are recognised, signs of the first day among them")
assert right > 0.5
