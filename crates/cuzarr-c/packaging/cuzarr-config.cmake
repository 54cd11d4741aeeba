# find_package(cuzarr) makes cuzarr::cuzarr, the shared library, and cuzarr::cuzarr_static. cuzarr_FORTRAN names the source of the
# Fortran module, to be compiled with the program; cuzarr_CUBINS the folder for cuzarr_set_cubin_directory.
get_filename_component(_cuzarr_prefix "${CMAKE_CURRENT_LIST_DIR}/../../.." ABSOLUTE)
find_package(Threads REQUIRED)
if(NOT TARGET cuzarr::cuzarr)
    add_library(cuzarr::cuzarr SHARED IMPORTED)
    set_target_properties(cuzarr::cuzarr PROPERTIES
        IMPORTED_LOCATION "${_cuzarr_prefix}/lib/libcuzarr.so.@VERSION@"
        IMPORTED_SONAME "libcuzarr.so.@SONAME_VERSION@"
        INTERFACE_INCLUDE_DIRECTORIES "${_cuzarr_prefix}/include")
    add_library(cuzarr::cuzarr_static STATIC IMPORTED)
    set_target_properties(cuzarr::cuzarr_static PROPERTIES
        IMPORTED_LOCATION "${_cuzarr_prefix}/lib/libcuzarr.a"
        INTERFACE_LINK_LIBRARIES "gcc_s;m;Threads::Threads;${CMAKE_DL_LIBS}"
        INTERFACE_INCLUDE_DIRECTORIES "${_cuzarr_prefix}/include")
endif()
set(cuzarr_FORTRAN "${_cuzarr_prefix}/share/cuzarr/fortran/cuzarr.f90")
set(cuzarr_CUBINS "${_cuzarr_prefix}/share/cuzarr/cubins")
unset(_cuzarr_prefix)
