// A library that is looked for when it is needed, so that the program runs where it is not
// installed.
#pragma once

#include <string>

namespace heterog {

// Stays loaded for as long as the process lives. `functions` of a library are declared by whoever
// calls them, as its header does.
class SharedLibrary {
 public:
  // `file` as the loader knows it ("libmetis.so.5"). Where it cannot be loaded, throws an input
  // error: "`needed_by`: needs `what` (FILE), which is not installed; INSTALL".
  SharedLibrary(const std::string& file, const std::string& needed_by, const std::string& what,
                const std::string& install);

  // Of a name that the library has to have; throws as above if it has not.
  template <class Function>
  Function* function(const char* name) const {
    return reinterpret_cast<Function*>(address(name));
  }

 private:
  void* address(const char* name) const;
  std::string file_, needed_by_;
  void* handle_;
};

}  // namespace heterog
