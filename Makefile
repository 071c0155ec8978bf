# The two main commands are `make compare` and `make test`. Each first creates .venv, if that is missing or outdated.
# `make gpu` uses no .venv. It needs a PYTHON whose torch sees the GPU, and WHEELS of the packages that this PYTHON lacks.
#
#   PYTHON=python3.12   the interpreter that creates .venv, 3.11 or newer
#   TORCH=2.11.0        install this version of torch instead of the pinned one
#   TORCH=system        use the torch that PYTHON has; the default if it has one
#   TORCH_INDEX=URL     take torch from this index alone, without its NVIDIA wheels, such as the index of its CPU builds
#   ARGS="--batch 64"   arguments for the command
#   WHEELS=build/wheels the folder that `make gpu-wheels` writes to and `make gpu` reads from
#   PYTHON_VERSION=3.14 the Python that `make test-python` runs the tests with: 3.11, 3.13 or 3.14
#   GPU_PYTHON=3.12     the Python version on x86-64 that `make gpu-wheels` fetches for
#   GPU_NEEDS="rich"    the packages that `make gpu-wheels` fetches, with all that they need

PYTHON ?= python3
TORCH ?= $(shell $(PYTHON) -c 'import sys, importlib.util as u; print("system" if u.find_spec("torch") and sys.prefix == sys.base_prefix else "pinned")' 2>/dev/null || echo pinned)
TORCH_INDEX ?=
ARGS ?=
WHEELS ?= build/wheels
GPU_PYTHON ?= 3.12
GPU_NEEDS ?= pydantic rich typer
PYTHON_VERSION ?= 3.14

VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready-$(TORCH)
LOCK := .ci/lock.txt
CUDA_PYTHON ?= python3.11
CUDA_TORCH ?= 2.14.1
CUDA_VENV ?= .venv-cuda/$(CUDA_TORCH)
ALONE := $(VENV)/alone
TORCH_VERSION = $(if $(filter pinned,$(TORCH)),$(shell sed -n 's/^torch==//p' constraints.txt),$(TORCH))

# Make the environment $(1) with the packages of the lock $(2), each with its hash, and a torch. torch and its NVIDIA
# wheels are outside the lock, because each machine needs another build. Where asv has no wheel, as on aarch64, pip
# builds its hashed sdist with build tools that have no hash.
define environment
	rm -rf $(1)
	$(PYTHON) -m venv $(if $(filter system,$(TORCH)),--system-site-packages) $(1)
	@test "$(TORCH)" != system || $(1)/bin/python -c 'import torch' || { echo "$(1) does not see the torch of PYTHON=$(PYTHON), for example because PYTHON is in a virtual environment; TORCH=pinned installs one" >&2; exit 2; }
	$(1)/bin/python -m pip install --quiet --no-deps --require-hashes --requirement $(2)
	grep -v '^torch==' constraints.txt > $(1)/constraints.txt
	$(if $(filter-out system,$(TORCH)),$(1)/bin/python -m pip install --quiet --constraint $(1)/constraints.txt $(if $(TORCH_INDEX),--no-deps --index-url $(TORCH_INDEX)) torch==$(TORCH_VERSION))
endef

.PHONY: compare test test-all test-python cuda-tests gpu gpu-wheels counts-check gate-counters lint dist dist-alone lock venv clean
.DELETE_ON_ERROR:

compare: $(READY)
	$(BIN)/dpbench compare $(ARGS)

# Two processes, because most tests wait for a child process. One thread in each: torch's own threads would compete.
# With byte code: without it, each of the many children compiles dpbench anew.
test: export OMP_NUM_THREADS ?= 1
test: export PYTHONDONTWRITEBYTECODE :=
test: $(READY)
	$(BIN)/python -m pytest --numprocesses 2 --dist worksteal $(ARGS)

# `make test` runs a random sample of the large test tables and prints its seed, and leaves out tests marked
# `exhaustive`. This target runs everything. It takes hours on two cores.
test-all: export DPBENCH_TEST_ALL := 1
test-all: test

# The tests with another Python, that of a Debian release. Needs root; build/roots/ keeps what it installs.
test-python:
	@.ci/test_python "$(PYTHON_VERSION)"

# Tests on a stand-in for CUDA, without a GPU. See tests/cuda_stand_in/README.md.
cuda-tests: $(CUDA_VENV)/.ready
	@$(CUDA_VENV)/bin/python tests/cuda_stand_in/build.py $(CUDA_VENV)
	@$(CUDA_VENV)/bin/python tests/on_cuda/run.py $(CUDA_VENV) $(ARGS)

