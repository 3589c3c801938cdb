// Peak memory of writing and reading a checkpoint, with all tensors at once and one at a time,
// beside the model's size. Each way runs in a process of its own, which holds the model.
//
// Usage: checkpoint_memory [MEGABYTES of the model, 400] [FILE, /tmp/heterog_checkpoint_memory]
#include <fmt/format.h>
#include <sys/wait.h>
#include <torch/torch.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <functional>
#include <string>

#include "base/file.h"
#include "tensors/tensor_file_io.h"

namespace heterog::tensors {
namespace {

constexpr int kTensors = 16;

std::size_t status_bytes(const std::string& field) {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);) {
    if (line.starts_with(field)) return std::stoul(line.substr(field.size())) * 1024;
  }
  return 0;
}

TensorFile model_of(std::size_t bytes) {
  TensorFile file;
  const auto count = static_cast<std::int64_t>(bytes / sizeof(float) / kTensors);
  for (int i = 0; i < kTensors; ++i) {
    file.tensors[fmt::format("layer{:02}.weight", i)] = torch::full({count}, i, torch::kFloat32);
  }
  return file;
}

void write_at_once(const std::string& path, TensorFile& model) {
  write_file(path, pack_tensors(model));
}

void write_one_by_one(const std::string& path, TensorFile& model) { write_tensors(path, model); }

void read_at_once(const std::string& path, TensorFile& model) {
  const TensorFile file = read_tensors(path);
  for (auto& [name, tensor] : model.tensors) tensor.copy_(file.tensors.at(name));
}

void read_one_by_one(const std::string& path, TensorFile& model) {
  const TensorReader reader(path);
  for (auto& [name, tensor] : model.tensors) tensor.copy_(reader.read(name));
}

struct Way {
  const char* name;
  void (*run)(const std::string& path, TensorFile& model);
};

void measure(const Way& way, std::size_t bytes, const std::string& path) {
  torch::set_num_threads(1);
  TensorFile model = model_of(bytes);
  const std::size_t held = status_bytes("VmRSS:");
  std::ofstream("/proc/self/clear_refs") << "5";  // the peak begins at what there is now
  way.run(path, model);
  const std::size_t peak = status_bytes("VmHWM:") - held;
  fmt::print("{:22} {:8.1f} MB  {:5.2f} of the model\n", way.name, static_cast<double>(peak) / 1e6,
             static_cast<double>(peak) / static_cast<double>(bytes));
}

int run(std::size_t bytes, const std::string& path) {
  fmt::print("peak beyond a model of {} MB in {} tensors (VmHWM)\n", bytes / 1'000'000, kTensors);
  constexpr Way kWays[] = {{"write, all at once", write_at_once},
                           {"write, one by one", write_one_by_one},
                           {"read, all at once", read_at_once},
                           {"read, one by one", read_one_by_one}};
  int worst = 0;
  for (const Way& way : kWays) {
    std::fflush(stdout);
    const pid_t child = fork();
    if (child == 0) {
      measure(way, bytes, path);
      std::fflush(stdout);
      _exit(0);
    }
    int status = 0;
    waitpid(child, &status, 0);
    worst |= status;
  }
  std::remove(path.c_str());
  return worst == 0 ? 0 : 1;
}

}  // namespace
}  // namespace heterog::tensors

int main(int argc, char** argv) {
  const std::size_t megabytes = argc > 1 ? std::strtoul(argv[1], nullptr, 10) : 400;
  return heterog::tensors::run(megabytes * 1'000'000,
                               argc > 2 ? argv[2] : "/tmp/heterog_checkpoint_memory");
}
