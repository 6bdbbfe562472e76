// libFuzzer's own mutation, called by the custom mutators. In a build without libFuzzer,
// replay_main.cpp has a plain one of the same name.
#pragma once

#include <cstddef>
#include <cstdint>

extern "C" std::size_t LLVMFuzzerMutate(std::uint8_t* data, std::size_t size, std::size_t max_size);
