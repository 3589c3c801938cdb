# The two kinds of target: a library a folder of src/, a test program a folder of tests/.

# Folders whose sources may include LibTorch. Its headers take 15 s to read, so these folders, and
# the tests of the same name, share one precompiled header.
set(HETEROG_TORCH_FOLDERS tensors gnn policy runtime client)
if(HETEROG_LEARNING)
  add_library(heterog_torch_headers OBJECT ${CMAKE_CURRENT_LIST_DIR}/torch_headers.cc)
  target_link_libraries(heterog_torch_headers PRIVATE heterog_options LibTorch::cpu)
  target_precompile_headers(heterog_torch_headers PRIVATE <torch/torch.h>)
endif()

# heterog_use_torch_headers(TARGET): compile the target with the precompiled header of LibTorch.
function(heterog_use_torch_headers target)
  target_link_libraries(${target} PRIVATE LibTorch::cpu)
  target_precompile_headers(${target} REUSE_FROM heterog_torch_headers)
  # The header is compiled for libraries, and only serves who is compiled alike.
  get_target_property(type ${target} TYPE)
  if(type STREQUAL EXECUTABLE)
    target_compile_options(${target} PRIVATE -fPIC)
  endif()
endfunction()

# heterog_library(NAME SOURCES … DEPENDS …): static library heterog_NAME from src/NAME.
function(heterog_library name)
  cmake_parse_arguments(arg "" "" "SOURCES;DEPENDS" ${ARGN})
  add_library(heterog_${name} STATIC ${arg_SOURCES})
  target_link_libraries(heterog_${name} PUBLIC heterog_options ${arg_DEPENDS})
  if(name IN_LIST HETEROG_TORCH_FOLDERS)
    heterog_use_torch_headers(heterog_${name})
  endif()
endfunction()

# heterog_test(NAME SOURCES … DEPENDS …): program NAME_test from tests/NAME, one CTest entry.
# Tests run from the root of the source, so that they find models/ and configs/.
function(heterog_test name)
  cmake_parse_arguments(arg "" "" "SOURCES;DEPENDS" ${ARGN})
  add_executable(${name}_test ${arg_SOURCES})
  target_include_directories(${name}_test PRIVATE ${CMAKE_SOURCE_DIR}/tests)
  target_link_libraries(${name}_test PRIVATE ${arg_DEPENDS} GTest::gtest_main GTest::gmock)
  if(name IN_LIST HETEROG_TORCH_FOLDERS)
    heterog_use_torch_headers(${name}_test)
  endif()
  add_test(NAME ${name} COMMAND ${name}_test WORKING_DIRECTORY ${CMAKE_SOURCE_DIR})
endfunction()
