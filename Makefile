# SPDX-License-Identifier: BSD-3-Clause
# make demo   build in .venv and show an array going round between two processes
# make test   C tests under ASan and UBSan, some of them optimised too, Python
#             tests; not what the pages show, which is run by docs-test
# make bench  build with the peers to compare with, measure, and draw the pictures
#             of docs/performance.md; MPI=python, one that has mpi4py
# make compare BASE=commit   build that commit, measure both in one run, and show
#             what has become slower, or faster; 12 minutes, with QUICK=1 three
# make docs   the site, in build/docs
# make docs-test   the site without warnings, and what its pages show is run
# make lint   ruff, mypy, stubtest, clang-format; clang, aarch64's gcc and a build
#             without the GIL read the C code
# make fuzz   libFuzzer on all that decodes; needs clang
# make coverage   lines and branches of src/ that the C tests reach
# make soak   what must not grow, very often; random programs: hours
# make asan   the extension under ASan and UBSan, Python tests with it
# make valgrind   the C tests under valgrind's memcheck
# make nomem      the C tests with each allocation failing in turn
# make stress     the whole of `make test` 20 times with busy loops on all cores
# make wheels       an sdist, and a wheel for each CPython at hand, in dist/
# make wheels-test  these in empty environments without a compiler; with other UCX
# make ucx          ucp with UCX 1.18 to 1.22, of CUDA 12 and 13, Debian's and the
#             system's
# make matrix       builds and tests in a chroot of Debian's newest suite, with its
#             gcc, Pythons, UCX and cmocka; needs root and debootstrap
# make arm          tests in C of rooms without processes, compiled for aarch64 with
#             a warning an error, and a wheel, under qemu; TESTS="test_ring": these
# make gpu-bundle   a folder for a machine with a GPU and without a network, which
#             `sh build/gpu-bundle/run check` and `run figures` use there
# make gpu-check    messages between all kinds of memory, cancels, kills; needs a GPU
# make gpu-figures  what messages of device memory take, beside the driver's copies
# make ptx    compile the kernel of src/mem by NVRTC, which it installs
# make clean  remove all that these made
#
#   PYTHON=python3.12       another Python, 3.11 or newer
#   UCP_UCX=system | /dir   another UCX (see setup.py); default: the wheel
#   PYTEST_ARGS="-k send"   for `make test` and `make asan`; "-n 4": four at a time
#   C_TESTS="check"         for `make test` and `make stress`: C tests without ASan
#   TESTS="test_tag"        these C tests only, where C tests are run
#   RUNS=5 STRESS=test-c    for `make stress`: how often, and what

PYTHON      = python3
VENV        = .venv
# Most tests wait for something most of the time.
PYTEST_ARGS = -n $(shell expr 2 \* $$(nproc))
C_TESTS     = optimised asan $(if $(TESTS),,replay)

bin  := $(VENV)/bin
need := sh tools/require.sh
# Start Python without the current directory on sys.path: here lies ucp/, the
# source tree, of which an edited file is not what is installed and tested.
safe := PYTHONSAFEPATH=1
make_c = $(MAKE) --no-print-directory -C src -j$(shell nproc) $(c_ucx) $(c_object)
# What setup.py has made the package's library of, if it has.
object = $(shell ls build/release-$(subst /,_,$(or $(UCP_UCX),wheel)-$(CC))/libumx/umx.o \
           2>/dev/null)

export PIP_DISABLE_PIP_VERSION_CHECK = 1

