# Everything a developer types. `make demo` and `make test` do all set-up by themselves.
SHELL := bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
MAKEFLAGS += --no-print-directory

VENV := .venv
PYTHON_RUN := $(VENV)/bin/python
JOBS := $(shell nproc)
# The virtual environment's cmake, ninja, ruff … take precedence in every recipe.
export PATH := $(CURDIR)/$(VENV)/bin:$(PATH)

.PHONY: help
help: ## show this list
	@grep -E '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## (.*)/  make \1\t\2/' | expand -t 20

# ---- set-up ----------------------------------------------------------------------------------------
# Two stamps: tools change rarely, native code often. Python code needs no stamp, because the package
# is installed editable.
DEPS_STAMP := $(VENV)/.deps-stamp
BUILD_STAMP := $(VENV)/.build-stamp
NATIVE_FILES := $(shell find native src -type f \
    \( -name '*.cpp' -o -name '*.hpp' -o -name '*.pyx' -o -name '*.pxd' -o -name '*.pxi' \) 2>/dev/null)

.PHONY: setup
setup: $(BUILD_STAMP) ## create .venv, build the native core, install the package editable

$(DEPS_STAMP): pyproject.toml constraints.txt tools/setup.sh tools/debian.sh
	tools/setup.sh
	@touch $@

$(BUILD_STAMP): $(DEPS_STAMP) CMakeLists.txt build/sources.list $(NATIVE_FILES)
	@echo "setup: building and installing tapewire"
	$(PYTHON_RUN) -m pip install --quiet --no-build-isolation -c constraints.txt -e '.[bench,monitor,spark,web]'
	@touch $@

# The names of all sources, written only if they changed: an editable install must be rebuilt when a
# file is added, moved or deleted.
.PHONY: FORCE
build/sources.list: FORCE
	@mkdir -p build
	@find native src -type f -regex '.*\.\(cpp\|hpp\|pyx\|pxd\|pxi\|pyi?\)' | LC_ALL=C sort > $@.new
	@if cmp -s $@.new $@; then rm $@.new; else mv $@.new $@; fi

# ---- what people run -------------------------------------------------------------------------------
.PHONY: demo bench bench-smoke bench-page bench-instructions book-alternatives docs
demo: setup ## a small trading system, four of its processes killed; then Spark, and a report page
	tapewire demo

bench: setup ## measure every row of the performance table, full size
	@$(MAKE) book-alternatives || echo "bench: the books of the alternatives will not be measured" >&2
	$(PYTHON_RUN) -m benchmarks

# Not part of the set-up: 900 MB, and other versions of numpy and pandas.
BOOK_ALTERNATIVES := build/book-alternatives
book-alternatives: $(BOOK_ALTERNATIVES)/.stamp ## install the order books that Tapewire's is compared with
$(BOOK_ALTERNATIVES)/.stamp: benchmarks/books/alternatives.txt | setup
	@echo "book-alternatives: installing hftbacktest and nautilus_trader"
	$(PYTHON_RUN) -m venv --clear $(BOOK_ALTERNATIVES)
	$(BOOK_ALTERNATIVES)/bin/python -m pip install --quiet --no-deps -r $<
	@touch $@

bench-smoke: setup ## the same, tiny: shows only that every row runs
	$(PYTHON_RUN) -m benchmarks --smoke

bench-instructions: setup ## count instructions per hot call, as the new baseline
	$(PYTHON_RUN) -m benchmarks.instructions --write

bench-page: setup ## write the results of the last `make bench` to README.md and docs/
	$(PYTHON_RUN) tools/readme_numbers.py

docs: setup ## build the documentation into site/
	mkdocs build --strict

# ---- tests -----------------------------------------------------------------------------------------
RESULTS := build/results
# One test file at a time per core, at most four, as each may start a Spark. In the order of
# conftest.py, longest first: xdist would start with the files that have the most tests.
WORKERS := $(shell n=$$(nproc); echo $$((n < 4 ? n : 4)))
BESIDE := -n $(WORKERS) --dist loadfile --no-loadscope-reorder
CXX_FILES = $(shell find native src -name '*.hpp' -o -name '*.cpp')

.PHONY: test
test: setup ## run everything but the long tests; ends with the count
	@rm -rf $(RESULTS) && mkdir -p $(RESULTS)
	tools/test_tools.sh $(RESULTS)/missing-tools.txt
	@$(MAKE) lint
	@$(MAKE) test-native
	$(PYTHON_RUN) -m pytest src/tapewire --doctest-modules --junit-xml=$(RESULTS)/doctest.xml
	$(PYTHON_RUN) -m pytest tests -m "not long" $(BESIDE) --junit-xml=$(RESULTS)/pytest.xml
	@$(MAKE) bench-smoke
	@$(PYTHON_RUN) tools/test_summary.py $(RESULTS)

.PHONY: test-long
test-long: setup ## run the tests that take minutes: a thousand kills, soaks
	@mkdir -p $(RESULTS)
	$(PYTHON_RUN) -m pytest tests -m long $(BESIDE) --junit-xml=$(RESULTS)/long.xml

