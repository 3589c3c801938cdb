# The two kinds of target: a library a folder of src/, a test program a folder of tests/.

# heterog_library(NAME SOURCES … DEPENDS …): static library heterog_NAME from src/NAME.
function(heterog_library name)
  cmake_parse_arguments(arg "" "" "SOURCES;DEPENDS" ${ARGN})
  add_library(heterog_${name} STATIC ${arg_SOURCES})
  target_link_libraries(heterog_${name} PUBLIC heterog_options ${arg_DEPENDS})
endfunction()

# heterog_test(NAME SOURCES … DEPENDS …): program NAME_test from tests/NAME, one CTest entry.
# Tests run from the root of the source, so that they find models/ and configs/.
function(heterog_test name)
  cmake_parse_arguments(arg "" "" "SOURCES;DEPENDS" ${ARGN})
  add_executable(${name}_test ${arg_SOURCES})
  target_include_directories(${name}_test PRIVATE ${CMAKE_SOURCE_DIR}/tests)
  target_link_libraries(${name}_test PRIVATE ${arg_DEPENDS} GTest::gtest_main GTest::gmock)
  add_test(NAME ${name} COMMAND ${name}_test WORKING_DIRECTORY ${CMAKE_SOURCE_DIR})
endfunction()
