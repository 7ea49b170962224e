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

# One wheel for all CPUs (`make wheels`): a library for each kind of CPU, beside the others, of which ggml loads the best.
if (GGML_CPU_ALL_VARIANTS)
    function(finish_variants)
        foreach (variant IN LISTS GGML_AVAILABLE_BACKENDS)
            set_target_properties(${variant} PROPERTIES INSTALL_RPATH "$ORIGIN" BUILD_WITH_INSTALL_RPATH TRUE)
            # A wheel holds no links, so a version would make three copies of each.
            set_property(TARGET ${variant} PROPERTY VERSION)
            set_property(TARGET ${variant} PROPERTY SOVERSION)
            if (CAN_LEAVE_OUT_AMX) # again: a variant's own flags come after those of its directory
                target_compile_options(${variant} PRIVATE -mno-amx-tile -mno-amx-int8 -mno-amx-bf16)
            endif()
        endforeach()
    endfunction()
    cmake_language(DEFER CALL finish_variants)
endif()
