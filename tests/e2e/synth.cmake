# Random models of every family, as the program makes, runs and serves them.
find_package(Python3 COMPONENTS Interpreter)
if(TARGET cadre AND Python3_FOUND)
  foreach(name Families Dummy Wrong Large)
    string(TOLOWER ${name} lower)
    add_test(NAME synth_${lower}
      COMMAND ${Python3_EXECUTABLE} -B ${CMAKE_CURRENT_LIST_DIR}/synth_test.py --binary $<TARGET_FILE:cadre>
        --source ${PROJECT_SOURCE_DIR} --goldens ${CADRE_GOLDENS_DIR} ${name})
    set_tests_properties(synth_${lower} PROPERTIES TIMEOUT 600)
  endforeach()
endif()
