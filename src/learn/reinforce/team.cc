// Gathers tensors of any length by a transport that gathers those of one length.
#include "learn/reinforce/team.h"

#include <torch/torch.h>

#include <algorithm>
#include <bit>

#include "base/check.h"
#include "comm/transport.h"

namespace heterog::learn {
namespace {

class Alone final : public Team {
 public:
  int rank() const override { return 0; }
  int size() const override { return 1; }
  std::vector<torch::Tensor> gather(const torch::Tensor& own) override { return {own}; }
  bool over() const override { return false; }
};

class Ranks final : public Team {
 public:
  Ranks(comm::Transport& transport, int rank, int ranks)
      : transport_(transport), rank_(rank), ranks_(ranks) {}

  int rank() const override { return rank_; }
  int size() const override { return ranks_; }

  std::vector<torch::Tensor> gather(const torch::Tensor& own) override {
    EXPECT(own.dim() == 1);
    const auto lengths = transport_.gather_all(torch::tensor({own.numel()}, torch::kInt64));
    EXPECT(lengths.size() == static_cast<std::size_t>(ranks_));
    std::int64_t longest = 0;
    for (const auto& length : lengths) longest = std::max(longest, length.item<std::int64_t>());
    auto padded = torch::zeros({longest}, own.options());
    padded.narrow(0, 0, own.numel()).copy_(own);
    std::vector<torch::Tensor> gathered(lengths.size(), padded);
    if (longest > 0) gathered = transport_.gather_all(padded);
    for (std::size_t i = 0; i < gathered.size(); ++i) {
      gathered[i] = gathered[i].narrow(0, 0, lengths[i].item<std::int64_t>());
    }
    return gathered;
  }

  bool over() const override {
    try {
      transport_.check();
      return false;
    } catch (const Error&) {  // which the next gather() throws
      return true;
    }
  }

 private:
  comm::Transport& transport_;
  const int rank_;
  const int ranks_;
};

}  // namespace

Team& alone() {
  static Alone team;  // without state
  return team;
}

std::unique_ptr<Team> make_team(comm::Transport& transport, int rank, int ranks) {
  return std::make_unique<Ranks>(transport, rank, ranks);
}

std::vector<Numbers> gather_numbers(Team& team, const Numbers& own) {
  std::vector<Numbers> all;
  for (const auto& given : team.gather(torch::tensor(own, torch::kInt64))) {
    const auto* first = given.data_ptr<std::int64_t>();
    all.emplace_back(first, first + given.numel());
  }
  return all;
}

void expect_agreed(Team& team, std::span<const Agreed> own) {
  Numbers numbers;
  for (const Agreed& one : own) numbers.push_back(std::bit_cast<std::int64_t>(one.number));
  const std::vector<Numbers> all = gather_numbers(team, numbers);
  for (std::size_t i = 0; i < own.size(); ++i) {
    for (std::size_t rank = 1; rank < all.size(); ++rank) {
      if (all[rank][i] == all[0][i]) continue;
      try {
        gather_numbers(team, {});  // until all know
      } catch (const Error&) {     // or have ended, for this reason
      }
      fail_input("rank {}: {}", rank, own[i].otherwise);
    }
  }
}

}  // namespace heterog::learn
