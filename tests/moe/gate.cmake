# The gate over MoE layers: specs, the catalogue of known backends, the grid, mutations.
add_library(cadre_moe_catalogue STATIC presets.cc catalogue.cc grid.cc)
target_link_libraries(cadre_moe_catalogue PRIVATE cadre_options PUBLIC cadre_test_support cadre_moe)
cadre_cold(cadre_moe_catalogue)

cadre_test(moe_gate SOURCES catalogue_test.cc spec_test.cc DEPS moe_catalogue moe gate io base)
cadre_test(moe_grid SOURCES grid_test.cc mutation_test.cc DEPS moe_catalogue moe gate base)
cadre_test(moe_grid_run SOURCES grid_run_test.cc DEPS moe_catalogue moe_runner moe gate lora tensor base)
cadre_test(moe_families SOURCES families_test.cc DEPS moe_catalogue model moe gate io base)
cadre_fuzzer(moe_spec SOURCES spec_fuzz.cc DEPS moe gate io base)
