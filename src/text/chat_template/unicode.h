// Text by code points, with Python's idea of white space, line ends and case. Bytes that are not UTF-8 count as one
// code point each and pass through unchanged.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace cadre::chat_template {

// The bytes of the code point that starts at text[at]; at least 1, never past the end.
std::size_t code_point_size(std::string_view text, std::size_t at);
char32_t code_point_at(std::string_view text, std::size_t at);
void append_code_point(std::string& out, char32_t code_point);
std::size_t code_point_count(std::string_view text);
std::vector<std::string_view> code_points(std::string_view text);
bool is_valid_utf8(std::string_view text);

bool is_space(char32_t c);   // str.isspace
bool is_letter(char32_t c);  // str.isalpha
bool is_digit(char32_t c);   // str.isdigit
bool is_word(char32_t c);    // \w of re
bool is_lower(char32_t c);
bool is_upper(char32_t c);  // title case included
bool is_printable(char32_t c);

std::string to_upper(std::string_view text);
std::string to_lower(std::string_view text);
std::string to_title(char32_t c);
std::string capitalize(std::string_view text);
std::string title_words(std::string_view text);  // str.title

std::string_view strip_left(std::string_view text);
std::string_view strip_right(std::string_view text);
// `chars` is a set of code points.
std::string_view strip_left(std::string_view text, std::string_view chars);
std::string_view strip_right(std::string_view text, std::string_view chars);

std::vector<std::string_view> split_lines(std::string_view text, bool keep_ends);

}  // namespace cadre::chat_template
