# %% [markdown]
# # On a cluster
# The fits of a task run in parallel on a Ray cluster, and several processes train the global model together.
# Here Ray is started on this machine; `Ray("auto")` and `Ray("host:6379")` connect to an existing cluster.

# %%
import numpy as np
from sklearn.datasets import load_digits

from logcl import Classifier, Memory
from logcl.nn.engines.ray import Ray

digits = load_digits()
images = np.uint8(np.rint(digits.images * 255 / 16))
labels = digits.target
settings = {"codec.name": "autoencoder", "codec.min_steps": 300}

# %% [markdown]
# The same tasks on the cluster and in this process: the memories are bit-identical.

# %%
with Ray(workers=2) as engine:
    there = Memory.open("there.logcl", image_shape=(1, 8, 8), unit=128, settings=settings)
    here = Memory.open("here.logcl", image_shape=(1, 8, 8), unit=128, settings=settings)
    for first, last in ((0, 1024), (1024, 1408)):
        there.absorb(images[first:last], labels[first:last], engine=engine)
        here.absorb(images[first:last], labels[first:last])
    print("levels trained on the cluster:", [slot.level for slot in here.plan(0).keep])
    assert there.digest == here.digest

    classifier = Classifier.train(there, recipe={"epochs": 12}, engine=engine)

accuracy = (classifier.predict(images[1408:]) == labels[1408:]).mean()
print(f"accuracy of the classifier trained by {engine.workers} processes: {accuracy:.1%}")
assert accuracy > 0.8
