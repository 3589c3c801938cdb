// Messages straight from the thread that sends to the one that receives, and collectives of them.
//
// Gloo's (c10d_transport.h) wake a thread of the library on either side, which spins while the
// sender holds the lock of the connection. Where ranks have no core to spare, that takes more of
// the processor than the message; and a call of its collectives cannot be ended from another
// thread, nor does it say which peer it waits for.
#include "comm/tcp_transport.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <optional>
#include <span>
#include <utility>

#include "base/check.h"
#include "cost/all_reduce_algorithm.h"

namespace heterog::comm {

namespace {

using Clock = std::chrono::steady_clock;

// A ring works on pieces of this many bytes, so that summing one overlaps with the next on its way.
constexpr std::int64_t kPieceBytes = std::int64_t{256} << 10;
// Ahead of every message: both ends check that they mean the same.
struct Header {
  std::uint64_t tag = 0;  // of a message: its own; of a collective: the set, and how many it had
  std::uint64_t bytes = 0;
};

// A message on its way to or from a peer.
struct Move {
  DeviceId peer;
  int connection = -1;
  bool sends = false;
  Header header;    // sent, or due
  Header received;  // as it came
  char* data = nullptr;
  std::size_t done = 0;  // bytes, those of the header first

  std::size_t size() const { return sizeof(Header) + header.bytes; }
  bool finished() const { return done == size(); }
};

// Ranks that reduce together, in the order of their ids.
struct Group {
  std::vector<DeviceId> members;
  int own = 0;            // index of this rank
  std::uint64_t tag = 0;  // of its next collective

  int size() const { return static_cast<int>(members.size()); }
};

// How the members of a group pass a value round: in as many segments as members, each in the same
// number of pieces. In a step, a member sends a segment to the next one and takes another from the
// one before it. In the first steps, what comes is added to what is there: after size − 1 of them
// every member has one segment of the sum. In the others, what comes is taken as it is.
struct Ring {
  enum class Work : std::uint8_t { kReduce, kScatter, kGather };
  // `bounds`: of the segments, in elements. `least`: pieces of a segment, so that there are enough
  // for all flows.
  Ring(Work work, const at::Tensor& value, std::vector<std::int64_t> bounds, int own,
       std::int64_t least)
      : flat(value.view({-1})),
        bounds(std::move(bounds)),
        size(static_cast<int>(this->bounds.size()) - 1),
        own(own),
        steps(work == Work::kReduce ? 2 * (size - 1) : size - 1),
        sum_steps(work == Work::kGather ? 0 : size - 1),
        first(work == Work::kScatter ? own + size - 1 : own) {
    std::int64_t longest = 0;
    for (int i = 0; i < size; ++i) {
      longest = std::max(longest, this->bounds[i + 1] - this->bounds[i]);
    }
    const std::int64_t piece = kPieceBytes / static_cast<std::int64_t>(flat.element_size());
    pieces = std::max(least, (longest + piece - 1) / piece);
  }

  int next() const { return (own + 1) % size; }
  int previous() const { return (own + size - 1) % size; }
  std::int64_t moves() const { return steps * pieces; }
  bool sums(std::int64_t move) const { return move < sum_steps * pieces; }

  at::Tensor sent(std::int64_t move) const { return piece_of(move, 0); }
  at::Tensor received(std::int64_t move) const { return piece_of(move, 1); }
  // What goes out is what came in one step earlier. `received`: so many of the first are there.
  bool may_send(std::int64_t move, std::int64_t received) const { return move - pieces < received; }

  at::Tensor flat;
  std::vector<std::int64_t> bounds;
  int size;
  int own;
  std::int64_t steps;
  std::int64_t sum_steps;
  int first;  // the segment that is sent in the first step; scattered, the last to come is the own
  std::int64_t pieces = 1;

