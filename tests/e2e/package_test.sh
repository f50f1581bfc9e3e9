#!/usr/bin/env bash
# Installs cadre from a build directory and uses it as others do: headers alone, exported symbols, a CMake project in C++
# and C, pkg-config. CTest gives CMAKE, CC, CXX, NM, GENERATOR and SANITIZE of the build in the environment.
set -euo pipefail
usage="usage: package_test.sh SOURCE_DIR BUILD_DIR"
root=${1:?$usage} build=${2:?$usage}
: "${CMAKE:=cmake}" "${CC:=cc}" "${CXX:=c++}" "${NM:=nm}" "${GENERATOR:=Ninja}" "${SANITIZE:=}"

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
prefix=$work/prefix

fail() {
  echo "FAILED: $*"
  exit 1
}
equal() {  # what got want
  [[ $2 == "$3" ]] || fail "$1: got '$2', want '$3'"
}

flags=()
if [[ -n $SANITIZE ]]; then
  flags=("-fsanitize=$SANITIZE")
  # libcadre needs the part of the sanitizer's runtime that clang links to C++ programs only.
  if "$CC" --version | grep -q clang; then flags+=(-fsanitize-link-c++-runtime); fi
fi

echo "== install"
"$CMAKE" --build "$build" --target cadre_shared
for component in library development; do
  "$CMAKE" --install "$build" --prefix "$work/first" --component "$component" >>"$work/install.log"
done
mv "$work/first" "$prefix"  # an installed tree can be moved
libdir=$(dirname "$(find "$prefix" -name libcadre.so)")
[[ -f $libdir/libcadre.so ]] || fail "no libcadre.so in the prefix: $(cat "$work/install.log")"
extra=$(find "$prefix" -name '*.a' -o -name '*.o')
[[ -z $extra ]] || fail "installed, and should not be: $extra"
found=$(grep -rniE 'simdjson|pcre|utf8proc|xxhash|threads' "$libdir/cmake" "$libdir/pkgconfig" || true)
[[ -z $found ]] || fail "the package asks its users for other packages: $found"
# The program comes with everything else where it has been built; building it is not for this test.
version=$(sed -n 's/^CMAKE_PROJECT_VERSION:STATIC=//p' "$build/CMakeCache.txt")
if [[ -x $build/src/cli/cadre ]]; then
  "$CMAKE" --install "$build" --prefix "$work/all" >>"$work/install.log"
  got=$("$work/all/bin/cadre" --version)
  [[ $got == *"$version"* ]] || fail "the installed cadre --version says '$got', want $version"
  (cd "$prefix" && find . -name '*.so*' -o -name '*.h' -o -name '*.cmake' -o -name '*.pc') | while IFS= read -r file; do
    [[ -e $work/all/$file ]] || fail "a full install lacks $file"
  done
fi

echo "== exported symbols"
# Names only, without argument lists, qualifiers and what clang and g++ add to tell copies apart.
symbols=$("$NM" -D --defined-only -C "$libdir/libcadre.so" | cut -d' ' -f3-)
(($(wc -l <<<"$symbols") > 40)) || fail "libcadre.so exports only: $symbols"
unwanted=$(grep -vE '^(cadre_[a-z_]+|((typeinfo( name)?|vtable) for )?cadre::[A-Za-z_:~0-9]+(\[abi:[a-z0-9]+\])*(\(.*)?)$' \
  <<<"$symbols" || true)
