# Run as a script: writes OUT, a C++ file that defines `extern const std::pair<std::string_view, std::string_view>
# NAME[]` of (file name without its extension, content) and `NAME_count`, from the files FILES (a ;-list).
set(entries "")
set(count 0)
foreach(file ${FILES})
  get_filename_component(stem ${file} NAME_WE)
  file(READ ${file} text)
  string(APPEND entries "    {\"${stem}\", R\"embedded(${text})embedded\"},\n")
  math(EXPR count "${count} + 1")
endforeach()
file(WRITE ${OUT}.new
  "#include <cstddef>\n#include <string_view>\n#include <utility>\n\nnamespace cadre {\n\n"
  "extern const std::pair<std::string_view, std::string_view> ${NAME}[];\nextern const std::size_t ${NAME}_count;\n"
  "const std::pair<std::string_view, std::string_view> ${NAME}[] = {\n${entries}};\n"
  "const std::size_t ${NAME}_count = ${count};\n\n}  // namespace cadre\n")
file(RENAME ${OUT}.new ${OUT})
