"""Experience replay (Chaudhry et al. 2019, "tiny episodic memories"; Rolnick et al. 2019)."""

from __future__ import annotations

from logcl.methods.parts.rehearsal import Rehearsal


class ER(Rehearsal):
    """Each step trains on a batch of the task and an equally large one from a reservoir of raw samples."""

    name = "er"
    summary = "experience replay from a reservoir"
