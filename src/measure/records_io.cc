// Two lists of nanoseconds a step, by the tasks of the plan in their order.
#include "measure/records_io.h"

#include <nlohmann/json.hpp>

#include "base/file.h"
#include "base/json_reader.h"

namespace heterog::measure {
namespace {

constexpr const char* kRecordsFormat = "heterog-records";
constexpr int kRecordsVersion = 1;
constexpr Nanoseconds kMostNanoseconds = std::int64_t{1} << 53;  // a hundred days

IdVector<TaskId, Nanoseconds> read_times(JsonObject& step, std::string_view key,
                                         const compiler::Plan& plan) {
  IdVector<TaskId, Nanoseconds> times;
  for (const JsonValue& one : step.list(key)) times.push_back(one.as_int(0, kMostNanoseconds));
  VALIDATE(times.size() == plan.task_count(),
           "{}.{}: has {} tasks, the plan has {}; records are of one plan, under the costs that it "
           "ran with",
           step.where(), key, times.size(), plan.task_count());
  return times;
}

}  // namespace

void write_records(const std::string& path, const RecordedSteps& records) {
  nlohmann::ordered_json steps = nlohmann::ordered_json::array();
  for (std::size_t i = 0; i < records.steps.size(); ++i) {
    const runtime::MeasuredStep& step = records.steps[i];
    steps.push_back({{"seconds", records.seconds[i]},
                     {"duration_ns", step.duration},
                     {"begin_ns", step.begin.raw()},
                     {"end_ns", step.end.raw()}});
  }
  const nlohmann::ordered_json json = {
      {"format", kRecordsFormat}, {"version", kRecordsVersion}, {"steps", steps}};
  write_file(path, json.dump() + "\n");
}

RecordedSteps read_records(const std::string& path, const compiler::Plan& plan) {
  const Json json = read_json_file(path);
  JsonObject object(JsonValue(json, path));
  check_format(object, kRecordsFormat, kRecordsVersion);
  RecordedSteps records;
  for (const JsonValue& item : object.list("steps")) {
    JsonObject step(item);
    records.seconds.push_back(step.positive("seconds"));
    runtime::MeasuredStep measured{.begin = read_times(step, "begin_ns", plan),
                                   .end = read_times(step, "end_ns", plan)};
    measured.duration = step.integer("duration_ns", 1, kMostNanoseconds);
    for (TaskId task : plan.task_ids()) {
      VALIDATE(measured.begin[task] <= measured.end[task],
               "{}: end_ns[{}]: {} is before the task's beginning, {}", step.where(), task.value(),
               measured.end[task], measured.begin[task]);
    }
    step.finish();
    records.steps.push_back(std::move(measured));
  }
  object.finish();
  VALIDATE(!records.steps.empty(), "{}: steps is empty; a run records one at least", path);
  return records;
}

}  // namespace heterog::measure
