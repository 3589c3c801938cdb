// Profiles are written whole, one after the other.
#include "cli/torch/tune_files.h"

#include <stdlib.h>

#include <algorithm>
#include <filesystem>

#include "base/check.h"
#include "cluster/cluster_io.h"
#include "cost/link_profile_io.h"
#include "cost/profile_io.h"

namespace heterog::cli {

ScratchFolder::ScratchFolder() {
  std::string name = (std::filesystem::temp_directory_path() / "heterog-tune-XXXXXX").string();
  if (mkdtemp(name.data()) == nullptr) {
    throw Error(ErrorKind::kVerification,
                fmt::format("{}: cannot be made; set TMPDIR to a folder where it can", name));
  }
  path_ = name;
}

ScratchFolder::~ScratchFolder() {
  std::error_code ignored;
  std::filesystem::remove_all(path_, ignored);
}

ProfileFiles::ProfileFiles(const ProblemOptions& options)
    : as_written_(cluster::load_cluster(options.cluster)), now_(options.profiles) {
  for (const std::string& path : options.profiles) {
    if (cost::is_link_profile(path)) {
      given_links_ = path;
    } else {
      given_.push_back({cost::read_profile(path), path});
    }
  }
}

void ProfileFiles::write(const std::string& folder, const tune::FittedCosts& fitted) {
  now_.clear();
  for (const cost::Profile& profile : fitted.profiles) {
    now_.push_back(fmt::format("{}/{}.profile.json", folder, profile.device));
    cost::write_profile(now_.back(), profile);
  }
  for (const cost::ProfileSource& one : given_) {
    const bool fresh = std::ranges::any_of(fitted.profiles, [&](const cost::Profile& profile) {
      return profile.device == one.profile.device;
    });
    if (!fresh) now_.push_back(one.source);
  }
  if (fitted.flows == 0) {
    if (!given_links_.empty()) now_.push_back(given_links_);
    return;
  }
  // Beside the cluster file, whose figures a profile that was given may have changed before.
  cost::FittedLinks links = fitted.links;
  for (const LinkId link : id_range<LinkId>(as_written_.link_count())) {
    links.bandwidth[link] = fitted.problem->cluster->link(link).bytes_per_second /
                            as_written_.link(link).bytes_per_second;
  }
  now_.push_back(folder + "/links.profile.json");
  cost::write_link_profile(now_.back(), as_written_, links, fitted.flows);
}

}  // namespace heterog::cli
