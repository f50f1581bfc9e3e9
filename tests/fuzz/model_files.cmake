cadre_fuzzer(model_files SOURCES model_files_fuzz.cc DEPS model)
