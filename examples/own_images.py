# %% [markdown]
# # Your own images
# Photos are in folders named after their class. Learn Monday's, delete them, learn Tuesday's, then classify
# Wednesday's. Here the photos are made from scikit-learn's digits; point `FOLDER` at your own.

# %%
import shutil
from pathlib import Path

import numpy as np
from PIL import Image
from sklearn.datasets import load_digits

from logcl import Classifier, Memory
from logcl.streams.images import read_folder

FOLDER = Path("photos")
digits = load_digits()


def photograph(rows: range, day: str) -> None:
    """Some digits as JPEG files, 20x20 in colour, in class-named folders."""
    for row in rows:
        folder = FOLDER / day / f"digit {digits.target[row]}"
        folder.mkdir(parents=True, exist_ok=True)
        grey = Image.fromarray(np.uint8(digits.images[row] * 255 / 16)).resize((20, 20))
        grey.convert("RGB").save(folder / f"{row}.jpg", quality=90)


photograph(range(400), "monday")
photograph(range(400, 800), "tuesday")

# %% [markdown]
# Images of any size and mode are converted to the memory's shape. After `absorb` the files are not needed.

# %%
memory = Memory.open("pets.logcl", image_shape=(3, 20, 20))
for day in ("monday", "tuesday"):
    found = read_folder(FOLDER / day, memory.settings.image_shape)
    memory.absorb(found.x, found.y)
    shutil.rmtree(FOLDER / day)
    print(f"{day}: {memory.n} images in {memory.nbytes():,} bytes, raw {memory.n * 3 * 20 * 20:,}")

# %% [markdown]
# The classifier is trained on replay from the memory and stored in the same file.

# %%
classifier = Classifier.train(memory, recipe={"width": 16})  # narrow: the images are simple
photograph(range(800, 1000), "wednesday")
test = read_folder(FOLDER / "wednesday", memory.settings.image_shape)
accuracy = (classifier.predict(test.x) == test.y).mean()
print(f"accuracy on Wednesday's photos: {accuracy:.0%}")
assert accuracy > 0.8