.PHONY: test-native test-native-plain test-native-asan test-native-tsan test-native-coverage
test-native: test-native-plain test-native-asan test-native-tsan ## run the C++ tests, plain and under the sanitizers
# Optimised, with assertions: the overhead of a sanitizer hides most races between two cores.
test-native-plain: BUILD := -DCMAKE_BUILD_TYPE=None -DCMAKE_CXX_FLAGS=-O2
test-native-asan: BUILD := -DTAPEWIRE_SANITIZE=address,undefined
test-native-coverage: BUILD := -DCMAKE_CXX_COMPILER=g++ -DCMAKE_BUILD_TYPE=None \
    -DCMAKE_CXX_FLAGS="-O1 -g --coverage -fprofile-update=atomic"
test-native-tsan: BUILD := -DTAPEWIRE_SANITIZE=thread
# ThreadSanitizer of older compilers cannot place its shadow memory under wide address
# randomisation (vm.mmap_rnd_bits > 28), hence setarch -R where the container permits it.
test-native-tsan: RUN := $(shell setarch -R true 2>/dev/null && echo setarch -R)
test-native-plain test-native-asan test-native-tsan test-native-coverage: test-native-%: setup
	@cmake -S . -B build/native-$* -G Ninja --log-level=WARNING -DTAPEWIRE_NATIVE_TESTS=ON \
	    $(BUILD) -DCMAKE_COMPILE_WARNING_AS_ERROR=ON
	cmake --build build/native-$*
	@mkdir -p $(RESULTS)
	$(RUN) ctest --test-dir build/native-$* -j $(JOBS) --output-on-failure --no-tests=error \
	    --test-output-size-passed 65536 --output-junit $(CURDIR)/$(RESULTS)/native-$*.xml

# Reports only: there is no minimum, and a failed test does not prevent them.
COVERAGE_TESTS := tests
.PHONY: coverage coverage-python coverage-native
coverage: coverage-python coverage-native ## measure line coverage of Python and C++, into build/coverage

coverage-python: setup
	@rm -rf build/coverage/data.* build/coverage/python && mkdir -p build/coverage
	-coverage run -m pytest $(COVERAGE_TESTS) -m "not long" $(BESIDE)
	coverage combine --quiet
	coverage html --quiet
	coverage report --skip-covered --sort=cover | tee build/coverage/python.txt

coverage-native:
	@find build/native-coverage -name '*.gcda' -delete 2>/dev/null || true
	-@$(MAKE) test-native-coverage
	@mkdir -p build/coverage/native
	gcovr --root . --filter native/include/ --filter native/src/ --exclude-throw-branches \
	    --html-details build/coverage/native/index.html --txt build/coverage/native.txt \
	    --print-summary build/native-coverage

# One after the other, each from its corpus; new inputs go to build/fuzz-corpus, not to the tree.
FUZZ_SECONDS := 60
FUZZ_TARGETS = $(patsubst native/fuzz/%_fuzz.cpp,%,$(wildcard native/fuzz/*_fuzz.cpp))
.PHONY: fuzz fuzz-build
fuzz-build: setup
	@cmake -S . -B build/fuzz -G Ninja --log-level=WARNING -DTAPEWIRE_FUZZ=ON \
	    -DCMAKE_CXX_COMPILER=clang++
	cmake --build build/fuzz

fuzz: fuzz-build ## fuzz everything that the engine reads from disk, FUZZ_SECONDS each
	@for target in $(FUZZ_TARGETS); do \
	    mkdir -p build/fuzz-corpus/$$target; \
	    build/fuzz/native/fuzz/$${target}_fuzz build/fuzz-corpus/$$target native/fuzz/corpus/$$target \
	        -max_total_time=$(FUZZ_SECONDS) -max_len=4096 -timeout=10 -rss_limit_mb=2048 \
	        -artifact_prefix=build/fuzz-corpus/$$target- -print_final_stats=1; \
	done

.PHONY: lint
lint: setup ## run ruff, mypy, import-linter, clang-format; changes nothing
	ruff check
	ruff format --check
	mypy
	python tools/lint_layers.py
	clang-format --dry-run -Werror $(CXX_FILES)

# Not part of lint: takes minutes. The checks are in .clang-tidy.
.PHONY: tidy-cpp
tidy-cpp: setup ## run clang-tidy on native/src and the headers that it includes
	@cmake -S . -B build/tidy -G Ninja --log-level=WARNING -DTAPEWIRE_NATIVE_TESTS=ON \
	    -DCMAKE_CXX_COMPILER=clang++
	find native/src -name '*.cpp' -print0 | xargs -0 -n 1 -P $(JOBS) clang-tidy --quiet -p build/tidy

.PHONY: clean
clean: ## remove all build output, and .venv
	rm -rf $(VENV) build site .mypy_cache .pytest_cache .ruff_cache .hypothesis
