// Draws cases near the hand-written ones.
#include "split_proof/random_cases.h"

#include <fmt/format.h>

#include <iterator>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string_view>

namespace heterog::split_proof {
namespace {

using Json = nlohmann::json;

template <class T, std::size_t size>
const T& one_of(const T (&list)[size], Rng& rng) {
  return list[rng.below(size)];
}

struct OperandSpec {
  std::string maker, dtype;
  std::vector<std::string> sizes;
};

OperandSpec parse_operand(const std::string& text) {
  OperandSpec spec;
  std::string sizes;
  std::stringstream stream(text);
  stream >> spec.maker >> sizes >> spec.dtype;
  if (sizes == "-") return spec;
  std::stringstream list(sizes);
  for (std::string size; std::getline(list, size, ',');) spec.sizes.push_back(size);
  return spec;
}

std::string operand_text(const OperandSpec& spec) {
  std::string sizes;
  for (const std::string& size : spec.sizes) sizes += (sizes.empty() ? "" : ",") + size;
  std::string text = spec.maker + " " + (sizes.empty() ? "-" : sizes);
  if (!spec.dtype.empty()) text += " " + spec.dtype;
  return text;
}

bool has_batch(const std::string& size) { return size.find('B') != std::string::npos; }

// "B" → "3B", "2B" → "6B".
std::string times(const std::string& size, int factor) {
  return fmt::format("{}B", (size == "B" ? 1 : std::stoi(size)) * factor);
}

// Every "#aB+c" of the arguments, or with `numbers` every integer too.
void collect(Json& value, bool numbers, std::vector<Json*>& into) {
  if (value.is_array()) {
    for (Json& item : value) collect(item, numbers, into);
  } else if ((numbers && value.is_number_integer()) ||
             (value.is_string() && value.get_ref<const std::string&>().starts_with('#'))) {
    into.push_back(&value);
  }
}

void more_rows(Case& example, Rng& rng) {
  const int factor = 2 + static_cast<int>(rng.below(2));
  for (std::string& operand : example.operands) {
    OperandSpec spec = parse_operand(operand);
    for (std::string& size : spec.sizes) {
      if (has_batch(size)) size = times(size, factor);
    }
    operand = operand_text(spec);
  }
  Json args = Json::parse(example.args);
  std::vector<Json*> sizes;
  collect(args, false, sizes);
  for (Json* size : sizes) {
    const auto text = size->get<std::string>().substr(1);
    if (text.ends_with('B')) *size = "#" + times(text, factor);
  }
  example.args = args.dump();
}

void other_size(OperandSpec& spec, Rng& rng) {
  static const std::string kSizes[] = {"1", "2", "3", "4", "5", "B", "2B", "3B", "4B"};
  if (spec.sizes.empty()) return;
  std::string& size = spec.sizes[rng.below(spec.sizes.size())];
  size = one_of(kSizes, rng);
}

void other_maker(OperandSpec& spec, Rng& rng) {
  static const std::string kMakers[] = {"in", "outer2", "sum", "mean", "rows"};
  spec.maker = one_of(kMakers, rng);
  std::size_t batches = 0;
  for (std::string& size : spec.sizes) {
    batches += has_batch(size) ? 1 : 0;
    if (spec.maker == "outer2" && has_batch(size)) size = times(size, 2);
    if (spec.maker == "sum" || spec.maker == "mean") {
      if (has_batch(size)) size = "3";
    }
  }
  if (spec.maker == "rows") spec.dtype = "int64";
  if ((spec.maker == "rows" || spec.maker == "outer2") && batches != 1) spec.maker = "in";
  if (spec.maker == "sum" || spec.maker == "mean") spec.dtype.clear();
}

void other_number(Case& example, Rng& rng) {
  static const Json kNumbers[] = {-2,     -1,      0,      1,      2,      3,      4,     "#B",
                                  "#B-1", "#B+1",  "#B-4", "#2B",  "#4B",  "#3B",  "$B",  "$B-4",
                                  "$2B",  "#-B+7", "#B",   "#B-1", "#B+3", "#B-3", "#2B", 5};
  Json args = Json::parse(example.args);
  std::vector<Json*> numbers;
  collect(args, true, numbers);
  if (numbers.empty()) return;
  *numbers[rng.below(numbers.size())] = one_of(kNumbers, rng);
  example.args = args.dump();
}

void change(Case& example, Rng& rng) {
  const std::size_t count = example.operands.size();
  const std::uint64_t what =
      trusts_operands(example.type) || count == 0 ? 4 * rng.below(2) : rng.below(6);
  if (what == 0) return more_rows(example, rng);
  if (what >= 4) {
    if (!trusts_operands(example.type)) other_number(example, rng);
    return;
  }
  std::string& operand = example.operands[rng.below(count)];
  OperandSpec spec = parse_operand(operand);
  if (what == 1) other_size(spec, rng);
  if (what == 2) other_maker(spec, rng);
  if (what == 3) spec.sizes = parse_operand(example.operands[rng.below(count)]).sizes;
  operand = operand_text(spec);
}

}  // namespace

bool trusts_operands(const std::string& type) {
  for (std::string_view part : {"_norm", "pool2d", "upsample", "_pad2d_backward",
                                "softmax_backward", "cross_entropy", "nll_loss"}) {
    if (type.find(part) != std::string::npos && type.find("vector_norm") == std::string::npos) {
      return true;
    }
  }
  return false;
}

Case random_case(const Case& example, Rng& rng) {
  Case result = example;
  const std::uint64_t changes = 1 + rng.below(3);
  for (std::uint64_t i = 0; i < changes; ++i) change(result, rng);
  return result;
}

}  // namespace heterog::split_proof
