// How tests of the runtime say that a plan trains as one device does.
#pragma once

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cctype>
#include <filesystem>
#include <memory>
#include <string>

#include "runtime/check/verify.h"
#include "runtime/jobs.h"

namespace heterog::runtime {

inline constexpr double kTolerance = 1e-10;  // relative, in double precision (decision 12)

// Of a compiled strategy from one device, after so many steps.
inline double off_by(const std::shared_ptr<const cost::Problem>& problem,
                     const decide::Strategy& strategy, int steps = 3) {
  const TestJob test = make_test_job(problem, strategy);
  return verify(test.job, test.plan, {.steps = steps}).worst_relative();
}

inline std::string text_of(const Verification& verification) {
  std::string text;
  for (const Difference& worst : verification.worst) {
    text += fmt::format("{} {} on {} step {}: {:.2e}\n", worst.kind, worst.tensor, worst.device,
                        worst.step, worst.relative);
  }
  return text;
}

// Of a graph's file, for GoogleTest.
inline std::string test_name(const testing::TestParamInfo<std::string>& info) {
  std::string name;
  for (char c : std::filesystem::path(info.param).stem().stem().string()) {
    if (std::isalnum(static_cast<unsigned char>(c))) name += c;
  }
  return name;
}

}  // namespace heterog::runtime
