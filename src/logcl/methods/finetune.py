"""Fine-tuning: one network, trained on each task in turn. The lower bound, since it forgets."""

from __future__ import annotations

from logcl.methods.parts.solver import Incremental, tensors
from logcl.streams import Task


class Finetune(Incremental):
    """θ ← argmin of the new task's loss, starting from the old θ; nothing but the network is kept."""

    name = "finetune"
    summary = "lower bound: each task in turn, nothing against forgetting"
    bound = True

    def learn(self, task: Task) -> None:
        """Continue training on the new samples only."""
        self.train_on(*tensors(task))
