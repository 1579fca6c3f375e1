# `make train` and `make test` need Python 3.11 (or 3.10) and make, and set up the rest.
# Settings, as in `make train ARGS='--gin_bindings=Experiment.seed=1'`:
#   ARGS        appended to the command that a target runs
#   PYTHON      the Python from which .venv is made, if not the first that fits
#   TENSORFLOW  cpu or gpu: which TensorFlow goes into .venv; `make clean` to change it

TENSORFLOW ?= $(or $(shell cat .venv/core 2>/dev/null),cpu)

# Not ?=, so that a PYTHON that is empty in the environment counts as not given.
PYTHONS := $(or $(PYTHON),python3.11 python3.10 python3 python)
FITS = import sys; sys.exit(not (3, 10) <= sys.version_info[:2] < (3, 12))
FITTING = $(firstword $(foreach python,$(PYTHONS),\
    $(shell $(python) -c '$(FITS)' 2>/dev/null && echo $(python))))
FOUND = $(or $(sort $(shell for p in $(PYTHONS); do $$p -c \
    'import platform; print(platform.python_version())'; done 2>/dev/null; :)),none)

# In the environment, the lock also holds where pip builds a package from its source.
INSTALL = PIP_CONSTRAINT=requirements.lock .venv/bin/python -m pip install -qq
RUN = .venv/bin/python -m
PYTEST = $(RUN) pytest -q -n 2 --dist=loadfile

export TF_CPP_MIN_LOG_LEVEL ?= 2

.PHONY: help train compare figure3 ablations test test-slow test-envs envs offline table2 bench tpu-check bazel-check clean
.DEFAULT_GOAL := help
.NOTPARALLEL:

help: ## Show this list
	@sed -n 's/^\([a-z0-9-]*\):.*## /  make \1\t/p' Makefile | expand -t 20

train: .venv/core ## Train GTrXL with V-MPO on Numpad 2 x 2, into runs/
	$(RUN) binaries.train --gin_file=gin/gtrxl/numpad_2x2_cpu.gin \
	    --root_dir=runs/numpad_2x2 $(ARGS)

compare: .venv/core ## The same beside the LSTM and no memory, in one picture
	$(RUN) binaries.compare --gin_file=gin/gtrxl/numpad_2x2_cpu.gin \
	    --root_dir=runs/compare_numpad_2x2 $(ARGS)

figure3: .venv/core ## The same for Numpad 2 x 2, 3 x 3 and 4 x 4: about an hour and a half
	$(RUN) binaries.compare --root_dir=runs/figure3 --seeds=3 \
	    --sweep=$(subst $(SPACE),$(COMMA),$(patsubst %,gin/gtrxl/numpad_%_cpu.gin,2x2 3x3 4x4)) \
	    $(ARGS)

# Of the pictures of *Memory-Efficient Algorithm Distillation*, Figures 6 to 11. At the
# paper's size: make ablations SETTING=dr ED=ed \
#     SIZES='width_256_heads_32 width_128_heads_16' HEADS='heads_32_of_16 heads_128_of_4'
SETTING ?= dr_cpu
ED ?= ed_gradient
POSITIONS ?= $(addprefix positions_,global_sinusoidal local_learnable local_sinusoidal)
SIZES ?= width_32_heads_2 width_16_heads_1
HEADS ?= heads_2_of_32 heads_8_of_8
LENGTHS ?= $(foreach lengths,10_recurrence_20 10_recurrence_30 20_recurrence_10 \
    20_recurrence_20 20_recurrence_30,chunk_$(lengths))

AD := gin/distillation
ABLATIONS = runs/ablations_$(SETTING)
COMMA := ,
SPACE := $(subst ,, )

# $(call ablate,PICTURE,MODEL,VARIANTS): a model beside its variants.
define ablate
$(RUN) binaries.compare --gin_file=$(AD)/$(SETTING).gin --root_dir=$(ABLATIONS) \
    --seeds=1 --models=$(subst $(SPACE),$(COMMA),$(strip $(2:%=$(AD)/models/%.gin) \
    $(3:%=$(AD)/models/$(2).gin+$(AD)/ablations/%.gin))) $(ARGS)
for kind in png md; do \
    cp $(ABLATIONS)/comparison.$$kind $(ABLATIONS)/$(1).$$kind; done
endef

