# `make train` and `make test` need Python 3.10 to 3.13 and make; they install the rest. Of
# several Pythons, the first in PYTHONS wins. Python 3.11 and 3.10 get TensorFlow 2.15, Reverb
# and TF-Agents, by requirements.lock; 3.13 and 3.12 get the newest TensorFlow, without these
# two, by requirements-newest.lock. TensorFlow has no wheel for Python 3.14.
# `make test-newest` needs Python 3.12 or 3.13.
# Variables, as in `make train ARGS='--gin_bindings=Experiment.seed=1'`:
#   ARGS        arguments appended to a target's command
#   PYTHON      the Python that creates .venv; by default the first suitable one
#   TENSORFLOW  cpu or gpu: the TensorFlow in .venv; run `make clean` to change it

TENSORFLOW ?= $(or $(shell cat .venv/core 2>/dev/null),cpu)

# Not ?=, so that an empty PYTHON in the environment counts as unset.
PYTHONS := $(or $(PYTHON),python3.11 python3.10 python3.13 python3.12 python3 python)
# $(call fitting,PYTHONS,LOWEST,BELOW): the first that is Python 3.LOWEST or later.
fitting = $(firstword $(foreach python,$(1),$(shell $(python) -c 'import sys; \
    sys.exit(not $(2) <= sys.version_info.minor < $(3))' 2>/dev/null && echo $(python))))
FITTING = $(call fitting,$(PYTHONS),10,14)
NEWEST = $(call fitting,$(PYTHON) python3.13 python3.12 python3,12,14)
FOUND = $(or $(sort $(shell for p in $(PYTHONS); do $$p -c \
    'import platform; print(platform.python_version())'; done 2>/dev/null; :)),none)

# Empty if .venv has, or will get, the newest TensorFlow.
REVERB = $(call fitting,$(if $(wildcard .venv/core),.venv/bin/python,$(FITTING)),10,12)
# $(call INSTALL,EXTRA): installs what .venv has, and an extra. As an environment variable, the
# lock also applies when pip builds a package from source.
INSTALL = PIP_CONSTRAINT=requirements$(if $(REVERB),,-newest).lock \
    .venv/bin/python -m pip install -qq \
    -e '.[$(1)$(if $(REVERB),$(TENSORFLOW)$(COMMA)online$(COMMA))dev]' \
    $(if $(REVERB),,'tensorflow$(if $(filter gpu,$(TENSORFLOW)),[and-cuda])' tf_keras)
RUN = .venv/bin/python -m
PYTEST = $(RUN) pytest -q -n 2 --dist=loadfile
TESTS = --ignore-glob='*_slow_test.py' --ignore-glob='*_envs_test.py'

export TF_CPP_MIN_LOG_LEVEL ?= 2

.PHONY: help train compare figures figure3 ablations test test-medium test-all test-slow test-envs test-hostile test-newest wheel-check lint envs offline table2 bench tpu-check docs bazel-check clean
.DEFAULT_GOAL := help
.NOTPARALLEL:

help: ## Show this list
	@sed -n 's/^\([a-z0-9-]*\):.*## /  make \1\t/p' Makefile | expand -t 20

train: .venv/core ## Train GTrXL with V-MPO on Numpad 2 x 2, into runs/
	$(RUN) binaries.train --gin_file=gin/gtrxl/numpad_2x2_cpu.gin \
	    --root_dir=runs/numpad_2x2 $(ARGS)

compare: .venv/core ## Compare GTrXL with an LSTM and no memory on Numpad 2 x 2
	$(RUN) binaries.compare --gin_file=gin/gtrxl/numpad_2x2_cpu.gin \
	    --root_dir=runs/compare_numpad_2x2 $(ARGS)

FIGURE3 := $(foreach size,2x2 3x3 4x4,gin/gtrxl/numpad_$(size)_cpu.gin)

figure3: .venv/core ## Compare on Numpad 2 x 2, 3 x 3 and 4 x 4; takes many hours
	$(RUN) binaries.compare --root_dir=runs/figure3 --seeds=3 \
	    --sweep=$(subst $(SPACE),$(COMMA),$(FIGURE3)) \
	    $(ARGS)

figures: .venv/core ## Write docs/results.md, its pages and pictures from docs/runs/*.jsonl
	.venv/bin/python docs/results/claims.py

