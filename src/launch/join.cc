// Meets the other ranks, connects.
#include "launch/join.h"

#include "launch/rank_device.h"
#include "launch/rendezvous.h"

namespace heterog::launch {

Joined join(const JobTerms& terms, const comm::Traffic& traffic, const RankPlace& place,
            const JoinOptions& options) {
  const RankDevice own = rank_device(terms, place);
  Meeting meeting = meet(place, terms, own.facts, options.timeout);
  Joined joined{.rank = DeviceId(static_cast<std::size_t>(place.rank)),
                .ranks_here = meeting.ranks_here,
                .device = own.device};
  const comm::ConnectOptions connect{.device_names = device_names(terms),
                                     .address = meeting.address,
                                     .timeout = options.silence.value_or(options.timeout)};
  joined.transport = std::make_unique<comm::RankTransport>(
      meeting.store, traffic,
      comm::RankTransport::Options{.own = joined.rank,
                                   .device = own.device,
                                   .connect = connect,
                                   .gpus = std::move(meeting.gpus),
                                   .transport = options.transport});
  return joined;
}

}  // namespace heterog::launch