 private:
  at::Tensor piece_of(std::int64_t move, int behind) const {
    const std::int64_t step = move / pieces + behind;
    const auto segment = static_cast<std::size_t>((first - step % size + size) % size);
    const std::int64_t begin = bounds[segment];
    const std::int64_t length = bounds[segment + 1] - begin;
    const std::int64_t from = length * (move % pieces) / pieces;
    return flat.narrow(0, begin + from, length * (move % pieces + 1) / pieces - from);
  }
};

// Pieces that go one way round a ring, or come, over several flows: each flow has every so manieth,
// one at a time.
struct Lane {
  explicit Lane(std::size_t flows) : moves(flows), taken(flows), places(flows) {}

  bool may_begin(std::int64_t count) const {
    return begun < count && begun - done < static_cast<std::int64_t>(moves.size());
  }
  std::size_t flow_of(std::int64_t move) const {
    return static_cast<std::size_t>(move) % moves.size();
  }

  std::vector<std::optional<Move>> moves;  // by flow
  std::vector<at::Tensor> taken, places;   // of what comes: as it came, and where it belongs
  std::int64_t begun = 0;
  std::int64_t done = 0;  // so many of the first
};

std::vector<std::int64_t> even_bounds(std::int64_t count, int parts) {
  std::vector<std::int64_t> bounds;
  for (int i = 0; i <= parts; ++i) bounds.push_back(count * i / parts);
  return bounds;
}

// Of rows along the first axis, in elements.
std::vector<std::int64_t> element_bounds(const at::Tensor& value, const Cuts& cuts) {
  ENSURE(value.dim() > 0 && cuts.back() == value.size(0));
  const std::int64_t row = value.size(0) == 0 ? 0 : value.numel() / value.size(0);
  std::vector<std::int64_t> bounds;
  for (const std::int64_t cut : cuts) bounds.push_back(cut * row);
  return bounds;
}

}  // namespace

struct TcpTransport::Impl {
  Impl(const Store& given_store, DeviceId rank, TcpOptions given);

  // Over one flow.
  Move moving(bool sends, Channel channel, const at::Tensor& value, DeviceId peer,
              std::uint64_t tag, std::size_t flow) const;
  // Over as many flows as its size asks for, an equal part over each.
  void add_moves(std::vector<Move>& moves, bool sends, Channel channel, const at::Tensor& value,
                 DeviceId peer, std::uint64_t tag) const;
  std::size_t flows_to(DeviceId peer, std::size_t bytes) const;
  // As much as goes without waiting; whether anything went.
  bool advance(Move& move);
  void complete(std::span<Move> moves);
  // Waits until one of them can go on, or the job ends.
  void wait(std::span<Move* const> moves);

  void go_round(Group& group, Ring::Work work, const at::Tensor& value,
                std::vector<std::int64_t> bounds);
  void all_reduce(Group& group, at::Tensor& value);
  void exchange(Group& group, at::Tensor& value);
  void go_over_tree(Group& group, at::Tensor& value);
  std::vector<at::Tensor> all_gather(Group& group, const at::Tensor& value);

  void wake();
  Group group_of(std::vector<DeviceId> members, std::uint64_t id) const;
  std::string text_of(DeviceId rank) const { return job->text_of(rank); }

  Store store;  // which rank 0 serves for as long as it holds it
  TcpOptions options;
  DeviceId own;
  Descriptor woken;  // can be read once the job has ended
  Connections connections;
  Group all;
  std::vector<Group> sets;

