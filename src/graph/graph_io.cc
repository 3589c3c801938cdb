// Turns the JSON of a graph file into builder calls; checks the form, the builder the meaning.
#include "graph/graph_io.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <optional>
#include <type_traits>
#include <utility>

#include "base/file.h"
#include "base/json_reader.h"
#include "base/own_file.h"
#include "base/shell.h"
#include "base/text.h"
#include "graph/memory_order.h"
#include "graph/value_text.h"
#include "operators/allowed.h"

namespace heterog::graph {
namespace {

// Far above any model (the largest of the zoo has 12,000 ops), and what keeps memory in bounds when
// a small compressed file unfolds to nothing but arguments.
constexpr std::size_t kMaxOps = std::size_t{1} << 20;
constexpr std::size_t kMaxTensors = std::size_t{1} << 20;
constexpr std::size_t kMaxValues = std::size_t{1} << 21;
constexpr double kMaxValue = 0x1p53;  // up to here, a double holds every whole number
constexpr std::int64_t kMaxId = (std::int64_t{1} << 32) - 2;

// One file being read. Thousands of small objects: fields are compared by hand and paths are only
// put together for messages, which makes this much faster than JsonObject.
class Reader {
 public:
  explicit Reader(const std::string& source) : source_(source) {}

  // Takes the document apart as it goes, so that it and the graph are not both there at the end.
  GraphFile read(Json json) {
    JsonObject object{JsonValue(json, source_)};
    check_format(object, "heterog-graph", 1);
    GraphBuilder builder(object.string("name"));
    for (const char* key : {"producer", "optimizer"}) object.skip(key);
    KnownBatches known = read_known(object);
    builder.set_tf32(read_tf32(object));
    const std::string dtype_text = object.string("dtype");
    const auto dtype = find_dtype(dtype_text);
    if (!dtype) fail("dtype", "unknown dtype \"{}\"", printable(dtype_text));
    const std::int64_t loss = object.integer("loss", 0, kMaxId);
    object.required("tensors");
    object.required("ops");
    object.finish();
    Json& tensors = json["tensors"];
    Json& ops = json["ops"];
    check_list(tensors, "tensors", kMaxTensors);
    check_list(ops, "ops", kMaxOps);

    list_ = "tensors";
    bool has_parameters = false;
    for (index_ = 0; index_ < tensors.size(); ++index_) {
      GraphBuilder::TensorSpec spec = read_tensor(tensors[index_]);
      if (spec.role == TensorRole::kParameter && !std::exchange(has_parameters, true)) {
        VALIDATE(spec.dtype == *dtype, "{}: dtype: \"{}\", but the first parameter is {}",
                 shown_source(), dtype_name(*dtype), dtype_name(spec.dtype));
      }
      builder.add_tensor(std::move(spec));
      tensors[index_] = nullptr;
    }
    list_ = "ops";
    for (index_ = 0; index_ < ops.size(); ++index_) {
      builder.add_op(read_op(ops[index_]));
      ops[index_] = nullptr;
    }
    builder.set_loss(TensorId(static_cast<std::size_t>(loss)));
    return {.graph = std::move(builder).build(source_), .known = std::move(known)};
  }

 private:
  // Files of before `holds` promise to hold from the smallest traced batch on.
  static KnownBatches read_known(JsonObject& object) {
    std::int64_t smallest = 1;
    if (object.has("traced_batches")) {
      smallest = kMaxSamples;
      for (const JsonValue& batch : object.list("traced_batches")) {
        smallest = std::min(smallest, batch.as_int(1, kMaxSamples));
      }
    }
    if (object.has("holds")) return read_ranges(object);
    return {.ranges = {{.from = smallest}}};
  }

  static KnownBatches read_ranges(JsonObject& object) {
    KnownBatches known{.ranges = {}};
    std::int64_t least = 1;
    for (const JsonValue& pair : object.list("holds")) {
      const std::vector<JsonValue> ends = pair.as_list();
      VALIDATE(least != 0 && ends.size() == 2,
               "{}: expected [from, to], to null in the last one alone", pair.where());
      KnownBatches::Range range{.from = ends[0].as_int(least, kMaxSamples)};
      if (!ends[1].json().is_null()) range.to = ends[1].as_int(range.from, kMaxSamples);
      least = range.to ? *range.to + 1 : 0;
      known.ranges.push_back(range);
    }
    VALIDATE(!known.ranges.empty(), "{}: holds: empty; a graph holds for one batch or more",
             printable(object.where(), 400));
    return known;
  }

