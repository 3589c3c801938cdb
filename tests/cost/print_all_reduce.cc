// Prints measured and predicted seconds of every all-reduce sample, for scripts/calibrate/links.py.
#include <cstdio>

#include "cost/all_reduce_samples.h"

int main(int argc, char** argv) {
  if (argc != 3) {
    std::fprintf(stderr, "usage: print_all_reduce LINKS.json SAMPLES.csv\n");
    return 2;
  }
  try {
    const auto links = heterog::cluster::read_links(argv[1]);
    for (const auto& sample : heterog::cost::read_all_reduce_samples(argv[2])) {
      std::printf("%s,%d,%d,%lld,%s,%d,%.9g,%.9g\n", sample.device.c_str(), sample.devices,
                  sample.machines, static_cast<long long>(sample.bytes), sample.algorithm.c_str(),
                  sample.held_out ? 1 : 0, sample.seconds,
                  heterog::cost::predicted_seconds(sample, links));
    }
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 2;
  }
  return 0;
}
