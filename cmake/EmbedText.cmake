# Run as a script: writes a C++ source that holds text files as they are.
#   cmake -DOUT=F -DHEADER=H -DNAMESPACE=N -DFILES=kName=path;… -P EmbedText.cmake
set(source "// Written by cmake/EmbedText.cmake.\n#include \"${HEADER}\"\n\nnamespace ${NAMESPACE} {\n\n")
string(REPLACE "," ";" files "${FILES}")
foreach(entry IN LISTS files)
  string(REGEX MATCH "^([^=]*)=(.*)$" matched "${entry}")
  set(name "${CMAKE_MATCH_1}")
  file(READ "${CMAKE_MATCH_2}" text)
  string(APPEND source "const std::string_view ${name} = R\"embedded(${text})embedded\";\n\n")
endforeach()
string(APPEND source "}  // namespace ${NAMESPACE}\n")
file(WRITE "${OUT}" "${source}")