sources := setup.py pyproject.toml \
           $(shell find ucp -name "*.py" -o -name "*.pyi") $(wildcard \
           ucp_ext/*.* ucp_ext/*/*.[ch] include/*.h include/*/*.h* src/*.in \
           src/*/*.c src/*/*.h)

# Which UCX the C library is built with: as setup.py chooses.
ifeq ($(UCP_UCX),system)
c_ucx =
else ifneq ($(filter /%,$(UCP_UCX)),)
c_ucx = UCX_DIR=$(UCP_UCX)
else
c_ucx = PYTHON=$(abspath $(bin)/python)
endif

.PHONY: demo docs docs-test test test-c test-python soak fuzz coverage nomem bench compare lint lint-python \
        lint-c asan valgrind stress clean cmocka wheels wheels-test gpu-bundle gpu-check \
        gpu-figures arm ucx matrix ptx
.NOTPARALLEL:

demo: $(VENV)/.ucp
	$(bin)/python -m ucp demo

# The tests in C that run optimised are linked with what the package is made of.
test: c_object = $(object:%=OBJECT=$(abspath %))
test: $(VENV)/.ucp test-c test-python
	@echo "optimised: $$(cat src/build/$(if $(c_object),package,release)/closing)"
	@echo "asan: $$(cat src/build/asan/closing)"
	@$(bin)/python tools/times.py

test-c: cmocka $(VENV)/.libucx
	set -e; for what in $(C_TESTS); do $(make_c) $$what; done

# What is run by docs-test.
pages := $(wildcard tests/project/test_docs*.py) $(addprefix tests/project/test_, \
         hacking.py tutorial.py)

# The installed package is tested; no test run may last longer than this.
test-python: $(VENV)/.ucp $(VENV)/.test
	$(safe) timeout 2400 $(bin)/python -m pytest --junitxml build/tests.xml \
	    $(pages:%=--ignore %) $(PYTEST_ARGS)

# Each in a process of its own, over shared memory and over tcp.
CONNECTS = 100000
MESSAGES = 1000000
CANCELS  = 100000
KILLS    = 300
FLOOD    = 10240
HEAPS    = 100000
WAITS    = 1000000
COMMS    = 1000
SHUFFLES = 10000
JOINS    = 1000
TABLES   = 1000
TOPOLOGIES = 100000
PROGRAMS = 3000
CHAOS    = 20
ORACLE   = 100000
BELLS    = 1000000
POISON   = 100000
MUTATIONS = 1000000

soak: cmocka $(VENV)/.ucp $(VENV)/.test
	$(make_c) bell BELL_ROUNDS=$(BELLS)
	$(make_c) x25519
	$(make_c) replay FUZZ_RUNS=$(MUTATIONS) FUZZ_RUNS_SLOW=$$(($(MUTATIONS) / 20))
	set -e; for transport in '' --tcp; do \
	    for what in "connects $(CONNECTS)" "messages $(MESSAGES)" \
	            "cancels $(CANCELS)" "kills $(KILLS)" "floods $(FLOOD)" \
	            "heaps $(HEAPS)" "waits $(WAITS)" \
	            "communicators $(COMMS)" "shuffles $(SHUFFLES)" \
	            "joins $(JOINS)" "tables $(TABLES)"; do \
	        echo "soak $$what $$transport"; \
	        $(safe) timeout 7200 $(bin)/python tests/soak $$what $$transport; \
	    done; \
	done
	$(safe) timeout 7200 $(bin)/python tests/soak topologies $(TOPOLOGIES)
	set -e; for over in threads shm tcp; do \
	    $(safe) timeout 7200 $(bin)/python tests/soak/oracle $(ORACLE) \
	        --over $$over; \
	done
	set -e; for transport in shm tcp mixed network; do \
	    $(safe) timeout 7200 $(bin)/python tests/soak/chaos 20 \
	        --runs $(CHAOS) --over $$transport; \
	done
	set -e; for over in '' '--tls tcp' '--cma-max 67108864'; do \
	    for what in '' '--loop uvloop' '--small-credit' '--ranks' \
	            '--smallest 200000 --largest 4000000'; do \
	        $(safe) timeout 7200 $(bin)/python tests/soak/poison.py \
	            --operations $(POISON) $$over $$what; \
	    done; \
	    $(safe) timeout 7200 $(bin)/python tests/soak/poison.py \
	        --operations 10000 --disturbances 0.1 --compute 3 $$over; \
	    $(safe) timeout 7200 $(bin)/python tests/soak/poison.py \
	        --runs $(KILLS) --operations 1000000 --kill $$over; \
	done
	set -e; for over in '' '--tls tcp'; do \
	    $(safe) timeout 7200 $(bin)/python tests/soak/poison.py --growth $$over; \
	    for what in frames words; do \
	        $(safe) timeout 7200 $(bin)/python tests/soak/poison.py \
	            --timeouts $$what $$over; \
	    done; \
	done
	UCP_WORKERS=1000 $(safe) timeout 7200 $(bin)/python -m pytest \
	    tests/endpoint/test_worker_address.py -k many_workers
	UCP_FRAME_PROGRAMS=$(PROGRAMS) $(safe) timeout 7200 $(bin)/python -m pytest \
	    tests/dask/test_dask_merge.py tests/table/test_random_frames.py \
	    tests/table/test_random_polars.py -k "random_groups or frames_of"
	UCP_MODEL_EXAMPLES=$(PROGRAMS) $(safe) timeout 7200 $(bin)/python -m pytest \
	    tests/channel/test_model.py

fuzz: $(VENV)/.libucx
	$(make_c) fuzz

coverage: cmocka $(VENV)/.libucx
	$(make_c) coverage

valgrind: cmocka $(VENV)/.libucx
	$(make_c) valgrind

# NOMEM_ONCE=1: see src/Makefile.
nomem: cmocka $(VENV)/.libucx
	$(make_c) nomem

# No test is tried again: the first that fails ends it.
RUNS   = 20
STRESS = test

stress: cmocka $(VENV)/.ucp $(VENV)/.test
	sh tools/stress.sh $(RUNS) build/stress.log \
	    $(MAKE) --no-print-directory $(STRESS)

bench: $(VENV)/.ucp $(VENV)/.bench
	$(bin)/python benchmarks/pictures.py $(if $(MPI),--mpi $(MPI))

# ARGS: options of benchmarks/compare.py, as ARGS="--only ranks --rounds 20".
compare: $(if $(BASE),$(VENV)/.ucp)
	@[ -n "$(BASE)" ] || { \
	    echo "make compare needs a commit to compare with: BASE=HEAD~1" >&2; exit 2; }
	$(bin)/python benchmarks/compare.py --base "$(BASE)" $(if $(QUICK),--quick) $(ARGS)

sphinx = $(safe) $(bin)/python -m sphinx -q -W --keep-going -d build/doctrees

docs: $(VENV)/.ucp $(VENV)/.docs
	$(sphinx) -b html docs build/docs

# EXTERNAL=1: links to other sites as well.
docs-test: docs $(VENV)/.test
	$(if $(EXTERNAL),$(sphinx) -b linkcheck docs build/linkcheck)
	$(safe) timeout 1200 $(bin)/python -m pytest $(PYTEST_ARGS) $(pages)

lint: lint-python lint-c

lint-python: $(VENV)/.ucp $(VENV)/.dev
	$(bin)/ruff check .
	$(bin)/ruff format --check .
	$(bin)/mypy ucp $(wildcard tests/project/typing)
	$(safe) $(bin)/python -m mypy.stubtest ucp._ext

lint-c: $(VENV)/.dev
	$(MAKE) --no-print-directory -C src format-check \
	    CLANG_FORMAT=$(abspath $(bin)/clang-format)
	PYTHONPATH=tools $(bin)/python -P tools/syntax.py

WHEELS_ARGS =

wheels: $(VENV)/.packaging
	$(safe) $(bin)/python tools/wheels.py $(WHEELS_ARGS)

wheels-test: $(VENV)/.packaging
	@[ -n "$(wildcard dist/*.whl)" ] || $(safe) $(bin)/python tools/wheels.py
	PYTHONPATH=tools $(bin)/python -P tools/wheels_test.py $(WHEELS_ARGS)

# UCX_VERSIONS="libucx-cu12==1.20.* system": these.
ucx: $(VENV)/.ucp $(VENV)/.test
	PYTHONPATH=tools $(safe) $(bin)/python -P tools/ucx_versions.py $(UCX_VERSIONS)

# MATRIX_ARGS: options of the program, as MATRIX_ARGS="--suite testing --python 3.15".
MATRIX_ARGS =

matrix: $(VENV)/.made
	PYTHONPATH=tools $(safe) $(bin)/python -P tools/matrix.py $(MATRIX_ARGS)

arm: $(VENV)/.ucp
	sh tools/arm.sh $(abspath $(bin)/python) $(TESTS)

# GPU_PYTHON: a version, or a program: the Python that the machine with the GPU has.
# GPU_ARGS: options of the two programs, as GPU_ARGS="--only messages --kinds device".
GPU_PYTHON = 3.12
GPU_ARGS   =

gpu-bundle: $(VENV)/.made
	PYTHONPATH=tools $(bin)/python -P tools/gpu_bundle.py --python $(GPU_PYTHON) \
	    --venv $(VENV)-gpu

gpu-check: $(VENV)/.ucp $(VENV)/.test
	$(safe) $(bin)/python tests/devices $(GPU_ARGS)

gpu-figures: $(VENV)/.ucp
	$(bin)/python benchmarks/gpu.py $(GPU_ARGS)

ptx: $(VENV)/.made
	$(bin)/pip install -q "nvidia-cuda-nvrtc-cu12==12.9.*"
	$(bin)/python -P tools/ptx.py

# A build of its own, by gcc, in a venv of its own. The sanitizer's libraries must
# be the first in the process; UCX keeps memory until exit, so leaks are not
# looked for. Without cma, which our endpoints do not use: up to 1.22 UCX looks
# whether it reaches a peer by reading the peer's memory over the very variable
# that says what to read, and the sanitizer then follows a wild pointer.
asan: cmocka $(VENV)/.ucp
	$(make_c) asan
	$(PYTHON) -m venv --clear $(VENV)-asan
	CC=gcc UCP_SANITIZE=address $(VENV)-asan/bin/pip install -q '.[test]'
	$(safe) PYTHONMALLOC=malloc ASAN_OPTIONS=detect_leaks=0 UCX_TLS=^cma \
	    LD_PRELOAD="$$(gcc -print-file-name=libasan.so) \
	        $$(gcc -print-file-name=libubsan.so)" \
	    timeout 2400 $(VENV)-asan/bin/python -m pytest $(PYTEST_ARGS)

clean:
	$(MAKE) --no-print-directory -C src clean
	rm -rf build dist *.egg-info $(VENV) $(VENV)-asan $(VENV)-gpu .mypy_cache .ruff_cache \
	    .pytest_cache .hypothesis
	find . -name __pycache__ -prune -exec rm -rf {} +

cmocka:
	@$(need) libcmocka-dev "cmocka, the C test library," \
	    'echo "#include <stdarg.h>\n#include <stddef.h>\n#include <setjmp.h>\n#include <cmocka.h>" | $(CC) -E -'

# The venv, and what is needed before anything can be built in it.
$(VENV)/.made:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
	    echo "ucp needs Python 3.11 or newer, $(PYTHON) is not: make PYTHON=..." >&2; \
	    exit 1; }
	@$(need) build-essential "A C compiler" 'command -v $(CC)'
	@$(need) python3-dev "Python.h of $(PYTHON)" "$(PYTHON) -c 'import os, \
	    sysconfig; os.stat(sysconfig.get_path(\"include\") + \"/Python.h\")'"
	@$(need) python3-venv "The venv module of $(PYTHON)" \
	    "$(PYTHON) -c 'import ensurepip, venv'"
	$(PYTHON) -m venv $(VENV)
	@touch $@

# Install what pyproject.toml says that the package needs: with options of pip $(1),
# and for the extras $(2).
needed = import sys, tomllib; \
    project = tomllib.load(open("pyproject.toml", "rb"))["project"]; \
    extras = [project["optional-dependencies"][name] for name in sys.argv[1:]]; \
    print(*project["dependencies"], *sum(extras, []), sep="\n")
install_needed = $(bin)/python -c '$(needed)' $(2) >$(VENV)/needed && \
    $(bin)/pip install $(1) -r $(VENV)/needed

# UCX alone: tests in C need no Python package, and do not wait for one.
$(VENV)/.libucx: pyproject.toml | $(VENV)/.made
	@$(bin)/python -P -c 'import libucx' 2>/dev/null || { \
	    $(call install_needed,-q,); }
	@touch $@

# A build uses what the venv has: an isolated one would download all of it a second
# time. It compiles again only if a source changed; setuptools would put deleted
# Python files into the package, so those go first.
$(VENV)/.ucp: $(sources) | $(VENV)/.made
	@if [ -e $@ ]; then \
	    find build/release-* build/debug-* build/asan-* -name '*.py*' \
	        -delete 2>/dev/null; \
	    echo "installing ucp again"; \
	    $(bin)/pip install -q --no-build-isolation --no-deps \
	        --force-reinstall .; \
	else \
	    echo "installing ucp in $(VENV)"; \
	    begun=$$(date +%s); \
	    $(call install_needed,'setuptools>=77',numpy uvloop) && \
	    $(bin)/pip install --no-build-isolation --no-deps . && \
	    echo "installed in $$(($$(date +%s) - begun)) s"; \
	fi
	@touch $@

$(VENV)/.test $(VENV)/.dev $(VENV)/.docs $(VENV)/.bench \
$(VENV)/.packaging: pyproject.toml | $(VENV)/.ucp
	@echo "installing what make $(@F:.%=%) needs"
	@$(call install_needed,-q,$(@F:.%=%))
	@touch $@
