# The scripts and the project's own files, checked by shell scripts. Exit status 77 means skipped.
foreach(name project_files setup_script junit_summary)
  add_test(NAME ${name} COMMAND bash ${CMAKE_CURRENT_LIST_DIR}/${name}_test.sh ${PROJECT_SOURCE_DIR})
  set_tests_properties(${name} PROPERTIES SKIP_RETURN_CODE 77 TIMEOUT 120)
endforeach()
