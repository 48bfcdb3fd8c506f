# Every target is one line of manage.py, which works without make too.
PYTHON ?= python3
DEVICE ?= cpu
export DEVICE

.PHONY: help preflight setup demo up down ps clean login-link webui screenshots \
	test test-unit test-database test-integration test-e2e test-faults test-sandbox test-sim test-slurm test-api test-docs test-gpu audit bench lint format lock

help:
	@$(PYTHON) manage.py help

preflight setup demo up down ps clean login-link webui screenshots:
	@$(PYTHON) manage.py $@

test:
	@$(PYTHON) manage.py selftest

test-unit:
	@$(PYTHON) manage.py selftest --lanes unit

test-integration:
	@$(PYTHON) manage.py selftest --lanes integration,trainer-integration

test-database test-e2e test-faults test-sandbox test-sim test-slurm test-api test-docs:
	@$(PYTHON) manage.py selftest --lanes $(@:test-%=%)

# With a GPU the node environment is the CUDA one; without, every test of the lane is a skip that says so.
test-gpu:
	@$(PYTHON) manage.py selftest --lanes gpu --device $(if $(wildcard /proc/driver/nvidia/gpus/*),cuda,$(DEVICE))

# All measures, or ONLY=key,key.
bench:
	@$(PYTHON) manage.py bench --only "$(ONLY)"

# What is known against the pinned packages; asks the package index.
audit:
	@$(PYTHON) manage.py selftest --lanes audit

lint:
	@$(PYTHON) manage.py selftest --lanes static

format:
	@.venv/bin/ruff check --fix --quiet . ; .venv/bin/ruff format .

# Makes the pinned lists again from constraints/*.in; needs `uv` on PATH.
lock:
	@constraints/lock.sh
