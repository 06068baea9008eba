"""The README and the docs are correct: their names, links, tables and figures."""

import importlib.util
import json
import re
from pathlib import Path

import numpy as np
import pytest

ROOT = Path(__file__).parent.parent


def test_the_names_in_the_guide_to_methods_exist():
    """Every `file.py` of docs/methods.md is there, and every name beside an equation is in one of them."""
    from logcl.methods import METHODS

    text = (ROOT / "docs" / "methods.md").read_text()
    folder = ROOT / "src" / "logcl" / "methods"
    for name in re.findall(r"`(\w+\.py)`", text):
        assert list(folder.rglob(name)), name
    own = {name for name, method in METHODS.items() if method.__module__.startswith("logcl.")}
    assert own <= set(re.findall(r"\*\*([\w-]+)\*\*", text))
    sources = {path.stem: path.read_text() for path in folder.rglob("*.py")}
    everything = "\n".join(sources.values())
    named = re.findall(r"^\|[^|]*\|(.*)\|$", text, flags=re.MULTILINE)
    names = {name for cell in named for name in re.findall(r"`([\w.]+)`", cell)}
    assert len(names) > 30
    for name in names:
        last = name.split(".")[-1]
        assert re.search(rf"(def|class) {last}\b", everything), name


def test_the_names_in_the_paper_guide_exist():
    text = (ROOT / "docs" / "paper.md").read_text()
    source = ROOT / "src"
    modules = {path.stem: path for path in source.rglob("*.py")}
    modules |= {path.parent.name: path.parent for path in source.rglob("__init__.py")}
    del modules["codec"]  # `codec.name` and the like are settings
    named = [name for name in re.findall(r"`(\w+\.\w+(?:\.\w+)?)`", text) if name.split(".")[0] in modules]
    named = [name for name in named if not name.endswith((".py", ".md"))]
    assert len(named) > 12
    for name in named:
        module, *path = name.split(".")
        where = modules[module].relative_to(source).with_suffix("")
        found = importlib.import_module(".".join(where.parts))
        for part in path:
            known = getattr(found, "model_fields", {})
            assert part in known or hasattr(found, part), name
            found = getattr(found, part, None)
    for test in re.findall(r"`tests/(\w+\.py)::(\w+)`", text):
        assert f"def {test[1]}(" in (ROOT / "tests" / test[0]).read_text()


def test_links_lead_somewhere():
    for document in (*sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs").glob("*.md"))):
        for target in re.findall(r"\]\(([^)#]+)(?:#[^)]*)?\)", document.read_text()):
            if "://" not in target:
                assert (document.parent / target).exists(), f"{document.name}: {target}"


def test_the_figure_is_up_to_date(tmp_path):
    committed = (ROOT / "docs" / "figures" / "counter.svg").read_text()
    source = (ROOT / "tools" / "counter_figure.py").read_text()
    script = tmp_path / "tools" / "counter_figure.py"
    (tmp_path / "docs" / "figures").mkdir(parents=True)
    exec(compile(source, str(script), "exec"), {"__name__": "__main__", "__file__": str(script)})
    assert (tmp_path / "docs" / "figures" / "counter.svg").read_text() == committed


@pytest.fixture(scope="module")
def made():
    """The script that makes every table and figure of the results."""
    spec = importlib.util.spec_from_file_location("results", ROOT / "tools" / "results.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_every_page_of_results_matches_its_files(made):
    """`make results` would change nothing: results/NAME/README.md and the README's tables."""
    folders = made.folders()
    assert folders
    for folder in folders:
        assert (folder / "README.md").read_text() == made.page(folder), folder
        for scale, results in made.parts(folder):
            for drawing in made.drawings(folder, scale, results):
                assert (folder / f"{drawing.name}.svg").exists(), drawing.name
                assert (folder / f"{drawing.name}.png").exists(), drawing.name
    readme = (ROOT / "README.md").read_text()
    assert made.photographs(made.readme(readme)) == readme
    guide = (ROOT / "docs" / "photographs.md").read_text()
    assert made.photographs(guide) == guide


def test_the_table_of_torture_trials_matches_their_counts(made):
    page = (ROOT / "docs" / "memory-file.md").read_text()
    assert made.tortured(page) == page
    trials = [json.loads(path.read_text()) for path in made.TORTURE.glob("*.json")]
    assert {trial["trial"] for trial in trials} >= {
        "power", "disk", "flips", "kills", "readers", "files", "images", "first writers", "after commit",
        "interrupts",
    }  # fmt: skip
    assert all(trial["lost"] == 0 and trial["tried"] > 0 for trial in trials)
    assert next(trial["tried"] for trial in trials if trial["trial"] == "kills") >= 200


def test_a_figure_changed_by_hand_is_detected(made):
    text = "<!-- results:digits -->\n| logcl | 100 |\n<!-- /results:digits -->"
    assert made.readme(text) != text
    assert re.search(r"\| logcl(, [^|]*)? \| 5 \|", made.readme(text))


def test_the_table_of_the_readme_matches_the_results():
    from logcl.core.text import human_bytes, spread
    from logcl.experiments.result import Result

    readme = (ROOT / "README.md").read_text()
    rows = {"logcl": "**LogCL**", "finetune": "fine-tuning", "joint": "joint training on all raw data"}
    for method, name in rows.items():
        files = sorted((ROOT / "results" / "digits").glob(f"{method}-seed*.json"))
        results = [Result.model_validate_json(file.read_text()) for file in files]
        assert [result.seed for result in results] == [0, 1, 2, 3, 4]
        cells = (
            name,
            spread([result.final_accuracy for result in results], 3),
            spread([result.forgetting or 0.0 for result in results], 3),
            human_bytes(float(np.mean([result.memory_bytes for result in results]))),
            f"{np.mean([sum(result.seconds.values()) for result in results]):.1f}",
        )
        assert f"| {' | '.join(cells)} |" in readme
