# Every target sets up what it needs: a virtual environment in .venv, once per change of the pins.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed

.PHONY: demo test check certify citizen clean

demo: $(STAMP)  ## generate the swish op from its formula and print the verification table
	$(BIN)/autofn gen formulas/swish.py -o build/demo/generated

test: check  ## everything that must hold before a commit
	$(BIN)/pytest -n 2

check: $(STAMP)  ## lint, formatting and types
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy

certify: $(STAMP)  ## errors of the library in ULP, against the bars: benchmarks/certificate.md
	$(BIN)/python benchmarks/certify.py

citizen: $(STAMP)  ## formula by feature of PyTorch, goes on where it was stopped: docs/citizen.md
	PYTHONPATH=tests $(BIN)/python -m citizen

clean:
	rm -rf $(VENV) build dist

$(STAMP): pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt torch==2.13.0
	$(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev]'
	touch $@
