# `cadre serve` under load and under faults: thirty seconds of scripts/soak.sh, fairness, faults, tenants.
find_package(Python3 COMPONENTS Interpreter)
if(TARGET cadre AND Python3_FOUND)
  set(serve_args --binary $<TARGET_FILE:cadre> --source ${PROJECT_SOURCE_DIR})
  add_test(NAME serve_clients
    COMMAND ${Python3_EXECUTABLE} -B ${CMAKE_CURRENT_LIST_DIR}/serve_clients_test.py ${serve_args})
  set_tests_properties(serve_clients PROPERTIES TIMEOUT 300)
  foreach(name Shutdown Folder Requests)
    string(TOLOWER ${name} lower)
    add_test(NAME serve_faults_${lower}
      COMMAND ${Python3_EXECUTABLE} -B ${CMAKE_CURRENT_LIST_DIR}/serve_faults_test.py ${serve_args} ${name})
    set_tests_properties(serve_faults_${lower} PROPERTIES TIMEOUT 300)
  endforeach()
  foreach(name Sees Cache Limits)
    string(TOLOWER ${name} lower)
    add_test(NAME serve_tenants_${lower}
      COMMAND ${Python3_EXECUTABLE} -B ${CMAKE_CURRENT_LIST_DIR}/serve_tenants_test.py ${serve_args} ${name})
    set_tests_properties(serve_tenants_${lower} PROPERTIES TIMEOUT 300)
  endforeach()
  add_test(NAME serve_fairness
    COMMAND ${Python3_EXECUTABLE} -B ${CMAKE_CURRENT_LIST_DIR}/serve_fairness_test.py ${serve_args})
  # It measures time: nothing beside it.
  set_tests_properties(serve_fairness PROPERTIES TIMEOUT 300 RUN_SERIAL TRUE)
  add_test(NAME serve_soak COMMAND bash ${PROJECT_SOURCE_DIR}/scripts/soak.sh 30 --binary $<TARGET_FILE:cadre>)
  # The longest of all begins first, so that none is left to run alone.
  set_tests_properties(serve_soak PROPERTIES TIMEOUT 300 COST 100)
endif()
