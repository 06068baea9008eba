"""Naive generative replay, the paper's baseline: a single model is refitted on everything it replays."""

from __future__ import annotations

from logcl.methods.parts.single_model import SingleModel


class GenerativeReplay(SingleModel):
    """LogCL without its levels: the same decoder, codes and labels, but each task re-encodes all samples.

    After T tasks the first samples have been re-encoded T - 1 times; LogCL's bound is log2(n / L).
    """

    name = "generative-replay"
    summary = "one generative model, refitted on everything it replays"
