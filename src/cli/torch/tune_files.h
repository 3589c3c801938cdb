// What `heterog tune` writes between its rounds: fitted costs as profiles, and a folder for what
// one round needs.
#pragma once

#include <string>
#include <vector>

#include "cli/options.h"
#include "cluster/cluster.h"
#include "cost/profile.h"
#include "tune/fitted_costs.h"

namespace heterog::cli {

// A folder of its own, gone with it.
class ScratchFolder {
 public:
  ScratchFolder();
  ~ScratchFolder();
  ScratchFolder(const ScratchFolder&) = delete;
  ScratchFolder& operator=(const ScratchFolder&) = delete;

  const std::string& path() const { return path_; }
  std::string file(const std::string& name) const { return path_ + "/" + name; }

 private:
  std::string path_;
};

// The files of fitted costs, and of those that were given and still hold.
class ProfileFiles {
 public:
  explicit ProfileFiles(const ProblemOptions& options);

  const std::vector<cost::ProfileSource>& given() const { return given_; }
  // Each a --profile of whoever wants the costs that were written last; before, those given.
  const std::vector<std::string>& now() const { return now_; }
  // FOLDER/TYPE.profile.json and FOLDER/links.profile.json; the folder is there.
  void write(const std::string& folder, const tune::FittedCosts& fitted);

 private:
  const cluster::Cluster as_written_;  // without what profiles say of its links
  std::vector<cost::ProfileSource> given_;
  std::string given_links_;
  std::vector<std::string> now_;
};

}  // namespace heterog::cli
