cadre_fuzzer(openai_request SOURCES openai_request_fuzz.cc DEPS server)
