# %% [markdown]
# # An edge device with a budget of 5 MB
# A camera sees new things every day, has 5 MB of storage and no network. How many bytes per picture can it
# afford if it is to keep 20,000 pictures? With that setting the file stays within the budget.

# %%
import numpy as np
from sklearn.datasets import load_digits

from logcl import Classifier, Memory

BUDGET = 5_000_000
EXPECTED = 20_000  # pictures over the lifetime of the device
SHAPE = (3, 32, 32)
digits = load_digits()
random = np.random.default_rng(0)


def seen(rows: np.ndarray) -> np.ndarray:
    """What the camera sees: a coloured digit on a coloured background, with noise."""
    ink_mask = np.repeat(np.repeat(digits.images[rows] / 16, 3, axis=1), 3, axis=2)[:, None]  # 24x24
    ink, ground = random.uniform(0.55, 1, (len(rows), 3, 1, 1)), random.uniform(0, 0.4, (len(rows), 3, 1, 1))
    pictures = np.broadcast_to(ground, (len(rows), *SHAPE)).copy()
    window = pictures[:, :, 4:28, 4:28]
    window += ink_mask * (ink - window)
    noisy = pictures + random.normal(0, 0.03, pictures.shape)
    return np.uint8(np.clip(noisy, 0, 1) * 255)


# %% [markdown]
# Most of the file is codes. The newest pictures, fewer than one unit, are stored raw until the unit is full.
# They count towards the budget, so the unit is small.

# %%
UNIT = 128
waiting = UNIT * int(np.prod(SHAPE))
per_picture = 0.9 * (BUDGET - waiting) / EXPECTED  # a tenth is for tables and labels
memory = Memory.open(
    "camera.logcl", image_shape=SHAPE, unit=UNIT, settings={"codec.bytes_per_sample": per_picture}
)
print(f"{per_picture:.0f} bytes per picture, raw {np.prod(SHAPE):,}")

# %% [markdown]
# Every day brings two new digits. `memory.plan` returns what absorbing a day's pictures will cost.

# %%
for day in range(5):
    rows = np.flatnonzero(digits.target[:1500] // 2 == day)
    rows = random.choice(rows, 600)
    plan = memory.plan(len(rows))
    memory.absorb(seen(rows), digits.target[rows])
    encoded = sum(slot.samples for slot in plan.train)
    print(f"day {day + 1}: {memory.n:,} pictures in {memory.nbytes():,} bytes, {encoded:,} encoded today")

fraction = memory.nbytes() / (memory.n * np.prod(SHAPE))
final = (memory.nbytes() - waiting) / memory.n * EXPECTED + waiting
print(
    f"{fraction:.1%} of raw; at this rate {EXPECTED:,} pictures take {final / 1e6:.1f} MB "
    f"of {BUDGET / 1e6:.0f} MB"
)
assert final < BUDGET

# %%
classifier = Classifier.train(memory, recipe={"width": 16, "epochs": 6})
rows = np.arange(1500, 1797)
accuracy = (classifier.predict(seen(rows)) == digits.target[rows]).mean()
print(f"accuracy on new pictures of all ten digits: {accuracy:.0%}")
assert accuracy > 0.5
