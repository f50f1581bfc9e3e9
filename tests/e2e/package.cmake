# The installed package, used by a project of its own. Only the shared library is built and installed here, so that the
# test also works in a build directory without the program.
if(TARGET cadre_shared)
  add_test(NAME package
    COMMAND bash ${CMAKE_CURRENT_LIST_DIR}/package_test.sh ${PROJECT_SOURCE_DIR} ${PROJECT_BINARY_DIR})
  set_tests_properties(package PROPERTIES SKIP_RETURN_CODE 77 TIMEOUT 600 ENVIRONMENT
    "CMAKE=${CMAKE_COMMAND};CC=${CMAKE_C_COMPILER};CXX=${CMAKE_CXX_COMPILER};NM=${CMAKE_NM};GENERATOR=${CMAKE_GENERATOR};SANITIZE=${CADRE_SANITIZE}")
endif()