  static Tf32 read_tf32(JsonObject& object) {
    if (!object.has("tf32")) return {};
    Tf32 tf32{.products = false, .convolutions = false};
    for (const JsonValue& what : object.list("tf32")) {
      const std::string text = what.as_string();
      if (text == "products") {
        tf32.products = true;
      } else if (text == "convolutions") {
        tf32.convolutions = true;
      } else {
        fail_input("{}: expected \"products\" or \"convolutions\", not \"{}\"", what.where(),
                   printable(text));
      }
    }
    return tf32;
  }

  std::string shown_source() const { return printable(source_, 400); }

  // Fails at tensors[i].field or ops[i].field.
  template <class... Args>
  [[noreturn]] void fail(std::string_view field, fmt::format_string<Args...> format,
                         Args&&... args) const {
    const std::string what = fmt::format(format, std::forward<Args>(args)...);
    if (list_.empty()) fail_input("{}: {}: {}", shown_source(), field, what);
    fail_input("{}: {}[{}]{}{}: {}", shown_source(), list_, index_, field.empty() ? "" : ".", field,
               what);
  }

  // What was found, for messages: short whatever it is.
  static std::string found(const Json& json) {
    if (json.is_object()) return "an object";
    if (json.is_array()) return "a list";
    return printable(json.dump(-1, ' ', false, Json::error_handler_t::replace));
  }

  void check_list(const Json& json, std::string_view name, std::size_t limit) const {
    VALIDATE(json.is_array(), "{}: {}: expected a list, found {}", shown_source(), name,
             found(json));
    VALIDATE(json.size() <= limit, "{}: {}: {} entries, expected at most {}", shown_source(), name,
             json.size(), limit);
  }

  const std::string& text(const Json& json, std::string_view field) const {
    if (!json.is_string()) fail(field, "expected a string, found {}", found(json));
    return json.get_ref<const std::string&>();
  }

  template <class Enum>
  Enum name_of(const Json& json, std::string_view field,
               std::optional<Enum> (*find)(std::string_view)) const {
    const std::string& name = text(json, field);
    const std::optional<Enum> result = find(name);
    if (!result) fail(field, "unknown {} \"{}\"", field, printable(name));
    return *result;
  }

  template <class IdType>
  IdType id(const Json& json, std::string_view field) const {
    // nlohmann keeps every integer that is not negative as unsigned.
    if (!json.is_number_unsigned() || json.get<std::uint64_t>() > std::uint64_t{kMaxId}) {
      fail(field, "expected the number of a {}, found {}",
           std::is_same_v<IdType, OpId> ? "forward op" : "tensor", found(json));
    }
    return IdType(json.get<std::size_t>());
  }

  Affine dimension(const Json& json, std::string_view field) const {
    if (json.is_number_integer()) {
      const bool fits = json.is_number_unsigned() ? json.get<std::uint64_t>() <=
                                                        static_cast<std::uint64_t>(kMaxCoefficient)
                                                  : json.get<std::int64_t>() >= -kMaxCoefficient;
      if (fits) return {0, json.get<std::int64_t>()};
    } else if (json.is_string()) {
      if (const auto affine = parse_affine(json.get_ref<const std::string&>())) return *affine;
    }
    fail(field, "expected a size of at most {}, as 7, \"B\", \"4B\" or \"4B+1\", found {}",
         kMaxCoefficient, found(json));
  }

  std::vector<Affine> dimensions(const Json& json, std::string_view field) const {
    if (!json.is_array()) fail(field, "expected a list of sizes, found {}", found(json));
    if (json.size() > kMaxRank) {
      fail(field, "{} dimensions, expected at most {}", json.size(), kMaxRank);
    }
    std::vector<Affine> result;
    result.reserve(json.size());
    for (const Json& item : json) result.push_back(dimension(item, field));
    return result;
  }

