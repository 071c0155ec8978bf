# Two commands matter: `make compare` and `make test`. Both set everything up in .venv first, once.
# On a box with a GPU `make gpu` needs no .venv: only a PYTHON whose torch sees the GPU, and WHEELS of what that lacks.
#
#   PYTHON=python3.12   the interpreter that .venv is made from (3.11 or newer)
#   TORCH=2.11.0        another torch than the pinned one
#   TORCH=system        the torch that PYTHON already has; the default where it has one
#   ARGS="--batch 64"   passed on to the command
#   WHEELS=build/wheels where `make gpu-wheels` puts wheels, for GPU_PYTHON=3.12 on x86-64, and `make gpu` looks for them

PYTHON ?= python3
TORCH ?= $(shell $(PYTHON) -c 'import sys, importlib.util as u; print("system" if u.find_spec("torch") and sys.prefix == sys.base_prefix else "pinned")' 2>/dev/null || echo pinned)
ARGS ?=
WHEELS ?= build/wheels
GPU_PYTHON ?= 3.12

VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready-$(TORCH)

.PHONY: compare test gpu gpu-wheels lint asv-html clean counts-check gate-counters
.DELETE_ON_ERROR:

compare: $(READY)
	$(BIN)/dpbench compare $(ARGS)

# Two at a time: most tests wait for children of their own.
test: $(READY)
	$(BIN)/python -m pytest --numprocesses 2 --dist worksteal $(ARGS)

gpu:
	@$(PYTHON) benchmarks/on_gpu.py --wheels "$(WHEELS)" $(ARGS)

# All that dpbench and its tests need, but for what comes with a torch: that, numpy and scipy. 5 MiB.
gpu-wheels:
	$(PYTHON) -m pip download --quiet --dest "$(WHEELS)" --constraint constraints.txt --only-binary=:all: \
	  --implementation cp --python-version $(GPU_PYTHON) $(patsubst %,--platform manylinux%_x86_64,_2_28 _2_17 2014) \
	  nvidia-ml-py psutil pydantic pytest pytest-timeout rich typer $(ARGS)
	@du -sh "$(WHEELS)"

counts-check: $(READY)
	$(BIN)/dpbench counts --check

# The gate's tier 0 on this project itself: does a step of the wrapper ask for more than it did a commit ago?
gate-counters: $(READY)
	@if git rev-parse --quiet --verify HEAD~1 >/dev/null; then \
	  $(BIN)/dpbench gate --base HEAD~1 --tiers 0 $(ARGS); \
	else echo "gate: this clone ends at HEAD, so there is no commit to hold it against"; fi

lint: $(READY)
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports

# The pages of asv's results, made to work where there is no internet; `asv preview` serves them.
asv-html: $(READY)
	$(BIN)/asv publish
	$(BIN)/python benchmarks/asv_html.py $(ARGS)

clean:
	rm -rf $(VENV) .asv build dist *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache

# Made in one go or not at all: the stamp comes last, and a .venv without its stamp is made anew.
$(READY): constraints.txt pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "dpbench needs Python 3.11 or newer; PYTHON=$(PYTHON) is $$($(PYTHON) --version 2>&1)" >&2; exit 2; }
	rm -rf $(VENV)
	$(PYTHON) -m venv $(if $(filter system,$(TORCH)),--system-site-packages) $(VENV)
	@case "$(TORCH)" in \
	  pinned) cp constraints.txt $(VENV)/constraints.txt ;; \
	  system) $(BIN)/python -c 'import torch' || { echo "$(VENV) does not see the torch of PYTHON=$(PYTHON), for one because that is a virtual environment itself; TORCH=pinned installs one" >&2; exit 2; }; \
	          grep -v '^torch==' constraints.txt > $(VENV)/constraints.txt ;; \
	  *) sed 's/^torch==.*/torch==$(TORCH)/' constraints.txt > $(VENV)/constraints.txt ;; \
	esac
	$(BIN)/python -m pip install --quiet --constraint $(VENV)/constraints.txt setuptools wheel
	$(BIN)/python -m pip install --quiet --constraint $(VENV)/constraints.txt --no-build-isolation --editable '.[dev]'
	touch $@
