# Chat templates: our own tests, and the same templates rendered by Jinja2 where Python has it.
find_package(nlohmann_json 3.11 REQUIRED)
cadre_test(chat_template SOURCES chat_template_test.cc chat_template_error_test.cc chat_template_files_test.cc DEPS text
  LABELS input)

add_executable(chat_template_render chat_template_render.cc)
target_link_libraries(chat_template_render PRIVATE cadre_options cadre_text nlohmann_json::nlohmann_json)

find_package(Python3 COMPONENTS Interpreter)
if(Python3_FOUND)
  add_test(NAME chat_template_jinja2
    COMMAND ${Python3_EXECUTABLE} ${CMAKE_CURRENT_SOURCE_DIR}/chat_template_jinja2_test.py
      $<TARGET_FILE:chat_template_render>)
  set_tests_properties(chat_template_jinja2 PROPERTIES SKIP_RETURN_CODE 77 TIMEOUT 300 LABELS "input")
  add_dependencies(input_tests chat_template_render)
endif()
