// CLP's C interface, loaded when it is asked for.
#include "search/placement/clp.h"

#include <fmt/format.h>

#include <memory>

#include "base/check.h"
#include "base/shared_library.h"

namespace heterog::search {

int LinearProgram::add_column(double cost_of, double least, double most) {
  cost.push_back(cost_of);
  lower.push_back(least);
  upper.push_back(most);
  begins.push_back(begins.back());
  return static_cast<int>(cost.size()) - 1;
}

void LinearProgram::add_entry(int row, double value) {
  rows.push_back(row);
  values.push_back(value);
  ++begins.back();
}

LinearSolution solve(const LinearProgram& program, int most_pivots, const std::string& library) {
  const SharedLibrary clp(library, "m-sct", "the solver CLP", "on Debian: coinor-libclp1");
  using Model = void;
  const std::unique_ptr<Model, void (*)(Model*)> model(
      clp.function<Model*()>("Clp_newModel")(), clp.function<void(Model*)>("Clp_deleteModel"));
  clp.function<void(Model*, int)>("Clp_setLogLevel")(model.get(), 0);
  clp.function<void(Model*, int)>("Clp_setMaximumIterations")(model.get(), most_pivots);
  const auto columns = static_cast<int>(program.cost.size());
  const auto rows = static_cast<int>(program.row_lower.size());
  clp.function<void(Model*, int, int, const int*, const int*, const double*, const double*,
                    const double*, const double*, const double*, const double*)>("Clp_loadProblem")(
      model.get(), columns, rows, program.begins.data(), program.rows.data(), program.values.data(),
      program.lower.data(), program.upper.data(), program.cost.data(), program.row_lower.data(),
      program.row_upper.data());
  clp.function<int(Model*, int)>("Clp_dual")(model.get(), 0);
  const int status = clp.function<int(Model*)>("Clp_status")(model.get());
  if (status != 0) {
    throw Error(ErrorKind::kVerification,
                fmt::format("m-sct: CLP ends with status {} on a linear program of {} rows and {} "
                            "columns (3: more than {} pivots)",
                            status, rows, columns, most_pivots));
  }
  LinearSolution solution;
  solution.objective = clp.function<double(Model*)>("Clp_objectiveValue")(model.get());
  const double* values = clp.function<const double*(Model*)>("Clp_getColSolution")(model.get());
  solution.columns.assign(values, values + columns);
  const double* prices = clp.function<const double*(Model*)>("Clp_getRowPrice")(model.get());
  solution.prices.assign(prices, prices + rows);
  return solution;
}

}  // namespace heterog::search
