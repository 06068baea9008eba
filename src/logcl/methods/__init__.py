"""Continual-learning methods behind one protocol: `learn(task)`, `predict(x)`, `nbytes()`.

Methods are discovered, not listed. Each module of this package holds one `Method` subclass, and sometimes a
named variant of it. Other packages register theirs under the entry-point group `logcl.methods`; a single file
outside any package is given by its path, `find("my_rival.py")`.
"""

from __future__ import annotations

import inspect
import pkgutil
import re
import sys
from collections.abc import Mapping
from functools import cache
from importlib import import_module
from importlib.machinery import SourceFileLoader
from importlib.metadata import entry_points
from pathlib import Path
from types import ModuleType
from typing import Any

from logcl.core.errors import BadSettings
from logcl.core.settings import Frozen, changed, described, parse_as
from logcl.methods.parts.protocol import Keeps, Method, Problem, Replayed, State

__all__ = ["METHODS", "Method", "Problem", "Replayed", "State", "create", "find", "keeps", "options_of"]

METHODS: Mapping[str, type[Method]]
"""All methods by name: LogCL, then the bounds, then its rivals. They are imported when this is first used."""


def __getattr__(attribute: str) -> Any:
    if attribute == "METHODS":
        return _methods()
    raise AttributeError(f"module {__name__!r} has no attribute {attribute!r}")


@cache
def _methods() -> dict[str, type[Method]]:
    modules = [import_module(f"{__name__}.{file.name}") for file in pkgutil.iter_modules(__path__)]
    classes = [method for module in modules for method in _defined_in(module)]
    classes.sort(key=lambda method: (method.name != "logcl", not method.bound, method.name))
    found: dict[str, type[Method]] = {}
    for method in classes:
        _add(method, found)
    for entry in entry_points(group="logcl.methods"):
        try:
            _add(entry.load(), found, entry.value)
        except (ImportError, AttributeError) as error:
            raise BadSettings(
                f"the method {entry.value} cannot be imported ({error}); repair or uninstall its package"
            ) from error
    return found


def _defined_in(module: ModuleType) -> list[type[Method]]:
    """The methods that a module defines and names, not those it imports or derives from."""
    own = [kind for kind in vars(module).values() if inspect.isclass(kind) and "name" in vars(kind)]
    return [kind for kind in own if issubclass(kind, Method) and kind.__module__ == module.__name__]


def _add(method: type[Method], known: dict[str, type[Method]], entry: str = "") -> type[Method]:
    if not (inspect.isclass(method) and issubclass(method, Method)):
        raise BadSettings(f"the entry point {entry} is no method; it must be a Method subclass")
    where = f"the method {method.name!r} in {inspect.getfile(method)}"
    if not re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)*", method.name):
        raise BadSettings(f"{where} has an unusable name; use lower-case letters, digits and hyphens")
    if known.setdefault(method.name, method) is not method:
        other = inspect.getfile(known[method.name])
        raise BadSettings(f"{where} has the same name as the one in {other}; rename one of them")
    return method


def find(name: str) -> type[Method]:
    """The method called `name`, or the one in the Python file `name`, known by its own name from then on."""
    methods = _methods()
    if name.endswith(".py"):
        return _add(_loaded(Path(name).resolve()), methods)
    if name not in methods:
        raise BadSettings(
            f"there is no method {name!r}; choose one of: {', '.join(methods)}, or give a Python file"
        )
    return methods[name]


@cache
def _loaded(path: Path) -> type[Method]:
    """The method in a Python file; importing it runs its code."""
    if not path.is_file():
        raise BadSettings(f"the method's file {path} does not exist; check the path")
    module = ModuleType(str(path))
    module.__file__ = str(path)
    sys.modules[module.__name__] = module  # where pydantic looks up the types of annotations
    SourceFileLoader(module.__name__, str(path)).exec_module(module)
    found = _defined_in(module)
    if not found:
        raise BadSettings(f"{path} defines no method; add a subclass of logcl.methods.Method with a `name`")
    if len(found) > 1:
        names = ", ".join(method.__name__ for method in found)
        raise BadSettings(f"{path} defines several methods ({names}); put each into its own file")
    return found[0]


def options_of(name: str, changes: Mapping[str, Any] | None = None) -> Frozen:
    """The options of a method, with `changes` to its defaults; names may be dotted, values strings."""
    method = find(name)
    data, wrong = changed(method.Options(), changes or {})
    if wrong is not None:
        known = ", ".join(f"{method.name}.{option}" for option, _, _ in described(method.Options())) or "none"
        raise BadSettings(
            f"there is no option {method.name}.{wrong}; the options of {method.name} are: {known}"
        )
    return parse_as(method.Options, data)


def keeps(name: str) -> Keeps:
    """Which samples a method keeps; "none" for unknown methods, as no file that a result names is run."""
    return _methods()[name].keeps if name in _methods() else "none"


def create(name: str, problem: Problem, options: Mapping[str, Any] | None = None) -> Method:
    """The method called `name`, before its first task."""
    return find(name)(problem, options_of(name, options))
