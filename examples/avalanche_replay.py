# %% [markdown]
# # Replay from a memory inside Avalanche
# Handwritten digits arrive two classes at a time. A network that is only trained on the new ones forgets the
# first; with replay from a LogCL memory it does not, and the memory is smaller than the images.
# Needs `pip install 'logcl[avalanche]'`.

# %%
import tempfile
from pathlib import Path

import torch
from avalanche.benchmarks import nc_benchmark
from avalanche.training.plugins import ReplayPlugin
from avalanche.training.supervised import Naive
from sklearn.datasets import load_digits
from torch.utils.data import TensorDataset

from logcl.integrations.avalanche import LogCLPlugin

# %% [markdown]
# ## A benchmark
# Any Avalanche benchmark works. This one needs no download.


# %%
class Digits(TensorDataset):
    """Images and classes; Avalanche expects the classes in `targets`."""

    targets = property(lambda self: self.tensors[1])


digits = load_digits()
x = torch.tensor(digits.images / 16, dtype=torch.float32)[:, None]
y = torch.tensor(digits.target)
train, test = Digits(x[:1438], y[:1438]), Digits(x[1438:], y[1438:])
benchmark = nc_benchmark(train, test, n_experiences=5, task_labels=False, fixed_class_order=list(range(10)))

# %% [markdown]
# ## Three ways to learn it


# %%
def learn(plugins: list) -> float:
    """Final accuracy on the test images of all ten classes."""
    torch.manual_seed(0)
    model = torch.nn.Sequential(
        torch.nn.Flatten(), torch.nn.Linear(64, 128), torch.nn.ReLU(), torch.nn.Linear(128, 10)
    )
    strategy = Naive(
        model=model, optimizer=torch.optim.Adam(model.parameters(), 4e-3),
        train_mb_size=32, train_epochs=10, plugins=plugins, evaluator=None,
    )  # fmt: skip
    for experience in benchmark.train_stream:
        strategy.train(experience)
    model.eval()
    return float((model(test.tensors[0]).argmax(dim=1) == test.tensors[1]).float().mean())


folder = Path(tempfile.mkdtemp())
plugin = LogCLPlugin(folder / "digits.logcl")
accuracies = {
    "no replay": learn([]),
    "200 raw samples": learn([ReplayPlugin(mem_size=200)]),
    "LogCL": learn([plugin]),
}
for name, accuracy in accuracies.items():
    print(f"{name:>16}: {accuracy:.1%}")

# %% [markdown]
# ## The memory
# One file with every sample in it.

# %%
print(f"{plugin.memory.n:,} samples in {plugin.memory.nbytes():,} bytes; raw {plugin.memory.n * 64:,}")
