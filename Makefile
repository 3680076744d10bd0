# The whole set-up lives in .venv. Stamp files in it remember what is installed, so a second run starts at once.
PYTHON ?= python3
# TORCH=cpu or TORCH=cuda overrules the choice of scripts/torch_index.py. To change it later: make clean first.
TORCH ?=
# More arguments for JupyterLab, as in: make lab LAB_ARGS="--no-browser --port 9000"
LAB_ARGS ?=
# JupyterLab asks for a word of consent before it runs as root, as in a container.
ROOT_ARGS := $(if $(filter 0,$(shell id -u)),--allow-root)
BIN := .venv/bin

.PHONY: help lab test bench notebooks solutions site clean

help:
	@echo "make lab        set up .venv and open the first notebook in JupyterLab"
	@echo "make test       set up the tests too, then run every check"
	@echo "make bench      run the benchmarks"
	@echo "make notebooks  link the notebooks in their order, run them all and store their outputs"
	@echo "make solutions  make solutions and student versions from notebooks/exercises/source"
	@echo "make site       build the static edition, pages to read without a kernel: build/site/index.html"
	@echo "make clean      remove .venv, caches and build files"

lab: .venv/.lab
	$(BIN)/jupyter lab $(ROOT_ARGS) --LabApp.default_url=/lab/tree/notebooks/00_start_here.ipynb $(LAB_ARGS)

test: .venv/.test
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/pytest -n 2 --dist loadfile --nbval --nbval-current-env --nbval-sanitize-with tests/notebooks/sanitize.cfg tests notebooks

bench: .venv/.lab
	@set -e; for script in benchmarks/bench_*.py; do echo "== $$script"; $(BIN)/python "$$script"; done

notebooks: .venv/.test
	$(BIN)/python scripts/navigation.py
	$(BIN)/python tests/notebooks/refresh.py

solutions: .venv/.test
	$(BIN)/python tests/notebooks/solutions.py

site: .venv/.site
	rm -rf build/site
	$(BIN)/python -m sphinx -q -E -W --keep-going -c site -d build/doctrees . build/site
	@echo "open build/site/index.html"

.venv/.lab: requirements.txt pyproject.toml
	@$(PYTHON) -c 'import sys; v = sys.version_info; v >= (3, 11) or sys.exit("pplab needs Python 3.11 or newer, but $(PYTHON) is %d.%d. Name another one, for example: make lab PYTHON=python3.12" % v[:2])'
	$(PYTHON) -m venv .venv
	extra=$$(TORCH="$(TORCH)" $(PYTHON) scripts/torch_index.py) && $(BIN)/pip install $$extra -r requirements.txt -e .
	@touch $@

.venv/.site: .venv/.lab site/requirements.txt
	$(BIN)/pip install -q -r requirements.txt -r site/requirements.txt
	@touch $@

.venv/.test: .venv/.site tests/requirements.txt
	$(BIN)/pip install -q -r requirements.txt -r site/requirements.txt -r tests/requirements.txt
	@touch $@

clean:
	rm -rf .venv build dist *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find . \( -name __pycache__ -o -name .ipynb_checkpoints \) -prune -exec rm -rf {} +