# Figures 6 to 11 of *Memory-Efficient Algorithm Distillation* at the twin's size.
# docs/distillation.md has the commands of the paper's.
SETTING ?= dr_cpu
ED ?= ed_gradient
POSITIONS ?= $(addprefix DistillationNetwork.positions=,\
    global_sinusoidal local_learnable local_sinusoidal)
# $(call heads,NUMBER,WIDTH OF EACH) $(call size,HEADS,WIDTH OF EACH,WIDTH,WIDTH OF MLP)
heads = SegmentTransformer.num_heads=$(1)+SegmentTransformer.head_dim=$(2)
size = $(heads)+SegmentTransformer.model_dim=$(3)+SegmentTransformer.mlp_dim=$(4)
SIZES ?= $(call size,2,16,32,128) $(call size,1,16,16,64)
HEADS ?= $(call heads,2,32) $(call heads,8,8)
# $(call lengths,CHUNK,RECURRENCE)
lengths = chunk_length=$(1)+memory_length=$(2)
LENGTHS ?= $(call lengths,10,20) $(call lengths,10,30) $(call lengths,20,10) \
    $(call lengths,20,20) $(call lengths,20,30)

AD := gin/distillation
ABLATIONS = runs/ablations_$(SETTING)
COMMA := ,
SPACE := $(subst ,, )

# $(call ablate,PICTURE,MODEL,SETTINGS): compares a model with its variants.
define ablate
$(RUN) binaries.compare --gin_file=$(AD)/$(SETTING).gin --root_dir=$(ABLATIONS) \
    --seeds=1 --models=$(subst $(SPACE),$(COMMA),$(strip $(2:%=$(AD)/models/%.gin) \
    $(3:%=$(AD)/models/$(2).gin+%))) $(ARGS)
for kind in png md; do \
    cp $(ABLATIONS)/comparison.$$kind $(ABLATIONS)/$(1).$$kind; done
endef

ablations: .venv/core ## Draw the ablations of algorithm distillation; takes hours
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

# Tests spend most of their time compiling; only the slow ones use XLA's optimizations.
# In random order: make test ARGS='--random-order -v'. It prints a seed; to repeat the
# order, make test ARGS='--random-order --random-order-seed=<seed>'.
test test-medium test-all test-hostile test-newest wheel-check: export XLA_FLAGS ?= --xla_backend_optimization_level=0
test: .venv/core ## Run the quick tests: two and a half minutes
	$(PYTEST) $(TESTS) -m 'not medium and not long' $(ARGS) gtrxl_tf binaries tools examples

test-medium: .venv/core ## Run the tests of a few seconds each: about ten minutes
	$(PYTEST) $(TESTS) -m medium $(ARGS) gtrxl_tf binaries tools examples

test-all: .venv/core ## Run quick and medium tests, and those marked long
	$(PYTEST) $(TESTS) $(ARGS) gtrxl_tf binaries tools examples

test-slow: .venv/core ## Run the tests that take minutes each
	$(PYTEST) -o python_files='*_slow_test.py' $(ARGS) gtrxl_tf binaries tools examples

test-envs: .venv/envs ## Run the tests of third-party environments
	$(PYTEST) --dist=load -rs -o python_files='*_envs_test.py' $(ARGS) gtrxl_tf tools

# The tests of what calls TensorFlow.
NEWEST_TESTS := $(addprefix gtrxl_tf/,agents cores launch losses networks replay serving \
    training analysis/session_test.py settings/shortcuts_test.py public_face_test.py)

test-newest: .venv-newest/core .venv/core ## Run tests on the newest TensorFlow and Python
	.venv-newest/bin/python -m pytest -q -n 2 --dist=loadfile $(TESTS) \
	    -m 'not medium and not long' $(ARGS) $(NEWEST_TESTS)
	.venv-newest/bin/python -m pytest -q $(ARGS) examples/notebook_test.py
	$(RUN) pytest -q $(ARGS) gtrxl_tf/serving/versions_slow_test.py

wheel-check: .venv/core ## Build the wheel, install it elsewhere, and train with it
	$(PYTEST) -n 0 $(ARGS) binaries/wheel_slow_test.py

# docs/performance.md says what was lost. One test at a time, as they measure how long things
# take; -s shows the figures.
HOSTILE := malformed_test.py environments/batched_environment_test.py \
    $(addprefix datasets/,reader_test.py writer_test.py importers_test.py) \
    $(addprefix training/,checkpoints_test.py metrics_csv_test.py watchdog_test.py) \
    $(addprefix replay/,staleness_test.py server_test.py) \
    $(addprefix training/online/,keepalive_test.py server_test.py multiworker_slow_test.py) \
    $(addprefix launch/,signals_test.py parts_test.py supervisor_test.py train_test.py)
