# Two commands matter: `make demo` and `make test`. Both set everything up first.
PYTHON ?= python3
# another PYTHON gets an environment of its own: .venv-python3.13
VENV := .venv$(if $(filter-out python3,$(notdir $(PYTHON))),-$(notdir $(PYTHON)))
BIN := $(VENV)/bin
SHOWN := $(VENV)/.shown
READY := $(VENV)/.ready
export OMP_NUM_THREADS ?= 1
# compiled modules are kept, though the shell says otherwise: tests start hundreds of processes
export PYTHONDONTWRITEBYTECODE :=

CHROMIUM := chromium --headless --no-sandbox --disable-gpu --hide-scrollbars

.PHONY: demo pictures test slow quick lint machine npm bench results reproduce soak check release docs lock lowest clean

demo: $(SHOWN)  ## learn from made-up hospital visits, then from digits, at epsilon 1; writes demo-run/
	rm -rf demo-run
	$(BIN)/ostraka sample demo-run
	$(BIN)/ostraka learn demo-run/private.csv --label readmitted --public demo-run/public.csv --person patient --yes --out demo-run/hospital
	$(BIN)/ostraka learn --out demo-run/digits

pictures: demo  ## the pictures of the README and of the landing page, from the demo; needs Chromium
	$(BIN)/ostraka synth schema demo-run/public.csv --out demo-run/schema.toml
	$(BIN)/ostraka synth table demo-run/private.csv --schema demo-run/schema.toml --target readmitted --person patient --yes --out demo-run/table
	$(BIN)/ostraka collect demo --out demo-run/collect
	$(BIN)/ostraka audit mechanism gnmax --votes 14,12,10 --neighbour 13,13,10 --sigma 4 --figure demo-run/audit.svg
	cp demo-run/audit.svg docs/picture_audit.svg
	$(CHROMIUM) --window-size=900,960 --screenshot=docs/picture_learn.png demo-run/hospital/report.html
	$(CHROMIUM) --window-size=900,1000 --screenshot=docs/picture_table.png demo-run/table/report.html
	$(CHROMIUM) --window-size=1060,560 --screenshot=docs/picture_collect.png demo-run/collect/report.html

# Three processes on two cores: many tests wait for services and their clocks. Kernels are compiled once, as
# wheels have them: else every process waits for numba. Without a C compiler, numba it is. Tests that changed
# are collected once before: else each process rewrites the asserts of all files for itself. Types are checked
# meanwhile, and what mypy says comes last.
COLLECTED := $(VENV)/.collected
test: $(READY)  ## style, types, doctests and all tests but the slow ones
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	@$(BIN)/mypy >$(VENV)/.types 2>&1 & types=$$!; \
	$(BIN)/python hatch_build.py; \
	if find tests -name '*.py' $(if $(wildcard $(COLLECTED)),-newer $(COLLECTED)) | grep -q .; \
	then touch $(COLLECTED); $(BIN)/pytest --collect-only -qq >/dev/null; fi; \
	$(BIN)/pytest -n 3 --dist worksteal -m "not slow"; tests=$$?; \
	wait $$types; types=$$?; cat $(VENV)/.types; exit $$((tests | types))

slow: $(READY)  ## the tests marked slow, each of which has a quick form that make test runs
	$(BIN)/python hatch_build.py
	$(BIN)/pytest -n 3 --dist worksteal -m slow

quick: $(READY)  ## style and the fast tests, within a minute; types are checked by lint, before a commit and in test
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/pytest -n 2 -q -m "not slow and not statistical and not cluster" tests/contracts tests/core/mechanisms tests/core/test_*.py tests/report tests/data tests/test_*.py --deselect tests/test_commands.py --deselect tests/test_docs.py --deselect tests/test_imports.py --deselect tests/test_compiled.py::test_machine_code_computes_what_numba_computes --deselect tests/test_mutants.py --deselect tests/core/test_new_mechanism.py --deselect tests/test_typing.py --deselect tests/test_without_torch.py --deselect tests/report/test_report_in_browser.py --deselect tests/test_layers.py::test_importing_loads_little_and_torch_only_by_what_needs_it

lint: $(READY)
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .
	$(BIN)/mypy

machine: $(READY)  ## machine code of the kernels beside the sources, as wheels have it
	$(BIN)/python hatch_build.py

