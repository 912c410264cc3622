# Every target sets up what it needs: a virtual environment in .venv, once per change of the pins.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed

# pip would compile all files, of which most are never imported.
INSTALL = $(BIN)/pip install --quiet --disable-pip-version-check --no-compile -c constraints.txt

.PHONY: demo test tests check docs certify citizen distributed example fuzz slow regenerate clean

# What is imported is compiled once: each of the tests' hundreds of processes would do so again.
export PYTHONDONTWRITEBYTECODE =

# Material for MkDocs advertises its successor on each run.
export NO_MKDOCS_2_WARNING = 1

demo: $(STAMP)  ## generate the swish op from its formula and print the verification table
	$(BIN)/autofn gen formulas/swish.py -o build/demo/generated

# Types take one processor for as long as a minute, beside which tests may begin.
test: $(STAMP)  ## everything that must hold before a commit
	$(MAKE) --no-print-directory --jobs 2 check tests

tests: $(STAMP)
	$(BIN)/pytest -n 2 --dist worksteal

slow: $(STAMP)  ## the tests that take a minute or more each
	$(BIN)/pytest -m slow --timeout 0

check: $(STAMP)  ## lint, formatting, types, and the documentation without a warning
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy
	$(BIN)/mkdocs build --quiet --strict

docs: $(STAMP)  ## the documentation on http://127.0.0.1:8000, rebuilt as it is edited
	$(BIN)/mkdocs serve

certify: $(STAMP)  ## errors of the library in ULP, against the bars: benchmarks/certificate.md
	$(BIN)/python benchmarks/certify.py

citizen: $(STAMP)  ## formula by feature of PyTorch, goes on where it was stopped: docs/citizen.md
	PYTHONPATH=tests $(BIN)/python -m citizen

distributed: $(STAMP)  ## a transformer over four processes, against one: docs/distributed.md
	$(BIN)/python examples/distributed/train.py

example: $(STAMP)  ## trains new activations against old ones: examples/new_activation/results.md
	$(BIN)/autofn gen examples/new_activation/candidates.py -o examples/new_activation/activations --check
	$(BIN)/python examples/new_activation/compare.py

regenerate: $(STAMP)  ## all that is committed and generated, unverified
	$(BIN)/autofn gen formulas -o generated --no-verify --force -q
	$(BIN)/autofn gen examples/new_activation/candidates.py -o examples/new_activation/activations --no-verify --force -q
	$(BIN)/python docs/figures.py

fuzz: $(STAMP)  ## random formulas against mpmath
	$(BIN)/python tests/fuzz.py

clean:
	rm -rf $(VENV) build dist

$(STAMP): pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(INSTALL) torch==2.13.0
	$(INSTALL) -e '.[dev]'
	touch $@
