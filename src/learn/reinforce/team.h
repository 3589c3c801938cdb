// The processes that train one policy together, and what they tell each other. Each holds all of
// the state and changes it alike; work is dealt out, and what comes of it is gathered by all.
#pragma once

#include <torch/types.h>

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace heterog::comm {
class Transport;
}

namespace heterog::learn {

// One rank's view. All ranks make the same calls of gather() in the same order.
class Team {
 public:
  virtual ~Team() = default;
  virtual int rank() const = 0;  // 0 reads and writes files
  virtual int size() const = 0;
  // The tensors that the ranks give, in the order of ranks: of one axis and one dtype, each as long
  // as it likes. Returns once all have given theirs. Throws what transports throw: an Error
  // (kVerification) that names a rank that is lost.
  virtual std::vector<torch::Tensor> gather(const torch::Tensor& own) = 0;
  // Whether a rank is lost or has ended the job, so that gather() would throw: for work that takes
  // long. From any thread, while no gather() goes on.
  virtual bool over() const = 0;
};

// The team of a process that trains by itself.
Team& alone();
// Over a transport, which outlives it, of so many ranks.
std::unique_ptr<Team> make_team(comm::Transport& transport, int rank, int ranks);

using Numbers = std::vector<std::int64_t>;
std::vector<Numbers> gather_numbers(Team& team, const Numbers& own);

// A number that must be the same on all ranks, and what it means that one has another.
struct Agreed {
  std::uint64_t number = 0;
  std::string otherwise;  // "was given another config than rank 0"
};
// Throws an input error on all ranks, the same one, if one of the numbers of a rank is not that of
// rank 0: "rank 1: was given another config than rank 0".
void expect_agreed(Team& team, std::span<const Agreed> own);

}  // namespace heterog::learn
