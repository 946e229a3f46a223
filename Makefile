# The commands of this project. `make` lists them.
SHELL := bash
TESTENV ?= $(CURDIR)/.testenv
export BASCULE_TESTENV := $(TESTENV)

.PHONY: help build demo test test-full compat soak soak-bus bench bench-peers bench-instructions bench-size coverage lint test-env fuzz eval-agent eval-search eval-graph token-table

help: ## list the commands
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:[^#]*## /\t/' | expand -t 20

build: ## build the program: target/release/bascule
	cargo build --release -p bascule

demo: build ## run the demonstration: needs only Rust and a C compiler
	cargo build --release -p bascule-demo
	cargo build --release -p bascule-agent --example agent
	@scripts/demo

test-env: ## install the real MCP servers that the tests use
	@scripts/test-env

test: test-env ## run all tests: also needs Node and Python
	@scripts/test

test-full: test-env ## run all tests with more random cases, and the benchmarks of the bridge and of search briefly; fails if a cost ratio is missed
	PROPTEST_CASES=5000 scripts/test
	cargo test --release -p bascule-store --test ten_million -- --nocapture
	BASCULE_BENCH_QUICK=1 cargo bench -p bascule
	BASCULE_BENCH_QUICK=1 cargo bench -p bascule-search --bench search

compat: build ## compare real servers direct and behind Bascule (COMPAT_ONLY, COMPAT_USER, COMPAT_FLAGS): long
	@scripts/compat $(COMPAT_FLAGS)

soak: ## kill, stop and change servers under load for ten minutes (SOAK_SECONDS, SOAK_SEED)
	cargo build --workspace --bins
	SOAK_SECONDS=$${SOAK_SECONDS:-600} cargo test -p bascule --test soak -- --nocapture

soak-bus: test-env ## kill replicas and brokers under load for ten minutes in all (SOAK_SECONDS for each broker, SOAK_SEED)
	cargo build --workspace --bins
	SOAK_SECONDS=$${SOAK_SECONDS:-300} cargo test -p bascule --test soak_bus -- --nocapture --test-threads 1

fuzz: ## fuzz each parser of untrusted bytes for a minute (FUZZ_SECONDS, FUZZ_SEED)
	cargo build --workspace --bins
	FUZZ_SECONDS=$${FUZZ_SECONDS:-60} cargo test -p bascule-mcp --all-features --lib fuzz:: -- --nocapture
	FUZZ_SECONDS=$${FUZZ_SECONDS:-60} cargo test -p bascule-script --lib fuzz:: -- --nocapture
	FUZZ_SECONDS=$${FUZZ_SECONDS:-60} cargo test -p bascule --test e2e fuzz:: -- --nocapture

bench: ## run all benchmarks
	cargo bench -p bascule
	cargo bench -p bascule-search
	cargo bench -p bascule-graph
	cargo bench -p bascule-store
	cargo bench -p bascule-agent
	cargo bench -p bascule-bus --all-features

bench-size: build ## measure the size of the program, and the memory of `serve` with 600 tools: needs Python
	@scripts/bench-size

eval-search: ## measure recall@5 of search on the sets in EVAL_DATA (with the model in EVAL_MODEL); fails below a floor
	EVAL_DATA=$${EVAL_DATA:?names the folder of the sets} cargo test --release -p bascule-search --test external_sets -- --nocapture

eval-graph: ## compare the prediction of tools, and search, with and without the graph on the sets in EVAL_DATA
	EVAL_DATA=$${EVAL_DATA:?names the folder of the sets} cargo test --release -p bascule-graph --test eval -- --nocapture

token-table: ## make the table of word pieces for search again: needs Python and npm, takes half an hour
	@scripts/token-table

bench-peers: ## compare with other bridges and with Deno: installs them, also needs Node and Python
	@scripts/bench-peers

bench-instructions: ## count the instructions of one call (BASCULE_BENCH_BINARY, BENCH_PATH, BENCH_FUNCTIONS): needs valgrind
	@scripts/bench-instructions

coverage: test-env ## measure line coverage; fails below 85 %
	@scripts/coverage

eval-agent: test-env ## run the agent tasks on real servers and print the score
	cargo build --workspace --bins
	cargo test -p bascule --test e2e scripts::agent_tasks -- --nocapture

lint: ## check formatting, lints (warnings are errors) and dependencies
	cargo fmt --all -- --check
	cargo clippy --workspace --all-targets -- -D warnings
	cargo clippy -p bascule-mcp --no-default-features -- -D warnings
	cargo clippy -p bascule --lib --no-default-features -- -D warnings
	cargo clippy -p bascule-mcp --features server --all-targets -- -D warnings
	@scripts/deny
