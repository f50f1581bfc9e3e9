# `cadre serve` as its users meet it. Those with the openai client make a Python environment in the build folder, and
# are skipped where that cannot be done.
find_package(Python3 COMPONENTS Interpreter)
if(TARGET cadre AND Python3_FOUND)
  # The newest that Python 3.9 can still install.
  set(openai_package openai==2.48.0)
  set(serve_args --binary $<TARGET_FILE:cadre> --source ${PROJECT_SOURCE_DIR})
  set(with_openai bash ${PROJECT_SOURCE_DIR}/scripts/lib/python_env.sh ${CMAKE_BINARY_DIR}/python_env
    ${openai_package} --)
  foreach(name Qwen Nemotron)
    string(TOLOWER ${name} lower)
    add_test(NAME serve_equality_${lower}
      COMMAND ${Python3_EXECUTABLE} -B ${CMAKE_CURRENT_LIST_DIR}/serve_equality_test.py ${serve_args} ${name})
  endforeach()
  add_test(NAME serve_openai COMMAND ${with_openai} -B ${CMAKE_CURRENT_LIST_DIR}/serve_openai_test.py ${serve_args})
  add_test(NAME serve_operation
    COMMAND ${Python3_EXECUTABLE} -B ${CMAKE_CURRENT_LIST_DIR}/serve_operation_test.py ${serve_args})
  add_test(NAME serve_examples
    COMMAND ${Python3_EXECUTABLE} -B ${CMAKE_CURRENT_LIST_DIR}/serve_examples_test.py ${serve_args} Shell)
  add_test(NAME serve_examples_openai
    COMMAND ${with_openai} -B ${CMAKE_CURRENT_LIST_DIR}/serve_examples_test.py ${serve_args} Python)
  set_tests_properties(serve_equality_qwen serve_equality_nemotron serve_openai serve_operation serve_examples
    serve_examples_openai PROPERTIES SKIP_RETURN_CODE 77 TIMEOUT 600)
endif()
