#!/usr/bin/env bash
# Run a command with mypy next to it: mypy uses one core, and few tests use both. Fail if either of them does.
set -uo pipefail

found=$(mktemp)
.venv/bin/mypy >"$found" 2>&1 &
mypy=$!
"$@"
status=$?
wait "$mypy" || status=1
cat "$found"
rm -f "$found"
exit "$status"
