# Writes build/PRESET/generated/base/version_data.h, the facts behind `motley --version`.
# Called after every module has named its components.
function(motley_write_version_data)
  find_package(Git QUIET)
  set(MOTLEY_GIT_DESCRIBE "unknown")
  if(GIT_FOUND)
    execute_process(COMMAND "${GIT_EXECUTABLE}" describe --always --dirty --tags
                    WORKING_DIRECTORY "${CMAKE_SOURCE_DIR}" OUTPUT_VARIABLE described
                    RESULT_VARIABLE status OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
    if(status EQUAL 0)
      set(MOTLEY_GIT_DESCRIBE "${described}")
    endif()
  endif()
  get_property(components GLOBAL PROPERTY MOTLEY_COMPONENTS)
  set(MOTLEY_COMPONENT_LINES "")
  foreach(component IN LISTS components)
    string(APPEND MOTLEY_COMPONENT_LINES "    \"${component}\",\n")
  endforeach()
  set(MOTLEY_COMPILER "${CMAKE_CXX_COMPILER_ID} ${CMAKE_CXX_COMPILER_VERSION}")
  configure_file("${CMAKE_SOURCE_DIR}/src/base/version_data.h.in"
                 "${CMAKE_BINARY_DIR}/generated/base/version_data.h" @ONLY)
endfunction()
