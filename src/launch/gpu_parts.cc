// How many groups of multiprocessors a part of a GPU takes.
#include "launch/gpu_parts.h"

#include <numeric>

#include "base/check.h"

namespace heterog::launch {

std::vector<int> groups_of_parts(c10::Device gpu, const std::vector<int>& multiprocessors,
                                 int group, int groups) {
  std::vector<int> taken;
  for (const int part : multiprocessors) {
    VALIDATE(part > 0 && part % group == 0,
             "GPU {}: a part of {} multiprocessors; this GPU gives them in groups of {}",
             static_cast<int>(gpu.index()), part, group);
    taken.push_back(part / group);
  }
  const int wanted = std::accumulate(taken.begin(), taken.end(), 0);
  VALIDATE(wanted <= groups,
           "GPU {}: parts of {} multiprocessors in all; this GPU gives {}, in groups of {}",
           static_cast<int>(gpu.index()), wanted * group, groups * group, group);
  return taken;
}

}  // namespace heterog::launch
