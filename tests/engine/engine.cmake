cadre_test(engine SOURCES engine_demo_test.cc engine_test.cc prefix_cache_test.cc scheduling_test.cc
          fairness_test.cc twins_test.cc adapter_loading_test.cc state_pool_test.cc memory_plan_test.cc DEPS engine
  LABELS input)
