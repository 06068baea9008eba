# %% [markdown]
# # Past one machine
# The fits of a task side by side on a Ray cluster, and the global model trained by several processes at once.
# Here the cluster is this machine; `Ray("auto")` or `Ray("host:6379")` is one that is there.

# %%
import numpy as np
from sklearn.datasets import load_digits

from logcl import Classifier, Memory
from logcl.nn.engines.ray import Ray

digits = load_digits()
images = np.uint8(np.rint(digits.images * 255 / 16))
labels = digits.target
settings = {"codec.min_steps": 300}

# %% [markdown]
# The same task on a cluster and in this process: the memories are equal to the bit.

# %%
with Ray(workers=2) as engine:
    there = Memory.open("there.logcl", image_shape=(1, 8, 8), unit=128, settings=settings)
    here = Memory.open("here.logcl", image_shape=(1, 8, 8), unit=128, settings=settings)
    for first, last in ((0, 1024), (1024, 1408)):
        there.absorb(images[first:last], labels[first:last], engine=engine)
        here.absorb(images[first:last], labels[first:last])
    print("the levels trained on the cluster:", [slot.level for slot in here.plan(0).keep])
    assert there.digest == here.digest

    classifier = Classifier.train(there, recipe={"epochs": 12}, engine=engine)

right = (classifier.predict(images[1408:]) == labels[1408:]).mean()
print(f"{engine.workers} processes trained one classifier: {right:.1%}")
assert right > 0.8
