# The runner that every test of experts shares: data for a spec, a call through the gate, the same in double precision.
add_library(cadre_moe_runner STATIC moe_runner.cc moe_exact.cc moe_random.cc)
target_link_libraries(cadre_moe_runner PRIVATE cadre_options cadre_test_support PUBLIC cadre_moe GTest::gmock)

cadre_test(moe_experts
  SOURCES reference_test.cc backends_test.cc promises_test.cc shards_test.cc attach_test.cc cpu_vector_test.cc
          one_expert_test.cc
  DEPS moe_runner moe gate lora tensor base)
cadre_test(moe_routing SOURCES routing_test.cc routing_edges_test.cc plan_test.cc DEPS moe tensor io base)
