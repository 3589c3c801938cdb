// Chrome trace events, back to tasks and times.
#include "cli/measured_lanes.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <tuple>
#include <utility>
#include <vector>

#include "base/file.h"
#include "base/json_reader.h"

namespace heterog::cli {

namespace {

struct Event {
  std::int64_t start = 0;
  std::int64_t length = 0;
  std::int64_t task = 0;
};

// By process and thread of the trace.
using Lanes = std::map<std::pair<std::int64_t, std::int64_t>, std::vector<Event>>;

std::int64_t nanoseconds(const Json& event, const char* field, const std::string& path) {
  VALIDATE(event.contains(field) && event[field].is_number(), "{}: an event lacks the number '{}'",
           path, field);
  return std::llround(event[field].get<double>() * 1e3);
}

std::int64_t integer(const Json& object, const char* field, const std::string& path) {
  VALIDATE(object.contains(field) && object[field].is_number_integer(),
           "{}: an event lacks the integer '{}'", path, field);
  return object[field].get<std::int64_t>();
}

void read_rank(const std::string& path, std::size_t tasks, Lanes& lanes) {
  const Json trace = parse_json(read_file(path), path);
  VALIDATE(trace.is_object() && trace.contains("traceEvents") && trace["traceEvents"].is_array(),
           "{}: traceEvents: expected a list; it is not a trace of heterog run", path);
  for (const Json& event : trace["traceEvents"]) {
    if (!event.is_object() || event.value("ph", "") != "X") continue;
    VALIDATE(event.contains("args") && event["args"].is_object(), "{}: an event lacks 'args'",
             path);
    const std::int64_t task = integer(event["args"], "task", path);
    VALIDATE(task >= 0 && task < static_cast<std::int64_t>(tasks),
             "{}: task {}, and the plan has {}: the trace is of another plan", path, task, tasks);
    lanes[{integer(event, "pid", path), integer(event, "tid", path)}].push_back(
        {nanoseconds(event, "ts", path), nanoseconds(event, "dur", path), task});
  }
}

std::string lane_name(const cost::Problem& problem, std::int64_t process, std::int64_t thread) {
  const cluster::Cluster& cluster = *problem.cluster;
  if (process < static_cast<std::int64_t>(cluster.device_count())) {
    return cluster.device(DeviceId(static_cast<std::size_t>(process))).name +
           (thread == 0 ? " as run" : " reduces");
  }
  const auto link = static_cast<std::size_t>(thread);
  return link < cluster.link_count() ? cluster.link(LinkId(link)).name + " as run" : "as run";
}

}  // namespace

MeasuredLanes measured_lanes(const std::string& folder, const cost::Problem& problem,
                             std::size_t tasks) {
  Lanes lanes;
  for (const DeviceId device : problem.cluster->device_ids()) {
    read_rank(fmt::format("{}/rank{}.json", folder, device.value()), tasks, lanes);
  }
  MeasuredLanes measured{.lanes = OrderedJson::array()};
  for (auto& [track, events] : lanes) {
    std::sort(events.begin(), events.end(), [](const Event& a, const Event& b) {
      return std::tie(a.start, a.task) < std::tie(b.start, b.task);
    });
    std::vector<std::int64_t> start, length, task;
    for (const Event& event : events) {
      start.push_back(event.start);
      length.push_back(event.length);
      task.push_back(event.task);
      measured.end = std::max(measured.end, event.start + event.length);
    }
    measured.lanes.push_back({{"name", lane_name(problem, track.first, track.second)},
                              {"kind", "measured"},
                              {"start", start},
                              {"length", length},
                              {"task", task}});
  }
  return measured;
}

}  // namespace heterog::cli
