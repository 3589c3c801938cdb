// Places of ranks that are threads of a test.
#pragma once

#include <cstddef>
#include <vector>

#include "comm/network.h"
#include "launch/rank_place.h"

namespace heterog::launch {

// Places of a job on a free port, of which rank 0 has the socket.
inline std::vector<RankPlace> places(int ranks) {
  const comm::ListeningSocket socket = comm::listen_on("127.0.0.1", 0);
  std::vector<RankPlace> places(static_cast<std::size_t>(ranks));
  for (int rank = 0; rank < ranks; ++rank) {
    places[rank].rank = rank;
    places[rank].world_size = ranks;
    places[rank].master_port = socket.port;
    places[rank].starter = "test";
  }
  places[0].listen_socket = socket.descriptor;
  return places;
}

}  // namespace heterog::launch