  GraphBuilder::TensorSpec read_tensor(const Json& json) const {
    if (!json.is_object()) fail("", "expected an object, found {}", found(json));
    GraphBuilder::TensorSpec spec;
    bool name = false, role = false, dtype = false, shape = false;
    std::optional<std::vector<Affine>> strides;
    const Json* values = nullptr;
    for (auto field = json.begin(); field != json.end(); ++field) {
      const std::string& key = field.key();
      if (key == "name") {
        spec.name = text(*field, key);
        name = true;
      } else if (key == "role") {
        spec.role = name_of<TensorRole>(*field, key, find_role);
        role = true;
      } else if (key == "dtype") {
        spec.dtype = name_of<DType>(*field, key, find_dtype);
        dtype = true;
      } else if (key == "shape") {
        spec.shape = dimensions(*field, key);
        shape = true;
      } else if (key == "strides") {
        strides = dimensions(*field, key);
      } else if (key == "of") {
        spec.of = id<TensorId>(*field, key);
      } else if (key == "replaces") {
        spec.replaces = id<TensorId>(*field, key);
      } else if (key == "argument") {
        text(*field, key);  // for who feeds the step; plans do not depend on it
      } else if (key == "values") {
        if (!field->is_object()) fail(key, "expected an object, found {}", found(*field));
        values = &*field;
      } else {
        fail("",
             "unknown key \"{}\", expected one of name, role, dtype, shape, strides, argument, "
             "of, replaces, values",
             printable(key));
      }
    }
    require(name, "name");
    require(role, "role");
    require(dtype, "dtype");
    require(shape, "shape");
    if (strides) {
      if (strides->size() != spec.shape.size()) {
        fail("strides", "{} of them for {} dimensions", strides->size(), spec.shape.size());
      }
      spec.channels_last = is_channels_last(spec.shape, *strides);
    }
    if (values != nullptr && spec.role == TensorRole::kInput) spec.values = input_range(*values);
    if (values != nullptr && spec.role == TensorRole::kBuffer) spec.values = buffer_range(*values);
    return spec;
  }

  // {"range": [low, high]}, or nothing.
  std::optional<ValueRange> input_range(const Json& values) const {
    const auto range = values.find("range");
    if (range == values.end()) return std::nullopt;
    if (range->is_array() && range->size() == 2 && (*range)[0].is_number() &&
        (*range)[1].is_number()) {
      const ValueRange result{(*range)[0].get<double>(), (*range)[1].get<double>()};
      if (-kMaxValue <= result.low && result.low <= result.high && result.high <= kMaxValue) {
        return result;
      }
    }
    fail("values", "range: expected [low, high], numbers of at most 2^53, found {}", found(*range));
  }

  // What {"list": […]} or {"fill": v} span; nothing where they are no numbers.
  static std::optional<ValueRange> buffer_range(const Json& values) {
    std::optional<ValueRange> result;
    const auto extend = [&](const Json& value) {
      if (!value.is_number() || std::abs(value.get<double>()) > kMaxValue) return false;
      const double number = value.get<double>();
      if (!result) result = {number, number};
      *result = {std::min(result->low, number), std::max(result->high, number)};
      return true;
    };
    if (const auto list = values.find("list"); list != values.end() && list->is_array()) {
      if (!std::ranges::all_of(*list, extend)) return std::nullopt;
    }
    if (const auto fill = values.find("fill"); fill != values.end()) extend(*fill);
    return result;
  }

  GraphBuilder::OpSpec read_op(const Json& json) {
    if (!json.is_object()) fail("", "expected an object, found {}", found(json));
    GraphBuilder::OpSpec spec;
    bool name = false, op = false, phase = false, args = false, outputs = false;
    for (auto field = json.begin(); field != json.end(); ++field) {
      const std::string& key = field.key();
      if (key == "name") {
        spec.name = text(*field, key);
        name = true;
      } else if (key == "op") {
        spec.type = text(*field, key);
        if (!operators::is_allowed(spec.type)) {
          fail(
              key,
              "\"{}\" is no operator that a graph may hold; expected one that computes tensors and "
              "does nothing else, as aten.mm.default",
              printable(spec.type));
        }
        op = true;
      } else if (key == "phase") {
        spec.phase = name_of<Phase>(*field, key, find_phase);
        phase = true;
      } else if (key == "forward") {
        spec.forward = id<OpId>(*field, key);
      } else if (key == "scope") {
        spec.scope = text(*field, key);
      } else if (key == "args") {
        if (!field->is_array()) fail(key, "expected a list, found {}", found(*field));
        spec.args = values(*field, key);
        args = true;
      } else if (key == "kwargs") {
        if (!field->is_object()) fail(key, "expected an object, found {}", found(*field));
        check_count(field->size(), key);
        spec.kwargs.reserve(field->size());
        for (auto item = field->begin(); item != field->end(); ++item) {
          spec.kwargs.emplace_back(item.key(), value(*item, "kwargs"));
        }
      } else if (key == "outputs") {
        if (!field->is_array()) fail(key, "expected a list, found {}", found(*field));
        if (field->size() > kMaxTensors) {
          fail(key, "{} entries, expected at most {}", field->size(), kMaxTensors);
        }
        for (const Json& item : *field) {
          spec.outputs.push_back(item.is_null() ? TensorId() : id<TensorId>(item, key));
        }
        outputs = true;
      } else {
        fail("",
             "unknown key \"{}\", expected one of name, op, phase, forward, scope, args, "
             "kwargs, outputs",
             printable(key));
      }
    }
    require(name, "name");
    require(op, "op");
    require(phase, "phase");
    require(args, "args");
    require(outputs, "outputs");
    return spec;
  }