npm:  ## the npm package @ostraka/collect from the files of the page, and its archive, in dist
	python3 packaging/npm.py dist/npm

bench: $(READY)  ## speed and accuracy; ratios are measured in one run
	$(BIN)/python -m bench

results: $(READY)  ## the tables of results: three runs of each command, on a quiet machine
	$(BIN)/python -m results

reproduce: $(READY)  ## the papers' tables and figures beside ours; needs the shared data sets, takes hours
	for name in accounting wang2022 chadha2024 capc_secret papernot2017 malek2021 malek2021_memorisation; do $(BIN)/python -m reproduce $$name || exit 1; done

soak: $(READY)  ## crashes, power cuts, races and floods against ledger and service, at length
	$(BIN)/python -m rigs

check: $(READY)  ## known vulnerabilities of the pins, and a CycloneDX bill of materials in sbom.json
	test -x $(VENV)-check/bin/pip-audit || $(PYTHON) -m venv $(VENV)-check
	$(VENV)-check/bin/pip install -q --disable-pip-version-check pip-audit cyclonedx-bom
	$(VENV)-check/bin/cyclonedx-py environment $(BIN)/python --output-file sbom.json
	if printf 'jinja2==2.4.1\n' | $(VENV)-check/bin/pip-audit --no-deps --disable-pip -r /dev/stdin >/dev/null 2>&1; \
	then echo "pip-audit has no data: it passes a release with known vulnerabilities" >&2; exit 1; fi
	$(VENV)-check/bin/pip-audit --strict --no-deps --disable-pip -r constraints.txt

release: check  ## wheel, source archive, bill of materials and provenance in dist/; SOURCE=https://… is the repository, KEY an Ed25519 key that signs
	test -n "$(SOURCE)" || { echo "type make release SOURCE=https://… KEY=release.pem" >&2; exit 1; }
	rm -rf dist
	$(VENV)-check/bin/pip install -q --disable-pip-version-check build
	$(VENV)-check/bin/python -m build --outdir dist .
	cp sbom.json dist/
	$(BIN)/python packaging/provenance.py dist --source $(SOURCE) $(if $(KEY),--key $(KEY))

docs: $(READY)
	$(BIN)/sphinx-build -W -q docs docs/_build

# soupsieve 3.0.2 and later need Python 3.11.5, where Debian 12 has 3.11.2
lock:  ## refresh the pins: a fresh environment, then what it resolved to
	rm -rf $(VENV) && $(PYTHON) -m venv $(VENV)
	$(BIN)/pip install -q -e ".[plots,compile,excel,onnx,ray,dask,llm,service,oidc,pkcs11,torch,test,lint,docs]" "soupsieve<3.0.2"
	$(BIN)/pip freeze --exclude-editable | sed "s/+cpu//" > constraints.txt

$(SHOWN): pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install -q --disable-pip-version-check -c constraints.txt -e ".[plots,compile]"
	touch $@

$(READY): $(SHOWN)
	$(BIN)/python -m pip install -q --disable-pip-version-check -c constraints.txt -e ".[plots,compile,excel,onnx,ray,dask,llm,service,oidc,pkcs11,torch,test,lint,docs]"
	touch $@

# wheels of versions so low are there for the oldest Python that is supported
LOWEST := $(VENV)-lowest
lowest:  ## the lowest allowed version of every dependency, and what a first user runs, with Python 3.11
	rm -rf $(LOWEST) && $(PYTHON) -m venv $(LOWEST)
	$(LOWEST)/bin/pip install -q --disable-pip-version-check uv
	VIRTUAL_ENV=$(LOWEST) $(LOWEST)/bin/uv pip install -q --resolution lowest-direct -e ".[compile,plots]" \
	  "pytest>=8.3" "hypothesis>=6.120" "pandas>=2.2" "mpmath>=1.3"
	$(LOWEST)/bin/pytest -q -x tests/core/mechanisms/test_argmax.py tests/core/ledger/test_budget.py tests/core/ledger/test_clients.py \
	  $(addprefix tests/cli/test_,sample.py synth.py typed.py handover.py table.py)  # a minute of processor

clean:
	rm -rf .venv .venv-* demo-run docs/_build dist sbom.json
