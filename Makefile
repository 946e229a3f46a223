# The commands of this project. `make` lists them.
SHELL := bash
TESTENV ?= $(CURDIR)/.testenv
export BASCULE_TESTENV := $(TESTENV)

.PHONY: help build demo test test-full soak bench bench-peers bench-instructions coverage lint test-env fuzz

help: ## list the commands
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:[^#]*## /\t/' | expand -t 20

build: ## build the program: target/release/bascule
	cargo build --release -p bascule

demo: build ## see it work: needs Rust and a C compiler, nothing else
	cargo build --release -p bascule-demo
	@scripts/demo

test-env: ## install the real MCP servers that the tests use
	@scripts/test-env

test: test-env ## run all tests: needs Node and Python too
	cargo build --workspace --bins
	cargo test --workspace

test-full: test-env ## the same with far more random cases, and the benchmarks as a check that they run
	cargo build --workspace --bins
	PROPTEST_CASES=5000 cargo test --workspace
	BASCULE_BENCH_QUICK=1 cargo bench -p bascule

soak: ## ten minutes of servers that are killed, stopped and changed while they are called (SOAK_SECONDS, SOAK_SEED)
	cargo build --workspace --bins
	SOAK_SECONDS=$${SOAK_SECONDS:-600} cargo test -p bascule --test soak -- --nocapture

fuzz: ## each parser of untrusted bytes, a minute long (FUZZ_SECONDS, FUZZ_SEED)
	cargo build --workspace --bins
	FUZZ_SECONDS=$${FUZZ_SECONDS:-60} cargo test -p bascule-mcp --all-features --lib fuzz:: -- --nocapture
	FUZZ_SECONDS=$${FUZZ_SECONDS:-60} cargo test -p bascule-script --lib fuzz:: -- --nocapture
	FUZZ_SECONDS=$${FUZZ_SECONDS:-60} cargo test -p bascule --test e2e fuzz:: -- --nocapture

bench: ## measure, side by side in one run
	cargo bench -p bascule

bench-peers: ## the same calls through other bridges and scripts in Deno, beside ours: installs them, needs Node and Python too
	@scripts/bench-peers

bench-instructions: ## count the instructions of one call (BASCULE_BENCH_BINARY, BENCH_PATH, BENCH_FUNCTIONS): needs valgrind
	@scripts/bench-instructions

coverage: test-env ## line coverage of our own crates (at least 85 %)
	@scripts/coverage

lint: ## formatting and lints, warnings are errors
	cargo fmt --all -- --check
	cargo clippy --workspace --all-targets -- -D warnings
	cargo clippy -p bascule-mcp --no-default-features -- -D warnings
	cargo clippy -p bascule-mcp --features server --all-targets -- -D warnings
