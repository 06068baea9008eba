# %% [markdown]
# # Your own network
# Any `nn.Module` can be trained on a memory, by LogCL or in your own loop over a `DataLoader`.

# %%
import numpy as np
import torch
from sklearn.datasets import load_digits
from torch import nn
from torch.utils.data import DataLoader

from logcl import Classifier, Memory
from logcl.integrations.logs import CSVLog

digits = load_digits()
images = np.uint8(np.rint(digits.images * 255 / 16))
labels = digits.target

memory = Memory.open("digits.logcl", image_shape=(1, 8, 8))
for classes in (range(5), range(5, 10)):  # two tasks of five classes
    task = np.flatnonzero(np.isin(labels[:1400], classes))
    memory.absorb(images[task], labels[task], callbacks=[CSVLog("log.csv")])


def build() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(1, 16, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
        nn.Flatten(), nn.Linear(16 * 4 * 4, len(memory.classes)),
    )  # fmt: skip


def accuracy(predicted: np.ndarray) -> float:
    return float((predicted == labels[1400:]).mean())


# %% [markdown]
# LogCL's loop, with its augmentation, schedule and noise. The weights are stored in the memory file.

# %%
network = build()
classifier = Classifier.train(
    memory, network=network, recipe={"epochs": 15, "learning_rate": 1e-2}, callbacks=[CSVLog("log.csv")]
)
print(f"LogCL's loop: {accuracy(classifier.predict(images[1400:])):.1%}")
again = Classifier.load(memory, network=build())
assert (again.predict(images) == classifier.predict(images)).all()

# %% [markdown]
# Your own loop: the memory is an ordinary data set. `memory.classes[k]` is the label of output k.

# %%
own = build()
optimiser = torch.optim.Adam(own.parameters(), lr=3e-3)
number = {label: k for k, label in enumerate(memory.classes)}
loader = DataLoader(
    memory.dataset(iterable=True, batch_size=64, for_training=True), batch_size=None, num_workers=2
)
for _ in range(12):
    for x, y in loader:
        targets = torch.tensor([number[int(label)] for label in y])
        loss = nn.functional.cross_entropy(own(x + 0.1 * torch.randn_like(x)), targets)
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
own.eval()
with torch.no_grad():
    scores = own(torch.from_numpy(images[1400:, None]).float() / 255)
found = accuracy(np.array(memory.classes)[scores.argmax(dim=1)])
print(f"your loop: {found:.1%}")
assert found > 0.8
