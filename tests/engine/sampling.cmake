cadre_test(engine_sampling
  SOURCES sampling_distribution_test.cc sampling_filters_test.cc sampling_logprobs_test.cc sampling_params_test.cc
          sampling_philox_test.cc sampling_speed_test.cc sampling_stop_test.cc
  DEPS engine io base)
cadre_test(engine_generation_config SOURCES sampling_generation_config_test.cc DEPS engine io base LABELS input)
