cadre_fuzzer(http_request SOURCES http_request_fuzz.cc DEPS server)
