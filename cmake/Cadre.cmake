# What every target of the project shares: language level, warnings, sanitizers, and the three kinds of target.

include(GNUInstallDirs)

set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_C_STANDARD 11)
set(CMAKE_C_EXTENSIONS OFF)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)
set(CMAKE_CXX_VISIBILITY_PRESET hidden)
set(CMAKE_C_VISIBILITY_PRESET hidden)
set(CMAKE_VISIBILITY_INLINES_HIDDEN ON)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)

find_package(Threads REQUIRED)

# Precompiled headers make a whole build shorter. They are in the way of ccache, which makes later ones shorter, and of
# whoever looks at the includes.
set(pch ON)
if(CMAKE_CXX_COMPILER_LAUNCHER OR CMAKE_CXX_CLANG_TIDY OR CADRE_FUZZ)
  set(pch OFF)
endif()
option(CADRE_PCH "precompile headers of tests and of code that is not optimised" ${pch})

add_library(cadre_options INTERFACE)
target_compile_options(cadre_options INTERFACE
  -Wall -Wextra -Wconversion -Wshadow -Wno-sign-conversion
  # Option structs are written with the fields that matter; the rest have defaults.
  -Wno-missing-field-initializers
  # No contraction behind our back: the same source gives the same bits with every compiler.
  -ffp-contract=off
  # g++ 12 reports overlaps of 2^63 bytes inside std::string (its bug 105651) and uninitialised strings in aggregates
  # that have default initialisers; clang's analyser and the sanitizers watch for the real ones.
  $<$<CXX_COMPILER_ID:GNU>:-Wno-restrict> $<$<CXX_COMPILER_ID:GNU>:-Wno-maybe-uninitialized>
  $<$<BOOL:${CADRE_WERROR}>:-Werror>)
if(CADRE_SANITIZE)
  target_compile_options(cadre_options INTERFACE -fsanitize=${CADRE_SANITIZE} -fno-omit-frame-pointer
    -fno-sanitize-recover=all)
  target_link_options(cadre_options INTERFACE -fsanitize=${CADRE_SANITIZE})
endif()
if(CADRE_FUZZ)
  target_compile_options(cadre_options INTERFACE -fsanitize=fuzzer-no-link)
endif()

# cadre_cold(<target> [kind]): its code runs once for a request or a file. It is optimised for the time it takes to build;
# with sanitizers, where clang's optimiser is half of that, not at all. With CADRE_PCH it includes what
# cmake/precompiled/<kind>.h names, parsed once for all targets of the kind.
function(cadre_cold target)
  set(kind cold)
  if(ARGC GREATER 1)
    set(kind ${ARGV1})
  endif()
  target_compile_options(${target} PRIVATE $<$<CONFIG:Release>:-O1>)
  if(CADRE_SANITIZE AND NOT CADRE_FUZZ)
    target_compile_options(${target} PRIVATE $<$<CONFIG:RelWithDebInfo>:-O0>)
  endif()
  if(CADRE_PCH)
    # g++ 12 sees accesses past the end of std::string that are not there, once its headers are precompiled: what it
    # hides in system headers otherwise. Builds without CADRE_PCH look for real ones.
    target_compile_options(${target} PRIVATE $<$<CXX_COMPILER_ID:GNU>:-Wno-array-bounds>
      $<$<CXX_COMPILER_ID:GNU>:-Wno-stringop-overflow> $<$<CXX_COMPILER_ID:GNU>:-Wno-stringop-overread>)
    set(owner cadre_precompiled_${kind})
    if(NOT target STREQUAL owner)
      target_precompile_headers(${target} REUSE_FROM ${owner})
    endif()
  endif()
endfunction()

# cadre_warm(<target>): its speed counts, but not with sanitizers.
function(cadre_warm target)
  if(CADRE_SANITIZE AND NOT CADRE_FUZZ)
    cadre_cold(${target})
  endif()
endfunction()

