#!/usr/bin/env bash
# The code in docs/adding-a-backend.md is code of examples/out_of_tree_backend, block by block.
set -euo pipefail
root=${1:?usage: document_test.sh SOURCE_DIR}
code=$(cat "$root"/examples/out_of_tree_backend/*)
blocks=0
while IFS= read -r -d '' block; do
  blocks=$((blocks + 1))
  if [[ $code != *"$block"* ]]; then
    echo "this code of docs/adding-a-backend.md is in no file of examples/out_of_tree_backend:"$'\n'"$block"
    exit 1
  fi
done < <(awk '/^```[a-z]+$/ { inside = 1; next } /^```$/ { inside = 0; printf "%c", 0; next } inside' \
  "$root/docs/adding-a-backend.md")
((blocks >= 6)) || { echo "only $blocks blocks of code found"; exit 1; }
echo "$blocks blocks of code are the example's"
