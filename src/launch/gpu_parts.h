// Streams of parts of a GPU, whose kernels have some of its multiprocessors to themselves.
#pragma once

#include <c10/core/Device.h>
#include <c10/core/Stream.h>

#include <functional>
#include <vector>

namespace heterog::launch {

// A stream of a part; `urgent`: goes before those of the part that are not. They come from a pool,
// as PyTorch's, and stay for as long as the process. From any thread.
using PartStreams = std::function<c10::Stream(bool urgent)>;

// The streams of each part of a GPU, by how many multiprocessors it has; no two share one. Each
// part is a green context. The same parts of the same GPU are made once a process. Throws an input
// error where the GPU cannot be cut so, and a kVerification one where its driver knows no green
// contexts (before CUDA 12.5).
std::vector<PartStreams> streams_of_parts(c10::Device gpu, const std::vector<int>& multiprocessors);

// Groups of `group` multiprocessors, the least that the GPU gives apart, that each part takes.
// Throws an input error that names a part that is no multiple, or the sum if there are too few.
std::vector<int> groups_of_parts(c10::Device gpu, const std::vector<int>& multiprocessors,
                                 int group, int groups);

}  // namespace heterog::launch
