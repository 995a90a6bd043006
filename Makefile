# netchan: what a person types. `make demo` and `make test` are all a fresh machine needs (a Rust toolchain and a C linker).

CARGO ?= cargo
# ethtool and others are in sbin, which is not on every PATH.
export PATH := $(PATH):$(HOME)/.cargo/bin:/usr/sbin:/sbin

# Debian packages the tests use; the build itself needs none of them.
TEST_PACKAGES = iproute2 iputils-ping tcpdump iperf3 netcat-openbsd nftables curl libpcap-dev ethtool valgrind python3 rsync pkg-config g++ musl-tools
# Where tests write down that they were skipped (lab/tests/skips); an absolute path, as each crate's tests run in its folder.
export NETCHAN_SKIPS ?= $(CURDIR)/target/skips

# What of them is looked for on the PATH (libpcap-dev has no program).
TEST_PROGRAMS = ip ping tcpdump iperf3 nc nft curl ethtool valgrind python3 rsync pkg-config c++ musl-gcc

# Where cargo lays what it builds for tests.
DEBUG = $(or $(CARGO_TARGET_DIR),target)/debug
RELEASE = $(or $(CARGO_TARGET_DIR),target)/release

# Where `make install-c` installs.
PREFIX ?= /usr/local
LIBDIR ?= $(PREFIX)/lib
# The workspace's, which the header has, too.
C_VERSION = $(shell sed -n 's/^version = "\(.*\)"/\1/p' Cargo.toml)

# `make soak` takes these; a seed that failed is replayed with NETCHAN_SEED=<seed> NETCHAN_SEEDS=1.
SOAK_SEEDS ?= 2000
SOAK_WORLDS ?= 100000
# That filters are run over beside libpcap.
SOAK_PACKETS ?= 10000000
# Of the live stack, and of each fuzz target.
SOAK_FUZZ_SECONDS ?= 600
SOAK_BULK_MIB ?= 1024
# Words of nonsense over memory that applications share with a daemon and with each other, in each test.
SOAK_SCRIBBLES ?= 10000000
# Programs that end at a point of their lease's life; programs whose daemon ends.
SOAK_STORM ?= 10000
SOAK_ORPHANS ?= 1000
# Of each fuzz target.
FUZZ_SECONDS ?= 60

# `make test-full`: sequences of socket calls, of process calls, worlds (and connections taken apart), and minutes for mutants of changed code.
FULL_SEQUENCES ?= 1000
FULL_PROCESSES ?= 300
FULL_WORLDS ?= 10000
FULL_MUTANTS_MINUTES ?= 2
# `make mutants`, and how many percent must be killed.
MUTANTS_MINUTES ?= 1200
MUTANTS_LEAST ?= 95

.PHONY: help build install-c demo test skips-none test-tools test-all test-witness test-loom test-tsan test-system test-full mutants mutants-changed bench bench-contention lint doc man soak fuzz packetdrill suites programs