$(CUDA_VENV)/.ready: $(LOCK) pyproject.toml
	@$(CUDA_PYTHON) -c 'import sys; sys.exit(sys.version_info[:2] not in ((3, 11), (3, 12)))' 2>/dev/null || { echo "cuda-tests: CUDA_PYTHON=$(CUDA_PYTHON) is not allowed; allowed: CPython 3.11 or 3.12" >&2; exit 2; }
	@command -v g++ >/dev/null || { echo "cuda-tests: no C++ compiler: g++ is not on PATH" >&2; exit 2; }
	rm -rf $(CUDA_VENV)
	$(CUDA_PYTHON) -m venv $(CUDA_VENV)
	@$(CUDA_VENV)/bin/python -m pip install --quiet --no-deps torch===$(CUDA_TORCH) || { echo "cuda-tests: no wheel of torch $(CUDA_TORCH) for this machine" >&2; exit 2; }
	$(CUDA_VENV)/bin/python -m pip install --quiet --no-deps --require-hashes --requirement $(LOCK)
	$(CUDA_VENV)/bin/python -m pip install --quiet --no-deps --no-build-isolation --editable .
	touch $@

gpu:
	@$(PYTHON) -m benchmarks.instruments.on_gpu --wheels "$(WHEELS)" $(ARGS)

# The packages that a machine for deep learning may lack, 5 MiB. GPU_NEEDS="pydantic rich scipy" fetches more.
gpu-wheels: $(READY)
	$(BIN)/python .ci/lock.py $(GPU_NEEDS) > $(VENV)/gpu.txt
	$(PYTHON) -m pip download --quiet --no-deps --require-hashes --requirement $(VENV)/gpu.txt --dest "$(WHEELS)" \
	  --only-binary=:all: --implementation cp --python-version $(GPU_PYTHON) $(patsubst %,--platform manylinux%_x86_64,_2_28 _2_17 2014) $(ARGS)
	@du -sh "$(WHEELS)"

counts-check: $(READY)
	$(BIN)/dpbench counts --check

# Tier 0 of the gate, applied to this project: compare the exact counts of a step with those of the commit before.
gate-counters: $(READY)
	@if git rev-parse --quiet --verify HEAD~1 >/dev/null; then \
	  $(BIN)/dpbench gate --base HEAD~1 --tiers 0 $(ARGS); \
	else echo "gate: this clone ends at HEAD, so there is no commit to compare it with"; fi

lint: $(READY)
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/zizmor --offline --quiet .github dpbench/gate/workflows/*.yml

# Build the sdist and the wheel in dist/. Install each in a new environment and test it outside the checkout.
dist: $(READY)
	$(BIN)/python .ci/dist.py

# `make dist` borrows the packages of .venv. Here the wheel gets those that it declares, and no others.
# doctor exits with 1 if the machine disturbs measurements. That says nothing about the wheel.
dist-alone: dist
	$(BIN)/python .ci/lock.py torch-dpbench > $(ALONE).txt
	$(call environment,$(ALONE),$(ALONE).txt)
	$(ALONE)/bin/python -m pip install --quiet --no-deps dist/*.whl
	$(ALONE)/bin/python -m pip check
	cd / && "$(CURDIR)/$(ALONE)/bin/dpbench" list
	cd / && "$(CURDIR)/$(ALONE)/bin/dpbench" doctor || test $$? -eq 1

# Write the hash of every file of each pinned version, so that one lock fits all platforms and Python versions.
lock:
	test -x $(BIN)/uv || $(MAKE) venv
	grep -v '^torch==' constraints.txt | $(BIN)/uv pip compile - --quiet --no-config --no-deps --universal --python-version 3.11 \
	  --generate-hashes --no-annotate --custom-compile-command 'make lock' --output-file $(LOCK)

clean:
	rm -rf $(VENV) .asv build dist *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache

venv: $(READY)

# The stamp file is written last, so a .venv whose installation failed is deleted and created again.
$(READY): constraints.txt pyproject.toml $(LOCK)
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "dpbench needs Python 3.11 or newer; PYTHON=$(PYTHON) is $$($(PYTHON) --version 2>&1)" >&2; exit 2; }
	$(call environment,$(VENV),$(LOCK))
	$(BIN)/python -m pip install --quiet --no-deps --no-build-isolation --editable .
	touch $@
