# cmake --install build/release --prefix DIR: program, licence, manual page, shell completions and
# the pocket model, laid out so that the program finds share/motley beside its bin folder.
include(GNUInstallDirs)
install(TARGETS motley RUNTIME DESTINATION "${CMAKE_INSTALL_BINDIR}")
install(FILES LICENSE NOTICE README.md CHANGELOG.md DESTINATION "${CMAKE_INSTALL_DOCDIR}")
# Manual page and completions are printed by the program that was just built, so that they cannot
# disagree with it.
set(motley_generated "${CMAKE_BINARY_DIR}/generated/share")
file(MAKE_DIRECTORY "${motley_generated}")
add_custom_command(
  OUTPUT "${motley_generated}/motley.1" "${motley_generated}/motley.bash"
         "${motley_generated}/_motley" "${motley_generated}/motley.fish"
  COMMAND motley man > "${motley_generated}/motley.1"
  COMMAND motley completion bash > "${motley_generated}/motley.bash"
  COMMAND motley completion zsh > "${motley_generated}/_motley"
  COMMAND motley completion fish > "${motley_generated}/motley.fish"
  DEPENDS motley VERBATIM COMMENT "Writing manual page and shell completions")
add_custom_target(motley_pages ALL DEPENDS "${motley_generated}/motley.1")
install(FILES "${motley_generated}/motley.1" DESTINATION "${CMAKE_INSTALL_MANDIR}/man1")
install(FILES "${motley_generated}/motley.bash" RENAME motley
        DESTINATION "${CMAKE_INSTALL_DATADIR}/bash-completion/completions")
install(FILES "${motley_generated}/_motley"
        DESTINATION "${CMAKE_INSTALL_DATADIR}/zsh/site-functions")
install(FILES "${motley_generated}/motley.fish"
        DESTINATION "${CMAKE_INSTALL_DATADIR}/fish/vendor_completions.d")
install(DIRECTORY models/pocket DESTINATION "${CMAKE_INSTALL_DATADIR}/motley/models" OPTIONAL)
