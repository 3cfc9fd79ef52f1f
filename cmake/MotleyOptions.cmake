# Compiler settings shared by every target, and the interface target that carries them.
set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)

find_program(MOTLEY_CCACHE ccache)
if(MOTLEY_CCACHE AND NOT CMAKE_CXX_COMPILER_LAUNCHER)
  set(CMAKE_CXX_COMPILER_LAUNCHER "${MOTLEY_CCACHE}")
endif()

add_library(motley_options INTERFACE)
target_include_directories(motley_options INTERFACE "${CMAKE_SOURCE_DIR}/src")
# Designated initialisers leave members at their defaults on purpose.
# nvcc takes none of these flags; the CUDA folder sets its own.
target_compile_options(motley_options INTERFACE
  "$<$<COMPILE_LANGUAGE:CXX>:-Wall;-Wextra;-Wconversion;-Wshadow;-Wno-missing-field-initializers>")
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  # False alarms of g++ 12 inside std::string and std::map once they are inlined.
  target_compile_options(motley_options INTERFACE
    "$<$<COMPILE_LANGUAGE:CXX>:-Wno-restrict;-Wno-maybe-uninitialized;-Wno-uninitialized>")
endif()
if(MOTLEY_WERROR)
  target_compile_options(motley_options INTERFACE $<$<COMPILE_LANGUAGE:CXX>:-Werror>)
endif()
# One arithmetic everywhere: no contraction the source does not ask for (R5).
target_compile_options(motley_options INTERFACE $<$<COMPILE_LANGUAGE:CXX>:-ffp-contract=off>)
if(MOTLEY_SANITIZE)
  target_compile_options(motley_options INTERFACE -fsanitize=${MOTLEY_SANITIZE}
                         -fno-omit-frame-pointer -fno-sanitize-recover=all)
  target_link_options(motley_options INTERFACE -fsanitize=${MOTLEY_SANITIZE})
endif()
if(MOTLEY_FUZZ)
  target_compile_options(motley_options INTERFACE -fsanitize=fuzzer-no-link)
  target_link_options(motley_options INTERFACE -fsanitize=fuzzer-no-link)
endif()
if(MOTLEY_COVERAGE)
  target_compile_options(motley_options INTERFACE --coverage)
  target_link_options(motley_options INTERFACE --coverage)
endif()
find_package(Threads REQUIRED)
target_link_libraries(motley_options INTERFACE Threads::Threads)
