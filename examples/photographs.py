# %% [markdown]
# # Photographs, day by day
# A frozen, pretrained network turns photographs into features, and the memory keeps those: a hundred bytes
# each.
# Give a folder of class-named folders of photographs:
#
#     python examples/photographs.py photos/
#
# Without one, parts of the two photographs that come with scikit-learn are used.

# %%
import sys
from pathlib import Path

import numpy as np
from PIL import Image
from sklearn.datasets import load_sample_images

from logcl import Classifier, Memory
from logcl.streams.images import list_images


def parts_of_two_photographs() -> Path:
    """Class-named folders with parts of a picture of a temple and of one of a flower."""
    folder, random = Path("photos"), np.random.default_rng(0)
    for name, pixels in zip(("temple", "flower"), load_sample_images().images, strict=True):
        (folder / name).mkdir(parents=True)
        picture = Image.fromarray(pixels)
        for number in range(24):
            side = int(random.integers(120, 300))
            left, top = (int(random.integers(edge - side)) for edge in picture.size)
            part = picture.crop((left, top, left + side, top + side))
            part.save(folder / name / f"{number}.jpg")
    return folder


photographs = list_images(Path(sys.argv[1]) if len(sys.argv) > 1 else parts_of_two_photographs())
order = np.random.default_rng(1).permutation(len(photographs))
held_out, *days = np.array_split(order, 4)

# %% [markdown]
# Each day's photographs are absorbed and not needed afterwards. Images of any size and mode are welcome.

# %%
memory = Memory.open("photographs.logcl", backbone="efficientnet-lite0")
for number, day in enumerate(days, start=1):
    images = [Image.open(photographs[row]) for row in day]
    memory.absorb(images, [photographs[row].parent.name for row in day], source=f"day {number}")
    size = memory.nbytes()
    print(f"day {number}: {memory.n} photographs in {size:,} bytes, {size / memory.n:.0f} each")

# %% [markdown]
# The classifier is trained on replayed features, in seconds.

# %%
classifier = Classifier.train(memory)
images = [Image.open(photographs[row]) for row in held_out]
labels = np.array([photographs[row].parent.name for row in held_out])
accuracy = (classifier.predict(images) == labels).mean()
print(f"accuracy on {len(labels)} other photographs: {accuracy:.0%}")
assert accuracy > 2 / len(memory.classes) or (len(memory.classes) == 2 and accuracy > 0.8)
