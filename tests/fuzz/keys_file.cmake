cadre_fuzzer(keys_file SOURCES keys_file_fuzz.cc DEPS server)
