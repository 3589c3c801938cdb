// Traces of a run: each field that is read is checked, with file and place.
#include "explain/measured_lanes.h"

#include <gmock/gmock.h>
#include <unistd.h>

#include <filesystem>

#include "base/file.h"
#include "cluster/cluster_io.h"
#include "cost/cost_model.h"
#include "graph/graph_io.h"

namespace heterog::explain {
namespace {

using testing::AllOf;
using testing::HasSubstr;

constexpr std::size_t kTasks = 7;

class MeasuredLanesTest : public testing::Test {
 protected:
  MeasuredLanesTest()
      : problem_(cost::make_problem(std::make_shared<const graph::ModelGraph>(
                                        graph::read_graph("models/lenet5-tiny.json.gz")),
                                    std::make_shared<const cluster::Cluster>(
                                        cluster::load_cluster("configs/clusters/local-2cpu.json")),
                                    cost::CalibratedModel(), 16)),
        folder_(std::filesystem::path(testing::TempDir()) /
                ("heterog_lanes_" + std::to_string(getpid()))) {
    std::filesystem::create_directories(folder_);
  }
  ~MeasuredLanesTest() override { std::filesystem::remove_all(folder_); }

  // The lanes where rank 1 tells of one task with these fields, or what is wrong with them.
  std::string said_of(const std::string& event) {
    write_file((folder_ / "rank0.json").string(), R"({"traceEvents": []})");
    write_file((folder_ / "rank1.json").string(), R"({"traceEvents": [
        {"ph": "M", "name": "process_name", "pid": 0, "args": {"name": "a"}},)" +
                                                      event + "]}");
    return said();
  }
  std::string said() {
    try {
      return measured_lanes(folder_.string(), *problem_, kTasks).lanes.dump();
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::kInput);
      return error.what();
    }
  }
  // A slice with one of its fields replaced.
  static std::string slice(const std::string& field = "", const std::string& value = "") {
    std::string text = "{";
    for (const auto& [key, right] :
         {std::pair{"ph", "\"X\""}, std::pair{"pid", "1"}, std::pair{"tid", "0"},
          std::pair{"ts", "2.5"}, std::pair{"dur", "1"}, std::pair{"args", "{\"task\": 6}"}}) {
      if (key == field && value.empty()) continue;
      text += fmt::format("{}\"{}\": {}", text.size() > 1 ? ", " : "", key,
                          key == field ? value : right);
    }
    return text + "}";
  }

  std::unique_ptr<const cost::Problem> problem_;
  std::filesystem::path folder_;
};

TEST_F(MeasuredLanesTest, ReadsWhatARunWrites) {
  EXPECT_EQ(
      said_of(slice()),
      R"([{"name":"local/gpu1 as run","kind":"measured","start":[2500],"length":[1000],"task":[6]}])");
  EXPECT_THAT(said_of(slice("tid", "1")), HasSubstr("local/gpu1 reduces"));
  EXPECT_THAT(said_of(slice("pid", "2")), HasSubstr("as run"));  // links
}

TEST_F(MeasuredLanesTest, RefusesEveryFieldThatIsNot) {
  const std::string links = std::to_string(problem_->cluster->link_count());
  for (const auto& [field, value] :
       std::vector<std::pair<std::string, std::string>>{{"ph", ""},
                                                        {"ph", "3"},
                                                        {"ph", "null"},
                                                        {"pid", ""},
                                                        {"pid", "-1"},
                                                        {"pid", "3"},
                                                        {"pid", "\"1\""},
                                                        {"pid", "1.5"},
                                                        {"pid", "9223372036854775808"},
                                                        {"tid", ""},
                                                        {"tid", "-1"},
                                                        {"tid", "2"},
                                                        {"tid", "1e300"},
                                                        {"ts", ""},
                                                        {"ts", "\"0\""},
                                                        {"ts", "-1"},
                                                        {"ts", "1e300"},
                                                        {"dur", ""},
                                                        {"dur", "-0.001"},
                                                        {"dur", "1e13"},
                                                        {"dur", "[]"},
                                                        {"args", ""},
                                                        {"args", "7"},
                                                        {"args", "{}"},
                                                        {"args", "{\"task\": -1}"},
                                                        {"args", "{\"task\": 7}"},
                                                        {"args", "{\"task\": \"0\"}"}}) {
    EXPECT_THAT(said_of(slice(field, value)),
                AllOf(HasSubstr("rank1.json: traceEvents[1]"), HasSubstr(field)))
        << value;
  }
  EXPECT_THAT(said_of(R"({"ph": "X", "pid": 2, "tid": )" + links +
                      R"(, "ts": 0, "dur": 0, "args": {"task": 0}})"),
              HasSubstr("traceEvents[1].tid"));
  EXPECT_THAT(said_of("7"), HasSubstr("traceEvents[1]"));
  EXPECT_THAT(said_of("null"), HasSubstr("traceEvents[1]"));
}

// Names of processes and threads say where they belong, too; a measured trace has nothing else.
TEST_F(MeasuredLanesTest, RefusesEventsOfNoProcess) {
  const auto name = [](const std::string& fields) {
    return R"({"ph": "M", "name": "thread_name", "args": {"name": "a"})" + fields + "}";
  };
  EXPECT_EQ(said_of(name(R"(, "pid": 1, "tid": 1)")), "[]");
  for (const std::string pid : {"-1", "3", "1.5", "\"0\"", "null"}) {
    EXPECT_THAT(said_of(name(", \"pid\": " + pid)), HasSubstr("rank1.json: traceEvents[1].pid"));
  }
  EXPECT_THAT(said_of(name(R"(, "pid": 1, "tid": -1)")), HasSubstr("traceEvents[1].tid"));
  EXPECT_THAT(said_of(name("")), HasSubstr("traceEvents[1]: the field \"pid\""));
  EXPECT_THAT(said_of(slice("ph", "\"C\"")), HasSubstr("traceEvents[1].ph"));
}

TEST_F(MeasuredLanesTest, RefusesWhatIsNoTrace) {
  said_of(slice());
  for (const std::string text : {"[]", "{}", R"({"traceEvents": 3})", "", "{\"traceEvents\": [}"}) {
    write_file((folder_ / "rank0.json").string(), text);
    EXPECT_THAT(said(), HasSubstr("rank0.json")) << text;
  }
  std::filesystem::remove(folder_ / "rank0.json");
  EXPECT_THAT(said(), HasSubstr("rank0.json"));
}

}  // namespace
}  // namespace heterog::explain
