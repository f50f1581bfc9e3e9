#!/usr/bin/env bash
# Runs Python with packages that the system need not have, from a virtual environment that is made once and kept.
#
# usage: python_env.sh DIR PACKAGE... -- PYTHON_ARGUMENT...
#
# Where the environment cannot be made (no python3-venv, no network) it says so in a line "skipped: REASON" and ends
# with status 77, which ctest and scripts/test.sh count as a skipped test.
set -euo pipefail
if (($# < 4)); then
  echo "usage: python_env.sh DIR PACKAGE... -- PYTHON_ARGUMENT..." >&2
  exit 2
fi
dir=$1 packages=()
shift
while (($#)) && [[ $1 != -- ]]; do
  packages+=("$1")
  shift
done
shift

skip() {
  printf 'skipped: %s\n' "$1"
  exit 77
}

# make: the whole environment, or none: the stamp comes last.
make() {
  local log=$dir.log
  rm -rf "$dir"
  python3 -m venv "$dir" >"$log" 2>&1 || skip "python3 cannot make a virtual environment; is python3-venv installed?"
  # A machine without a network is told apart in seconds.
  if ! "$dir/bin/python" -m pip install --quiet --disable-pip-version-check --no-input --retries 1 --timeout 15 \
    "${packages[@]}" >"$log" 2>&1 </dev/null; then
    local reason
    reason=$(grep -m 1 '^ERROR' "$log") || reason=$(tail -n 1 "$log")
    reason=${reason#ERROR: }
    skip "${packages[*]} cannot be installed: ${reason%% (from versions*}"
  fi
  printf '%s\n' "${packages[*]}" >"$dir/packages"
}

command -v python3 >/dev/null 2>&1 || skip "python3 is not installed"
mkdir -p "$(dirname "$dir")"
# Tests run side by side, and one of them makes it.
exec 9>"$dir.lock"
flock 9
if [[ ! -f $dir/packages || $(<"$dir/packages") != "${packages[*]}" ]] || ! "$dir/bin/python" -c '' 2>/dev/null; then
  make
fi
exec 9>&-
exec "$dir/bin/python" "$@"