help:
	@echo 'make demo   build, then serve a file with an unmodified program over netchan and check what arrived'
	@echo 'make test   every crate'\''s tests and unmodified programs (as root also what needs network namespaces)'
	@echo 'make test-full  lock order, models, optimised builds, longer tests: FULL_SEQUENCES=$(FULL_SEQUENCES) FULL_MUTANTS_MINUTES=$(FULL_MUTANTS_MINUTES)'
	@echo 'make mutants    mutation testing of what docs/mutants.md names, hours (MUTANTS_MINUTES at most; needs cargo-mutants)'
	@echo 'make build  the release binaries, under target/release'
	@echo 'make install-c  the header and library for C: below DESTDIR=$(DESTDIR), PREFIX=$(PREFIX), LIBDIR=$(LIBDIR)'
	@echo 'make lint   formatting, clippy and rustdoc, warnings are errors'
	@echo 'make doc    the pages of the public items, under target/doc (those of the program: target/cli/doc)'
	@echo 'make man    man pages, under target/man'
	@echo 'make bench  the micro-benchmarks and the experiments of the lab'
	@echo 'make packetdrill SUITE=DIR   the public packetdrill scripts of a checkout; fails on one that passed before'
	@echo 'make suites PYTHON=FILE LTP=DIR LIBUV=FILE   test suites of other projects on the kernel and on netchan (as root)'
	@echo 'make programs [INSTALL=1] [ONLY=NAMES] [REDIS=DIR]   programs that people run, on the kernel and on netchan: redis, nginx, PostgreSQL, git, ssh ... (as root)'
	@echo 'make fuzz   every fuzz target, FUZZ_SECONDS=$(FUZZ_SECONDS) each (needs a nightly toolchain and cargo-fuzz)'
	@echo 'make soak   the long tests: SOAK_SEEDS=$(SOAK_SEEDS) SOAK_WORLDS=$(SOAK_WORLDS) SOAK_PACKETS=$(SOAK_PACKETS) SOAK_FUZZ_SECONDS=$(SOAK_FUZZ_SECONDS) SOAK_BULK_MIB=$(SOAK_BULK_MIB) SOAK_SCRIBBLES=$(SOAK_SCRIBBLES) SOAK_STORM=$(SOAK_STORM) SOAK_ORPHANS=$(SOAK_ORPHANS)'

build:
	$(CARGO) build --release --workspace

# docs/c.md. What is built is built by the user; what is installed may be by root.
install-c:
	$(CARGO) build --release -p netchan-c
	DESTDIR='$(DESTDIR)' crates/c/install $(RELEASE) $(C_VERSION) '$(PREFIX)' '$(LIBDIR)'

demo: build
	$(RELEASE)/netchan demo

test: skips-none test-tools test-all
	@.ci/skips count $(NETCHAN_SKIPS)

skips-none:
	@mkdir -p $(dir $(NETCHAN_SKIPS))
	@: > $(NETCHAN_SKIPS)

# Quiet when nothing is missing; tolerant of a machine without apt or without root: the tests that need a tool then say so.
test-tools:
	@missing=''; \
	for p in $(TEST_PROGRAMS); do PATH="$$PATH:/usr/sbin:/sbin" command -v $$p >/dev/null 2>&1 || missing="$$missing $$p"; done; \
	find /usr/lib -name libpcap.so 2>/dev/null | grep -q . || missing="$$missing libpcap.so"; \
	if [ -z "$$missing" ]; then exit 0; fi; \
	if [ "$$(id -u)" != 0 ] || ! command -v apt-get >/dev/null 2>&1; then \
		echo "make test: missing here:$$missing (packages: $(TEST_PACKAGES))"; exit 0; \
	fi; \
	echo "make test: installing what the tests use:$$missing"; \
	export DEBIAN_FRONTEND=noninteractive; \
	(apt-get -qq update; apt-get -qq install -y --no-install-recommends $(TEST_PACKAGES)) >/dev/null 2>&1 \
	|| echo "make test: could not install all of: $(TEST_PACKAGES)"

# Everything in one build: the system tests use its program, and the preload library that cargo otherwise lays beside the program only where it is
# asked to build (which has other features, and takes minutes).
test-all:
	$(CARGO) test --workspace --no-run
	ln -f $(DEBUG)/deps/libnetchan_preload.so $(DEBUG)/
	NETCHAN_SYSTEM=1 $(CARGO) test --workspace

# With lock order and internal books checked: builds of their own.
test-witness:
	$(CARGO) test -p percore --features witness
	PERCORE_WITNESS=abort $(CARGO) test -p netchan --features witness,invariants --lib --test path --test witness --test datagrams --test moving --test lending --test lending_frames --test lending_groups --test lending_loopback --test lending_sets --test shared_ports --test short_cuts --test pipes --test loopback --test leading
	PERCORE_WITNESS=abort $(CARGO) test -p netchan-link --features witness --lib
	PERCORE_WITNESS=abort NETCHAN_SEEDS=1 $(CARGO) test -p netchan-lab --features witness,invariants --test simulation

