// Arithmetic, ordering and membership as Python has them.
#include <cmath>

#include "text/chat_template/runtime.h"

namespace cadre::chat_template {
namespace {

Status no_operator(std::string_view op, const Value& a, const Value& b) {
  for (const Value* value : {&a, &b}) {
    if (value->is(Kind::kUndefined)) return undefined_error(*value);
  }
  return error(Code::kInvalidArgument, "no '", op, "' between ", type_name(a), " and ", type_name(b));
}

Status overflow(std::string_view op) {
  return error(Code::kInvalidArgument, "the result of '", op, "' does not fit in 64 bits");
}

Status zero_division() { return error(Code::kInvalidArgument, "division by zero"); }

Result<Value> integer_power(std::int64_t base, std::int64_t exponent) {
  if (exponent < 0) {
    if (base == 0) return zero_division();
    return Value::real(std::pow(static_cast<double>(base), static_cast<double>(exponent)));
  }
  std::int64_t result = 1;
  while (exponent > 0) {
    if ((exponent & 1) != 0 && __builtin_mul_overflow(result, base, &result)) return overflow("**");
    exponent >>= 1;
    if (exponent > 0 && __builtin_mul_overflow(base, base, &base)) return overflow("**");
  }
  return Value::integer(result);
}

Result<Value> integer_math(std::string_view op, std::int64_t a, std::int64_t b) {
  std::int64_t out = 0;
  if (op == "+") return __builtin_add_overflow(a, b, &out) ? Result<Value>(overflow(op)) : Value::integer(out);
  if (op == "-") return __builtin_sub_overflow(a, b, &out) ? Result<Value>(overflow(op)) : Value::integer(out);
  if (op == "*") return __builtin_mul_overflow(a, b, &out) ? Result<Value>(overflow(op)) : Value::integer(out);
  if (op == "**") return integer_power(a, b);
  if (b == 0) return zero_division();
  if (op == "/") return Value::real(static_cast<double>(a) / static_cast<double>(b));
  if (b == -1) {  // the one divisor whose quotient can overflow
    if (op == "%") return Value::integer(0);
    return __builtin_sub_overflow(std::int64_t{0}, a, &out) ? Result<Value>(overflow(op)) : Value::integer(out);
  }
  // Rounded down, where C++ rounds towards zero.
  std::int64_t quotient = a / b;
  std::int64_t remainder = a % b;
  if (remainder != 0 && (remainder < 0) != (b < 0)) {
    --quotient;
    remainder += b;
  }
  return Value::integer(op == "//" ? quotient : remainder);
}

Result<Value> real_math(std::string_view op, double a, double b) {
  if (op == "+") return Value::real(a + b);
  if (op == "-") return Value::real(a - b);
  if (op == "*") return Value::real(a * b);
  if (op == "**") {
    if (a == 0 && b < 0) return zero_division();
    if (a < 0 && std::floor(b) != b) return error(Code::kInvalidArgument, "a root of a negative number is complex");
    const double power = std::pow(a, b);
    if (std::isinf(power) && std::isfinite(a) && std::isfinite(b)) return overflow(op);
    return Value::real(power);
  }
  if (b == 0) return zero_division();
  if (op == "/") return Value::real(a / b);
  double remainder = std::fmod(a, b);
  double quotient = (a - remainder) / b;
  if (remainder != 0) {
    if ((b < 0) != (remainder < 0)) {
      remainder += b;
      quotient -= 1;
    }
  } else {
    remainder = std::copysign(0.0, b);
  }
  if (op == "%") return Value::real(remainder);
  if (quotient == 0) return Value::real(std::copysign(0.0, a / b));
  const double floor = std::floor(quotient);
  return Value::real(quotient - floor > 0.5 ? floor + 1 : floor);
}

Result<Value> repeat(Runtime& runtime, const Value& value, std::int64_t times) {
  const auto n = static_cast<std::uint64_t>(times < 0 ? 0 : times);
  if (value.is(Kind::kString)) {
    const std::string& text = value.as_string();
    std::uint64_t bytes = 0;
    if (__builtin_mul_overflow(static_cast<std::uint64_t>(text.size()), n, &bytes)) bytes = UINT64_MAX;
    CADRE_TRY(runtime.budget.reserve_text(bytes));
    std::string out;
    out.reserve(bytes);
    if (!text.empty()) {
      for (std::uint64_t i = 0; i < n; ++i) out += text;
    }
    return Value::string(std::move(out));
  }
  const List& items = value.items();
  std::uint64_t count = 0;
  if (__builtin_mul_overflow(static_cast<std::uint64_t>(items.size()), n, &count) || count > kMaxValueWeight) {
    return error(Code::kLimitExceeded, "a repeated list would hold more than ", kMaxValueWeight, " items");
  }
  CADRE_TRY(runtime.budget.spend(count));
  List out;
  out.reserve(count);
  if (!items.empty()) {
    for (std::uint64_t i = 0; i < n; ++i) out.insert(out.end(), items.begin(), items.end());
  }
  return value.is(Kind::kTuple) ? runtime.budget.tuple(std::move(out)) : runtime.budget.list(std::move(out));
}

bool is_sequence(const Value& value) {
  return value.is(Kind::kString) || value.is(Kind::kList) || value.is(Kind::kTuple);
}

Result<Value> add_sequences(Runtime& runtime, const Value& a, const Value& b) {
  if (a.is(Kind::kString)) {
    CADRE_TRY(runtime.budget.reserve_text(a.as_string().size() + b.as_string().size()));
    return Value::string(a.as_string() + b.as_string());
  }
  List out;
  out.reserve(a.items().size() + b.items().size());
  out.insert(out.end(), a.items().begin(), a.items().end());
  out.insert(out.end(), b.items().begin(), b.items().end());
  return a.is(Kind::kTuple) ? runtime.budget.tuple(std::move(out)) : runtime.budget.list(std::move(out));
}

template <class T>
int order(const T& a, const T& b) {
  return a < b ? -1 : a > b ? 1 : a == b ? 0 : 2;
}

}  // namespace

Result<Value> binary(Runtime& runtime, std::string_view op, const Value& a, const Value& b) {
  if (a.is_integral() && b.is_integral()) return integer_math(op, a.as_int(), b.as_int());
  if (a.is_number() && b.is_number()) return real_math(op, a.as_real(), b.as_real());
  if (op == "%" && a.is(Kind::kString)) return percent_format(runtime, a.as_string(), b);
  if (op == "+" && is_sequence(a) && a.kind() == b.kind()) return add_sequences(runtime, a, b);
  if (op == "*" && is_sequence(a) && b.is_integral()) return repeat(runtime, a, b.as_int());
  if (op == "*" && a.is_integral() && is_sequence(b)) return repeat(runtime, b, a.as_int());
  return no_operator(op, a, b);
}

Result<int> compare(Runtime& runtime, const Value& a, const Value& b) {
  CADRE_TRY(runtime.budget.spend(1));
  if (a.is_integral() && b.is_integral()) return order(a.as_int(), b.as_int());
  if (a.is_number() && b.is_number()) return order(a.as_real(), b.as_real());
  if (a.is(Kind::kString) && b.is(Kind::kString)) {
    CADRE_TRY(runtime.budget.spend(std::min(a.weight(), b.weight())));
    return order(a.as_string(), b.as_string());  // the order of UTF-8 bytes is that of code points
  }
  if (a.kind() == b.kind() && (a.is(Kind::kList) || a.is(Kind::kTuple))) {
    const List& left = a.items();
    const List& right = b.items();
    for (std::size_t i = 0; i < left.size() && i < right.size(); ++i) {
      CADRE_ASSIGN(const bool same, equal_checked(runtime, left[i], right[i]));
      if (!same) return compare(runtime, left[i], right[i]);
    }
    return order(left.size(), right.size());
  }
  return no_operator("<", a, b);
}

Result<bool> equal_checked(Runtime& runtime, const Value& a, const Value& b) {
  CADRE_TRY(runtime.budget.spend(1 + std::min(a.weight(), b.weight()) / 8));
  return equal(a, b);
}

Result<bool> contains(Runtime& runtime, const Value& container, const Value& item) {
  switch (container.kind()) {
    case Kind::kUndefined:
      return false;
    case Kind::kString: {
      if (!item.is(Kind::kString)) {
        return error(Code::kInvalidArgument, "'in' a string wants a string on its left, got ", type_name(item));
      }
      CADRE_TRY(runtime.budget.spend_search(container.as_string(), item.as_string()));
      return container.as_string().find(item.as_string()) != std::string::npos;
    }
    case Kind::kDict: {
      std::string key;
      CADRE_TRY(runtime.budget.spend(1 + item.weight() / 8));
      if (hash_key(item, key)) return container.as<DictObject>().find(item) != nullptr;
      if (item.is(Kind::kList) || item.is(Kind::kTuple) || item.is(Kind::kDict)) {
        return error(Code::kInvalidArgument, "a ", type_name(item), " cannot be a key");
      }
      return false;
    }
    case Kind::kList:
    case Kind::kTuple:
    case Kind::kView:
      for (const Value& candidate : container.items()) {
        CADRE_ASSIGN(const bool same, equal_checked(runtime, candidate, item));
        if (same) return true;
      }
      return false;
    default: {
      CADRE_ASSIGN(const List items, iterate(runtime, container));
      for (const Value& candidate : items) {
        CADRE_ASSIGN(const bool same, equal_checked(runtime, candidate, item));
        if (same) return true;
      }
      return false;
    }
  }
}

}  // namespace cadre::chat_template
