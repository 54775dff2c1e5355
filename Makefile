# `make demo` and `make test` are all that a user needs; both set themselves up.
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.geartrain-setup
# What the installed package is made from, apart from Python files (they are used in place).
INSTALLED_FROM := pyproject.toml constraints.txt scripts/setup.sh $(shell find kernels/native -type f -not -path '*/stress/*' 2>/dev/null)

# Four unlike cards, emulated: the CPU computes every step, and then waits as long as the card would still need.
DEMO_CARDS := name=A100,samples_per_s=6000 name=RTX4000,samples_per_s=4000 name=T4,samples_per_s=2000 name=T4,samples_per_s=2000

.PHONY: setup demo test test-slow check bench sanitize
.DEFAULT_GOAL := setup

setup: $(STAMP)

$(STAMP): $(INSTALLED_FROM)
	@scripts/setup.sh $(VENV)
	@touch $@

demo: $(STAMP)
	@$(BIN)/geartrain data movielens-100k --directory data
	@GEARTRAIN_DATA=$(CURDIR)/data $(BIN)/geartrain train examples/movielens_100k_deepfm.yaml --server-num 2 \
	  --set training.batch_size=2048 $(foreach card,$(DEMO_CARDS),--device emulate:$(card))

check: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

test: check
	$(BIN)/python -m pytest

test-slow: $(STAMP)
	$(BIN)/python -m pytest -m slow

bench: $(STAMP)
	$(BIN)/geartrain bench end-to-end
	$(BIN)/geartrain bench kernels
	$(BIN)/geartrain bench tier
	$(BIN)/geartrain bench heterogeneity

sanitize: $(STAMP)
	@scripts/sanitize.sh $(VENV)