ablations: .venv/core ## Draw what matters in algorithm distillation: hours
	$(RUN) binaries.collect_histories --gin_file=$(AD)/$(SETTING).gin \
	    --output_dir=datasets/$(SETTING)
	$(call ablate,positions,adf,$(POSITIONS))
	$(call ablate,sizes,$(ED),$(SIZES))
	$(call ablate,heads,$(ED),$(HEADS))
	$(call ablate,lengths,$(ED),$(LENGTHS))
	$(RUN) binaries.evaluate --root_dir=$(ABLATIONS)/adf/seed_0 \
	    --sweep=DistillationPolicy.position_scale=0.5,1.0,2.0
	$(RUN) binaries.attention --root_dir=$(ABLATIONS)/$(ED)/seed_0
	@echo Pictures: $(ABLATIONS)/*.png $(ABLATIONS)/adf/seed_0/evaluation.png \
	    $(ABLATIONS)/$(ED)/seed_0/attention/recurrence.png

# Compiling is most of what the tests do; the slow tests have XLA's optimizations.
# In random order: make test ARGS='--random-order -v'. It prints a seed; to repeat the
# order, make test ARGS='--random-order --random-order-seed=<seed>'.
test: export XLA_FLAGS ?= --xla_backend_optimization_level=0
test: .venv/core ## Run the tests
	$(PYTEST) --ignore-glob='*_slow_test.py' \
	    --ignore-glob='*_envs_test.py' $(ARGS) gtrxl_tf binaries

test-slow: .venv/core ## Run the tests that take minutes each
	$(PYTEST) -o python_files='*_slow_test.py' $(ARGS) gtrxl_tf binaries

test-envs: .venv/envs ## Run the tests of the environments made by others
	$(PYTEST) --dist=load -rs -o python_files='*_envs_test.py' $(ARGS) gtrxl_tf

table2: .venv/core ## Count the parameters of the paper's Table 2
	$(RUN) binaries.table2 $(ARGS)

bench: .venv/core ## Measure the speed of learning and acting
	$(RUN) binaries.benchmark $(ARGS)

tpu-check: .venv/core .venv-tpu/core ## Compile learner steps for TPUs that are not here
	$(RUN) binaries.tpu_check $(ARGS)

envs: .venv/envs ## Install the environments made by others

offline: .venv/offline ## Install what reads the data sets made by others

bazel-check: ## Query the Bazel targets and lint BUILD; needs bazel and npx
	@for tool in bazel npx; do command -v $$tool >/dev/null || { \
	    echo "bazel-check needs $$tool; Debian has it in bazel-bootstrap and npm" >&2; \
	    exit 1; }; done
	bazel --batch query --noshow_progress //...
	npx --yes @bazel/buildifier@8.2.1 -mode=check -lint=warn \
	    -warnings=-native-py BUILD WORKSPACE

clean: ## Remove .venv, .venv-tpu and all that was built; runs/ stays
	rm -rf .venv .venv-tpu build dist *.egg-info .pytest_cache bazel-*
	find gtrxl_tf binaries -name __pycache__ -prune -exec rm -rf {} +

# A stamp stands for a whole installation: it goes before pip begins and comes back when
# pip is through. Without the stamp of the core, .venv is made from nothing. That stamp
# holds the name of the TensorFlow that was chosen.
.venv/core: setup.py requirements.lock
	@$(if $(FITTING),,$(error gtrxl_tf needs Python 3.10 or 3.11, \
	    found $(FOUND); try: make PYTHON=/path/to/python3.11))
	@test -e $@ || { rm -rf .venv && $(FITTING) -m venv .venv; }
	@rm -f $@
	@echo 'Setting up .venv: about a minute, 1.5 GB'
	@$(INSTALL) -e '.[$(TENSORFLOW),dev]'
	@echo $(TENSORFLOW) > $@

.venv/envs .venv/offline: .venv/core
	@mv $< $@.unfinished
	@echo 'Adding to .venv: $(@F)'
	@$(INSTALL) -e '.[$(TENSORFLOW),dev,$(@F)]'
	@mv $@.unfinished $<
	@touch $@

# Apart, as what compiles for TPUs and TensorFlow 2.15 want unlike versions of the rest.
.venv-tpu/core: requirements-tpu.lock
	@$(if $(FITTING),,$(error gtrxl_tf needs Python 3.10 or 3.11, \
	    found $(FOUND); try: make PYTHON=/path/to/python3.11))
	@rm -rf .venv-tpu && $(FITTING) -m venv .venv-tpu
	@echo 'Setting up .venv-tpu'
	@.venv-tpu/bin/python -m pip install -qq -r $<
	@touch $@
