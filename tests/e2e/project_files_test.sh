#!/usr/bin/env bash
# Checks the tracked files: scripts parse, nothing names a machine's own paths or a package host, no source file is
# too long, the changelog has a place for the next change. Needs git and a work tree; exits 77 without.
set -uo pipefail
root=${1:?usage: project_files_test.sh SOURCE_DIR}
cd "$root" || exit 1
if ! command -v git >/dev/null 2>&1; then
  echo "skipped: git is not installed"
  exit 77
fi
if ! top=$(git rev-parse --show-toplevel 2>&1) || [[ $(cd "$top" && pwd -P) != "$(pwd -P)" ]]; then
  echo "skipped: not a git work tree: ${top##*$'\n'}"
  exit 77
fi

failures=0
fail() {
  echo "FAILED: $*"
  failures=$((failures + 1))
}

checked=0
while IFS= read -r -d '' file; do
  [[ -f $file ]] || continue
  head -c 64 "$file" | head -n 1 | grep -qaE '^#!.*\b(ba)?sh\b' || [[ $file == *.sh ]] || continue
  checked=$((checked + 1))
  bash -n "$file" || fail "$file does not parse"
  if [[ $file != scripts/lib/* ]]; then [[ -x $file ]] || fail "$file is not executable"; fi
done < <(git ls-files -z)
((checked >= 5)) || fail "only $checked shell scripts found; is the list right?"

# Machine paths and package hosts have no place in the project. The pattern does not match itself.
pattern='(^|[^A-Za-z0-9_.])/(work|farm)/|pypi\.org|python[h]osted|deb\.debian\.org'
found=$(git grep -I -n -E "$pattern" -- . | cut -c 1-200)
[[ -z $found ]] || fail "machine paths or package hosts:"$'\n'"$found"

# Source files stay small; data, documents and generated tables are no source files.
limit=700 sources=0
while IFS= read -r -d '' file; do
  [[ -f $file ]] || continue
  sources=$((sources + 1))
  lines=$(wc -l <"$file")
  ((lines <= limit)) || fail "$file has $lines lines, at most $limit are allowed: split it"
done < <(git ls-files -z -- '*.cc' '*.h' '*.c' '*.cu' '*.cuh' '*.py' '*.sh' '*.cmake' '*CMakeLists.txt')
((sources >= 10)) || fail "only $sources source files found; is the list right?"

grep -q '^## \[Unreleased\]$' CHANGELOG.md || fail "CHANGELOG.md has no line '## [Unreleased]'"
grep -q 'Apache License' LICENSE || fail "LICENSE is not the Apache License"

((failures == 0)) || exit 1
echo "$checked scripts and $sources source files checked"
