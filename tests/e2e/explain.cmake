# What `cadre explain` says of the demo models and of examples/specs, against reviewed snapshots; plans, devices, specs.
find_package(Python3 COMPONENTS Interpreter)
if(TARGET cadre AND Python3_FOUND)
  foreach(name Snapshots Plans Refusals Rehearsal Check)
    string(TOLOWER ${name} lower)
    add_test(NAME explain_${lower}
      COMMAND ${Python3_EXECUTABLE} -B ${CMAKE_CURRENT_LIST_DIR}/explain_test.py --binary $<TARGET_FILE:cadre>
        --source ${PROJECT_SOURCE_DIR} --goldens ${CADRE_GOLDENS_DIR} ${name})
    set_tests_properties(explain_${lower} PROPERTIES TIMEOUT 300)
  endforeach()
endif()
