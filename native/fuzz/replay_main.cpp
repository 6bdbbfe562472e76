// Runs a fuzz target over files, without libFuzzer: `make test` replays a corpus with it, and a
// single input can be examined in a debugger. Each file is run unchanged, then as a few mutants of
// it, the same ones every time.
//
//     segment_replay [-mutants=N] FILE-OR-DIRECTORY...
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <random>
#include <string>
#include <vector>

#include "mutate.hpp"

namespace fs = std::filesystem;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size);
extern "C" std::size_t LLVMFuzzerCustomMutator(std::uint8_t* data, std::size_t size,
                                               std::size_t max_size, unsigned int seed);

namespace {
std::minstd_rand random_source;
constexpr std::size_t kMostBytes = 4096;
}  // namespace

// Changes, inserts or removes a byte; no coverage guides it.
extern "C" std::size_t LLVMFuzzerMutate(std::uint8_t* data, std::size_t size,
                                        std::size_t max_size) {
    const std::size_t at = size == 0 ? 0 : random_source() % size;
    const auto byte = static_cast<std::uint8_t>(random_source());
    switch (random_source() % 3) {
        case 0:
            if (size != 0) data[at] = byte;
            return size;
        case 1:
            if (size == max_size) return size;
            std::copy_backward(data + at, data + size, data + size + 1);
            data[at] = byte;
            return size + 1;
        default:
            if (size == 0) return 0;
            std::copy(data + at + 1, data + size, data + at);
            return size - 1;
    }
}

int main(int argc, char** argv) {
    unsigned long mutants = 0;
    std::vector<fs::path> files;
    for (int i = 1; i < argc; ++i) {
        const std::string argument = argv[i];
        if (argument.starts_with("-mutants=")) {
            mutants = std::strtoul(argument.c_str() + 9, nullptr, 10);
        } else if (fs::is_directory(argument)) {
            for (const auto& entry : fs::directory_iterator(argument))
                files.push_back(entry.path());
        } else {
            files.emplace_back(argument);
        }
    }
    std::sort(files.begin(), files.end());
    unsigned long runs = 0;
    for (const fs::path& path : files) {
        std::ifstream file(path, std::ios::binary);
        if (!file) {
            std::fprintf(stderr, "cannot read %s\n", path.c_str());
            return 1;
        }
        const std::vector<char> read{std::istreambuf_iterator<char>(file), {}};
        const std::vector<std::uint8_t> input(read.begin(), read.end());
        std::fprintf(stderr, "%s\n", path.c_str());  // the last line names the input of a crash
        LLVMFuzzerTestOneInput(input.data(), input.size());
        ++runs;
        for (unsigned seed = 1; seed <= mutants; ++seed, ++runs) {
            random_source.seed(seed);
            std::vector<std::uint8_t> mutant(std::max(kMostBytes, input.size()));
            std::copy(input.begin(), input.end(), mutant.begin());
            mutant.resize(
                LLVMFuzzerCustomMutator(mutant.data(), input.size(), mutant.size(), seed));
            mutant.shrink_to_fit();  // so that a read past its end is detected
            LLVMFuzzerTestOneInput(mutant.data(), mutant.size());
        }
    }
    std::printf("%lu inputs of %zu files\n", runs, files.size());
    return runs == 0 ? 1 : 0;
}
