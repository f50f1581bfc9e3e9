cadre_fuzzer(chat_template SOURCES chat_template_fuzz.cc DEPS text)