# The models of percore's primitives: every interleaving within loom's bounds.
test-loom:
	RUSTFLAGS='--cfg loom' $(CARGO) test -p percore --release --lib --target-dir target/loom

# The primitives' tests under the thread sanitizer; needs a nightly toolchain.
test-tsan:
	RUSTFLAGS='-Zsanitizer=thread -Cunsafe-allow-abi-mismatch=sanitizer' TSAN_OPTIONS="suppressions=$(CURDIR)/crates/percore/tsan.suppressions" \
	$(CARGO) +nightly test -p percore --lib --target x86_64-unknown-linux-gnu --target-dir target/tsan

# Real programs and the real Linux stack, in network namespaces: all cases, optimised.
test-system: build
	@mkdir -p $(dir $(NETCHAN_SKIPS))
	NETCHAN_SYSTEM=1 $(CARGO) test --release --workspace --test system

# packetdrill's public TCP scripts: SUITE is a checkout of the public project with packetdrill built in it. As root: in a mount namespace where sh is bash.
packetdrill:
	@test -n '$(SUITE)' || { echo 'make packetdrill SUITE=DIR: a checkout of packetdrill, with packetdrill built'; exit 1; }
	NETCHAN_PACKETDRILL='$(abspath $(SUITE))' unshare -m -n bash -c 'mount --bind "$$(command -v bash)" /bin/sh; \
		exec $(CARGO) test -p netchan-packetdrill --test suite -- --nocapture'

# Test suites of other projects, beside the kernel: docs/testing.md. PYTHON is an interpreter with its test package, LTP a checkout in which the tests of
# system calls are built, LIBUV a uv_run_tests. As root.
suites: build
	.ci/suites '$(RELEASE)/netchan' $(if $(PYTHON),python='$(PYTHON)') $(if $(LTP),ltp='$(abspath $(LTP))') $(if $(LIBUV),libuv='$(abspath $(LIBUV))')

# Programs that people run, beside the kernel: docs/testing.md. Those that are not installed are named; INSTALL=1 installs them (Debian). REDIS is a source
# tree of redis, for its own tests. As root.
programs: export INSTALL := $(INSTALL)
programs: export REDIS := $(if $(REDIS),$(abspath $(REDIS)))
programs: build
	.ci/programs '$(RELEASE)/netchan' $(ONLY)

# What takes minutes: after `make test`, whose builds it uses.
test-full: skips-none test-tools test-witness test-loom test-system
	$(CARGO) test -p netchan --no-default-features --test unsigned
	NETCHAN_SEEDS=$(FULL_SEQUENCES) $(CARGO) test -p netchan-preload --test sequences
	NETCHAN_SEEDS=$(FULL_PROCESSES) $(CARGO) test -p netchan-preload --test process_sequences
	NETCHAN_FULL=1 $(CARGO) test -p netchan-lab --test attacks -- --nocapture
	NETCHAN_SEEDS=$(FULL_WORLDS) $(CARGO) test --release -p netchan-lab --test tcp_world --test tcp_image
	.ci/mutants changed $(FULL_MUTANTS_MINUTES)
	@.ci/skips count $(NETCHAN_SKIPS)

mutants:
	MUTANTS_LEAST=$(MUTANTS_LEAST) .ci/mutants all $(MUTANTS_MINUTES)

# Only of code that changed since origin, or in the last four hours.
mutants-changed:
	.ci/mutants changed $(MUTANTS_MINUTES)

bench: build
	$(CARGO) bench --workspace
	$(RELEASE)/netchan lab run path steer channels crossbar slab counters trace locks sched interrupts epoch regimes dispatch giant-cost pipeline aggregation counter-in-a-server taps tcp
	@if [ "$$(id -u)" = 0 ]; then $(RELEASE)/netchan lab run services applications; \
	else echo 'make bench: without root there are no network namespaces, so no figures of services and applications'; fi

