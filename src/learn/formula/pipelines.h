// Pipelines that a dynamic program over stages finds best by estimate: what the policy may say
// whole, beside layouts of groups.
#pragma once

#include <array>
#include <cstddef>
#include <memory>
#include <optional>

#include "cost/problem.h"
#include "decide/strategy.h"
#include "learn/formula/plan_choice.h"
#include "search/pipeline/cuts.h"

namespace heterog::learn {

// A pipeline of its own chain of layers, finer than the policy's groups.
struct FormulaPipeline {
  std::shared_ptr<const search::CutPool> pool;
  search::Cut cut;
  search::Staging how;  // but for its pattern
};

// Of each layout that is a pipeline, from the first on; with nothing that runs again, and with all
// forward passes run again. None where by estimate nothing fits.
inline constexpr std::size_t kFirstPipeline =
    static_cast<std::size_t>(LayoutMode::kPipeline) * kPipelineParts.size();
using FormulaPipelines =
    std::array<std::array<std::optional<FormulaPipeline>, 2>, kLayouts - kFirstPipeline>;

FormulaPipelines formula_pipelines(const cost::Problem& problem);
// With its units spelled out.
decide::Strategy pipeline_strategy(const cost::Problem& problem, const FormulaPipeline& pipeline,
                                   decide::Pattern pattern);
// Log of the bytes that the fullest device holds over what it may, by estimate; with all
// micro-batches kept to the end, or as few as one forward and one backward pass in turns keep.
double fullness(const FormulaPipeline& pipeline, bool all_kept);

}  // namespace heterog::learn
