// Chrome trace events, back to tasks and times.
#include "explain/measured_lanes.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <tuple>
#include <utility>
#include <vector>

#include "base/json_reader.h"
#include "base/text.h"

namespace heterog::explain {

namespace {

struct Event {
  std::int64_t start = 0;
  std::int64_t length = 0;
  std::int64_t task = 0;
};

// By process and thread of the trace.
using Lanes = std::map<std::pair<std::int64_t, std::int64_t>, std::vector<Event>>;

constexpr double kMaxMicroseconds = 1e12;  // eleven days: no step takes as long

std::int64_t nanoseconds(JsonObject& event, const char* field) {
  return std::llround(event.number(field, 0, kMaxMicroseconds) * 1e3);
}

// As sim/trace_io.cc numbers them: a process per device, with two threads, and one for the links.
void read_rank(const std::string& path, const cost::Problem& problem, std::size_t tasks,
               Lanes& lanes) {
  const auto devices = static_cast<std::int64_t>(problem.cluster->place_count());
  const auto links = static_cast<std::int64_t>(problem.cluster->link_count());
  const Json json = read_json_file(path);
  JsonObject trace{JsonValue(json, path)};
  for (const JsonValue& value : trace.list("traceEvents")) {
    JsonObject event(value);
    const std::string kind = event.string("ph");
    VALIDATE(
        kind == "X" || kind == "M",
        "{}.ph: is \"{}\"; a measured trace has slices, \"X\", and names of processes and threads, "
        "\"M\"",
        value.where(), printable(kind));
    const std::int64_t process = event.integer("pid", 0, devices);
    const std::int64_t last_thread = process < devices ? 1 : std::max<std::int64_t>(1, links) - 1;
    if (kind == "M") {
      event.integer_or("tid", 0, last_thread, 0);
      continue;
    }
    const std::int64_t thread = event.integer("tid", 0, last_thread);
    JsonObject args(event.required("args"));
    const std::int64_t task = args.integer("task", 0, std::numeric_limits<std::int64_t>::max());
    VALIDATE(task < static_cast<std::int64_t>(tasks),
             "{}.args.task: is {}, and the plan has {} tasks: the trace is of another plan",
             value.where(), task, tasks);
    lanes[{process, thread}].push_back({nanoseconds(event, "ts"), nanoseconds(event, "dur"), task});
  }
}

std::string lane_name(const cost::Problem& problem, std::int64_t process, std::int64_t thread) {
  const cluster::Cluster& cluster = *problem.cluster;
  if (process < static_cast<std::int64_t>(cluster.place_count())) {
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
  for (const DeviceId device : problem.cluster->place_ids()) {
    read_rank(fmt::format("{}/rank{}.json", folder, device.value()), problem, tasks, lanes);
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

}  // namespace heterog::explain
