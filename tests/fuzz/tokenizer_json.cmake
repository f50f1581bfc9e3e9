cadre_fuzzer(tokenizer_json SOURCES tokenizer_json_fuzz.cc DEPS text)
