cadre_fuzzer(json SOURCES json_fuzz.cc DEPS io)