  std::unique_ptr<JobEnd> job;  // last made, first gone: it calls wake()
};

TcpTransport::Impl::Impl(const Store& given_store, DeviceId rank, TcpOptions given)
    : store(given_store),
      options(std::move(given)),
      own(rank),
      woken(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
  ENSURE(woken.valid());
  std::vector<DeviceId> everyone;
  for (const DeviceId one : id_range<DeviceId>(options.connect.device_names.size())) {
    everyone.push_back(one);
  }
  all = group_of(std::move(everyone), options.sets.size());
  for (const std::vector<DeviceId>& members : options.sets) {
    sets.push_back(group_of(members, sets.size()));
  }
  connections = connect_ranks(store.under("connections"), own, options.connect);
  job = std::make_unique<JobEnd>(store,
                                 JobEnd::Options{.own = own,
                                                 .device_names = options.connect.device_names,
                                                 .timeout = options.connect.timeout},
                                 [this] { wake(); });
}

Group TcpTransport::Impl::group_of(std::vector<DeviceId> members, std::uint64_t id) const {
  const auto index = std::find(members.begin(), members.end(), own) - members.begin();
  return {.members = std::move(members), .own = static_cast<int>(index), .tag = id << 32};
}

void TcpTransport::Impl::wake() {
  const std::uint64_t one = 1;
  ENSURE(write(woken.get(), &one, sizeof one) == sizeof one);
}

Move TcpTransport::Impl::moving(bool sends, Channel channel, const at::Tensor& value, DeviceId peer,
                                std::uint64_t tag, std::size_t flow) const {
  EXPECT(value.is_contiguous() && value.is_cpu() && peer != own);
  Move move;
  move.peer = peer;
  move.connection = connections[peer][static_cast<std::size_t>(channel)][flow].get();
  move.sends = sends;
  move.header = {.tag = tag, .bytes = value.nbytes()};
  move.data = static_cast<char*>(value.data_ptr());
  return move;
}

std::size_t TcpTransport::Impl::flows_to(DeviceId peer, std::size_t bytes) const {
  return static_cast<Bytes>(bytes) > options.flow_bytes ? options.connect.flows_to(peer) : 1;
}

void TcpTransport::Impl::add_moves(std::vector<Move>& moves, bool sends, Channel channel,
                                   const at::Tensor& value, DeviceId peer,
                                   std::uint64_t tag) const {
  const std::size_t flows = flows_to(peer, value.nbytes());
  const Move whole = moving(sends, channel, value, peer, tag, 0);
  for (std::size_t flow = 0; flow < flows; ++flow) {
    const std::size_t begin = whole.header.bytes * flow / flows;
    Move part = whole;
    part.connection = connections[peer][static_cast<std::size_t>(channel)][flow].get();
    part.header.bytes = whole.header.bytes * (flow + 1) / flows - begin;
    part.data = whole.data + begin;
    moves.push_back(part);
  }
}

bool TcpTransport::Impl::advance(Move& move) {
  bool went = false;
  while (!move.finished()) {
    Header& header = move.sends ? move.header : move.received;
    const std::size_t of_header = std::min(move.done, sizeof(Header));
    const std::size_t of_data = move.done - of_header;
    std::array<iovec, 2> places{{
        {.iov_base = reinterpret_cast<char*>(&header) + of_header,
         .iov_len = sizeof(Header) - of_header},
        {.iov_base = move.data + of_data, .iov_len = move.header.bytes - of_data},
    }};
    msghdr message{};
    message.msg_iov = places.data();
    message.msg_iovlen = places.size();
    const ssize_t count = move.sends ? sendmsg(move.connection, &message, MSG_NOSIGNAL)
                                     : recvmsg(move.connection, &message, 0);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) return went;
    if (count <= 0) {
      job->fail(move.peer, fmt::format("connection to {} lost ({})", text_of(own),
                                       count == 0 ? "closed" : std::strerror(errno)));
    }
    move.done += static_cast<std::size_t>(count);
    went = true;
    if (move.sends || move.done < sizeof(Header)) continue;
    if (move.received.tag != move.header.tag || move.received.bytes != move.header.bytes) {
      job->fail(move.peer, fmt::format("sent {} bytes of {} where {} bytes of {} were due at {}",
                                       move.received.bytes, move.received.tag, move.header.bytes,
                                       move.header.tag, text_of(own)));
    }
  }
  return went;
}

void TcpTransport::Impl::wait(std::span<Move* const> moves) {
  std::vector<pollfd> waited{{.fd = woken.get(), .events = POLLIN, .revents = 0}};
  for (const Move* move : moves) {
    waited.push_back({.fd = move->connection,
                      .events = static_cast<short>(move->sends ? POLLOUT : POLLIN),
                      .revents = 0});
  }
  const auto until = Clock::now() + options.connect.timeout;
  for (;;) {
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(until - Clock::now()).count();
    const int ready = poll(waited.data(), waited.size(), static_cast<int>(std::max(left, 0L)));
    if (ready < 0 && errno == EINTR) continue;
    if (waited.front().revents != 0) job->check();
    if (ready > 0) return;
    job->fail(moves.front()->peer,
              fmt::format("did not {} for {} s, {} waits for it",
                          moves.front()->sends ? "take what it was sent" : "send",
                          seconds_of(options.connect.timeout), text_of(own)));
  }
}

