// Every filter has the signature of Native: `self` is the value before the bar.
#pragma once

#include <algorithm>
#include <iterator>
#include <string_view>

#include "text/chat_template/runtime.h"

namespace cadre::chat_template {

struct NamedNative {
  std::string_view name;
  Native native;
};

// In a table sorted by name.
template <std::size_t N>
Native find_native(const NamedNative (&table)[N], std::string_view name) {
  const auto* it = std::lower_bound(std::begin(table), std::end(table), name,
                                    [](const NamedNative& entry, std::string_view key) { return entry.name < key; });
  return it != std::end(table) && it->name == name ? it->native : nullptr;
}

// Text and numbers: filters_text.cc.
Result<Value> filter_abs(Runtime& runtime, const Value& self, const Args& args);
Result<Value> filter_capitalize(Runtime& runtime, const Value& self, const Args& args);
Result<Value> filter_center(Runtime& runtime, const Value& self, const Args& args);
Result<Value> filter_escape(Runtime& runtime, const Value& self, const Args& args);
Result<Value> filter_float(Runtime& runtime, const Value& self, const Args& args);
Result<Value> filter_format(Runtime& runtime, const Value& self, const Args& args);
Result<Value> filter_indent(Runtime& runtime, const Value& self, const Args& args);
Result<Value> filter_int(Runtime& runtime, const Value& self, const Args& args);
Result<Value> filter_lower(Runtime& runtime, const Value& self, const Args& args);
Result<Value> filter_replace(Runtime& runtime, const Value& self, const Args& args);
Result<Value> filter_round(Runtime& runtime, const Value& self, const Args& args);
Result<Value> filter_string(Runtime& runtime, const Value& self, const Args& args);
Result<Value> filter_title(Runtime& runtime, const Value& self, const Args& args);
Result<Value> filter_trim(Runtime& runtime, const Value& self, const Args& args);
Result<Value> filter_upper(Runtime& runtime, const Value& self, const Args& args);
Result<Value> filter_wordcount(Runtime& runtime, const Value& self, const Args& args);

// Sequences and mappings: filters_sequence.cc and filters_select.cc.
Result<Value> filter_attr(Runtime& runtime, const Value& self, const Args& args);
Result<Value> filter_batch(Runtime& runtime, const Value& self, const Args& args);
Result<Value> filter_default(Runtime& runtime, const Value& self, const Args& args);
Result<Value> filter_dictsort(Runtime& runtime, const Value& self, const Args& args);
Result<Value> filter_first(Runtime& runtime, const Value& self, const Args& args);
Result<Value> filter_groupby(Runtime& runtime, const Value& self, const Args& args);
Result<Value> filter_items(Runtime& runtime, const Value& self, const Args& args);
Result<Value> filter_join(Runtime& runtime, const Value& self, const Args& args);
Result<Value> filter_last(Runtime& runtime, const Value& self, const Args& args);
Result<Value> filter_length(Runtime& runtime, const Value& self, const Args& args);
Result<Value> filter_list(Runtime& runtime, const Value& self, const Args& args);
Result<Value> filter_map(Runtime& runtime, const Value& self, const Args& args);
Result<Value> filter_max(Runtime& runtime, const Value& self, const Args& args);
Result<Value> filter_min(Runtime& runtime, const Value& self, const Args& args);
Result<Value> filter_reject(Runtime& runtime, const Value& self, const Args& args);
Result<Value> filter_rejectattr(Runtime& runtime, const Value& self, const Args& args);
Result<Value> filter_reverse(Runtime& runtime, const Value& self, const Args& args);
Result<Value> filter_select(Runtime& runtime, const Value& self, const Args& args);
Result<Value> filter_selectattr(Runtime& runtime, const Value& self, const Args& args);
Result<Value> filter_sort(Runtime& runtime, const Value& self, const Args& args);
Result<Value> filter_sum(Runtime& runtime, const Value& self, const Args& args);
Result<Value> filter_unique(Runtime& runtime, const Value& self, const Args& args);

// json.cc
Result<Value> filter_tojson(Runtime& runtime, const Value& self, const Args& args);

// Shared by filters and methods: replaces at most `count` times, all where it is negative.
Result<Value> replace_text(Runtime& runtime, std::string_view text, std::string_view from, std::string_view to,
                           std::int64_t count);
// `items` with `separator` between, each in its str().
Result<Value> join_items(Runtime& runtime, const List& items, std::string_view separator);
// "a.b.0" followed from `item`; a missing part becomes `fallback` where that is not null.
Result<Value> follow_path(Runtime& runtime, const Value& item, const Value& path, const Value* fallback);
// Lower case where it is a string.
Value ignore_case(const Value& value);
// Stable.
Status sort_by(Runtime& runtime, List& items, const List& keys, bool reverse);
Result<Value> round_real(double value, std::int64_t precision, std::string_view method);

}  // namespace cadre::chat_template
