# The way to do everything. Each target makes the environment it needs; a changed pyproject.toml renews it.
#
#   make demo         a short tour of what works, and a first training: runs/digits-cnn/report.html
#   make test         the tests                     make test ARGS="-k scan -x"
#   make test-peers   the tests against PyTorch and JAX
#   make test-oldest  some of the tests, with the oldest NumPy, SciPy and llvmlite that pyproject.toml declares
#   make test-pythons some of the tests, with every newer Python that is here and the newest NumPy and SciPy for it
#                                                 make test-oldest SMOKE=tests     all of them
#   make bench        the benchmarks                make bench ARGS="softmax gemm --quick"
#   make bench-plots  how cost grows, and the plots of the docs
#   make compared     numerical, symbolic and automatic differentiation: the plots of the docs
#   make supported    the page of supported functions, from the op table
#   make lint types docs clean

PYTHON ?= python3
JOBS ?= 2
ARGS ?=

VENV := .venv
PEERS := .venv-peers
OLDEST := .venv-oldest
PYTHONS := 3.12 3.13 3.14
# What another NumPy, SciPy or Python could break: their functions, types and C interfaces.
SMOKE := tests/test_array_api.py tests/test_numpy_table.py tests/test_elementwise_functions.py tests/test_products.py \
	tests/test_special.py tests/test_missing_names.py tests/test_semantics.py tests/test_entry.py \
	-k "not test_compiled and not test_derivatives"
PIP_FLAGS := -qq --disable-pip-version-check

.PHONY: demo test test-peers test-oldest test-pythons pythons lint types supported docs bench bench-plots compared clean
.NOTPARALLEL:

demo: $(VENV)/.installed
	@$(VENV)/bin/wonderland tour
	@echo && $(VENV)/bin/wonderland train digits-cnn --out runs/digits-cnn --overwrite

test: $(VENV)/.dev
	@$(VENV)/bin/python -m pytest tests bench -n $(JOBS) $(ARGS)

# Only here are the peers needed: exactly the PyTorch that pyproject.toml names, and JAX.
test-peers: $(PEERS)/.dev
	@$(PEERS)/bin/python -m pytest tests -m peers -n $(JOBS) $(ARGS)

test-oldest: $(OLDEST)/.test
	@$(OLDEST)/bin/python -m pytest $(SMOKE) -n $(JOBS) $(ARGS)

test-pythons: pythons
	@for venv in $(PYTHONS:%=$(VENV)-%); do \
		[ ! -d $$venv ] || { echo "$$venv" && $$venv/bin/python -m pytest $(SMOKE) -n $(JOBS) $(ARGS); } || exit 1; \
	done

# By their names, or as pyenv keeps them: its python3.12 is there, but fails where that version isn't the chosen one.
pythons:
	@for version in $(PYTHONS); do \
		for python in python$$version "$$HOME"/.pyenv/versions/$$version.*/bin/python; do \
			if "$$python" --version >/dev/null 2>&1; then \
				$(MAKE) --no-print-directory $(VENV)-$$version/.test PYTHON="$$python" || exit 1; break; \
			fi; \
		done; \
	done

lint: $(VENV)/.dev
	@$(VENV)/bin/ruff check .

types: $(VENV)/.dev
	@$(VENV)/bin/pyright --pythonpath $(VENV)/bin/python
	@$(VENV)/bin/python tests/type_completeness.py

supported: $(VENV)/.installed
	@$(VENV)/bin/python -m wonderland.testing.supported docs/supported.md

docs: $(VENV)/.docs
	@NO_MKDOCS_2_WARNING=1 $(VENV)/bin/mkdocs build -q --strict
	@echo "site/index.html"

# The table, with table.json and table.png in bench/results.
bench: $(PEERS)/.bench
	@$(PEERS)/bin/python -m bench $(ARGS) --out bench/results

# Measures how cost grows, and draws that and the last table into docs/images; ARGS=--redraw only draws.
bench-plots: $(PEERS)/.bench
	@$(PEERS)/bin/python -m bench.growth $(ARGS) --out bench/results --images docs/images
	@$(PEERS)/bin/python -m bench.strategies $(ARGS) --out bench/results --images docs/images
	@$(PEERS)/bin/python -m bench.newton --images docs/images
	@$(PEERS)/bin/python -m bench.sparse $(ARGS) --out bench/results --images docs/images
	@$(PEERS)/bin/python -m bench.lower_bound $(ARGS) --out bench/results --images docs/images
	@$(PEERS)/bin/python -m bench.memory_of_steps $(ARGS) --out bench/results --images docs/images
	@$(PEERS)/bin/python -m bench.attention_memory --images docs/images
	@$(PEERS)/bin/python -m bench.context_memory $(ARGS) --out bench/results --images docs/images
	@$(PEERS)/bin/python -m bench.estimators $(ARGS) --out bench/results --images docs/images

# Counts, so that nothing but the seconds depends on the machine; ARGS="error memory" for some of the plots.
compared: $(VENV)/.dev
	@$(VENV)/bin/python -m bench.compared $(ARGS) --images docs/images

clean:
	rm -rf $(VENV) $(VENV)-* build dist site .pytest_cache .ruff_cache .hypothesis
	find . -name __pycache__ -prune -exec rm -rf {} +

define make_venv
@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
	echo "wonderland needs Python 3.11 or newer; $(PYTHON) is $$($(PYTHON) --version 2>&1). Try: make PYTHON=python3.12" >&2; exit 1; }
@echo "preparing $(@D)"
@$(PYTHON) -m venv $(@D)
endef

$(VENV)/.installed: pyproject.toml
	$(make_venv)
	@$(VENV)/bin/python -m pip install $(PIP_FLAGS) -e '.[studio,data]'
	@$(VENV)/bin/python -m compileall -q wonderland
	@touch $@

$(VENV)/.dev: $(VENV)/.installed
	@$(VENV)/bin/python -m pip install $(PIP_FLAGS) -e '.[dev]'
	@touch $@

$(VENV)/.docs: $(VENV)/.installed
	@$(VENV)/bin/python -m pip install $(PIP_FLAGS) -e '.[docs]'
	@touch $@

$(OLDEST)/.test: pyproject.toml
	$(make_venv)
	@sed -n 's/^    "\([a-z]*\)>=\(.*\)",$$/\1==\2/p' pyproject.toml >$(@D)/oldest.txt
	@$(@D)/bin/python -m pip install $(PIP_FLAGS) -e '.[test]' -c $(@D)/oldest.txt
	@touch $@

$(VENV)-3.%/.test: pyproject.toml
	$(make_venv)
	@$(@D)/bin/python -m pip install $(PIP_FLAGS) -e '.[test]'
	@touch $@

$(PEERS)/.bench: $(PEERS)/.dev
	@$(PEERS)/bin/python -m pip install $(PIP_FLAGS) -e '.[bench]'
	@touch $@

$(PEERS)/.dev: pyproject.toml
	$(make_venv)
	@$(PEERS)/bin/python -m pip install $(PIP_FLAGS) -e '.[dev,peers]'
	@touch $@
