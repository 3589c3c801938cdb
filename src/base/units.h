// Units: whole bytes, whole nanoseconds of simulated time, and the conversions between them.
#pragma once

#include <cmath>
#include <cstdint>

namespace heterog {

using Bytes = std::int64_t;
using Nanoseconds = std::int64_t;  // simulated time: exact, so that results are bit for bit equal

inline constexpr double kSecondsPerNanosecond = 1e-9;

inline double to_seconds(Nanoseconds ns) { return static_cast<double>(ns) * kSecondsPerNanosecond; }

// Rounds up, so that nothing that takes time takes none.
inline Nanoseconds to_nanoseconds(double seconds) {
  return static_cast<Nanoseconds>(std::ceil(seconds * 1e9 - 1e-6));
}

// Time to move `bytes` at `bytes_per_second`, without latency.
inline Nanoseconds transfer_nanoseconds(Bytes bytes, double bytes_per_second) {
  return to_nanoseconds(static_cast<double>(bytes) / bytes_per_second);
}

}  // namespace heterog
