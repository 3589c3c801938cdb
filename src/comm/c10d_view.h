// The store of a job, as c10d's classes want one.
#pragma once

#include <c10/util/intrusive_ptr.h>

#include "comm/store.h"

namespace c10d {
class Store;
}

namespace heterog::comm {

// Waits for keys by looking again and again. What our store throws comes through.
c10::intrusive_ptr<c10d::Store> c10d_view(const Store& store);

}  // namespace heterog::comm
