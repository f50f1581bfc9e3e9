# The example of a backend outside cadre, built with the tests: the gate, the explanation, the rehearsal and the engine
# treat it like one of the built-in ones.
add_subdirectory(${PROJECT_SOURCE_DIR}/examples/out_of_tree_backend ${CMAKE_CURRENT_BINARY_DIR}/out_of_tree_backend)
cadre_test(out_of_tree SOURCES ${CMAKE_CURRENT_LIST_DIR}/out_of_tree/out_of_tree_test.cc
  ${CMAKE_CURRENT_LIST_DIR}/out_of_tree/sweep_test.cc DEPS engine LIBS scalar_backend)
add_test(NAME out_of_tree_demo
  COMMAND scalar_demo ${PROJECT_SOURCE_DIR}/examples/models/qwen3_moe "In the beginning")
set_tests_properties(out_of_tree_demo PROPERTIES PASS_REGULAR_EXPRESSION "backend: scalar_silu\n" TIMEOUT 120)
add_test(NAME out_of_tree_document COMMAND bash ${CMAKE_CURRENT_LIST_DIR}/out_of_tree/document_test.sh
  ${PROJECT_SOURCE_DIR})