HOSTILE := $(HOSTILE:%=gtrxl_tf/%) $(addprefix binaries/,datasets_slow_test.py \
    collect_histories_slow_test.py network_slow_test.py faults_slow_test.py \
    shared_faults_slow_test.py)

test-hostile: .venv/core ## Try kills, cut cables, full disks, bad files, broken environments
	$(RUN) pytest -q -s $(ARGS) $(HOSTILE)

lint: .venv/core ## Check imports, unused names, return types, and types of the examples
	$(RUN) ruff check . $(ARGS)
	$(RUN) mypy

table2: .venv/core ## Count the parameters of the GTrXL paper's Table 2
	$(RUN) binaries.table2 $(ARGS)

bench: .venv/core ## Measure the speed of cores and of a whole run, in three minutes
	$(RUN) tools.benchmark $(ARGS)

tpu-check: .venv/envs .venv-tpu/core ## Compile learner steps for TPUs, without a TPU
	$(RUN) tools.tpu_check $(ARGS)

docs: .venv-docs/core ## Build the documentation site, into build/site
	NO_MKDOCS_2_WARNING=1 .venv-docs/bin/mkdocs build --strict $(ARGS)

envs: .venv/envs ## Install third-party environments

offline: .venv/offline ## Install readers for third-party datasets

bazel-check: ## Query the Bazel targets and lint BUILD; needs bazel and npx
	@for tool in bazel npx; do command -v $$tool >/dev/null || { \
	    echo "bazel-check needs $$tool; Debian has it in bazel-bootstrap and npm" >&2; \
	    exit 1; }; done
	bazel --batch query --noshow_progress //...
	npx --yes @bazel/buildifier@8.2.1 -mode=check -lint=warn \
	    -warnings=-native-py BUILD WORKSPACE

clean: ## Remove every .venv* and build products; keeps runs/
	rm -rf .venv .venv-newest .venv-tpu .venv-docs build dist *.egg-info .pytest_cache .mypy_cache bazel-*
	find gtrxl_tf binaries tools -name __pycache__ -prune -exec rm -rf {} +

NEEDS_PYTHON = $(if $(FITTING),,$(error gtrxl_tf needs Python 3.10 to 3.13, \
    found $(FOUND); try: make PYTHON=/path/to/python3.11))

# A stamp file marks a complete installation: it is removed before pip starts and written
# when pip has finished. If the stamp of the core is missing, .venv is created from
# scratch. That stamp contains the name of the chosen TensorFlow.
.venv/core: setup.py requirements.lock requirements-newest.lock
	@$(NEEDS_PYTHON)
	@test -e $@ || { rm -rf .venv && $(FITTING) -m venv .venv; }
	@rm -f $@
	@echo 'Setting up .venv: about a minute, 1.5 GB'
	@$(call INSTALL)
	@echo $(TENSORFLOW) > $@

.venv/envs .venv/offline: .venv/core
	@mv $< $@.unfinished
	@echo 'Adding to .venv: $(@F)'
	@$(call INSTALL,$(@F)$(COMMA))
	@mv $@.unfinished $<
	@touch $@

.venv-newest/core: setup.py requirements-newest.lock
	@$(if $(NEWEST),,$(error test-newest needs Python 3.12 or 3.13; \
	    try: make test-newest PYTHON=/path/to/python3.13))
	@rm -rf $(@D) && $(NEWEST) -m venv $(@D)
	@echo 'Setting up $(@D): TensorFlow takes 2 GB'
	@PIP_CONSTRAINT=requirements-newest.lock $(@D)/bin/python -m pip install -qq \
	    -e '.[serve,dev]' tensorflow tf_keras
	@touch $@

# Separate: the TPU compiler and TensorFlow 2.15 need different versions of packages, and
# the documentation needs neither of them.
.venv-tpu/core .venv-docs/core: .venv-%/core: requirements-%.lock
	@$(NEEDS_PYTHON)
	@rm -rf $(@D) && $(FITTING) -m venv $(@D)
	@echo 'Setting up $(@D)'
	@$(@D)/bin/python -m pip install -qq -r $<
	@touch $@
