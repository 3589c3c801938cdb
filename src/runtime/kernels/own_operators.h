// Operators that PyTorch lacks, told to its dispatcher.
#pragma once

namespace heterog::runtime {

// Once in a process, and not where it knows them already.
void register_own_operators();

}  // namespace heterog::runtime
