cadre_fuzzer(adapter_config SOURCES adapter_config_fuzz.cc DEPS lora)