  void require(bool there, std::string_view key) const {
    if (!there) fail("", "the field \"{}\" is missing", key);
  }

  void check_count(std::size_t more, std::string_view field) const {
    if (more > kMaxValues - std::min(value_count_, kMaxValues)) {
      fail(field, "more than {} arguments in all", kMaxValues);
    }
  }

  // The depth of lists is bounded by that of the JSON.
  std::vector<Value> values(const Json& json, std::string_view field) {
    check_count(json.size(), field);
    std::vector<Value> result;
    result.reserve(json.size());
    for (const Json& item : json) result.push_back(value(item, field));
    return result;
  }

  Value value(const Json& json, std::string_view field) {
    ++value_count_;
    Value result;
    switch (json.type()) {
      case Json::value_t::null:
        break;
      case Json::value_t::boolean:
        result.kind = Value::Kind::kBool;
        result.integer.c = json.get<bool>();
        break;
      case Json::value_t::number_unsigned:
        if (json.get<std::uint64_t>() >
            static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max())) {
          fail(field, "the integer {} does not fit 64 bits", found(json));
        }
        [[fallthrough]];
      case Json::value_t::number_integer:
        result.kind = Value::Kind::kInt;
        result.integer.c = json.get<std::int64_t>();
        break;
      case Json::value_t::number_float:
        result.kind = Value::Kind::kFloat;
        result.number = json.get<double>();
        break;
      case Json::value_t::array:
        result.kind = Value::Kind::kList;
        result.items = values(json, field);
        break;
      case Json::value_t::string:
        if (auto parsed = parse_value(json.get_ref<const std::string&>()))
          return *std::move(parsed);
        fail(field,
             "cannot read the argument {}, expected a form like \"%12\", \"#4B+1\", "
             "\"$1/4B\", \":float32\" or \"'text\"",
             found(json));
      default:
        fail(field, "an argument cannot be {}", found(json));
    }
    return result;
  }

  const std::string& source_;
  std::string_view list_;  // of what is being read: "tensors", "ops"
  std::size_t index_ = 0;  // in that list
  std::size_t value_count_ = 0;
};

}  // namespace

GraphFile parse_graph_file(const std::string& text, const std::string& source) {
  return Reader(source).read(parse_json(text, source));
}

namespace {

// The form of what `heterog export` takes, or of what others save a model as.
void expect_no_model(const std::string& given) {
  const std::size_t function = given.find(".py:");  // as in mine.py:training
  const std::string file = given.substr(0, function == given.npos ? function : function + 3);
  constexpr std::array<std::string_view, 5> kModels = {".py", ".pt", ".pth", ".onnx",
                                                       ".safetensors"};
  for (const std::string_view ending : kModels) {
    if (!file.ends_with(ending)) continue;
    const bool script = ending == ".py";
    fail_input(
        "{}: is a {}, expected the graph of a training step; export it first: heterog export "
        "{}:FUNCTION --out {}.json.gz",
        printable(given, 400), script ? "Python script" : "saved model",
        script ? shell_word(file) : "SCRIPT.py",
        script ? shell_word(file.substr(0, file.size() - ending.size())) : "NAME");
  }
}

}  // namespace

GraphFile read_graph_file(const std::string& given) {
  expect_no_model(given);
  const std::string path = here_or_shipped(given, "models", ".json.gz");
  return Reader(path).read(read_json_file(path));  // the text is gone before the graph is made
}

ModelGraph parse_graph(const std::string& text, const std::string& source) {
  return parse_graph_file(text, source).graph;
}

ModelGraph read_graph(const std::string& path) { return read_graph_file(path).graph; }

}  // namespace heterog::graph
