VENV := .venv
BIN := $(VENV)/bin
PYTHON ?= python3
READY := $(VENV)/.ready
# Two test processes on two cores, each with one thread of arithmetic.
TEST := OMP_NUM_THREADS=1 $(BIN)/python -m pytest -q -n 2

.PHONY: clean-kernels help demo test test-slow test-gpu test-all check format bench docs clean

help:
	@echo "make demo       train, score and draw on built-in data, about a minute"
	@echo "make test       the tests CI runs"
	@echo "make test-slow  the slow ones; make test-gpu those that need CUDA; make test-all everything that can run here"
	@echo "make check      ruff and mypy --strict"
	@echo "make format     let ruff rewrite"
	@echo "make bench      measure; results go to benchmarks/results"
	@echo "make docs       bring the generated tables up to date and run every example in README.md and docs/"

$(READY): pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e ".[dev]"
	@touch $@

demo: $(READY)
	$(BIN)/unbraid demo

test: $(READY)
	$(TEST)

test-slow: $(READY)
	$(TEST) -m "slow and not gpu"

test-gpu: $(READY)
	$(BIN)/python -m pytest -q -m gpu

test-all: test test-slow

check: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

format: $(READY)
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

bench: $(READY)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e ".[bench]"
	$(BIN)/python benchmarks/bench_dsprites.py
	$(BIN)/python benchmarks/bench_shapes3d.py
	$(BIN)/python benchmarks/bench_sampling.py
	$(BIN)/python benchmarks/bench_train.py
	$(BIN)/python benchmarks/bench_precision.py --seeds 6 --steps 1600
	$(BIN)/python benchmarks/bench_planted.py
	$(BIN)/python benchmarks/bench_metrics.py
	$(BIN)/python docs/tables.py

docs: $(READY)
	$(BIN)/python docs/tables.py
	$(BIN)/python -m pytest -q tests/test_docs.py -m "slow or not slow"

clean-kernels:
	find src -name '*.nb[ci]' -delete

clean:
	rm -rf $(VENV) build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis
