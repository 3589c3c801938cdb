// Profile files (docs/formats.md).
#pragma once

#include <string>

#include "cost/profile.h"

namespace heterog::cost {

// Throws an input error naming file and field. Costs are positive and finite in what it returns;
// an unfinished profile is returned as such.
Profile read_profile(const std::string& path);
Profile parse_profile(const std::string& text, const std::string& source);

std::string profile_text(const Profile& profile);
void write_profile(const std::string& path, const Profile& profile);

}  // namespace heterog::cost
