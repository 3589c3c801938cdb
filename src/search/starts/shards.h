// Strategies whose optimizer state is in shards.
#pragma once

#include "cost/problem.h"
#include "decide/strategy.h"
#include "oracle/oracle.h"

namespace heterog::search {

// The same with the optimizer state of every replicated parameter dealt by rows (decision 19).
decide::Strategy sharded(decide::Strategy strategy);

// The same with frozen parameters in rows too (decision 23).
decide::Strategy gathered(decide::Strategy strategy);

// A sharded or gathered strategy of even rows, and its measured peaks of memory: the same with rows
// for every device by which all would have equally much memory left, as far as rows alone can bring
// that about.
decide::Strategy with_rows_by_memory(const cost::Problem& problem, decide::Strategy strategy,
                                     const IdVector<DeviceId, Bytes>& peak_bytes);

}  // namespace heterog::search
