# The two kinds of target: a library a folder of src/, a test program a folder of tests/.

# LibTorch's headers take 13 s (ATen's) or more (all of torch/torch.h) to read, so the targets whose
# sources include them share a precompiled header: ATEN, what runs operators, or TORCH, what learns.
# A file compiles three times as fast by the smaller one. To load it, and to instantiate at the end of
# every source what the headers leave over, still takes 6 to 9 s each; so these sources are compiled
# four at a time, and those that include nothing of it do without (heterog_without_headers).
if(HETEROG_LEARNING)
  foreach(headers "aten <ATen/ATen.h> <ATen/core/dispatch/Dispatcher.h>" "torch <torch/torch.h>")
    separate_arguments(headers)
    list(POP_FRONT headers kind)
    add_library(heterog_${kind}_headers OBJECT ${CMAKE_CURRENT_LIST_DIR}/precompiled_headers.cc)
    target_link_libraries(heterog_${kind}_headers PRIVATE heterog_options LibTorch::cpu)
    target_precompile_headers(heterog_${kind}_headers PRIVATE ${headers})
  endforeach()
endif()

# Other libraries share one of what most of them include. Not where we develop: a source must name
# what it includes.
if(HETEROG_COMMON_HEADERS)
  add_library(heterog_common_headers OBJECT ${CMAKE_CURRENT_LIST_DIR}/precompiled_headers.cc)
  target_link_libraries(heterog_common_headers PRIVATE heterog_options fmt::fmt
    nlohmann_json::nlohmann_json)
  target_precompile_headers(heterog_common_headers PRIVATE <fmt/format.h> <algorithm> <functional>
    <map> <memory> <optional> <set> <span> <string> <unordered_map> <vector> <nlohmann/json.hpp>)
endif()

# heterog_use_headers(TARGET aten|torch): compile the target with that precompiled header.
function(heterog_use_headers target kind)
  target_link_libraries(${target} PRIVATE LibTorch::cpu)
  target_precompile_headers(${target} REUSE_FROM heterog_${kind}_headers)
  # The header is compiled for libraries, and only serves who is compiled alike.
  get_target_property(type ${target} TYPE)
  if(type STREQUAL EXECUTABLE)
    target_compile_options(${target} PRIVATE -fPIC)
  endif()
  heterog_unity(${target} 4)
endfunction()

# heterog_without_headers(SOURCE …): of a target with such a header, sources that need none of it.
function(heterog_without_headers)
  set_source_files_properties(${ARGN} PROPERTIES
    SKIP_PRECOMPILE_HEADERS ON SKIP_UNITY_BUILD_INCLUSION ON)
endfunction()

# Other sources are compiled eight at a time, which takes a third of the time: most of it goes into
# reading headers. So names in anonymous namespaces differ within a folder. -DHETEROG_UNITY=OFF
# compiles each alone: that a source includes what it names shows there.
#
# In release builds what every simulated plan runs through is compiled alone too: in a large unit the
# compiler gives up inlining, which costs a tenth of the plans a second (docs/performance.md).
set(heterog_alone_in_release heterog_compiler heterog_decide heterog_oracle heterog_sim)
function(heterog_unity target size)
  if(CMAKE_BUILD_TYPE STREQUAL "Release" AND target IN_LIST heterog_alone_in_release)
    return()
  endif()
  if(HETEROG_UNITY)
    set_target_properties(${target} PROPERTIES UNITY_BUILD ON UNITY_BUILD_BATCH_SIZE ${size})
  endif()
endfunction()

# heterog_library(NAME [ATEN|TORCH] SOURCES … DEPENDS …): static library heterog_NAME.
function(heterog_library name)
  cmake_parse_arguments(arg "ATEN;TORCH" "" "SOURCES;DEPENDS" ${ARGN})
  add_library(heterog_${name} STATIC ${arg_SOURCES})
  target_link_libraries(heterog_${name} PUBLIC heterog_options ${arg_DEPENDS})
  if(arg_TORCH)
    heterog_use_headers(heterog_${name} torch)
    return()
  endif()
  if(arg_ATEN)
    heterog_use_headers(heterog_${name} aten)
    return()
  endif()
  heterog_unity(heterog_${name} 8)
  if(HETEROG_COMMON_HEADERS)
    target_precompile_headers(heterog_${name} REUSE_FROM heterog_common_headers)
  endif()
endfunction()

# heterog_objects(NAME [ATEN] SOURCES … DEPENDS …): heterog_NAME, whose objects are linked whole into what
# depends on it, however far below. For what a library below calls and does not have: a program without
# LibTorch links another such target in its place.
function(heterog_objects name)
  cmake_parse_arguments(arg "ATEN" "" "SOURCES;DEPENDS" ${ARGN})
  add_library(heterog_${name}_objects OBJECT ${arg_SOURCES})
  target_link_libraries(heterog_${name}_objects PUBLIC heterog_options ${arg_DEPENDS})
  if(arg_ATEN)
    heterog_use_headers(heterog_${name}_objects aten)
  endif()
  add_library(heterog_${name} INTERFACE)
  target_link_libraries(heterog_${name} INTERFACE $<TARGET_OBJECTS:heterog_${name}_objects> ${arg_DEPENDS})
endfunction()

# heterog_test(NAME [ATEN|TORCH] SOURCES … DEPENDS …): program NAME_test, one CTest entry.
# Tests run from the root of the source, so that they find models/ and configs/.
function(heterog_test name)
  cmake_parse_arguments(arg "ATEN;TORCH" "" "SOURCES;DEPENDS" ${ARGN})
  add_executable(${name}_test ${arg_SOURCES})
  target_include_directories(${name}_test PRIVATE ${CMAKE_SOURCE_DIR}/tests)
  target_link_libraries(${name}_test PRIVATE ${arg_DEPENDS} GTest::gtest_main GTest::gmock)
  if(arg_TORCH)
    heterog_use_headers(${name}_test torch)
  elseif(arg_ATEN)
    heterog_use_headers(${name}_test aten)
  else()
    heterog_unity(${name}_test 8)
  endif()
  add_test(NAME ${name} COMMAND ${name}_test WORKING_DIRECTORY ${CMAKE_SOURCE_DIR})
endfunction()
