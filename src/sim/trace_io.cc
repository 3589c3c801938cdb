// Writes a simulated step as Chrome trace events, each as it comes: large steps have 100,000.
#include "sim/trace_io.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <string_view>
#include <utility>

#include "sim/memory.h"

namespace heterog::sim {
namespace {

using compiler::Plan;
using compiler::TaskKind;

constexpr int kComputeThread = 0;
constexpr int kCollectiveThread = 1;

using Event = nlohmann::ordered_json;

class TraceWriter {
 public:
  TraceWriter(const cost::Problem& problem, const Plan& plan, const SimResult& result,
              const TraceOptions& options)
      : problem_(problem), plan_(plan), result_(result), options_(options) {}

  std::string write() {
    begin();
    name_tracks();
    for (TaskId task : result_.dispatch) add_task(task);
    if (!options_.rank) {
      add_flows();
      add_memory();
    }
    return std::move(text_) + "\n]}\n";
  }

 private:
  // Devices are processes 0 … M−1; process M holds the links, one thread each.
  int links_process() const { return static_cast<int>(plan_.device_count); }

  // Everything but the events, and the list that they are added to.
  void begin() {
    text_ = dump({{"displayTimeUnit", "ms"},
                  {"distributedInfo", {{"rank", options_.rank ? options_.rank->value() : 0}}},
                  {"otherData",
                   {{"graph", problem_.graph->name()},
                    {"cluster", problem_.cluster->name()},
                    {"batch", plan_.batch},
                    {"source", options_.rank ? "measured" : "simulated"}}}});
    text_.pop_back();  // the object goes on
    text_ += ",\n\"traceEvents\":[";
  }
  // Bytes that are not UTF-8 become U+FFFD.
  static std::string dump(const Event& json) {
    return json.dump(-1, ' ', false, Event::error_handler_t::replace);
  }
  // Takes the fields of an object: to find out that lists of pairs are one takes as long again.
  void add(Event::object_t fields) {
    text_ += text_.ends_with('[') ? "\n" : ",\n";
    text_ += dump(std::move(fields));
  }
  static double microseconds(Nanoseconds time) { return static_cast<double>(time) / 1e3; }

  void name_process(int pid, const std::string& name) {
    add({{"ph", "M"}, {"name", "process_name"}, {"pid", pid}, {"args", {{"name", name}}}});
    add({{"ph", "M"},
         {"name", "process_sort_index"},
         {"pid", pid},
         {"args", {{"sort_index", pid}}}});
  }
  void name_thread(int pid, int tid, const std::string& name) {
    add({{"ph", "M"},
         {"name", "thread_name"},
         {"pid", pid},
         {"tid", tid},
         {"args", {{"name", name}}}});
  }

  void name_tracks() {
    const cluster::Cluster& cluster = *problem_.cluster;
    for (DeviceId device : cluster.place_ids()) {
      const int pid = static_cast<int>(device.value());
      name_process(pid, cluster.device(device).name + " (" + cluster.type_of(device).name + ")");
      name_thread(pid, kComputeThread, "compute");
      name_thread(pid, kCollectiveThread, "collectives");
    }
    name_process(links_process(), "links");
    for (LinkId link : id_range<LinkId>(cluster.link_count())) {
      if (cluster.is_connection(link) && result_.link_bytes[link] == 0) continue;
      name_thread(links_process(), static_cast<int>(link.value()), cluster.link(link).name);
    }
  }

  std::string task_name(TaskId task) const {
    if (!plan_.tensor[task].valid()) return problem_.graph->op(plan_.op[task]).name;
    const std::size_t updated = plan_.updated[task].size();
    return fmt::format("{} {}{}", compiler::task_kind_name(plan_.kind[task]),
                       problem_.graph->tensor(plan_.tensor[task]).name,
                       updated > 1 ? fmt::format(" and {} more", updated - 1) : "");
  }

  void add_slice(TaskId task, int pid, int tid, Nanoseconds duration, Bytes bytes) {
    Event::object_t args = {
        {"task", task.value()},
        {"samples", fmt::format("[{}, {})", plan_.begin[task], plan_.end[task])}};
    if (plan_.op[task].valid() && plan_.kind[task] == TaskKind::kCompute) {
      args.emplace("op", problem_.graph->type_name(plan_.op[task]));
    }
    if (plan_.updated[task].size() > 1) args.emplace("parameters", plan_.updated[task].size());
    if (bytes > 0) args.emplace("bytes", bytes);
    if (plan_.payload[task].valid()) add_payload(task, args);
    add({{"ph", "X"},
         {"name", task_name(task)},
         {"cat", compiler::task_kind_name(plan_.kind[task])},
         {"pid", pid},
         {"tid", tid},
         {"ts", microseconds(result_.start[task])},
         {"dur", microseconds(duration)},
         {"args", std::move(args)}});
  }

