"""Continual-learning methods behind one protocol: `learn(task)`, `predict(x)`, `nbytes()`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from logcl.core.errors import BadSettings, Damaged
from logcl.core.files import write_atomically
from logcl.core.settings import Frozen, changed, described, parse_as
from logcl.methods.binplay import BinPlay
from logcl.methods.codec_buffer import CodecBuffer
from logcl.methods.cumulative import Cumulative
from logcl.methods.curl import CURL
from logcl.methods.dgr_vae import DGRVAE
from logcl.methods.er import ER
from logcl.methods.ewc import EWC
from logcl.methods.finetune import Finetune
from logcl.methods.gdumb import GDumb
from logcl.methods.generative_replay import GenerativeReplay
from logcl.methods.gmed import GMED
from logcl.methods.gss import GSS
from logcl.methods.hypercl import HyperCL
from logcl.methods.icarl import ICaRL
from logcl.methods.joint import Joint
from logcl.methods.logcl import LogCL
from logcl.methods.mir import MIR
from logcl.methods.parts.protocol import HasLevels, Keeps, Method, Problem, Replayed, Replays, State
from logcl.methods.si import SI
from logcl.methods.vcl import VCL
from logcl.nn import blobs

__all__ = [
    "METHODS", "HasLevels", "Method", "Problem", "Replayed", "Replays", "State", "create", "keeps", "load",
    "options_of", "save",
]  # fmt: skip


@dataclass(frozen=True)
class Entry:
    """A method's name stands for a class, and for options that differ from the class's own."""

    method: type[Method]
    summary: str
    changes: Mapping[str, Any] = field(default_factory=dict)


METHODS: dict[str, Entry] = {
    "logcl": Entry(LogCL, "the paper's method: every sample in logarithmically many generative models"),
    "finetune": Entry(Finetune, "lower bound: each task in turn, nothing against forgetting"),
    "joint": Entry(Joint, "upper bound: all raw data, trained on when asked"),
    "cumulative": Entry(Cumulative, "joint training, repeated after each task"),
    # The paper's replay buffer is trained like LogCL, on raw samples instead of replay: joint training.
    "replay-buffer": Entry(Joint, "keeps every raw sample, and is otherwise trained like LogCL"),
    "codec-buffer": Entry(CodecBuffer, "every sample as a WebP, JPEG, AVIF or PNG file"),
    "generative-replay": Entry(GenerativeReplay, "one generative model, retrained on all it regenerates"),
    "binplay": Entry(BinPlay, "one decoder with codes from sample indices"),
    "ewc": Entry(EWC, "elastic weight consolidation"),
    "ewc-online": Entry(EWC, "elastic weight consolidation with one running penalty", {"online": True}),
    "si": Entry(SI, "synaptic intelligence"),
    "er": Entry(ER, "experience replay from a reservoir"),
    "mir": Entry(MIR, "experience replay of the samples that would suffer most"),
    "gss": Entry(GSS, "experience replay of samples with different gradients"),
    "gmed": Entry(GMED, "experience replay of edited samples"),
    "icarl": Entry(ICaRL, "herded exemplars, distillation, nearest mean"),
    "gdumb": Entry(GDumb, "a balanced buffer, trained on from scratch"),
    "vcl": Entry(VCL, "a posterior over weights is the next task's prior; a coreset refines the answer"),
    "curl": Entry(CURL, "a mixture VAE that grows, and replays itself; a component's labels answer"),
    "dgr-vae": Entry(DGRVAE, "deep generative replay from a VAE that goes on from task to task"),
    "hypercl": Entry(HyperCL, "generative replay from decoders that a hypernetwork writes, one a task"),
}


class Saved(Frozen):
    """What a saved method says of itself."""

    method: str
    options: dict[str, Any]
    classes: tuple[str, ...]


def options_of(name: str, changes: Mapping[str, Any] | None = None) -> Frozen:
    """The options of the method called `name`, some of them changed; values may be strings, names dotted."""
    if name not in METHODS:
        raise BadSettings(f"there is no method {name!r}; choose one of: {', '.join(METHODS)}")
    entry = METHODS[name]
    usual = parse_as(entry.method.Options, entry.changes)
    data, wrong = changed(usual, changes or {})
    if wrong is not None:
        known = ", ".join(f"{name}.{option}" for option, _, _ in described(usual)) or "none"
        raise BadSettings(f"there is no option {name}.{wrong}; the options of {name} are: {known}")
    return parse_as(entry.method.Options, data)


def keeps(name: str) -> Keeps:
    """Which samples a method keeps; one that is not known here, out of a result file, has none to show."""
    return METHODS[name].method.keeps if name in METHODS else "none"


def create(name: str, problem: Problem, options: Mapping[str, Any] | None = None) -> Method:
    """The method called `name`, before its first task."""
    chosen = options_of(name, options)
    return METHODS[name].method(problem, chosen)


def save(name: str, method: Method, path: Path) -> None:
    """Keep everything the method needs to go on, as one file that runs no code when it is read."""
    about = Saved(
        method=name, options=method.options.model_dump(mode="json"), classes=method.problem.classes
    )  # fmt: skip
    write_atomically(path, blobs.pack(about, method.state()))


def load(path: Path, problem: Problem) -> Method:
    """A method as it was saved, to go on with the same problem."""
    name = str(path)
    about, state = blobs.unpack(path.read_bytes(), Saved, name)
    if about.classes != problem.classes:
        raise BadSettings(f"{path} was saved for {len(about.classes)} other classes; load it with those")
    method = create(about.method, problem, about.options)
    try:
        method.restore(state)
    except (KeyError, RuntimeError, ValueError, ValidationError) as error:
        raise Damaged(f"{name} does not hold what the method {about.method} keeps ({error})") from error
    return method
