# Targets LibTorch::cpu and LibTorch::cuda from the PyTorch wheel in .venv. The wheel's own CMake
# files are not used: they demand a CUDA toolkit even where only the CPU part is linked.
set(HETEROG_PYTHON "${CMAKE_SOURCE_DIR}/.venv/bin/python" CACHE FILEPATH "Python that has PyTorch")
execute_process(
  COMMAND ${HETEROG_PYTHON} -c
    "import importlib.util as u; print(u.find_spec('torch').submodule_search_locations[0])"
  OUTPUT_VARIABLE torch_root OUTPUT_STRIP_TRAILING_WHITESPACE RESULT_VARIABLE torch_missing)
if(torch_missing)
  message(FATAL_ERROR "PyTorch not found with ${HETEROG_PYTHON}: run scripts/setup.sh")
endif()

# Which PyTorch this build is for, for whoever loads its library (python/heterog/base/version.py).
execute_process(
  COMMAND ${HETEROG_PYTHON} -c "import importlib.metadata as m; print('.'.join(m.version('torch').split('.')[:2]))"
  OUTPUT_VARIABLE torch_version OUTPUT_STRIP_TRAILING_WHITESPACE)
if(HETEROG_CUDA)
  string(APPEND torch_version "-cuda")
endif()
file(WRITE ${CMAKE_BINARY_DIR}/torch-version "${torch_version}\n")

# The wheel's include folder also holds another version of fmt, which would hide the system's, that
# spdlog is built with: only LibTorch's own folders are offered.
set(torch_include ${CMAKE_BINARY_DIR}/libtorch)
file(MAKE_DIRECTORY ${torch_include})
foreach(folder ATen c10 caffe2 torch)
  file(CREATE_LINK ${torch_root}/include/${folder} ${torch_include}/${folder} SYMBOLIC)
endforeach()

# LibTorch's header of its Gloo backend names types of Gloo, whose headers a wheel does not have.
add_library(LibTorch::gloo INTERFACE IMPORTED)
if(NOT EXISTS ${torch_root}/include/gloo)
  set(gloo_include ${CMAKE_BINARY_DIR}/gloo_names)
  foreach(header algorithm common/error context rendezvous/store transport/device)
    get_filename_component(folder ${gloo_include}/gloo/${header} DIRECTORY)
    file(MAKE_DIRECTORY ${folder})
    file(CREATE_LINK ${CMAKE_CURRENT_LIST_DIR}/gloo_names.h ${gloo_include}/gloo/${header}.h SYMBOLIC)
  endforeach()
else()
  set(gloo_include ${CMAKE_BINARY_DIR}/gloo)
  file(MAKE_DIRECTORY ${gloo_include})
  file(CREATE_LINK ${torch_root}/include/gloo ${gloo_include}/gloo SYMBOLIC)
endif()
target_include_directories(LibTorch::gloo SYSTEM INTERFACE ${gloo_include})

function(torch_library name)
  add_library(LibTorch::${name} SHARED IMPORTED)
  set_target_properties(LibTorch::${name} PROPERTIES IMPORTED_LOCATION ${torch_root}/lib/lib${name}.so)
endfunction()
torch_library(c10)
torch_library(torch_cpu)

add_library(LibTorch::cpu INTERFACE IMPORTED)
target_include_directories(LibTorch::cpu SYSTEM INTERFACE
  ${torch_include} ${torch_include}/torch/csrc/api/include)
target_link_libraries(LibTorch::cpu INTERFACE LibTorch::torch_cpu LibTorch::c10)
# libtorch_cpu.so finds the CUDA runtime that it wants by its own rpath; the linker need not.
target_link_options(LibTorch::cpu INTERFACE -Wl,--allow-shlib-undefined)

if(HETEROG_CUDA)
  torch_library(torch_cuda)
  torch_library(c10_cuda)
  add_library(LibTorch::cuda INTERFACE IMPORTED)
  # torch_cuda registers its kernels when loaded: keep it though no symbol names it.
  target_link_libraries(LibTorch::cuda INTERFACE LibTorch::cpu
    -Wl,--no-as-needed LibTorch::torch_cuda LibTorch::c10_cuda -Wl,--as-needed)

  # NCCL and the CUDA runtime are packages beside the wheel's, which LibTorch loads: their headers
  # and libraries serve those sources of ours that call them.
  get_filename_component(nvidia_root ${torch_root}/../nvidia ABSOLUTE)
  function(nvidia_library name file)
    if(NOT EXISTS ${file})
      message(FATAL_ERROR "${file} not found: the preset cuda needs the PyTorch wheel for CUDA 13")
    endif()
    add_library(LibTorch::${name} SHARED IMPORTED)
    set_target_properties(LibTorch::${name} PROPERTIES IMPORTED_LOCATION ${file})
  endfunction()
  nvidia_library(nccl ${nvidia_root}/nccl/lib/libnccl.so.2)
  nvidia_library(cudart ${nvidia_root}/cu13/lib/libcudart.so.13)
  target_include_directories(LibTorch::cudart SYSTEM INTERFACE ${nvidia_root}/cu13/include)
  target_include_directories(LibTorch::nccl SYSTEM INTERFACE ${nvidia_root}/nccl/include)
  target_link_libraries(LibTorch::nccl INTERFACE LibTorch::cudart)
endif()