  // How it travels, what becomes of it, and how many tensors share it.
  void add_payload(TaskId task, Event::object_t& args) const {
    args.emplace("encoding", compiler::encoding_name(plan_.encoding_of(task)));
    args.emplace("reduction", compiler::reduction_name(compiler::reduction_of(plan_.kind[task])));
    for (const compiler::Carried& one : plan_.carried_by(task)) {
      if (!one.compression.any()) continue;
      args.emplace("compression", cost::compression_text(one.compression));
      break;
    }
    if (plan_.carried_by(task).size() > 1) args.emplace("tensors", plan_.carried_by(task).size());
  }

  // What a rank tells: its computation, its collectives, and what arrives at it.
  bool tells(std::size_t resource, TaskId task) const {
    if (!options_.rank) return true;
    const std::size_t devices = plan_.device_count;
    const std::size_t own = options_.rank->value();
    return resource < 2 * devices
               ? resource % devices == own
               : plan_.peer[task].valid() && plan_.device[task] == *options_.rank;
  }

  void add_task(TaskId task) {
    if (plan_.kind[task] == compiler::TaskKind::kTurn) return;
    if (options_.rank && plan_.kind[task] == compiler::TaskKind::kOverhead) return;  // never runs
    for (compiler::Hold hold : plan_.holds[task]) {
      const std::size_t resource = hold.resource.value();
      const std::size_t devices = plan_.device_count;
      if (!tells(resource, task)) continue;
      hold.duration = (options_.rank ? result_.end[task] : held_until(plan_, result_, task, hold)) -
                      result_.start[task];
      if (resource < devices) {
        add_slice(task, static_cast<int>(resource), kComputeThread, hold.duration, 0);
      } else if (resource < 2 * devices) {
        add_slice(task, static_cast<int>(resource - devices), kCollectiveThread, hold.duration,
                  plan_.moved_bytes[task]);
      } else if (resource < 2 * devices + plan_.link_count) {
        add_slice(task, links_process(), static_cast<int>(resource - 2 * devices), hold.duration,
                  hold.bytes);
      }
    }
  }

  // From the task that a transfer waited for last, over its first link, to the first that reads it.
  void add_flows() {
    IdVector<TaskId, TaskId> source(plan_.task_count());
    for (TaskId task : plan_.task_ids()) {
      if (!compute_track(task)) continue;
      for (TaskId next : plan_.successors[task]) {
        if (!source[next].valid() || result_.end[source[next]] < result_.end[task]) {
          source[next] = task;
        }
      }
    }
    for (TaskId task : result_.dispatch) {
      if (!plan_.peer[task].valid() || !source[task].valid()) continue;
      TaskId reader;
      for (TaskId next : plan_.successors[task]) {
        if (compute_track(next) &&
            (!reader.valid() || result_.start[next] < result_.start[reader])) {
          reader = next;
        }
      }
      if (!reader.valid()) continue;
      add_flow("s", task, plan_.device[source[task]], result_.start[source[task]]);
      add_flow("f", task, plan_.device[reader], result_.start[reader]);
    }
  }
  bool compute_track(TaskId task) const { return !compiler::is_communication(plan_.kind[task]); }
  void add_flow(std::string_view phase, TaskId task, DeviceId device, Nanoseconds time) {
    Event::object_t event = {{"ph", phase},
                             {"name", compiler::task_kind_name(plan_.kind[task])},
                             {"cat", "flow"},
                             {"id", task.value()},
                             {"pid", device.value()},
                             {"tid", kComputeThread},
                             {"ts", microseconds(time)}};
    if (phase == "f") event.emplace("bp", "e");
    add(std::move(event));
  }

  void add_memory() {
    for (const MemoryPoint& point : memory_curve(plan_, result_)) {
      add({{"ph", "C"},
           {"name", "memory"},
           {"pid", point.device.value()},
           {"ts", microseconds(point.time)},
           {"args", {{"bytes", point.bytes}}}});
    }
  }

  const cost::Problem& problem_;
  const Plan& plan_;
  const SimResult& result_;
  TraceOptions options_;
  std::string text_;
};

}  // namespace

std::string chrome_trace(const cost::Problem& problem, const Plan& plan, const SimResult& result,
                         const TraceOptions& options) {
  return TraceWriter(problem, plan, result, options).write();
}

}  // namespace heterog::sim
