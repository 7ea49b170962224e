# Read by CMake within the project llama.cpp (setup.py names it).

# Its library for command-line programs: nothing here loads it, and it is a third of the work of compiling.
set(LLAMA_BUILD_COMMON OFF)

# AMX: built by GCC 12, weights that are rearranged, which is llama.cpp's default, end the process at the first token
# (llama.cpp issue 20824).
include(CheckCXXCompilerFlag)
check_cxx_compiler_flag(-mno-amx-tile CAN_LEAVE_OUT_AMX)
if (CAN_LEAVE_OUT_AMX)
    add_compile_options(-mno-amx-tile -mno-amx-int8 -mno-amx-bf16)
endif()