void TcpTransport::Impl::complete(std::span<Move> moves) {
  job->check();
  std::vector<Move*> unfinished;
  for (Move& move : moves) unfinished.push_back(&move);
  for (;;) {
    bool went = false;
    for (Move* move : unfinished) went |= advance(*move);
    std::erase_if(unfinished, [](const Move* move) { return move->finished(); });
    if (unfinished.empty()) return;
    if (!went) wait(unfinished);
  }
}

void TcpTransport::Impl::go_round(Group& group, Ring::Work work, const at::Tensor& value,
                                  std::vector<std::int64_t> bounds) {
  job->check();
  const std::uint64_t tag = group.tag++;
  // All members cut alike: where they are on several machines, each has one elsewhere.
  std::size_t most = 1;
  for (const DeviceId one : group.members) {
    if (one != own) most = std::max(most, flows_to(one, value.nbytes()));
  }
  const Ring ring(work, value, std::move(bounds), group.own, static_cast<std::int64_t>(most));
  const DeviceId next = group.members[static_cast<std::size_t>(ring.next())];
  const DeviceId previous = group.members[static_cast<std::size_t>(ring.previous())];
  Lane out(flows_to(next, value.nbytes()));
  Lane in(flows_to(previous, value.nbytes()));
  while (in.done < ring.moves() || out.done < ring.moves()) {
    while (out.may_begin(ring.moves()) && ring.may_send(out.begun, in.done)) {
      const std::size_t flow = out.flow_of(out.begun);
      out.moves[flow] =
          moving(true, Channel::kCollectives, ring.sent(out.begun++), next, tag, flow);
    }
    while (in.may_begin(ring.moves())) {
      const std::size_t flow = in.flow_of(in.begun);
      in.places[flow] = ring.received(in.begun);
      const bool sums = ring.sums(in.begun++);
      in.taken[flow] = sums ? at::empty_like(in.places[flow]) : in.places[flow];
      in.moves[flow] = moving(false, Channel::kCollectives, in.taken[flow], previous, tag, flow);
    }
    bool went = false;
    for (Lane* lane : {&in, &out}) {
      for (std::optional<Move>& move : lane->moves) {
        if (move && !move->finished()) went |= advance(*move);
      }
    }
    // In the order of pieces, whichever flow was faster.
    for (; out.done < out.begun && out.moves[out.flow_of(out.done)]->finished(); ++out.done) {
    }
    for (; in.done < in.begun && in.moves[in.flow_of(in.done)]->finished(); ++in.done) {
      const std::size_t flow = in.flow_of(in.done);
      if (ring.sums(in.done)) in.places[flow].add_(in.taken[flow]);
    }
    if (went) continue;
    std::vector<Move*> waited;
    for (Lane* lane : {&in, &out}) {
      for (std::optional<Move>& move : lane->moves) {
        if (move && !move->finished()) waited.push_back(&*move);
      }
    }
    wait(waited);
  }
}

// Everyone gets the same bits. Round a ring, the sum of a segment is made by one member after
// another, and the last one's is handed round; up a tree, the root makes the sum and hands it down;
// what is exchanged is summed by everyone in the order of members.
void TcpTransport::Impl::all_reduce(Group& group, at::Tensor& value) {
  const auto bytes = static_cast<Bytes>(value.nbytes());
  switch (cost::all_reduce_algorithm(group.members.size(), bytes)) {
    case cost::AllReduceAlgorithm::kRing:
      return go_round(group, Ring::Work::kReduce, value, even_bounds(value.numel(), group.size()));
    case cost::AllReduceAlgorithm::kTree:
      return go_over_tree(group, value);
    case cost::AllReduceAlgorithm::kExchange:
      return exchange(group, value);
  }
}

