# Each target makes the virtual environment it needs from the pins in constraints.txt; nothing is installed by hand.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin

.PHONY: demo test check docs style format build clean

demo: $(VENV)/.demo  ## export, verify, quantize and search with the real MiniLM
	@$(BIN)/python samples/demo.py

test: $(VENV)/.dev  ## every test, with the ones that fetch real checkpoints
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n auto --dist loadfile

check: $(VENV)/.dev  ## ruff, mypy and the import contracts
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

docs: $(VENV)/.docs  ## the site of the documentation in build/site
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --quiet

style: $(VENV)/.dev  ## the figures of layout and language, each beside its limit
	@$(BIN)/python -m tests.support.style

format: $(VENV)/.dev  ## let ruff format and sort
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

build: $(VENV)/.dev  ## sdist and wheel in dist/
	$(BIN)/python -m build --quiet --outdir dist .

clean:
	rm -rf $(VENV) build dist .demo .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis

$(VENV)/.pip: constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 10) and "edgebert needs Python 3.10 or newer, this is " + sys.version)'
	@echo "Making $(VENV) from constraints.txt (a few minutes the first time) ..."
	@$(PYTHON) -m venv $(VENV)
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt --upgrade pip
	@touch $@

$(VENV)/.demo: $(VENV)/.pip pyproject.toml
	@echo "Installing edgebert with ONNX Runtime and torch, which is the largest (about 200 MB) ..."
	@$(BIN)/python -m pip install --quiet -c constraints.txt -e '.[cpu,export]'
	@touch $@

$(VENV)/.dev: $(VENV)/.demo
	@echo "Installing the tools of development ..."
	@$(BIN)/python -m pip install --quiet -c constraints.txt --group dev
	@touch $@

$(VENV)/.docs: $(VENV)/.pip pyproject.toml
	@$(BIN)/python -m pip install --quiet -c constraints.txt --group docs
	@touch $@
