VENV := .venv
BIN := $(VENV)/bin
PYTHON ?= python3
READY := $(VENV)/.ready
# Two test processes on two cores, each with one thread of arithmetic. Each begins with one half of the tests, so that the
# tests of a file share fixtures, and the first to end takes tests from the other.
TEST := OMP_NUM_THREADS=1 $(BIN)/python -m pytest -q -n 2 --dist worksteal
MINUTES ?= 5
# An environment with the packages of the extras that `dev` leaves out. It uses the other packages of $(VENV).
EXTRAS := $(VENV)/extras
EXTRAS_TESTS := tests/data/own/test_tables.py tests/runs/test_pretrained.py tests/runs/test_results_parquet.py \
  tests/runs/test_trackio.py tests/runs/test_wandb.py

.PHONY: clean-kernels help demo wheel test test-wheel test-extras test-browser test-slow test-faults test-gpu test-all browser check format bench docs evidence clean

help:
	@echo "make demo       train, score and draw on built-in data, about a minute"
	@echo "make test       the tests CI runs"
	@echo "make test-browser  those that need Chromium, which 'make browser' installs where apt can"
	@echo "make wheel      build the wheels of unbraid and unbraid-metrics; make test-wheel tries them in fresh environments"
	@echo "make test-extras  the tests of optional packages: Parquet, AnnData, Hugging Face, wandb, Trackio"
	@echo "make test-faults  MINUTES=5 of generated faults (input, kills, concurrent commands, full disks, hostile folders), half"
	@echo "                on each of two cores; SEED=1 repeats a seed"
	@echo "make test-slow  the slow ones; make test-gpu those that need CUDA; make test-all everything that can run here"
	@echo "make check      ruff and mypy --strict"
	@echo "make format     let ruff rewrite"
	@echo "make bench      measure; results go to benchmarks/results"
	@echo "make evidence   show which parts of the long reproductions are finished, and run the next part if there is a GPU"
	@echo "make docs       update the generated pages and build the documentation: docs/_build/html/index.html"

$(READY): pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e ".[dev]"
	@touch $@

demo: $(READY)
	$(BIN)/unbraid demo

test: $(READY)
	$(TEST)

browser:
	@command -v chromium >/dev/null || command -v chromium-browser >/dev/null || test -n "$$UNBRAID_CHROMIUM" \
	  || (apt-get update -qq && apt-get install -y -qq chromium) \
	  || (echo "Browser tests need Chromium: install it, or name it in UNBRAID_CHROMIUM." >&2; exit 1)

test-browser: $(READY) browser
	$(TEST) -m browser tests/browser

wheel: $(READY)
	$(BIN)/python -m pip wheel --quiet --no-deps --no-build-isolation --wheel-dir dist . packaging/metrics
	@echo "The wheels are in dist."

test-wheel: $(READY)
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -q -m slow tests/distribution

# Trackio does not accept the pinned version of pillow.
$(EXTRAS)/.ready: $(READY)
	$(BIN)/python -m venv --clear $(EXTRAS)
	$(BIN)/python -c "import sysconfig; print('import site; site.addsitedir(%r)' % sysconfig.get_path('purelib'))" \
	  > $$($(EXTRAS)/bin/python -c "import sysconfig; print(sysconfig.get_path('purelib'))")/venv.pth
	sed 's/^pillow==.*/pillow==12.3.0/' constraints.txt > $(EXTRAS)/constraints.txt
	$(EXTRAS)/bin/python -m pip install --quiet --disable-pip-version-check -c $(EXTRAS)/constraints.txt \
	  -e ".[anndata,hub,parquet,trackio,wandb]" datasets
	@touch $@

test-extras: $(EXTRAS)/.ready
	$(EXTRAS)/bin/python -c "import anndata, datasets, huggingface_hub, pyarrow, trackio, wandb"
	OMP_NUM_THREADS=1 $(EXTRAS)/bin/python -m pytest -q -m "not gpu" $(EXTRAS_TESTS)

test-slow: $(READY)
	$(TEST) -m "slow and not gpu"

test-faults: $(READY)
	cd tests && OMP_NUM_THREADS=1 ../$(BIN)/python -m faults.campaign --minutes $(MINUTES) --processes 2 $(if $(SEED),--seed $(SEED)) $(FAULTS)

test-gpu: $(READY)
	$(BIN)/python -m pytest -q -m gpu

test-all: test test-extras test-browser test-slow

check: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

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
	$(BIN)/python benchmarks/bench_known_codes.py
	$(BIN)/python benchmarks/bench_metrics.py
	cd docs && ../$(BIN)/python -m generate

evidence: $(READY)
	$(BIN)/python evidence/parts.py $$($(BIN)/python -c 'import torch; print("--run" * torch.cuda.is_available())')

docs: $(READY)
	cd docs && ../$(BIN)/python -m generate
	$(BIN)/sphinx-build --quiet --fresh-env --fail-on-warning --jobs 2 docs docs/_build/html
	$(BIN)/python -m pytest -q -m site tests/documentation
	@echo "The documentation is in docs/_build/html/index.html."

clean-kernels:
	find src -name '*.nb[ci]' -delete

clean:
	rm -rf $(VENV) build dist docs/_build .mypy_cache .ruff_cache .pytest_cache .hypothesis
