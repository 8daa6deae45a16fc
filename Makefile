# What people do with this tree. Everything runs without root; tests that need a program that is missing say so and are
# skipped.

SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help

CARGO ?= cargo
BINARIES := -p cloud-broker -p k8s-agent -p cloudstack-simulator
# The demo: leave it running with KEEP=1, show the other backend with BACKEND=keepalived.
KEEP ?=
BACKEND ?= cloudstack
# Images: their names begin with this, and their tag. deploy/ names these defaults.
IMAGE_PREFIX ?= localhost/cloudstack-ccm
TAG ?= dev
CONTAINER ?= $(shell command -v docker || command -v podman || echo docker)

# A folder with what tests can use where it is there: `cloudstack/up` starts a real CloudStack, `peers/` has other controllers.
E2E_SHARED ?= ../shared
override E2E_SHARED := $(abspath $(E2E_SHARED))
CLOUDSTACK ?= $(E2E_SHARED)/cloudstack

export KEEP BACKEND E2E_SHARED

.PHONY: help build control-plane chart-tools demo test test-all unit e2e lint bench manifests images push render

help: ## List the targets
	@grep -hE '^[a-z0-9-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 18

build: ## Build the programs
	$(CARGO) build --locked $(BINARIES)

control-plane: ## Build etcd and kube-apiserver for tests and demo (four minutes the first time)
	@e2e/control-plane/build.sh

# Where these can't be had, the tests of the chart say so and are skipped.
chart-tools:
	@if e2e/helm/build.sh >/dev/null; then e2e/control-plane/build.sh >/dev/null; else [[ $$? == 3 ]]; fi

demo: build control-plane ## Show it all on this machine: KEEP=1 leaves it running, BACKEND=keepalived
	@$(CARGO) run --locked --quiet -p e2e --bin demo

test: lint unit e2e ## Format, lints, unit tests, the whole as processes; of what takes long a sample

unit: chart-tools ## Unit tests, property tests, tests of each half
	$(CARGO) test --locked --workspace --exclude e2e -- --show-output
	$(CARGO) test --locked -p e2e --lib --bins -- --show-output

e2e: build control-plane ## The whole as processes: simulator, and a real CloudStack where one is there
	$(CARGO) test --locked -p e2e --test all

test-all: lint unit build control-plane ## The same, and everything that takes long
	@if [[ -x $(CLOUDSTACK)/up ]]; then \
	  $(CLOUDSTACK)/up --state target/e2e/cloudstack --port 18580 >/dev/null; \
	  source target/e2e/cloudstack/env.sh; \
	  $(CARGO) test --locked --workspace --exclude e2e -- --ignored; \
	else echo "SKIPPED: tests against a real CloudStack: CLOUDSTACK names no folder with the program up"; fi
	E2E_FULL=1 $(CARGO) test --locked -p e2e --test all

lint: ## Format, lints, documentation
	$(CARGO) fmt --all --check
	$(CARGO) clippy --locked --workspace --all-targets -- -D warnings
	RUSTDOCFLAGS="-D warnings" $(CARGO) doc --locked --workspace --no-deps --quiet
	if command -v gofmt >/dev/null; then test -z "$$(gofmt -l e2e/control-plane)"; fi

bench: control-plane ## Calls, seconds and memory beside the Go controllers (half an hour)
	$(CARGO) build --locked --release $(BINARIES)
	E2E_BIN_DIR=target/release $(CARGO) run --locked --quiet -p e2e --bin bench

manifests: ## Write the one-file manifests, the chart's rights and the page of rights from deploy/
	$(CARGO) run --locked --quiet -p e2e --bin manifests

images: ## Build both container images
	$(CONTAINER) build -f Dockerfile.broker -t $(IMAGE_PREFIX)-broker:$(TAG) .
	$(CONTAINER) build -f Dockerfile.agent -t $(IMAGE_PREFIX)-agent:$(TAG) .

push: ## Push both images: make images push IMAGE_PREFIX=registry.example/team/cloudstack-ccm TAG=0.1.0
	$(CONTAINER) push $(IMAGE_PREFIX)-broker:$(TAG)
	$(CONTAINER) push $(IMAGE_PREFIX)-agent:$(TAG)

render: ## Write the one-file manifests with IMAGE_PREFIX and TAG to target/manifests
	@mkdir -p target/manifests
	@for file in deploy/*.yaml; do \
	  sed -E 's#(image: )localhost/cloudstack-ccm-(agent|broker):dev#\1$(IMAGE_PREFIX)-\2:$(TAG)#' "$$file" \
	    >target/manifests/"$${file##*/}"; \
	  echo "target/manifests/$${file##*/}"; \
	done
