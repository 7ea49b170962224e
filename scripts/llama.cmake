# Read by CMake within the project llama.cpp (setup.py names it): leaves out its library for command-line programs,
# which nothing here loads and which is a third of the work of compiling.
set(LLAMA_BUILD_COMMON OFF)
