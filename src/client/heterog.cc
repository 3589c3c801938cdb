// What of heterog.h needs no LibTorch: errors, verbs and checksums. The library of the planner
// alone has these functions and no others.
#include "client/heterog.h"

#include <new>
#include <string>
#include <utility>
#include <vector>

#include "base/check.h"
#include "base/checksum.h"
#include "base/log.h"
#include "cli/torch/with_torch.h"
#include "client/guarded.h"
#include "client/verbs.h"

namespace heterog::client {
namespace {

// Of the calling thread.
std::string& last_error() {
  thread_local std::string message;
  return message;
}

std::string& last_output() {
  thread_local std::string text;
  return text;
}

}  // namespace

std::int32_t keep_error(ErrorKind kind, std::string message) {
  for (char& c : message) {
    if (c == '\n' || c == '\r') c = ' ';
  }
  last_error() = std::move(message);
  return static_cast<std::int32_t>(kind);
}

std::int32_t guarded(const std::function<void()>& body) {
  try {
    last_error().clear();
    body();
    return 0;
  } catch (const Error& error) {
    return keep_error(error.kind(), error.what());
  } catch (const std::bad_alloc&) {
    return keep_error(ErrorKind::kVerification, "not enough host memory");
  } catch (const std::exception& error) {
    return keep_error(ErrorKind::kBug, cli::torch_error(error).value_or(error.what()));
  } catch (...) {
    return keep_error(ErrorKind::kBug, "an unknown exception");
  }
}

std::string text_of(const char* text, const char* field) {
  VALIDATE(text, "{}: not given", field);
  return text;
}

}  // namespace heterog::client

using namespace heterog;          // NOLINT: the functions below have no namespace
using namespace heterog::client;  // NOLINT

extern "C" {

int32_t heterog_api_version(void) { return HETEROG_API_VERSION; }

uint64_t heterog_xxh3(const void* bytes, uint64_t size) {
  return heterog::checksum(bytes, bytes == nullptr ? 0 : static_cast<std::size_t>(size));
}

const char* heterog_last_error(void) { return last_error().c_str(); }

int32_t heterog_run_verb(const char* const* arguments, int32_t count, const int32_t* stop,
                         const char** output) {
  std::vector<std::string> words;
  const int32_t refused = guarded([&] {
    VALIDATE(output && (arguments || count == 0) && count >= 0,
             "arguments or the place of the output: not given");
    for (int32_t i = 0; i < count; ++i) words.push_back(text_of(arguments[i], "arguments"));
  });
  if (refused != 0) return refused;
  RunVerb run = run_verb(words, stop);
  last_output() = std::move(run.output);
  *output = last_output().c_str();
  return run.ending.code == 0
             ? 0
             : keep_error(static_cast<ErrorKind>(run.ending.code), std::move(run.ending.error));
}

void heterog_log_to(heterog_listener listener) {
  if (listener == nullptr) return log_to({});
  log_to([listener](spdlog::level::level_enum level, std::string_view line) {
    listener(static_cast<int32_t>(level), std::string(line).c_str());
  });
}

}  // extern "C"
