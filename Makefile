# Two commands matter: `make demo` and `make test`. Both set everything up first.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
export OMP_NUM_THREADS ?= 1

.PHONY: demo test lint bench docs lock clean

demo: $(READY)  ## learn scikit-learn's digits privately; writes demo-run/
	rm -rf demo-run
	$(BIN)/ostraka learn --out demo-run

test: $(READY)  ## style, types, tests and doctests
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/pytest -n 2

lint: $(READY)
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .
	$(BIN)/mypy

bench: $(READY)  ## speed, accuracy and reproductions; ratios are measured in one run
	$(BIN)/python -m benchmarks

docs: $(READY)
	$(BIN)/sphinx-build -W -q docs docs/_build

lock:  ## refresh the pins: a fresh environment, then what it resolved to
	rm -rf $(VENV) && $(PYTHON) -m venv $(VENV)
	$(BIN)/pip install -q -e ".[plots,ray,dask,test,lint,docs]"
	$(BIN)/pip freeze --exclude-editable > constraints.txt

$(READY): pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install -q --disable-pip-version-check -c constraints.txt -e ".[plots,ray,dask,test,lint,docs]"
	touch $@

clean:
	rm -rf $(VENV) demo-run docs/_build
