# cmake --install build/release --prefix DIR: program, licence, manual page, shell completions and
# the pocket model, laid out so that the program finds share/motley beside its bin folder.
include(GNUInstallDirs)
install(TARGETS motley RUNTIME DESTINATION "${CMAKE_INSTALL_BINDIR}")
install(FILES LICENSE NOTICE README.md CHANGELOG.md DESTINATION "${CMAKE_INSTALL_DOCDIR}")
install(FILES docs/man/motley.1 DESTINATION "${CMAKE_INSTALL_MANDIR}/man1")
install(FILES completions/motley.bash RENAME motley
        DESTINATION "${CMAKE_INSTALL_DATADIR}/bash-completion/completions")
install(FILES completions/_motley DESTINATION "${CMAKE_INSTALL_DATADIR}/zsh/site-functions")
install(FILES completions/motley.fish
        DESTINATION "${CMAKE_INSTALL_DATADIR}/fish/vendor_completions.d")
install(DIRECTORY models/pocket DESTINATION "${CMAKE_INSTALL_DATADIR}/motley/models" OPTIONAL)