# cadre_precompiled(<kind> LIBRARY|PROGRAM [LIBS ...]): what cadre_cold of that kind needs. Libraries and programs are
# compiled with different options.
function(cadre_precompiled kind type)
  cmake_parse_arguments(ARG "" "" "LIBS" ${ARGN})
  set(source ${PROJECT_BINARY_DIR}/precompiled_${kind}.cc)
  file(WRITE ${source} "int main() { return 0; }\n")
  if(type STREQUAL "PROGRAM")
    add_executable(cadre_precompiled_${kind} EXCLUDE_FROM_ALL ${source})
  else()
    add_library(cadre_precompiled_${kind} OBJECT EXCLUDE_FROM_ALL ${source})
  endif()
  target_link_libraries(cadre_precompiled_${kind} PRIVATE cadre_options ${ARG_LIBS})
  target_precompile_headers(cadre_precompiled_${kind} PRIVATE ${PROJECT_SOURCE_DIR}/cmake/precompiled/${kind}.h)
  cadre_cold(cadre_precompiled_${kind} ${kind})
endfunction()
if(CADRE_PCH)
  cadre_precompiled(cold LIBRARY)
endif()

# cadre_library(<folder> SOURCES ... [DEPS folder ...] [LIBS external ...])
# One static library for one folder of src/. DEPS are the folders it may use; nothing else is linked, so an include
# against the direction of docs/design.md section 6 fails in the arrow test of that folder.
function(cadre_library name)
  cmake_parse_arguments(ARG "" "" "SOURCES;DEPS;LIBS" ${ARGN})
  add_library(cadre_${name} STATIC ${ARG_SOURCES})
  target_include_directories(cadre_${name} PUBLIC ${PROJECT_SOURCE_DIR}/src ${PROJECT_SOURCE_DIR}/include)
  list(TRANSFORM ARG_DEPS PREPEND cadre_)
  target_link_libraries(cadre_${name} PRIVATE cadre_options PUBLIC ${ARG_DEPS} ${ARG_LIBS})
  set_property(GLOBAL APPEND PROPERTY CADRE_LIBRARIES ${name})
endfunction()

# cadre_test(<name> SOURCES ... DEPS folder ... [LIBS ...] [LABELS ...])
# One GoogleTest program. It may use tests/support and the unpacked goldens (CADRE_GOLDENS). LABELS input: it reads what
# comes from outside, so it is also built and run with sanitizers.
function(cadre_test name)
  cmake_parse_arguments(ARG "" "" "SOURCES;DEPS;LABELS;LIBS" ${ARGN})
  add_executable(test_${name} ${ARG_SOURCES})
  list(TRANSFORM ARG_DEPS PREPEND cadre_)
  target_link_libraries(test_${name} PRIVATE cadre_options cadre_test_support ${ARG_DEPS} ${ARG_LIBS}
    GTest::gmock GTest::gtest_main)
  # Nothing measures the tests' own code, and they are half of the build.
  cadre_cold(test_${name} test)
  add_test(NAME ${name} COMMAND test_${name})
  set_tests_properties(${name} PROPERTIES LABELS "${ARG_LABELS}" TIMEOUT 600)
  add_dependencies(test_${name} cadre_goldens)
  if("input" IN_LIST ARG_LABELS)
    add_dependencies(input_tests test_${name})
  endif()
endfunction()

# cadre_fuzzer(<name> SOURCES ... DEPS folder ...)
# A file that defines LLVMFuzzerTestOneInput. With CADRE_FUZZ it is a libFuzzer program fuzz_<name>; always, it is a
# test that replays the cases once found in tests/fuzz/corpus/<name>.
function(cadre_fuzzer name)
  cmake_parse_arguments(ARG "" "" "SOURCES;DEPS" ${ARGN})
  list(TRANSFORM ARG_DEPS PREPEND cadre_)
  if(CADRE_FUZZ)
    add_executable(fuzz_${name} ${ARG_SOURCES})
    target_link_libraries(fuzz_${name} PRIVATE cadre_options ${ARG_DEPS})
    target_link_options(fuzz_${name} PRIVATE -fsanitize=fuzzer)
  endif()
  add_executable(replay_${name} ${ARG_SOURCES} ${PROJECT_SOURCE_DIR}/tests/fuzz/replay_main.cc)
  target_link_libraries(replay_${name} PRIVATE cadre_options ${ARG_DEPS})
  add_dependencies(input_tests replay_${name})
  add_test(NAME fuzz_replay_${name}
    COMMAND replay_${name} ${PROJECT_SOURCE_DIR}/tests/fuzz/corpus/${name})
  set_tests_properties(fuzz_replay_${name} PROPERTIES LABELS "input" TIMEOUT 300)
endfunction()
