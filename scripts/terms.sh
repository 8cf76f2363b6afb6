#!/bin/sh
# terms.sh [SEED]: draws 40 names and 40 texts of the product, as a table to answer. See CONTRIBUTING, Naming.
set -eu
cd "$(dirname "$0")/.."
CGO_ENABLED=0 GOFLAGS="${GOFLAGS:-} -trimpath" exec go run ./internal/tools/terms -seed "${1:-1}"
