// Linear programs, solved by CLP where it is installed.
#pragma once

#include <string>
#include <vector>

namespace heterog::search {

// Least cost · x with lower ≤ x ≤ upper and row_lower ≤ A x ≤ row_upper; infinities are infinite.
// A by columns: entries begins[j] … begins[j + 1] − 1 are those of column j.
struct LinearProgram {
  std::vector<double> cost, lower, upper;  // of each column
  std::vector<double> row_lower, row_upper;
  std::vector<int> begins = {0};
  std::vector<int> rows;
  std::vector<double> values;

  int add_column(double cost_of, double least, double most);  // its entries follow
  void add_entry(int row, double value);                      // to the last column
};

struct LinearSolution {
  double objective = 0;
  std::vector<double> columns;
  std::vector<double> prices;  // of the rows: the dual solution
};

// By the dual simplex. Throws an input error where CLP is not installed, and an error where the
// program has no optimum or takes more than `most_pivots`. The same program, the same solution.
LinearSolution solve(const LinearProgram& program, int most_pivots,
                     const std::string& library = "libClp.so.1");

}  // namespace heterog::search