# In a build of its own, which counts and is slow for it.
bench-contention:
	$(CARGO) build --release -p netchan-cli --features operations --target-dir target/operations
	target/operations/release/netchan lab run contention

lint:
	$(CARGO) fmt --all --check
	$(CARGO) clippy --workspace --all-targets -- -D warnings
	$(CARGO) clippy -p proto -p netchan --lib --no-default-features -- -D warnings
	@! $(CARGO) tree -p netchan --no-default-features --edges normal | grep -E ' (aes|cmac|hmac|md-5|sha1) ' \
	|| { echo 'make lint: without tcp-auth netchan takes cryptography'; exit 1; }
	$(MAKE) doc

# The program and the library are both called netchan: the program's pages have a place of their own.
doc: export RUSTDOCFLAGS = -D warnings -D rustdoc::broken_intra_doc_links
doc:
	$(CARGO) doc --workspace --no-deps
	$(CARGO) rustdoc -p netchan-cli --bin netchan --config 'build.build-dir="target"' --target-dir target/cli

man:
	$(CARGO) run -p netchan-cli --quiet -- __man target/man
	@echo 'man -l target/man/netchan.1'

# Its programs are the tests' and nmap; servers (redis, nginx, sshd) are tried where they are installed, as installing starts them on some systems.
soak: TEST_PACKAGES += nmap
soak: TEST_PROGRAMS += nmap
soak: test-tools build
	NETCHAN_SEEDS=$(SOAK_SEEDS) $(CARGO) test --release -p netchan-lab --test simulation -- --nocapture
	NETCHAN_SEEDS=$(SOAK_WORLDS) $(CARGO) test --release -p netchan-lab --test tcp_world --test tcp_image
	NETCHAN_SEEDS=100000 $(CARGO) test -p netchan-preload --test sequences
	NETCHAN_SEEDS=2000 $(CARGO) test -p netchan-preload --test process_sequences
	NETCHAN_PACKETS=$(SOAK_PACKETS) $(CARGO) test --release --workspace --bin netchan -- --nocapture say_what_libpcap_says
	NETCHAN_SCRIBBLES=$(SOAK_SCRIBBLES) $(CARGO) test --release -p netchan --test lending_hostile -- --nocapture
	NETCHAN_SCRIBBLES=$(SOAK_SCRIBBLES) $(CARGO) test --release -p netchan-link --lib scribbles
	NETCHAN_SYSTEM=1 NETCHAN_SOAK=1 NETCHAN_FUZZ_SECONDS=$(SOAK_FUZZ_SECONDS) NETCHAN_BULK_MIB=$(SOAK_BULK_MIB) \
		NETCHAN_STORM=$(SOAK_STORM) NETCHAN_ORPHANS=$(SOAK_ORPHANS) \
		$(CARGO) test --release --workspace --test system
	@if [ "$$(id -u)" = 0 ]; then .ci/programs '$(RELEASE)/netchan'; else echo 'make soak: without root no programs were run'; fi
	@if $(CARGO) +nightly fuzz --version >/dev/null 2>&1; then $(MAKE) fuzz FUZZ_SECONDS=$(SOAK_FUZZ_SECONDS); else echo 'make soak: no nightly toolchain with cargo-fuzz, nothing was fuzzed'; fi

# What the fuzzer finds anew stays in fuzz/corpus, which is not kept; fuzz/seeds is, and small.
fuzz:
	for target in $$($(CARGO) +nightly fuzz list); do \
		mkdir -p fuzz/corpus/$$target fuzz/seeds/$$target; \
		$(CARGO) +nightly fuzz run $$target fuzz/corpus/$$target fuzz/seeds/$$target -- -max_total_time=$(FUZZ_SECONDS) || exit 1; \
	done
