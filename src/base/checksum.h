// A checksum of bytes, against damage on disks and wires; not for security.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string_view>

namespace heterog {

// XXH3, 64 bits, seed 0: of all bytes added, however they are cut into pieces.
class Checksum {
 public:
  Checksum();
  ~Checksum();
  Checksum(const Checksum&) = delete;
  Checksum& operator=(const Checksum&) = delete;

  void add(const void* bytes, std::size_t count);
  void add(std::string_view bytes) { add(bytes.data(), bytes.size()); }
  std::uint64_t value() const;

 private:
  struct State;
  const std::unique_ptr<State> state_;
};

std::uint64_t checksum(const void* bytes, std::size_t count);

}  // namespace heterog