void TcpTransport::Impl::exchange(Group& group, at::Tensor& value) {
  std::vector<at::Tensor> addends = all_gather(group, value);
  at::Tensor& held = addends[static_cast<std::size_t>(group.own)];  // is value
  if (group.own > 1) held = held.clone();
  at::add_out(value, addends[0], addends[1]);
  for (std::size_t i = 2; i < addends.size(); ++i) value.add_(addends[i]);
}

// A member adds what its children send, nearest first, sends the sum to its parent, and hands down
// what comes back.
void TcpTransport::Impl::go_over_tree(Group& group, at::Tensor& value) {
  const std::uint64_t tag = group.tag++;
  const auto own = static_cast<std::size_t>(group.own);
  const std::size_t size = group.members.size();
  const auto pass = [&](bool sends, at::Tensor& what, DeviceId peer) {
    std::vector<Move> moves;
    add_moves(moves, sends, Channel::kCollectives, what, peer, tag);
    complete(moves);
  };
  std::size_t reach = 1;
  at::Tensor taken = at::empty_like(value);
  for (; reach < size && (own == 0 || reach < cost::tree_reach(own)); reach *= 2) {
    if (own + reach >= size) continue;
    pass(false, taken, group.members[own + reach]);
    value.add_(taken);
  }
  if (own != 0) {
    const DeviceId parent = group.members[own - reach];
    pass(true, value, parent);
    pass(false, value, parent);
  }
  for (reach /= 2; reach > 0; reach /= 2) {
    if (own + reach < size) pass(true, value, group.members[own + reach]);
  }
}

std::vector<at::Tensor> TcpTransport::Impl::all_gather(Group& group, const at::Tensor& value) {
  const std::uint64_t tag = group.tag++;
  std::vector<at::Tensor> gathered;
  std::vector<Move> moves;
  for (int index = 0; index < group.size(); ++index) {
    if (index == group.own) {
      gathered.push_back(value);
      continue;
    }
    const DeviceId peer = group.members[static_cast<std::size_t>(index)];
    gathered.push_back(at::empty_like(value));
    add_moves(moves, false, Channel::kCollectives, gathered.back(), peer, tag);
    add_moves(moves, true, Channel::kCollectives, value, peer, tag);
  }
  complete(moves);
  return gathered;
}

TcpTransport::TcpTransport(const Store& store, DeviceId own, TcpOptions options)
    : impl_(std::make_unique<Impl>(store, own, std::move(options))) {}

TcpTransport::~TcpTransport() = default;

void TcpTransport::send(const at::Tensor& value, DeviceId to, std::uint32_t tag) {
  std::vector<Move> moves;
  impl_->add_moves(moves, true, Channel::kMessages, value, to, tag);
  impl_->complete(moves);
}

void TcpTransport::receive(at::Tensor& value, DeviceId from, std::uint32_t tag) {
  std::vector<Move> moves;
  impl_->add_moves(moves, false, Channel::kMessages, value, from, tag);
  impl_->complete(moves);
}

void TcpTransport::all_reduce(at::Tensor& value, std::size_t set) {
  ENSURE(set < impl_->sets.size());
  impl_->all_reduce(impl_->sets[set], value);
}

void TcpTransport::reduce_scatter(at::Tensor& value, const Cuts& cuts, std::size_t set) {
  ENSURE(set < impl_->sets.size());
  impl_->go_round(impl_->sets[set], Ring::Work::kScatter, value, element_bounds(value, cuts));
}

void TcpTransport::all_gather_rows(at::Tensor& value, const Cuts& cuts, std::size_t set) {
  ENSURE(set < impl_->sets.size());
  impl_->go_round(impl_->sets[set], Ring::Work::kGather, value, element_bounds(value, cuts));
}

std::vector<at::Tensor> TcpTransport::all_gather(const at::Tensor& own, std::size_t set) {
  ENSURE(set < impl_->sets.size());
  return impl_->all_gather(impl_->sets[set], own);
}

std::vector<at::Tensor> TcpTransport::gather_all(const at::Tensor& own) {
  return impl_->all_gather(impl_->all, own);
}

void TcpTransport::check() { impl_->job->check(); }
void TcpTransport::abort(const std::string& reason) { impl_->job->abort(reason); }
void TcpTransport::finish() { impl_->job->finish(); }

}  // namespace heterog::comm
