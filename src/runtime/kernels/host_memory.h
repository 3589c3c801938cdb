// The host's memory: how much there is, and how this process keeps what tensors have given up.
#pragma once

#include <string>

#include "base/units.h"

namespace heterog::runtime {

// Throws an Error (kVerification) if the host has less memory than `bytes`, which `what` is to
// take: an allocation would succeed, and the system kill whoever fills it.
void check_host_has(Bytes bytes, const std::string& what);

// From now on, memory that is freed stays with the process, for the next step: glibc would give
// large blocks back and get them anew, page by page, each filled with zeros by the kernel: time
// that operators on large tensors take and that differs from process to process. Does nothing where
// the environment says how glibc allocates (MALLOC_…_, GLIBC_TUNABLES), nor in a process whose
// settings are not ours (process_settings.h). May be called again.
void keep_freed_memory();

}  // namespace heterog::runtime
