# The program as its users type it. One test for each class, so that they run side by side and fail by name.
find_package(Python3 COMPONENTS Interpreter)
if(TARGET cadre AND Python3_FOUND)
  set(cli_args --binary $<TARGET_FILE:cadre> --source ${PROJECT_SOURCE_DIR} --goldens ${CADRE_GOLDENS_DIR})
  foreach(name Usage Document Tokenize Run Sampling Reference Elements Chat Logits AdapterCheck Explain Terminal
               BadInput Interrupt Streams)
    string(TOLOWER ${name} lower)
    add_test(NAME cli_${lower}
      COMMAND ${Python3_EXECUTABLE} -B ${CMAKE_CURRENT_LIST_DIR}/cli_test.py ${cli_args} ${name})
    set_tests_properties(cli_${lower} PROPERTIES TIMEOUT 900)
  endforeach()
  set_tests_properties(cli_badinput PROPERTIES LABELS input)
  add_dependencies(input_tests cadre)
endif()