[[ -z $unwanted ]] || fail "libcadre.so exports what is no interface of ours:"$'\n'"$unwanted"
# Each name is one that a public header declares.
declared=$(cat "$prefix"/include/cadre/*.h)
while IFS= read -r symbol; do
  name=${symbol#typeinfo name for }
  name=${name#typeinfo for }
  name=${name#vtable for }
  name=${name%%(*}
  name=${name%%\[abi:*}
  IFS=: read -ra parts <<<"${name//::/:}"
  for part in "${parts[@]}"; do
    [[ $part == Impl ]] && fail "libcadre.so exports an implementation detail: $symbol"
    grep -qE "(^|[^A-Za-z0-9_])${part#\~}([^A-Za-z0-9_]|\$)" <<<"$declared" ||
      fail "libcadre.so exports '$symbol', but no public header declares '$part'"
  done
done <<<"$symbols"
# Each C function that the header declares is there.
functions=$(grep -oE '\bcadre_[a-z_]+\(' "$prefix/include/cadre/cadre.h" | tr -d '(' | sort -u)
(($(wc -l <<<"$functions") >= 19)) || fail "cadre.h declares only: $functions"
absent=$(comm -23 <(printf '%s\n' "$functions") <(sort -u <<<"$symbols"))
[[ -z $absent ]] || fail "declared in cadre.h and not exported: $absent"

echo "== headers alone"
for header in "$prefix"/include/cadre/*.h; do
  name=cadre/$(basename "$header")
  # No Wshadow and the like: these are the consumer's flags to choose.
  printf '#include <%s>\n#include <%s>\n' "$name" "$name" >"$work/alone.cc"
  "$CXX" -std=c++20 -Wall -Wextra -Wpedantic -Werror -fsyntax-only -I"$prefix/include" "$work/alone.cc" ||
    fail "$name does not compile alone as C++"
done
printf '#include <cadre/cadre.h>\n#include <cadre/cadre.h>\n' >"$work/alone.c"
"$CC" -std=c11 -Wall -Wextra -Wpedantic -Wconversion -Wstrict-prototypes -Werror -fsyntax-only -I"$prefix/include" \
  "$work/alone.c" || fail "cadre/cadre.h does not compile alone as C11"
printf '#include <cadre/engine.h>\n#include <cadre/cadre.h>\n' >"$work/both.cc"
"$CXX" -std=c++20 -Wall -Wextra -Wpedantic -Werror -fsyntax-only -I"$prefix/include" "$work/both.cc" ||
  fail "cadre.h and engine.h do not go together"

echo "== a project that finds the package"
cp -r "$root/examples/consumer" "$work/consumer"
"$CMAKE" -S "$work/consumer" -B "$work/build" -G "$GENERATOR" -DCMAKE_PREFIX_PATH="$prefix" -DCMAKE_BUILD_TYPE=Debug \
  -DCMAKE_C_COMPILER="$CC" -DCMAKE_CXX_COMPILER="$CXX" -DCMAKE_C_FLAGS="${flags[*]:-} -Werror" \
  -DCMAKE_CXX_FLAGS="${flags[*]:-} -Werror" >"$work/configure.log" 2>&1 || fail "$(cat "$work/configure.log")"
found=$(sed -n 's/^cadre_DIR:PATH=//p' "$work/build/CMakeCache.txt")
[[ $found == "$prefix"/* ]] || fail "the project found cadre in $found, want it in $prefix"
"$CMAKE" --build "$work/build" >"$work/build.log" 2>&1 || fail "$(cat "$work/build.log")"
model=$root/examples/models/qwen3_moe
answers=()
for program in consumer consumer_c; do
  got=$("$work/build/$program" "$model" "$model/adapters/elements" "$work/consumer/layer.json")
  [[ $got =~ ^"Au, number 79"$'\n'"backend: "[a-z0-9_]+$ ]] || fail "$program says '$got'"
  answers+=("$got")
  if got=$("$work/build/$program" "$work" "$work" "$work" 2>&1); then fail "$program accepts a folder that is no model"; fi
  grep -qE "^$program: not_found: .*config\.json" <<<"$got" || fail "$program does not say what is missing: $got"
done
equal "what consumer_c says" "${answers[1]}" "${answers[0]}"

echo "== the code in docs/embedding.md is the example's"
examples=$(cat "$root"/examples/consumer/{consumer.cc,consumer.c,layer.json,CMakeLists.txt})
blocks=0
while IFS= read -r -d '' block; do
  blocks=$((blocks + 1))
  [[ $examples == *"$block"* ]] || fail "this code of docs/embedding.md is in no file of examples/consumer:"$'\n'"$block"
done < <(awk '/^```[a-z]+$/ { inside = 1; next } /^```$/ { inside = 0; printf "%c", 0; next } inside' \
  "$root/docs/embedding.md")
((blocks >= 5)) || fail "docs/embedding.md has only $blocks blocks of code"

echo "== pkg-config and the C interface"
command=("$CC" -std=c11 -Wall -Wextra -Wpedantic -Wconversion -Werror -pthread -g "${flags[@]}" "$root/tests/e2e/c_interface_test.c")
if command -v pkg-config >/dev/null 2>&1; then
  export PKG_CONFIG_PATH=$libdir/pkgconfig
  read -ra package <<<"$(pkg-config --cflags --libs cadre)"
  equal "version of cadre.pc" "$(pkg-config --modversion cadre)" "$version"
else
  echo "no pkg-config here: cadre.pc is not tried"
  package=(-I"$prefix/include" -L"$libdir" -lcadre)
fi
"${command[@]}" -o "$work/c_interface_test" "${package[@]}" -Wl,-rpath,"$libdir"
"$work/c_interface_test" "$model" "$version"

echo "the package works"
