# Libraries that every build needs, and the list of components that `motley --version` prints.
# A module's own libraries are found in its CMakeLists.txt.

# motley_component(NAME VERSION): one more line for `motley --version`.
function(motley_component name version)
  set_property(GLOBAL APPEND PROPERTY MOTLEY_COMPONENTS "${name} ${version}")
endfunction()

if(MOTLEY_KERNELS_ONLY)
  # A cross build has the headers of these libraries but not their objects, so it uses them
  # header-only and builds GoogleTest from Debian's source package.
  add_library(fmt::fmt INTERFACE IMPORTED GLOBAL)
  target_compile_definitions(fmt::fmt INTERFACE FMT_HEADER_ONLY=1)
  add_library(spdlog::spdlog INTERFACE IMPORTED GLOBAL)
  target_compile_definitions(spdlog::spdlog INTERFACE SPDLOG_HEADER_ONLY SPDLOG_FMT_EXTERNAL)
  target_link_libraries(spdlog::spdlog INTERFACE fmt::fmt)
  if(MOTLEY_TESTS)
    set(INSTALL_GTEST OFF)
    add_subdirectory(/usr/src/googletest "${CMAKE_BINARY_DIR}/googletest" EXCLUDE_FROM_ALL)
    target_compile_options(gtest PRIVATE -w)  # g++ 12 warns about its own std::string here
  endif()
else()
  find_package(PkgConfig REQUIRED)
  find_package(fmt REQUIRED)
  find_package(spdlog REQUIRED)
  motley_component(fmt "${fmt_VERSION}")
  motley_component(spdlog "${spdlog_VERSION}")
  if(MOTLEY_TESTS)
    find_package(GTest REQUIRED)
    find_package(rapidcheck REQUIRED)
  endif()
endif()
set(MOTLEY_TEST_LIBRARIES GTest::gmock GTest::gtest_main)
if(TARGET rapidcheck)
  list(APPEND MOTLEY_TEST_LIBRARIES rapidcheck rapidcheck_gtest)
endif()
include(GoogleTest)
if(NOT MOTLEY_CUDA)
  motley_component(CUDA "not built")
endif()
