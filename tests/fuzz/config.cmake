cadre_fuzzer(config SOURCES config_fuzz.cc DEPS model)
# Families are built on the goldens' weights, so that a changed number meets real tensors.
foreach(target fuzz_config replay_config)
  if(TARGET ${target})
    target_compile_definitions(${target} PRIVATE CADRE_GOLDENS="${CADRE_GOLDENS_DIR}")
    add_dependencies(${target} cadre_goldens)
  endif()
endforeach()
